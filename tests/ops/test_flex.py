"""FlexAttention gives the numbers of the definition, uncompiled for every law, and compiled once for a structure."""

import re
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor
from torch._dynamo.utils import counters

import headwise as hw
from headwise.errors import BackendError
from headwise.ops import flex
from headwise.ops.call import Call, checked
from headwise.testing import assert_within_budget, exact_attention, plain_attention
from tests.cases import DIFFERENT, Shape, dense_mask, rules, tensors
from tests.contract import GradientLaws
from tests.fresh import run_fresh

HALVES_AND_SINGLES = (torch.float32, torch.bfloat16, torch.float16)


@pytest.mark.usefixtures("uncompiled_flex")
class TestFlexUncompiled(GradientLaws):
    refused_shapes: ClassVar[frozenset[str]] = frozenset({"no sample", "no query"})
    dtypes: ClassVar[tuple[torch.dtype, ...]] = HALVES_AND_SINGLES

    def attend(self, q: Tensor, k: Tensor, v: Tensor, **given: Any) -> Tensor:
        return hw.attention(q, k, v, backend="flex", **given)


@pytest.mark.usefixtures("uncompiled_flex")
def test_a_sink_learns_as_in_the_reference() -> None:
    q, k, v = tensors()
    for mask in ("padding and causal", "an empty row"):
        made = rules(mask, "sink", DIFFERENT)
        sinks = [made["sink"].to(dtype).requires_grad_() for dtype in (torch.float32, torch.float32, torch.float64)]
        backends, wide = ("flex", "reference", "reference"), (q.double(), k.double(), v.double())
        got, measure, exact = (
            torch.autograd.grad(hw.attention(*inputs, mask=made["mask"], sink=sink, backend=name).square().sum(), sink)[
                0
            ]
            for inputs, sink, name in zip(((q, k, v), (q, k, v), wide), sinks, backends, strict=True)
        )
        assert bool(exact.abs().max() > 0)
        assert_within_budget(got, exact, measure, factor=4.0)


# one structure each; compiled once, they serve every size and value
COMPILED = {
    "all rules": ("a rule", "all of them", torch.float32),
    "padding": ("padding and causal", "no rule", torch.bfloat16),
}
LONG = Shape(Lq=150, Lk=264, D=16)


@pytest.mark.needs("inductor")
@pytest.mark.parametrize("case", COMPILED)
def test_compiled_it_gives_the_numbers_of_the_definition(case: str) -> None:
    mask, rule, dtype = COMPILED[case]
    q, k, v = tensors(LONG, dtype)
    given = rules(mask, rule, LONG)
    plain_rules = {name: value for name, value in given.items() if name != "mask"}
    if case == "padding":
        hidden = ~given["mask"].padding(LONG.Lk)[:, None, :, None]
        k, v = k.masked_fill(hidden, float("nan")), v.masked_fill(hidden, float("inf"))
    got = hw.attention(q, k, v, backend="flex", **given)
    k, v = k.nan_to_num(0.0, 0.0), v.nan_to_num(0.0, 0.0, 0.0)
    plain = plain_attention(q, k, v, allowed=dense_mask(given["mask"], LONG), **plain_rules)
    assert_within_budget(got, exact_attention(q, k, v, **given), plain)


def window_behind(prefix: int, *, keys: int) -> hw.Mask:
    """One structure, so that the tests of its kernel share it."""
    return hw.window(keys=keys) & ~hw.prefix(prefix)


@pytest.mark.needs("inductor")
def test_compiled_it_hides_no_nan_and_zeroes_empty_rows() -> None:
    q, k, v = tensors(LONG)
    mask = window_behind(120, keys=4)
    wanted = hw.attention(q, k, v, mask=mask, backend="flex")
    # position 114 is the first query's
    assert torch.equal(wanted[:, :, :6], torch.zeros_like(wanted[:, :, :6]))
    assert bool(wanted[:, :, 6:].abs().sum(-1).gt(0).all())
    for name in ("k", "v"):
        poisoned = {"q": q, "k": k.clone(), "v": v.clone()}
        poisoned[name][:, :, 200, 0] = float("nan")
        out = hw.attention(**poisoned, mask=mask, backend="flex")
        assert bool(out[:, :, 86:90].isnan().any(-1).all())
        if name == "k":
            assert torch.equal(out[:, :, :86], wanted[:, :, :86])


@pytest.mark.needs("inductor")
def test_a_kernel_of_the_cpu_serves_every_length_and_every_number_of_a_mask() -> None:
    def attend(Lq: int, Lk: int, keys: int) -> Tensor:
        q, k, v = tensors(LONG._replace(Lq=Lq, Lk=Lk))
        return hw.attention(q, k, v, mask=window_behind(keys, keys=2 * keys), backend="flex")

    # torch takes sizes that agree by chance, as B=2 and 2 rows of tiles, for one size, and corrects itself
    for sizes in ((150, 264, 5), (301, 390, 5), (400, 512, 140)):
        attend(*sizes)
    before = counters["stats"]["unique_graphs"]
    for sizes in ((200, 300, 9), (310, 420, 1), (350, 610, 99), (500, 900, 7)):
        attend(*sizes)
    assert counters["stats"]["unique_graphs"] == before


