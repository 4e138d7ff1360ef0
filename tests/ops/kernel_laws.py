"""What every Triton kernel must hold to, interpreted on the CPU and compiled on a device alike."""

from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

import headwise as hw
from headwise.maps import AttentionMap, attention_map
from headwise.maps.device_summary import summarize
from headwise.ops import reference
from headwise.ops.call import Call, checked
from headwise.testing import assert_within_budget
from tests.cases import MASKS, RULES, Shape, dense_mask, rules, tensors
from tests.maps.oracle import Dense, doubled, entropy, inputs, shown

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# two tiles of 16 by three, by two and by one, none of them whole at the end; the head of keys serves three
UNEVEN = Shape(B=2, Hq=3, Hk=1, Lq=21, Lk=37, D=11, Dv=13)
SQUARE = UNEVEN._replace(Lq=20, Lk=18)
SHORT = UNEVEN._replace(Lq=9, Lk=15)
GROUPED = Shape(B=1, Hq=4, Hk=2, Lq=19, Lk=9, D=3, Dv=5)
# what the kernels compute of a map, by the numbers of the definition
STATISTICS: dict[str, tuple[Callable[[AttentionMap], Tensor], Callable[[Dense, Tensor], Tensor]]] = {
    "lse": (lambda m: shown(m.lse), lambda d, p: shown(d.lse)),
    "entropy": (lambda m: m.entropy(), lambda d, p: entropy(p)),
    "received": (lambda m: m.received(), lambda d, p: p.sum(-2)),
    "mass": (lambda m: m.mass(), lambda d, p: p.sum(-1)),
    "max_logit": (lambda m: shown(m.max_logit()), lambda d, p: shown(d.logits.flatten(2).amax(-1))),
}


def moved(given: dict[str, Any], device: str) -> dict[str, Any]:
    """The same keywords on a device."""
    return {name: x.to(device) if isinstance(x, Tensor | hw.Mask) else x for name, x in given.items()}


def summarized(given: dict[str, Any], device: str) -> AttentionMap:
    """The map of these keywords with the summary of the kernels, which on a device it takes by itself."""
    m = AttentionMap(call_of(given, device), None)
    m._kept["summary"] = summarize(m._call)
    m._kept["sums"] = m._kept["summary"].sums
    return m


def call_of(given: dict[str, Any], device: str) -> Call:
    """The checked call of these keywords; without v, k is in its place."""
    on_device = moved(given, device)
    return checked(on_device.pop("q"), k := on_device.pop("k"), on_device.pop("v", k), **on_device)


