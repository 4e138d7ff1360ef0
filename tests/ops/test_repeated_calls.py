"""A call like one before goes straight to torch's kernel, and gives what the checked call gave."""

import gc
import math
import sys
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import headwise as hw
from headwise.errors import ArgumentError, BackendError, ShapeError
from headwise.masks import derived_tensors
from headwise.ops import call_keys, guarded_calls, repeated_calls
from headwise.ops.second_derivative import SecondDerivative
from tests.cases import MASKS, SHAPES, Shape, tensors

EVEN = Shape(D=8, Dv=8)


@pytest.fixture(autouse=True)
def no_call_before() -> None:
    repeated_calls.without_mask.results.clear()
    repeated_calls.without_mask.guarded = ()
    # masks without tensors are equal to those of earlier tests, and share what was kept with them
    derived_tensors._table_of_numbers.cache_clear()
    hw.causal().__dict__.pop("_table", None)


@pytest.fixture
def quick_switches() -> Iterator[None]:
    """Threads take turns so often that they meet inside of one backward pass."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def known(q: Tensor, k: Tensor, v: Tensor, mask: Any = None, backend: str = "auto", **given: Any) -> bool:
    """Whether a call would go straight to the kernel."""
    rules = {
        "attn_bias": None,
        "scale": None,
        "softcap": None,
        "sink": None,
        "dropout": 0.0,
        "generator": None,
        **given,
    }
    key = call_keys.key_of(q, k, v, {"mask": mask, **rules}, backend)
    kept = repeated_calls.table_of(mask)
    return key is not None and kept is not None and isinstance(kept.results.get(key), repeated_calls.RepeatedCall)


def gradients(q: Tensor, k: Tensor, v: Tensor, **given: Any) -> tuple[Tensor, ...]:
    leaves = [t.detach().requires_grad_() for t in (q, k, v)]
    out = hw.attention(*leaves, **given)
    return out.detach(), *torch.autograd.grad(out.square().sum(), leaves)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mask", MASKS)
def test_a_second_call_equals_the_first_bit_by_bit(mask: str, shape: str) -> None:
    at = SHAPES[shape]._replace(D=8, Dv=8)
    q, k, v = tensors(at)
    given = {"mask": MASKS[mask](at)}
    first, second, third = (gradients(q, k, v, **given) for _ in range(3))
    assert all(torch.equal(a, b) for a, b in zip((*first, *first), (*second, *third), strict=True))


OTHERS: dict[str, Callable[[Tensor, Tensor, Tensor], dict[str, Any]]] = {
    "sizes": lambda q, k, v: {"q": q[:, :, :3]},
    "strides": lambda q, k, v: {"v": v.transpose(1, 2).contiguous().transpose(1, 2)},
    "dtype": lambda q, k, v: {"q": q.double(), "k": k.double(), "v": v.double()},
    "gradient": lambda q, k, v: {"k": k.clone().requires_grad_()},
    "parameter": lambda q, k, v: {"q": torch.nn.Parameter(q, requires_grad=False)},
    "scale": lambda q, k, v: {"scale": 2.0},
    "scale as an integer": lambda q, k, v: {"scale": 1},
    "backend": lambda q, k, v: {"backend": "sdpa"},
}
AROUND: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "autocast": lambda: torch.autocast("cpu"),
    "inference": torch.inference_mode,
    "no gradients": torch.no_grad,
    "forward-mode derivatives": forward_ad.dual_level,
    "a dispatch mode": TorchDispatchMode,
    "another kernel": lambda: sdpa_kernel(SDPBackend.MATH),
}


class TestRecognized:
    """A call is recognized by its guards only where it has the key of the call before."""

    @pytest.mark.parametrize("mask", ["none", "causal", "padding"])
    def test_the_same_call_is_and_another_is_not(self, mask: str) -> None:
        q, k, v = tensors(EVEN)
        of = None if mask == "none" else MASKS[mask](EVEN)
        hw.attention(q, k, v, mask=of, scale=1.0)
        first = {"q": q, "k": k, "v": v, "mask": of, "scale": 1.0, "backend": "auto"}
        known = guarded_calls.recognized(**first)
        assert known is not None
        assert known is guarded_calls.recognized(**first)
        assert guarded_calls.recognized(*(t.clone() for t in (q, k, v)), of, 1.0, "auto") is known
        for name, other in OTHERS.items():
            assert guarded_calls.recognized(**{**first, **other(q, k, v)}) is None, name
        for name, around in AROUND.items():
            with around():
                assert guarded_calls.recognized(**first) is None, name
        torch.set_num_threads(2)
        assert guarded_calls.recognized(**first) is None
        torch.set_num_threads(1)
        if of is not None:
            assert guarded_calls.recognized(**{**first, "mask": of & hw.window(before=2)}) is None

    @pytest.mark.parametrize("comes_first", [torch.no_grad, torch.enable_grad])
    def test_grad_mode_is_part_of_a_call_and_stays_as_it_is(self, comes_first: Any) -> None:
        q, k, v = (torch.nn.Parameter(t) for t in tensors(EVEN))
        keep = (torch.arange(EVEN.Lk) < EVEN.Lk - 2).expand(EVEN.B, -1).contiguous()
        mask = hw.keys(keep)
        with comes_first():
            hw.attention(q, k, v, mask=mask)
        for around in (torch.no_grad, torch.enable_grad, torch.no_grad, torch.enable_grad):
            with around():
                before = torch.is_grad_enabled()
                out = hw.attention(q, k, v, mask=mask)
                assert torch.is_grad_enabled() is before
                assert out.requires_grad is before
            assert torch.is_grad_enabled()

    @pytest.mark.parametrize("given", [{"scale": torch.tensor([1.0, 2.0])}, {"backend": torch.ones(2)}])
    def test_what_cannot_be_compared_is_refused_as_before(self, given: dict[str, Any]) -> None:
        q, k, v = tensors(EVEN)
        hw.attention(q, k, v, scale=0.5)
        with pytest.raises((ArgumentError, BackendError)):
            hw.attention(q, k, v, **{"scale": 0.5, **given})

    def test_a_transform_is_no_call_of_before(self) -> None:
        q, k, v = tensors(EVEN)
        hw.attention(q, k, v)
        seen: list[Any] = []

        def call(*given: Tensor) -> Tensor:
            seen.append(guarded_calls.recognized(*given, None, None, "auto"))
            return given[0]

        torch.func.vmap(call, in_dims=(None, None, 0))(q, k, torch.stack([v, v]))
        torch.func.grad(lambda q: call(q, k, v).sum())(q)
        assert seen == [None, None]

    def test_a_mask_that_was_changed_in_place_is_not(self) -> None:
        q, k, v = tensors(EVEN)
        keep = torch.arange(EVEN.Lk).expand(EVEN.B, -1) < EVEN.Lk - 2
        mask = hw.keys(keep := keep.contiguous())
        hw.attention(q, k, v, mask=mask)
        assert guarded_calls.recognized(q, k, v, mask, None, "auto") is not None
        keep.data[:, 0] = False
        assert guarded_calls.recognized(q, k, v, mask, None, "auto") is None
        changed = hw.attention(q, k, v, mask=mask)
        assert torch.equal(changed, hw.attention(q, k, v, mask=hw.keys(keep.clone())))

    def test_the_newest_are_and_what_is_forgotten_is_not(self) -> None:
        q, k, v = tensors(EVEN)
        mask, causal = MASKS["padding"](EVEN), hw.causal()
        sizes = range(1, guarded_calls.MOST_GUARDED + 2)
        for B in sizes:
            some = [t[:1].repeat(B, 1, 1, 1) for t in (q, k, v)]
            hw.attention(*some, mask=causal)
        found = [
            guarded_calls.recognized(*(t[:1].repeat(B, 1, 1, 1) for t in (q, k, v)), causal, None, "auto")
            for B in sizes
        ]
        assert [each is None for each in found] == [True, *(False for _ in sizes[1:])]
        hw.attention(q, k, v, mask=mask)
        kept = derived_tensors.plain_table(mask)
        assert kept is not None
        assert kept.guarded
        (known,) = kept.guarded
        kept.add("another", None, 0)
        kept.forget("another")
        assert kept.guarded == (known,)
        kept.forget(known.key)
        assert not kept.guarded

    @pytest.mark.parametrize("mask", ["none", "causal"])
    def test_one_that_is_found_twice_in_turn_is_and_of_many_in_turn_none_takes_the_place_of_another(
        self, mask: str
    ) -> None:
        q, k, v = tensors(EVEN)
        of = None if mask == "none" else MASKS[mask](EVEN)
        calls = [tuple(t[:1].repeat(B, 1, 1, 1) for t in (q, k, v)) for B in range(1, guarded_calls.MOST_GUARDED + 3)]
        guarded = []
        for _ in range(3):
            for call in calls:
                hw.attention(*call, mask=of)
            guarded.append(repeated_calls.table_of(of).guarded)
        assert guarded == guarded[:1] * 3
        found = [guarded_calls.recognized(*call, of, None, "auto") for call in calls]
        assert [each is None for each in found] == [True, True, *(False for _ in calls[2:])]
        hw.attention(*calls[0], mask=of)
        first = hw.attention(*calls[0], mask=of)
        assert guarded_calls.recognized(*calls[0], of, None, "auto") is not None
        assert torch.equal(hw.attention(*calls[0], mask=of), first)

    def test_one_whose_grad_mode_has_changed_is_guarded_again(self) -> None:
        q, k, v = tensors(EVEN)
        hw.attention(q, k, v)
        with torch.no_grad():
            hw.attention(q, k, v)
            hw.attention(q, k, v)
            assert guarded_calls.recognized(q, k, v, None, None, "auto") is not None
        assert guarded_calls.recognized(q, k, v, None, None, "auto") is not None
        assert len(repeated_calls.without_mask.guarded) == 2

    def test_what_takes_too_much_room_is_not_guarded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        q, k, v = tensors(EVEN)
        mask = MASKS["padding"](EVEN)
        monkeypatch.setattr(derived_tensors, "MOST_BYTES", 8)
        hw.attention(q, k, v, mask=mask)
        assert not derived_tensors.plain_table(mask).guarded

    def test_one_that_is_guarded_and_called_in_another_way_is_guarded_once(self) -> None:
        q, k, v = tensors(EVEN)
        for _ in range(4):
            # a whole number of dropout is not compared with
            hw.attention(q, k, v, dropout=0)
        assert len(repeated_calls.without_mask.guarded) == 1


def test_what_is_known_depends_on_the_mask_and_its_sizes() -> None:
    q, k, v = tensors(EVEN)
    mask = MASKS["padding"](EVEN)
    hw.attention(q, k, v, mask=mask)
    assert known(q, k, v, mask)
    assert not known(q, k, v)
    assert not known(q[:, :, :3], k, v, mask)
    assert not known(q.double(), k.double(), v.double(), mask)
    assert not known(q, k, v, MASKS["padding"](EVEN) & hw.causal())
    assert not known(q, k, v, MASKS["a rule"](EVEN))


WRONG = {
    "scale": ({"scale": 1.0}, {"scale": True}, "scale must be a plain number, but bool"),
    "dropout": ({}, {"dropout": False}, "dropout must be a plain number, but bool"),
    "generator": ({}, {"generator": torch.Generator()}, "generator= feeds dropout"),
    "backend": ({}, {"backend": "flash"}, 'got "flash"'),
    "softcap": ({}, {"softcap": 2.0, "backend": "sdpa"}, "torch's kernels have no softcap"),
    "sink": ({}, {"sink": torch.zeros(5)}, r"sink must be \(Hq=6,\)"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_call_is_refused_after_a_right_one_of_its_shapes(case: str) -> None:
    right, wrong, sentence = WRONG[case]
    q, k, v = tensors(EVEN)
    hw.attention(q, k, v, **right)
    assert known(q, k, v, **right)
    with pytest.raises((ArgumentError, BackendError, ShapeError), match=sentence):
        hw.attention(q, k, v, **wrong)


def test_other_dtypes_are_refused_after_a_right_call_of_their_shapes() -> None:
    q, k, v = tensors(EVEN)
    hw.attention(q, k, v)
    with pytest.raises(ArgumentError, match="float64"):
        hw.attention(q, k.double(), v)
    with pytest.raises(ArgumentError, match="int64"):
        hw.attention(q.long(), k.long(), v.long())
    with pytest.raises(ShapeError, match="Hk=4 must divide Hq=6"):
        hw.attention(q, *(t[:, :1].expand(-1, 4, -1, -1) for t in (k, v)))


POISONS = {"NaN": math.nan, "inf": math.inf, "-inf": -math.inf}


@pytest.mark.parametrize("length", [7, 16, 35])
@pytest.mark.parametrize("poison", POISONS)
def test_padding_may_hold_nan_or_inf_after_a_clean_call(poison: str, length: int) -> None:
    at = EVEN._replace(Lk=length)
    q, k, v = tensors(at)
    mask = hw.keys(torch.arange(length)[None] < torch.tensor([[length - 2], [length // 2]]))
    want = gradients(q, k, v, mask=mask)
    hidden = ~mask.keep[:, None, :, None]
    for named in ("k", "v", "both"):
        bad_k = k.masked_fill(hidden, POISONS[poison]) if named != "v" else k
        bad_v = v.masked_fill(hidden, POISONS[poison]) if named != "k" else v
        got = gradients(q, bad_k, bad_v, mask=mask)
        assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True)), named


def test_a_masked_key_of_inf_that_shows_in_no_output_reaches_no_gradient() -> None:
    q, k, v = tensors(EVEN)
    q[..., 0] = -q[..., 0].abs()
    mask = hw.keys(torch.arange(7)[None] < torch.tensor([[5], [3]]))
    want = gradients(q, k, v, mask=mask)
    hidden = ~mask.keep[:, None, :, None] & (torch.arange(8) == 0)
    got = gradients(q, k.masked_fill(hidden, math.inf), v, mask=mask)
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


@pytest.mark.parametrize("length", [7, 16, 35])
def test_nan_in_a_key_that_may_be_attended_to_shows_after_a_clean_call(length: int) -> None:
    q, k, v = tensors(EVEN._replace(Lk=length))
    hw.attention(q, k, v)
    assert known(q, k, v)
    k[0] = math.nan
    out = hw.attention(q, k, v)
    assert bool(out[0].isnan().all())
    assert not bool(out[1].isnan().any())


def test_a_query_of_nan_that_may_attend_to_nothing_gets_zeros_after_a_clean_call() -> None:
    q, k, v = tensors(EVEN)
    mask = hw.lengths([0, 4])
    hw.attention(q, k, v, mask=mask)
    assert known(q, k, v, mask)
    q[0] = math.nan
    assert torch.equal(hw.attention(q, k, v, mask=mask)[0], torch.zeros_like(q[0]))


def test_a_kernel_that_is_switched_off_is_not_taken() -> None:
    q, k, v = tensors(EVEN)
    hw.attention(q, k, v)
    with sdpa_kernel([SDPBackend.MATH]):
        assert hw.backends(q, k, v).chosen == "reference"
        assert not known(q, k, v)


def test_nothing_is_held_once_the_outputs_are_gone() -> None:
    given = [t.requires_grad_() for t in tensors(EVEN)]
    hw.attention(*given)
    gc.disable()
    try:
        q, k, v = (2 * t for t in given)
        out = hw.attention(q, k, v)
        assert known(q, k, v)
        held = [weakref.ref(t) for t in (q, k, v)]
        del q, k, v, out
        assert all(ref() is None for ref in held)
    finally:
        gc.enable()


def test_a_second_derivative_of_a_known_call_is_the_definitions() -> None:
    given = [t.requires_grad_() for t in tensors(EVEN, torch.float64)]
    mask = hw.causal() & hw.window(before=2)
    for _ in range(2):
        assert torch.autograd.gradgradcheck(
            lambda *t: hw.attention(*t, mask=mask, backend="sdpa"), given, fast_mode=True
        )
    assert known(*given, mask, backend="sdpa")


def test_a_mask_that_changes_after_a_known_call_does_not_change_its_second_derivative() -> None:
    given = [t.requires_grad_() for t in tensors(EVEN, torch.float64)]
    mask = hw.keys((torch.arange(EVEN.Lk) < 5)[None])
    found = {}
    for backend in ("sdpa", "sdpa", "reference"):
        (gradient,) = torch.autograd.grad(
            hw.attention(*given, mask=mask, backend=backend).square().sum(), given[:1], create_graph=True
        )
        found[backend] = torch.autograd.grad(gradient.square().sum(), given)
    out = hw.attention(*given, mask=mask, backend="sdpa")
    assert known(*given, mask, backend="sdpa")
    mask.keep.logical_not_()
    (gradient,) = torch.autograd.grad(out.square().sum(), given[:1], create_graph=True)
    found["changed"] = torch.autograd.grad(gradient.square().sum(), given)
    for changed, sdpa, reference in zip(*(found[name] for name in ("changed", "sdpa", "reference")), strict=True):
        assert torch.equal(changed, sdpa)
        torch.testing.assert_close(sdpa, reference)


def test_a_graph_is_differentiated_twice_as_often_as_it_is_asked_for() -> None:
    given, mask = [t.requires_grad_() for t in tensors(EVEN, torch.float64)], hw.causal() & hw.window(before=2)
    for _ in range(2):
        out = hw.attention(*given, mask=mask, backend="sdpa").square().sum()
    assert known(*given, mask, backend="sdpa")
    plain = torch.autograd.grad(out, given, retain_graph=True)
    seconds = []
    for _ in range(3):
        gradients = torch.autograd.grad(out, given, create_graph=True)
        loss = sum(g.square().sum() for g in gradients)
        seconds.append(torch.autograd.grad(loss, given, retain_graph=True))
        # and in between once without
        assert all(map(torch.equal, torch.autograd.grad(out, given, retain_graph=True), plain))
        for gradient, expected in zip(gradients, plain, strict=True):
            torch.testing.assert_close(gradient, expected)
    for second in seconds[1:]:
        assert all(map(torch.equal, second, seconds[0]))


def test_threads_differentiate_one_graph_twice_each_by_itself(quick_switches: None) -> None:
    given, mask = [t.requires_grad_() for t in tensors(EVEN, torch.float64)], hw.causal() & hw.window(before=2)
    for _ in range(2):
        out = hw.attention(*given, mask=mask, backend="sdpa").square().sum()

    def twice() -> tuple[Tensor, ...]:
        gradients = torch.autograd.grad(out, given, create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in gradients), given, retain_graph=True)

    expected, plain = twice(), torch.autograd.grad(out, given, retain_graph=True)
    with ThreadPoolExecutor(4) as pool:
        seconds = [pool.submit(twice) for _ in range(40)]
        firsts = [pool.submit(torch.autograd.grad, out, given, retain_graph=True) for _ in range(40)]
    for future in seconds:
        torch.testing.assert_close(future.result(), expected)
    assert all(torch.equal(*pair) for future in firsts for pair in zip(future.result(), plain, strict=True))


def test_a_second_derivative_that_is_let_go_keeps_nothing_of_its_call() -> None:
    mask = hw.keys((torch.arange(EVEN.Lk) < 5)[None])
    ref = weakref.ref(mask)
    gc.disable()
    try:
        second = SecondDerivative({"mask": mask})
        del second, mask
        assert ref() is None
    finally:
        gc.enable()


def test_it_is_attached_to_the_kernels_own_node() -> None:
    given = [t.requires_grad_() for t in tensors(EVEN)]
    for _ in range(2):
        out = hw.attention(*given)
        assert hasattr(out.grad_fn, "_saved_query")
    assert not SecondDerivative({"mask": None}).attach(out * 2)


@pytest.mark.parametrize("case", ["left padding", "a feature of zeros", "NaN in padding"])
def test_a_checkpoint_has_the_gradients_of_the_call_known_or_not(case: str) -> None:
    q, k, v = tensors(Shape(Lq=20, Lk=20, D=8, Dv=8))
    keep = torch.arange(20) >= torch.tensor([[5], [0]])
    mask: Any = hw.causal() & hw.keys(keep)
    if case == "a feature of zeros":
        v[..., 0], mask = 0.0, None
    if case == "NaN in padding":
        mask = hw.keys(keep)
        k[0, :, :5] = math.nan
    leaves = [t.requires_grad_() for t in (q, k, v)]

    def twice(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return hw.attention(hw.attention(q, k, v, mask=mask).sin(), k, v, mask=mask).square().sum()

    for _ in range(2):
        # in the first turn the call becomes known between the forward pass and its repetition
        found = torch.autograd.grad(checkpoint(twice, *leaves, use_reentrant=False), leaves)
        wanted = torch.autograd.grad(twice(*leaves), leaves)
        for a, b in zip(found, wanted, strict=True):
            torch.testing.assert_close(a, b, equal_nan=True)
            assert bool(b.isfinite().any())


def test_dropout_as_a_tensor_is_refused_of_a_known_call_too() -> None:
    q, k, v = tensors(EVEN)
    for _ in range(2):
        with pytest.raises(ArgumentError, match="dropout must be a plain number, but Tensor came"):
            hw.attention(q, k, v, dropout=torch.tensor(0.0))  # type: ignore[arg-type]  # what is refused
        hw.attention(q, k, v)


@pytest.mark.parametrize("query", [math.inf, -math.inf, math.nan])
def test_a_query_that_may_attend_to_nothing_gets_zeros_whatever_it_holds(query: float) -> None:
    q, k, v = tensors(EVEN)
    allowed = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool)
    allowed[0] = False
    q[:, :, 0] = query
    for _ in range(2):
        assert torch.equal(hw.attention(q, k, v, mask=hw.allowed(allowed))[:, :, 0], torch.zeros_like(q[:, :, 0]))