def test_one_graph_of_a_structure_serves_every_length_and_id_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    # as on a device, where torch takes tensors of any size into a kernel; the CPU runs the graph without it
    graphs: list[Any] = []

    def counting(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph

    made: dict[Any, Any] = {}

    def compiled(function: Any, **how: Any) -> Any:
        if function not in made:
            made[function] = torch.compile(function, fullgraph=True, dynamic=True, backend=counting)
        return made[function]

    monkeypatch.setattr(flex, "compiled", compiled)
    for Lq, Lk, seed in ((150, 264, 1), (150, 264, 2), (190, 300, 3), (300, 390, 4), (500, 700, 5)):
        shape = LONG._replace(Lq=Lq, Lk=Lk)
        q, k, v = tensors(shape, seed=seed)
        generator = torch.Generator().manual_seed(seed)
        ids = torch.randint(3, (2, Lk), generator=generator).sort().values
        given = {"mask": hw.documents(ids[:, -Lq:], ids) & hw.causal(), "sink": torch.zeros(6), "softcap": 2.0 + seed}
        out = hw.attention(q, k, v, backend="flex", **given)
        assert_within_budget(
            out, exact_attention(q, k, v, **given), hw.attention(q, k, v, backend="reference", **given)
        )
    # torch may trace it once more where two sizes agreed by chance
    assert len(graphs) in (1, 2)


def on_meta(shape: Shape, dtype: torch.dtype = torch.bfloat16, **given: Any) -> Call:
    q, k, v = (torch.empty(size, device="meta", dtype=dtype) for size in (
        (shape.B, shape.Hq, shape.Lq, 64), (shape.B, shape.Hk, shape.Lk, 64), (shape.B, shape.Hk, shape.Lk, 64)
    ))  # fmt: skip
    return checked(q, k, v, **given)


def test_what_a_call_would_hold_without_flex_is_that_of_the_mask_or_of_the_definition() -> None:
    long = Shape(B=1, Hq=2, Hk=2, Lq=20000, Lk=20000)
    near = hw.causal() & hw.window(before=512)
    assert flex._held_without(on_meta(long, mask=near)) == 3 * 20000**2
    assert flex._held_without(on_meta(long, mask=hw.causal())) == 0
    keep = torch.empty(1, 20000, dtype=torch.bool, device="meta")
    assert flex._held_without(on_meta(long, mask=hw.keys(keep))) == 0
    several = Shape(B=8, Hq=4, Hk=4, Lq=4096, Lk=4096)
    ids = torch.empty(8, 4096, dtype=torch.int64, device="meta")
    assert flex._held_without(on_meta(several, mask=hw.documents(ids))) == 3 * 8 * 4096**2
    of_definition = 8 * 8 * 4 * 4096**2
    bias = torch.empty(4096, 4096, device="meta")
    assert flex._held_without(on_meta(several, attn_bias=bias)) == of_definition
    assert flex._held_without(on_meta(several, mask=near, softcap=3.0)) == of_definition


REFUSED = {
    "dropout": ({"dropout": 0.25}, {}, "FlexAttention has no dropout"),
    "gradients": ({}, {"requires_grad": True}, "FlexAttention has no backward on the CPU"),
    "a learned bias": (
        {"attn_bias": torch.zeros(5, 5, requires_grad=True)},
        {},
        "FlexAttention gives no gradient to attn_bias here",
    ),
    "float64": ({}, {"dtype": torch.float64}, r"computes float16, bfloat16 and float32, and q is torch\.float64"),
    "an empty axis": ({}, {"size": (2, 6, 0, 11)}, "an axis is empty"),
    "meta": ({}, {"device": "meta"}, "is run on CPU and CUDA devices, and q is on meta"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_it_cannot_compute_is_refused_in_the_sentence_of_the_table(case: str) -> None:
    given, how, reason = REFUSED[case]
    q = torch.zeros(how.pop("size", (2, 6, 5, 11)), **how)
    with pytest.raises(BackendError, match=rf'backend="flex" cannot run this call: .*{reason}'):
        hw.attention(q, q, q, backend="flex", **given)
    assert re.search(reason, hw.backends(q, q, q, **given).reasons["flex"])


def test_transforms_and_programs_are_refused() -> None:
    q, k, v = tensors()
    with pytest.raises(BackendError, match=r"FlexAttention has no rule for torch\.func transforms"):
        torch.func.vmap(lambda t: hw.attention(t, k, v, backend="flex"))(q[None])
    with pytest.raises(BackendError, match=r"FlexAttention has no rule for torch\.func transforms"):
        torch.func.jvp(lambda t: hw.attention(t, k, v, backend="flex"), (q,), (q,))


def test_auto_does_not_take_it_and_says_why() -> None:
    q, k, v = tensors()
    table = hw.backends(q, k, v, softcap=2.0)
    assert table.reasons["flex"] == 'to compile it takes seconds: name it with backend="flex"'
    assert table.chosen == "reference"
    assert hw.backends(q, k, v, softcap=2.0, backend="flex").chosen == "flex"


def test_torch_compiles_nothing_until_it_is_called() -> None:
    source = "import sys\nimport headwise as hw\nimport torch\nq = torch.ones(1, 1, 2, 8)\nhw.backends(q, q, q)\n"
    listed = "print([n for n in ('torch._dynamo', 'torch.nn.attention.flex_attention') if n in sys.modules])"
    assert run_fresh(source + listed) == "[]\n"