class StatisticsLaws:
    """Laws of the statistics of a map."""

    device: ClassVar[str]

    def assert_exact(self, given: dict[str, Any], *, by_lse: bool = True) -> None:
        """Every statistic is within the budget of plain torch, which normalises by an lse, or as softmax does."""
        m, exact, plain = summarized(given, self.device), Dense(**doubled(given)), Dense(**given)
        yardstick = plain.weights_by_lse if by_lse else plain.weights
        for of_map, of_dense in STATISTICS.values():
            assert_within_budget(of_map(m).cpu(), of_dense(exact, exact.weights), of_dense(plain, yardstick))

    def assert_not_numbers(self, given: dict[str, Any]) -> None:
        """NaN stands where torch's operations have it, and nowhere else."""
        m, torchs = summarized(given, self.device), attention_map(**given)
        for name, (of_map, _) in STATISTICS.items():
            assert torch.equal(of_map(m).isnan().cpu(), of_map(torchs).isnan()), name

    @pytest.mark.parametrize("mask", MASKS)
    def test_every_mask_in_every_dtype(self, mask):
        self.assert_exact(inputs(SQUARE, **rules(mask, "no rule", SQUARE)))
        for dtype in (torch.bfloat16, torch.float16):
            self.assert_exact(inputs(SHORT, dtype, **rules(mask, "no rule", SHORT)))

    @pytest.mark.parametrize("rule", RULES)
    def test_every_rule(self, rule):
        self.assert_exact(inputs(UNEVEN, **rules("an empty row", rule, UNEVEN)))
        self.assert_exact(inputs(GROUPED, torch.bfloat16, **rules("dense, a head each", rule, GROUPED)))

    def test_additive_scores(self):
        for weight in (torch.linspace(-1, 2, 12).view(4, 3), torch.full((4, 3), 1e-3)):
            self.assert_exact(inputs(GROUPED, weight=weight, mask=hw.causal()))

    def test_more_features_than_a_program_holds(self):
        self.assert_exact(inputs(SHORT._replace(D=300), mask=hw.causal()))

    def test_strided_queries_and_keys(self):
        given = inputs(GROUPED)
        given |= {name: given[name].transpose(1, 2).contiguous().transpose(1, 2) for name in "qk"}
        given["k"] = given["k"].mT.contiguous().mT
        self.assert_exact(given)

    def test_a_row_that_may_attend_to_nothing(self):
        given = inputs(UNEVEN, **rules("an empty row", "no rule", UNEVEN))
        m, row = summarized(given, self.device), UNEVEN.Lq // 2
        assert bool(m.lse[:, :, row].isneginf().all())
        assert int(m.lse.isneginf().sum()) == UNEVEN.B * UNEVEN.Hq
        assert not m.entropy()[:, :, row].any()
        assert not m.mass()[:, :, row].any()
        nothing = summarized({**given, "mask": torch.zeros(UNEVEN.Lq, UNEVEN.Lk, dtype=torch.bool)}, self.device)
        assert not nothing.received().any()
        assert bool(nothing.max_logit().isneginf().all())

    def test_biases_as_low_as_float32_goes(self):
        # tiles come in another order than columns, so that the largest score may come first or last
        shape = SHORT._replace(Lk=20)
        bias = torch.full((shape.Lq, shape.Lk), torch.finfo(torch.float32).min)
        bias[:, 17:] = 0.0
        for added in (bias, bias.flip(1), torch.full_like(bias, -1e9), torch.full_like(bias, -1e38)):
            given = inputs(shape, attn_bias=added)
            self.assert_exact(given, by_lse=False)
            self.assert_not_numbers({**given, "sink": torch.tensor([0.0, 1.0, -1e38])})

    def test_hidden_keys_of_nan_change_nothing(self):
        given = inputs(UNEVEN, **rules("padding", "no rule", UNEVEN))
        k = given["k"].clone()
        k[-1, :, UNEVEN.Lk // 2 + 1 :] = float("nan")
        before, after = (summarized(given | {"k": keys}, self.device) for keys in (given["k"], k))
        for of_map, _ in STATISTICS.values():
            assert torch.equal(of_map(before), of_map(after))

    @pytest.mark.parametrize("value", [float("nan"), float("inf")])
    def test_what_is_not_a_number_is_shown_where_it_may_be_attended_to(self, value):
        given = inputs(UNEVEN, **rules("padding and causal", "no rule", UNEVEN))
        given["k"][0, :, 20] = value
        given["q"][1, :, 7] = value
        self.assert_not_numbers(given)

    @pytest.mark.parametrize("shape", [Shape(B=0), Shape(Lq=0), Shape(Lk=0)])
    @pytest.mark.parametrize("rule", ["no rule", "sink"])
    def test_maps_without_pairs(self, shape, rule):
        given = inputs(shape, **rules("causal", rule, shape))
        m, torchs = summarized(given, self.device), attention_map(**given)
        for of_map in (lambda m: m.lse, lambda m: m.entropy(), lambda m: m.received(), lambda m: m.max_logit()):
            assert torch.equal(of_map(m).cpu(), of_map(torchs))


LEAVES = ("q", "k", "v", "weight")


def additive_inputs(shape: Shape, dtype: torch.dtype = torch.float32, **given: Any) -> dict[str, Any]:
    """q, k, v and a weight (Hq, D), and the rules of the case."""
    weight = torch.linspace(-1, 2, shape.Hq * shape.D).view(shape.Hq, shape.D).to(dtype)
    return dict(zip(LEAVES, (*tensors(shape, dtype), weight), strict=True)) | given


def by_kernels(given: dict[str, Any], device: str) -> tuple[Tensor, Tensor]:
    """Outputs and lse of the kernels."""
    from headwise.ops.triton_kernels.additive import attend

    return attend(call_of(given, device))


def by_definition(given: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """The same of the reference."""
    without_v = {name: x for name, x in given.items() if name != "v"}
    return reference.attention(**given), reference.attention_lse(**without_v)


def plain_scores(given: dict[str, Any]) -> tuple[Tensor, Tensor, Tensor]:
    """Additive scores as one writes them, in the dtype and then wide; which pairs may attend; and v for every head."""
    q, k, v, weight = (given[name] for name in LEAVES)
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
    scores = (torch.tanh(q[:, :, :, None] + k[:, :, None]) * weight[None, :, None, None]).sum(-1).float()
    mask = dense_mask(given.get("mask"), Shape(*q.shape[:2], k.shape[1], q.shape[2], k.shape[2]))
    return scores, torch.ones_like(scores, dtype=torch.bool) if mask is None else mask, v


def by_plain_torch(given: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """Outputs and lse as one writes them; the weights are normalised in float32."""
    scores, allowed, v = plain_scores(given)
    scores = scores.masked_fill(~allowed, torch.finfo(torch.float32).min)
    weights = torch.softmax(scores, -1).masked_fill(~allowed, 0.0)
    lse = torch.logsumexp(scores, -1)
    return weights.to(v.dtype) @ v, lse.masked_fill(~allowed.expand(scores.shape).any(-1), float("-inf"))


def slopes_of(out: Tensor) -> Tensor:
    """A gradient for outputs, the same on every path."""
    return torch.sin(torch.arange(out.numel())).view(out.shape).to(out.dtype)


def outputs_and_gradients(
    run: Callable[[dict[str, Any]], tuple[Tensor, Tensor]], given: dict[str, Any]
) -> list[Tensor]:
    """Outputs, lse, and the gradients of q, k, v and weight."""
    leaves = {name: given[name].detach().clone().requires_grad_() for name in LEAVES}
    out, lse = run({**given, **leaves})
    gradients = torch.autograd.grad(out.cpu(), list(leaves.values()), slopes_of(out))
    return [out.detach().cpu(), shown(lse.detach()).cpu(), *gradients]


def plain_outputs_and_gradients(given: dict[str, Any]) -> list[Tensor]:
    """The same by plain torch; the gradients as fused kernels make them, from weights that an lse normalises."""
    leaves = {name: given[name].detach().clone().requires_grad_() for name in LEAVES}
    scores, allowed, v = plain_scores({**given, **leaves})
    out, lse = (t.detach() for t in by_plain_torch(given))
    p = torch.exp(scores.detach() - shown(lse)[..., None]).masked_fill(~allowed, 0.0)
    slopes = slopes_of(out)
    of_scores = p * ((slopes @ v.detach().mT).float() - (slopes.float() * out.float()).sum(-1, keepdim=True))
    whole = (scores * of_scores.masked_fill(~allowed, 0.0)).sum() + ((p.to(v.dtype) @ v) * slopes).sum()
    return [out, shown(lse), *torch.autograd.grad(whole, list(leaves.values()))]


class AdditiveLaws:
    """Laws of additive attention and its gradients."""

    device: ClassVar[str]

    def assert_exact(self, given: dict[str, Any]) -> None:
        """Outputs, lse and all gradients are within the budget of plain torch."""
        wide = {name: x.double() if name in LEAVES else x for name, x in given.items()}
        actual = outputs_and_gradients(lambda given: by_kernels(given, self.device), given)
        found = actual, outputs_and_gradients(by_definition, wide), plain_outputs_and_gradients(given)
        for of_kernels, exact, plain in zip(*found, strict=True):
            assert_within_budget(of_kernels, exact, plain)

    @pytest.mark.parametrize("mask", MASKS)
    def test_every_mask(self, mask):
        shape = SHORT._replace(Lq=17, D=2) if mask == "window" else SHORT._replace(D=3)
        self.assert_exact(additive_inputs(shape, **rules(mask, "no rule", shape)))

    @pytest.mark.parametrize("mask", ["no mask", "an empty row", "a rule"])
    def test_several_tiles(self, mask):
        shape = UNEVEN._replace(D=2)
        self.assert_exact(additive_inputs(shape, **rules(mask, "no rule", shape)))

    def test_hidden_keys_of_nan_change_nothing(self):
        given = additive_inputs(SHORT, **rules("padding and causal", "no rule", SHORT))
        before = outputs_and_gradients(lambda given: by_kernels(given, self.device), given)
        for name in "kv":
            given[name] = given[name].clone()
            given[name][-1, :, SHORT.Lk // 2 + 1 :] = float("nan")
        after = outputs_and_gradients(lambda given: by_kernels(given, self.device), given)
        assert all(map(torch.equal, before, after))

    def test_what_is_not_a_number_is_shown_where_it_may_be_attended_to(self):
        # a row of NaN alone, and rows that see one key of NaN
        given = additive_inputs(SHORT, mask=hw.causal())
        given = {name: x.clone() if name in LEAVES else x for name, x in given.items()}
        given["q"][0, 1, 4] = float("nan")
        given["k"][1, :, 9] = float("nan")
        for got, wanted in zip(by_kernels(given, self.device), by_definition(given), strict=True):
            assert bool(wanted.isnan().any())
            assert torch.equal(got.isnan().cpu(), wanted.isnan())

    def test_a_query_that_may_attend_to_nothing_gets_zeros_and_gives_no_gradient(self):
        given = additive_inputs(SHORT, **rules("an empty row", "no rule", SHORT))
        out, _, of_q, *_ = outputs_and_gradients(lambda given: by_kernels(given, self.device), given)
        row = SHORT.Lq // 2
        assert not out[:, :, row].any()
        assert not of_q[:, :, row].any()
        assert bool(by_kernels(given, self.device)[1][:, :, row].isneginf().all())

    def test_a_second_derivative_is_that_of_the_definition(self):
        given = additive_inputs(GROUPED, mask=hw.causal())

        def second(run: Callable[[dict[str, Any]], tuple[Tensor, Tensor]], dtype: torch.dtype) -> list[Tensor]:
            leaves = {name: given[name].to(dtype).requires_grad_() for name in LEAVES}
            first = torch.autograd.grad(run({**given, **leaves})[0].sin().sum(), leaves["q"], create_graph=True)[0]
            return list(torch.autograd.grad(first.square().sum(), list(leaves.values())))

        actual = second(lambda given: by_kernels(given, self.device), torch.float32)
        exact, plain = second(by_definition, torch.float64), second(by_plain_torch, torch.float32)
        for of_kernels, wanted, yardstick in zip(actual, exact, plain, strict=True):
            assert_within_budget(of_kernels, wanted, yardstick)

    @pytest.mark.parametrize("dtype", DTYPES[1:])
    @pytest.mark.parametrize("mask", ["no mask", "padding and causal", "an empty row"])
    def test_halves(self, mask, dtype):
        self.assert_exact(additive_inputs(GROUPED, dtype, **rules(mask, "no rule", GROUPED)))
