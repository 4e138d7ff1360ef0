"""What strips promise beyond the laws: drops that repeat, lse, derivatives, bounded memory, and where auto is them."""

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

import headwise as hw
from headwise.masks.coordinates import Sizes
from headwise.masks.derived_tensors import table
from headwise.ops import blockwise, reference, workspace
from headwise.ops import strips as strips_file
from headwise.ops.call import checked
from headwise.ops.dropout import Drops
from headwise.ops.strips import Bounds, strips
from headwise.testing import assert_within_budget, exact_attention, plain_attention
from tests.cases import DIFFERENT, MASKS, RULES, Shape, rules, tensors

LONG = Shape(B=1, Hq=4, Hk=2, Lq=300, Lk=430, D=24, Dv=20)


def double(mask: str, rule: str, shape: Shape = DIFFERENT) -> tuple[list[Tensor], dict[str, Any]]:
    """q, k and v in float64, ready for gradients, and the rules of a call."""
    given = {name: t.double() if name in ("attn_bias", "sink") else t for name, t in rules(mask, rule, shape).items()}
    return [t.requires_grad_() for t in tensors(shape, torch.float64)], given


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("mask", ["no mask", "recent keys", "padding and causal", "documents"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_long_calls_of_many_strips_are_within_budget(dtype: torch.dtype, mask: str, rule: str) -> None:
    q, k, v = tensors(LONG, dtype)
    given = rules(mask, rule, LONG)
    plain_rules = {name: value for name, value in given.items() if name != "mask"}
    dense = given["mask"].allowed(LONG.Lq, LONG.Lk, batch=1, heads=4) if given["mask"] is not None else None
    assert_within_budget(
        hw.attention(q, k, v, backend="blockwise", **given),
        exact_attention(q, k, v, **given),
        plain_attention(q, k, v, allowed=dense, **plain_rules),
    )


def test_a_bias_far_larger_than_the_scores_keeps_the_precision_of_float32() -> None:
    q, k, v = tensors(LONG, torch.bfloat16)
    bias = 100.0 + torch.randn(LONG.Lq, LONG.Lk, generator=torch.Generator().manual_seed(2))
    assert_within_budget(
        hw.attention(q, k, v, attn_bias=bias, backend="blockwise"),
        exact_attention(q, k, v, attn_bias=bias),
        plain_attention(q, k, v, attn_bias=bias),
    )


@pytest.mark.usefixtures("tiny_tiles")
class TestInTinyTiles:
    def test_a_query_of_nan_that_sees_nothing_leaves_no_nan_in_any_gradient(self) -> None:
        q, k, v = tensors(DIFFERENT, torch.float64)
        q[:, :, 1] = float("nan")
        allowed = torch.ones(5, 7, dtype=torch.bool)
        allowed[1] = False
        given = [t.requires_grad_() for t in (q, k, v)]
        out = hw.attention(*given, mask=allowed, backend="blockwise")
        for gradient in torch.autograd.grad(out.sum(), given):
            assert gradient.isfinite().all()

    @pytest.mark.parametrize("rule", ["no rule", "sink", "all of them"])
    @pytest.mark.parametrize("mask", MASKS)
    def test_lse_is_that_of_the_reference(self, mask: str, rule: str) -> None:
        (q, k, v), given = double(mask, rule)
        _, made = blockwise.forward(checked(q, k, v, **given), None, with_lse=True)
        assert made is not None
        _, lse = made
        torch.testing.assert_close(lse, reference.attention_lse(q, k, **given), rtol=1e-12, atol=1e-12)

    @pytest.mark.parametrize("rule", ["no rule", "all of them"])
    @pytest.mark.parametrize("mask", ["no mask", "window", "padding", "dense, a head each", "an empty row"])
    def test_with_drops_outputs_and_gradients_are_those_of_the_definition(self, mask: str, rule: str) -> None:
        tensor, given = double(mask, rule)
        call, drops = checked(*tensor, **given), Drops(0.3, 7)
        got, wanted = blockwise.outputs(call, drops), blockwise.definition(call, drops)
        torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-12)
        steer = torch.randn(got.shape, dtype=got.dtype, generator=torch.Generator().manual_seed(1))
        mine, theirs = (torch.autograd.grad((out * steer).sum(), tensor) for out in (got, wanted))
        torch.testing.assert_close(mine, theirs, rtol=1e-11, atol=1e-11)

    @pytest.mark.parametrize(("width", "passes"), [(1, 3), (48, 1)], ids=["larger", "no larger"])
    def test_drops_are_saved_for_the_backward_pass_where_they_are_no_larger_than_the_tensors(
        self, width: int, passes: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        shape = Shape(B=2, Hq=4, Hk=2, Lq=65, Lk=70, D=width, Dv=width)
        q, k, v = (t.requires_grad_() for t in tensors(shape, torch.float64))
        call, drops, plain = checked(q, k, v, mask=hw.causal()), Drops(0.3, 7), Drops.kept
        draws: Counter[int] = Counter()

        def counted(self: Drops, number: int, *given: Any) -> torch.Tensor:
            draws[number] += 1
            return plain(self, number, *given)

        monkeypatch.setattr(Drops, "kept", counted)
        got = blockwise.outputs(call, drops)
        steer = torch.randn(got.shape, dtype=got.dtype, generator=torch.Generator().manual_seed(1))
        first, second = (
            torch.autograd.grad((got * steer).sum(), (q, k, v), retain_graph=again) for again in (True, False)
        )
        # every strip: by the forward pass, and by each of two backward passes over its graph where nothing is saved
        assert draws == Counter(dict.fromkeys(range(len(blockwise.strips_of(call))), passes))
        wanted = torch.autograd.grad((blockwise.definition(call, drops) * steer).sum(), (q, k, v))
        torch.testing.assert_close(first, second, rtol=0, atol=0)
        torch.testing.assert_close(first, wanted, rtol=1e-11, atol=1e-11)

    @pytest.mark.parametrize("reentrant", [True, False])
    def test_saved_drops_are_those_of_a_checkpoint(self, reentrant: bool) -> None:
        shape = Shape(B=2, Hq=4, Hk=2, Lq=17, Lk=19, D=8, Dv=8)
        q, k, v = (t.requires_grad_() for t in tensors(shape, torch.float64))

        def attend(*given: torch.Tensor) -> torch.Tensor:
            return blockwise.outputs(checked(*given, mask=hw.causal()), Drops(0.3, 7))

        steer = torch.randn(2, 4, 17, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        inside: Any = checkpoint(attend, q, k, v, use_reentrant=reentrant)
        (inside * steer).sum().backward()
        mine = [t.grad for t in (q, k, v)]
        torch.testing.assert_close(mine, list(torch.autograd.grad((attend(q, k, v) * steer).sum(), (q, k, v))))

    def test_a_second_derivative_sees_the_same_drops(self) -> None:
        q, k, v = (t.requires_grad_() for t in tensors(Shape(B=1, Hq=2, Hk=1, Lq=3, Lk=5, D=2, Dv=4), torch.float64))
        drops = Drops(0.4, 11)
        assert torch.autograd.gradgradcheck(
            lambda *t: blockwise.outputs(checked(*t, mask=hw.causal()), drops), (q, k, v)
        )

    def test_additive_scores_follow_every_mask_and_their_gradients_the_definition(self) -> None:
        for mask in MASKS:
            tensor, given = double(mask, "no rule")
            weight = torch.randn(
                6, 11, dtype=torch.float64, generator=torch.Generator().manual_seed(4)
            ).requires_grad_()
            call = checked(*tensor, weight=weight, **given)
            got, wanted = blockwise.outputs(call, None), reference.run(call)
            torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-12)
            mine, theirs = (torch.autograd.grad(out.sin().sum(), [*tensor, weight]) for out in (got, wanted))
            torch.testing.assert_close(mine, theirs, rtol=1e-11, atol=1e-11)


def test_additive_scores_in_float32_are_as_exact_as_the_plain_form() -> None:
    shape = Shape(B=1, Hq=3, Hk=1, Lq=90, Lk=140, D=7, Dv=5)
    q, k, v = tensors(shape)
    weight = torch.randn(3, 7, generator=torch.Generator().manual_seed(3))
    tensor = [t.clone().requires_grad_() for t in (q, k, v, weight)]
    exact = [t.detach().double().requires_grad_() for t in tensor]
    plain = [t.detach().clone().requires_grad_() for t in tensor]

    def taken(how: Any, at: list[Tensor]) -> list[Tensor]:
        out = how(checked(*at[:3], weight=at[3], mask=hw.window(keys=50)))
        return [out, *torch.autograd.grad(out.sin().sum(), at)]

    results = zip(taken(blockwise.run, tensor), taken(reference.run, exact), taken(reference.run, plain), strict=True)
    for got, wanted, yardstick in results:
        assert_within_budget(got, wanted, yardstick)


@pytest.mark.parametrize("chance", [0.5, 0.1, 0.001, 0.9995])
def test_drops_have_the_share_they_say_and_no_pattern(chance: float) -> None:
    q = torch.zeros(2, 3, 512, 4)
    kept = blockwise.kept(checked(q, q, q), Drops(chance, 5))
    assert set(kept.unique().tolist()) == {0.0, 1.0}
    n, deviation = kept.numel(), math.sqrt(chance * (1 - chance))
    # five standard deviations, of the share and of how neighbours agree: rows, columns, heads and samples
    assert abs(float(kept.mean()) - (1 - chance)) < 5 * deviation / math.sqrt(n)
    centred = (kept - (1 - chance)) / deviation
    for axis in range(4):
        products = centred.narrow(axis, 1, kept.shape[axis] - 1) * centred.narrow(axis, 0, kept.shape[axis] - 1)
        spread = 5 / math.sqrt(products.numel())
        assert abs(float(products.mean())) < spread, axis


def test_strips_do_not_drop_alike() -> None:
    q = torch.zeros(1, 2, 2048, 4)
    parts = blockwise.kept(checked(q, q, q), Drops(0.5, 5)).chunk(4, dim=2)
    assert len(strips(None, Sizes(1, 2, 2048, 2048), 1, Bounds(blockwise.BYTES // 4))) == len(parts)
    for n, part in enumerate(parts):
        for other in parts[:n]:
            assert abs(float(((2 * part - 1) * (2 * other - 1)).mean())) < 5 / math.sqrt(part.numel())


def test_drops_differ_from_call_to_call_and_repeat_with_a_seed() -> None:
    q, k, v = tensors(LONG)

    def drawn() -> Tensor:
        return hw.attention(q, k, v, dropout=0.2, backend="blockwise")

    torch.manual_seed(3)
    first, second = drawn(), drawn()
    torch.manual_seed(3)
    assert torch.equal(drawn(), first)
    assert not torch.equal(first, second)


def test_scores_beyond_the_reach_of_float16_are_right() -> None:
    q, k, v = tensors(LONG, torch.float16)
    q, k = 300 * q, 300 * k
    wanted = exact_attention(q, k, v)
    assert_within_budget(hw.attention(q, k, v, backend="blockwise"), wanted, hw.attention(q, k, v, backend="reference"))


class Largest(TorchDispatchMode):
    """The most elements that any tensor made in a block has room for."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        made = [t for t in tree_leaves(out) if isinstance(t, Tensor)]
        self.elements = max([self.elements, *(t.untyped_storage().nbytes() // t.itemsize for t in made)])
        return out


def test_no_tensor_grows_with_the_square_of_the_length() -> None:
    masks = (
        hw.window(keys=64),
        hw.documents(torch.arange(8192)[None] // 256),
        hw.rule(lambda b, h, i, j: i // 128 == j // 128),
    )
    for mask in masks:
        q = torch.randn(1, 1, 8192, 8, requires_grad=True)
        with Largest() as most:
            hw.attention(q, q, q, mask=mask, dropout=0.1).sum().backward()
        assert 4 * most.elements <= blockwise.BYTES < 4 * 8192**2


@pytest.mark.parametrize("given", [0.0, math.nan], ids=["by torch's kernel", "without it"])
def test_no_tensor_of_a_causal_call_grows_with_the_square_of_the_length(given: float) -> None:
    q = torch.randn(1, 1, 8192, 8)
    q[0, 0, 77, 3] += given
    with Largest() as most:
        hw.attention(q.requires_grad_(), q, q, mask=hw.causal(), backend="blockwise").sum().backward()
    assert 4 * most.elements <= blockwise.BYTES < 4 * 8192**2


class Sized(NamedTuple):
    """The lengths of a call of 8 query heads, and its key/value heads."""

    Lq: int
    Lk: int
    Hk: int = 8


@pytest.mark.parametrize("shift", [0.0, 2.0, 4.0])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_gradients_of_halves_with_a_common_shift_are_as_near_as_plain_ones(dtype: torch.dtype, shift: float) -> None:
    mask = hw.window(before=100, after=90) & hw.lengths([120])
    q, k, v = (torch.randn(1, 1, 130, 32) + at for at in (0.0, shift, shift))
    found = {}
    allowed = mask.allowed(130, 130)
    ways = {
        "exact": (torch.float64, lambda *given: hw.attention(*given, mask=mask, backend="reference")),
        "plain": (dtype, lambda *given: plain_attention(*given, allowed=allowed)),
        "blockwise": (dtype, lambda *given: hw.attention(*given, mask=mask, backend="blockwise")),
    }
    for name, (to, attend) in ways.items():
        leaves = [t.to(dtype).to(to).requires_grad_() for t in (q, k, v)]
        attend(*leaves).sum().backward()
        found[name] = [t.grad for t in leaves]
    for exact, plain, got in zip(*found.values(), strict=True):
        assert_within_budget(got, exact, plain)


def test_a_checkpoint_of_strips_gives_the_gradients_of_none() -> None:
    q = torch.randn(1, 2, 300, 8, requires_grad=True)

    def attend(t: Tensor) -> Tensor:
        return hw.attention(t, t, t, softcap=9.0, mask=hw.window(keys=60), backend="blockwise")

    (wanted,) = torch.autograd.grad(attend(q).square().sum(), q)
    for is_reentrant in (True, False):
        out = checkpoint(attend, q, use_reentrant=is_reentrant)
        q.grad = None
        out.square().sum().backward()
        assert q.grad is not None
        assert torch.equal(q.grad, wanted)


def test_a_sum_that_overflows_is_no_inf() -> None:
    k = torch.rand(4, 8, 700, 64).half()
    call = checked(k, k, k)
    assert not bool(k.sum().isfinite())
    assert workspace.Workspace.of(call, blockwise.strips_of(call)).is_fused


CAUSAL = Shape(B=2, Hq=6, Hk=2, Lq=150, Lk=301, D=24, Dv=24)


@pytest.fixture(params=[1.0, 0.0], ids=["whole squares", "squares in halves"])
def short_squares(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[None]:
    """Two calls of torch's kernel for a causal map, however short it is."""
    monkeypatch.setattr(strips_file, "FEWEST_SQUARE", 1)
    monkeypatch.setattr(strips_file, "LEAST_SPARED", request.param)
    strips_file._of_causal.cache_clear()
    yield
    strips_file._of_causal.cache_clear()


@pytest.mark.usefixtures("short_squares")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    "case", {"more keys": (150, None), "as many keys": (301, None), "negative scale": (150, -0.3)}.items(), ids=str
)
def test_a_causal_call_is_within_budget_with_all_gradients(case: tuple[str, Any], dtype: torch.dtype) -> None:
    Lq, scale = case[1]
    q, k, v = (t.requires_grad_() for t in tensors(CAUSAL._replace(Lq=Lq), dtype))
    wide = [t.detach().double().requires_grad_() for t in (q, k, v)]
    plain = [t.detach().requires_grad_() for t in (q, k, v)]
    out = hw.attention(q, k, v, mask=hw.causal(), scale=scale, backend="blockwise")
    exact = exact_attention(*wide, mask=hw.causal(), scale=scale)
    measure = plain_attention(*plain, allowed=hw.causal().allowed(Lq, 301), scale=scale)
    assert_within_budget(out, exact, measure)
    ahead = torch.randn(out.shape, generator=torch.Generator().manual_seed(5)).to(dtype)
    found, want, beside = (
        torch.autograd.grad(each, given, ahead.to(each.dtype))
        for each, given in ((out, (q, k, v)), (exact, wide), (measure, plain))
    )
    for got, right, yardstick in zip(found, want, beside, strict=True):
        assert_within_budget(got, right, yardstick)


@pytest.mark.usefixtures("short_squares")
@pytest.mark.parametrize("at", ["query", "key"])
def test_a_causal_call_shows_nan_where_it_is_seen(at: str) -> None:
    q, k, v = tensors(CAUSAL)
    (q if at == "query" else k)[1, 1, 120] = math.nan
    out = hw.attention(q, k, v, mask=hw.causal(), backend="blockwise")
    plain = plain_attention(q, k, v, allowed=hw.causal().allowed(150, 301))
    assert_within_budget(out, exact_attention(q, k, v, mask=hw.causal()), plain)


@pytest.mark.usefixtures("short_squares")
@pytest.mark.parametrize("top", [8.0, 512.0])
def test_a_causal_call_of_large_scores_is_as_exact_as_the_plain_form(top: float) -> None:
    q, k = torch.zeros(1, 4, 150, 16), torch.zeros(1, 4, 301, 16)
    made = torch.Generator().manual_seed(0)
    # products without rounding, so that only the softmax is off
    q[..., 0], k[..., 0] = 4.0, top
    for t in (q, k):
        t[..., 1] = torch.randint(0, 3, t.shape[:3], generator=made).float()
    v = torch.randn(1, 4, 301, 16, generator=made)
    out = hw.attention(q, k, v, mask=hw.causal(), backend="blockwise")
    plain = plain_attention(q, k, v, allowed=hw.causal().allowed(150, 301))
    assert_within_budget(out, exact_attention(q, k, v, mask=hw.causal()), plain)


def test_a_causal_call_holds_no_mask_and_two_calls_of_the_kernel() -> None:
    q, k, v = tensors(CAUSAL._replace(Lq=512, Lk=1024))
    found = blockwise.strips_of(checked(q, k, v, mask=hw.causal()))
    # 192 rows or more are taken by 64 of them, each with the keys up to the diagonal rounded up to 512: all of 512
    assert found.total == (2, 2 * 6 * (512 * 512 + 512 * 512), 0, 0)


# by far the fastest on every machine of the table, or ruled out before anything is compared
CHOICES = {
    "nothing to skip": ("sdpa", Sized(64, 64), {}, "could run, in about"),
    "dropout": ("blockwise", Sized(2048, 2048), {"dropout": 0.1}, ""),
    "softcap": ("blockwise", Sized(2048, 2048), {"softcap": 20.0}, ""),
    "window": ("blockwise", Sized(2048, 2048), {"mask": hw.window(keys=100)}, ""),
    "little padding": ("sdpa", Sized(64, 64), {"mask": hw.lengths([60])}, "could run, in about"),
    "much padding": ("blockwise", Sized(2048, 2048), {"mask": hw.lengths([200])}, ""),
    "causal, of more keys": ("blockwise", Sized(1024, 4096), {"mask": hw.causal()}, ""),
    "one query": ("sdpa", Sized(1, 512), {"mask": hw.lengths([200])}, "could run, in about"),
    "a dense mask": ("sdpa", Sized(600, 600), {"mask": torch.ones(1, 8, 600, 600) > 0}, "would cost what it gains"),
}  # fmt: skip


@pytest.mark.parametrize("case", CHOICES)
def test_auto_takes_strips_where_they_are_far_faster(case: str) -> None:
    chosen, at, given, reason = CHOICES[case]
    q, k = torch.zeros(1, 8, at.Lq, 16), torch.zeros(1, at.Hk, at.Lk, 16)
    table = hw.backends(q, k, k, **given)
    assert table.chosen == chosen
    assert reason in table.reasons["blockwise"]
    assert bool(reason) == bool(table.reasons["blockwise"])


def test_a_mask_remembered_in_inference_serves_training_after_it() -> None:
    q, k, v = tensors(Shape(B=1, Hq=2, Hk=2, Lq=130, Lk=130, D=8, Dv=8))
    mask = hw.window(before=100, after=3)
    with torch.inference_mode():
        first = hw.attention(q, k, v, mask=mask, backend="blockwise")
    kept = table(mask)
    assert kept is not None
    assert any("limits" in key for key in kept.results)
    given = [t.requires_grad_() for t in (q, k, v)]
    out = hw.attention(*given, mask=mask, backend="blockwise")
    assert torch.equal(out.detach(), first)
    wide = [t.detach().double().requires_grad_() for t in given]
    want = torch.autograd.grad(exact_attention(*wide, mask=mask).sum(), wide)
    plain = torch.autograd.grad(hw.attention(*given, mask=mask, backend="reference").sum(), given)
    for got, exact, measure in zip(torch.autograd.grad(out.sum(), given), want, plain, strict=True):
        assert_within_budget(got, exact, measure)
