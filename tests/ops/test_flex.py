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

    def test_a_bias_and_a_sink_learn_as_in_the_reference(self) -> None:
        q, k, v = tensors()
        for rule in ("bias shared by samples", "all of them"):
            for mask in ("padding and causal", "an empty row"):
                given, plain = (self.learned(mask, rule, torch.float32) for _ in range(2))
                wide = self.learned(mask, rule, torch.float64)
                outs = [
                    self.attend(q, k, v, **given[0]),
                    hw.attention(q, k, v, backend="reference", **plain[0]),
                    hw.attention(q.double(), k.double(), v.double(), backend="reference", **wide[0]),
                ]
                found, measure, exact = (
                    torch.autograd.grad(out.square().sum(), leaves)
                    for out, leaves in zip(outs, (given[1], plain[1], wide[1]), strict=True)
                )
                for got, want, yardstick in zip(found, exact, measure, strict=True):
                    assert bool(want.abs().max() > 0)
                    assert_within_budget(got, want, yardstick, factor=4.0)

    def learned(self, mask: str, rule: str, dtype: torch.dtype) -> tuple[dict[str, Any], list[Tensor]]:
        """The rules of a call whose tensors learn, and these."""
        made = {name: x for name, x in rules(mask, rule, DIFFERENT).items() if x is not None}
        leaves = {name: x.to(dtype).requires_grad_() for name, x in made.items() if name in ("attn_bias", "sink")}
        return made | leaves, list(leaves.values())


# one structure each; compiled once, they serve every size and value
COMPILED = {
    "all rules": ("no mask", "all of them"),
    "causal and a sink": ("causal", "sink"),
    "padding": ("padding and causal", "no rule"),
    "documents": ("documents", "softcap"),
    "lengths": ("lengths, one of them 0", "bias"),
    "a rule": ("a rule", "no rule"),
}
LONG = Shape(Lq=150, Lk=264, D=16)


@pytest.mark.needs("inductor")
@pytest.mark.parametrize("case", COMPILED)
def test_compiled_it_gives_the_numbers_of_the_definition(case: str) -> None:
    for dtype in (torch.float32, torch.bfloat16) if case == "padding" else (torch.float32,):
        q, k, v = tensors(LONG, dtype)
        given = {name: x for name, x in rules(*COMPILED[case], LONG).items() if x is not None}
        plain_rules = {name: given[name] for name in ("attn_bias", "scale", "softcap", "sink") if name in given}
        if case == "padding":
            hidden = ~given["mask"].padding(LONG.Lk)[:, None, :, None]
            k, v = k.masked_fill(hidden, float("nan")), v.masked_fill(hidden, float("inf"))
        got = hw.attention(q, k, v, backend="flex", **given)
        k, v = k.nan_to_num(0.0, 0.0), v.nan_to_num(0.0, 0.0, 0.0)
        plain = plain_attention(q, k, v, allowed=dense_mask(given.get("mask"), LONG), **plain_rules)
        assert_within_budget(got, exact_attention(q, k, v, **given), plain)


@pytest.mark.needs("inductor")
def test_compiled_it_hides_no_nan_and_zeroes_empty_rows() -> None:
    q, k, v = tensors(LONG)
    mask = hw.window(before=3) & ~hw.prefix(120)
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
        return hw.attention(q, k, v, mask=hw.window(keys=keys), backend="flex")

    attend(150, 264, 5)
    before = counters["stats"]["unique_graphs"]
    for sizes in ((200, 300, 9), (301, 301, 140), (140, 512, 1)):
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
    for Lq, Lk, seed in ((150, 264, 1), (150, 264, 2), (190, 300, 3), (260, 390, 4)):
        shape = LONG._replace(Lq=Lq, Lk=Lk)
        q, k, v = tensors(shape, seed=seed)
        generator = torch.Generator().manual_seed(seed)
        ids = torch.randint(3, (2, Lk), generator=generator).sort().values
        given = {"mask": hw.documents(ids[:, -Lq:], ids) & hw.causal(), "sink": torch.zeros(6), "softcap": 2.0 + seed}
        out = hw.attention(q, k, v, backend="flex", **given)
        assert_within_budget(
            out, exact_attention(q, k, v, **given), hw.attention(q, k, v, backend="reference", **given)
        )
    # what a mask becomes, and the attention
    assert len(graphs) == 2


REFUSED = {
    "dropout": ({"dropout": 0.25}, {}, "FlexAttention has no dropout"),
    "gradients": ({}, {"requires_grad": True}, "FlexAttention has no backward on the CPU"),
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
    assert table.reasons["flex"] == 'its speed was measured on no device yet: name it with backend="flex"'
    assert table.chosen == "reference"
    assert hw.backends(q, k, v, softcap=2.0, backend="flex").chosen == "flex"


def test_torch_compiles_nothing_until_it_is_called() -> None:
    source = "import sys\nimport headwise as hw\nimport torch\nq = torch.ones(1, 1, 2, 8)\nhw.backends(q, q, q)\n"
    listed = "print([n for n in ('torch._dynamo', 'torch.nn.attention.flex_attention') if n in sys.modules])"
    assert run_fresh(source + listed) == "[]\n"
