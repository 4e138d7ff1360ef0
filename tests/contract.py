"""The laws of attention: every backend, the layer and every cache inherit them.

A subclass says how it attends, and which of the rules it refuses; what it does not refuse must be right.
"""

import warnings
from typing import Any, ClassVar

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

import headwise as hw
from headwise.errors import ArgumentError, BackendError
from headwise.testing import assert_within_budget, exact_attention, plain_attention
from tests.cases import MASKS, RULES, SHAPES, Shape, dense_mask, rules, tensors

ONE_SHAPE = SHAPES["all sizes differ"]


class AttentionLaws:
    """Laws of anything that maps q, k, v and rules to outputs."""

    # keywords whose use this way of attending refuses, each with a sentence
    refused: ClassVar[frozenset[str]] = frozenset()
    # shapes, by their names in SHAPES, that it refuses or cannot express
    refused_shapes: ClassVar[frozenset[str]] = frozenset()
    dtypes: ClassVar[tuple[torch.dtype, ...]] = (torch.float32, torch.bfloat16, torch.float16, torch.float64)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, **given: Any) -> Tensor:
        raise NotImplementedError

    def assert_lawful(self, draws: list[tuple[Tensor, Tensor, Tensor]], shape: Shape, **given: Any) -> None:
        """The law of the reference: the outputs are right, or the rule is among those refused.

        One budget for all draws together: among a few numbers plain PyTorch may be exact by luck.
        """
        given = {name: value for name, value in given.items() if value is not None}
        if self.refused & set(given):
            with pytest.raises(BackendError):
                self.attend(*draws[0], **given)
            return
        if given.get("scale") == 0.0 and "a scale of zero" in self.refused:
            with pytest.raises(ArgumentError, match=r"scale must be finite and not 0, .*; got scale=0\.0"):
                self.attend(*draws[0], **given)
            return
        plain_rules = {name: given[name] for name in ("attn_bias", "scale", "softcap", "sink") if name in given}
        allowed = dense_mask(given.get("mask"), shape)
        actual = torch.cat([self.attend(*draw, **given) for draw in draws])
        exact = torch.cat([exact_attention(*draw, **given) for draw in draws])
        plain = torch.cat([plain_attention(*draw, allowed=allowed, **plain_rules) for draw in draws])
        assert_within_budget(actual, exact, plain)

    @pytest.mark.parametrize("rule", RULES)
    @pytest.mark.parametrize("mask", MASKS)
    def test_equals_the_reference_in_float64(self, mask: str, rule: str) -> None:
        for dtype in self.dtypes:
            self.assert_lawful([tensors(ONE_SHAPE, dtype)], ONE_SHAPE, **rules(mask, rule, ONE_SHAPE))

    @pytest.mark.parametrize("mask", ["no mask", "causal", "padding", "an empty row", "dense, a head each"])
    @pytest.mark.parametrize("name", SHAPES)
    def test_every_shape_is_legal(self, name: str, mask: str) -> None:
        if name in self.refused_shapes:
            return
        shape = SHAPES[name]
        self.assert_lawful(
            [tensors(shape, seed=seed) for seed in range(4)],
            shape,
            **rules(mask, "bias" if name == "one head" else "no rule", shape),
        )

    # the law is inherited on purpose, so its executors differ
    @settings(suppress_health_check=[HealthCheck.differing_executors], max_examples=40)
    @given(
        shape=st.builds(
            lambda B, Hk, group, Lq, more, D, Dv: Shape(B, Hk * group, Hk, Lq, Lq + more, D, Dv),
            *(st.integers(1, 3) for _ in range(3)), st.integers(1, 9), st.integers(0, 12),
            *(st.integers(1, 20) for _ in range(2)),
        ),
        mask=st.sampled_from(sorted(MASKS)),
        rule=st.sampled_from(sorted(RULES)),
        seed=st.integers(0, 99),
        loud=st.sampled_from((1.0, 5.0)),
    )  # fmt: skip
    def test_equals_the_reference_at_any_size(self, shape: Shape, mask: str, rule: str, seed: int, loud: float) -> None:
        draws = [tensors(shape, torch.float32, 100 * seed + n) for n in range(8)]
        self.assert_lawful([(q * loud, k, v) for q, k, v in draws], shape, **rules(mask, rule, shape))

    @pytest.mark.parametrize("mask", MASKS)
    def test_a_query_that_may_attend_to_nothing_gets_zeros(self, mask: str) -> None:
        q, k, v = tensors()
        allowed = dense_mask(MASKS[mask](ONE_SHAPE), ONE_SHAPE)
        if allowed is None:
            allowed = torch.zeros(ONE_SHAPE.Lq, ONE_SHAPE.Lk, dtype=torch.bool)
        allowed = allowed.expand(ONE_SHAPE.B, ONE_SHAPE.Hq, ONE_SHAPE.Lq, ONE_SHAPE.Lk)
        empty = ~allowed.any(-1)
        out = self.attend(q, k, v, mask=allowed)
        assert torch.equal(out[empty], torch.zeros_like(out[empty]))
        assert bool(out[~empty].abs().sum(-1).gt(0).all())

    @pytest.mark.parametrize("hole", [float("nan"), float("inf"), -float("inf")])
    @pytest.mark.parametrize("more", ["alone", "with causal"])
    # outputs of so many numbers that torch adds them up in several threads, the last ones in one
    @pytest.mark.parametrize("shape", [Shape(), Shape(Hq=48, Lq=7, D=56, Dv=56)], ids=["few", "many"])
    def test_padding_may_hold_anything(self, hole: float, more: str, shape: Shape) -> None:
        q, k, v = tensors(shape)
        keep = torch.ones(2, 7, dtype=torch.bool)
        keep[0, 4:], keep[1, 0] = False, False
        mask = hw.keys(keep) if more == "alone" else hw.keys(keep) & hw.causal()
        wanted = self.attend(q, k, v, mask=mask)
        pad = ~keep[:, None, :, None]
        got = self.attend(q, k.masked_fill(pad, hole), v.masked_fill(pad, hole), mask=mask)
        assert torch.equal(got, wanted)

    @pytest.mark.parametrize("mask", ["causal", "window", "documents", "dense, a head each"])
    def test_a_key_that_a_query_may_not_see_does_not_touch_it(self, mask: str) -> None:
        q, k, v = tensors()
        allowed = dense_mask(MASKS[mask](ONE_SHAPE), ONE_SHAPE).expand(2, 6, 5, 7)
        wanted = self.attend(q, k, v, mask=MASKS[mask](ONE_SHAPE))
        for j in range(7):
            loud_k, loud_v = k.clone(), v.clone()
            loud_k[:, :, j] *= -50.0
            loud_v[:, :, j] += 1000.0
            got = self.attend(q, loud_k, loud_v, mask=MASKS[mask](ONE_SHAPE))
            blind, seeing = ~allowed[..., j], allowed[..., j]
            assert torch.equal(got[blind], wanted[blind])
            assert not bool((got[seeing] == wanted[seeing]).all(-1).any())

    @pytest.mark.parametrize("Lk", [1, 7, 15, 16, 17, 40])
    @pytest.mark.parametrize("mask", ["no mask", "causal", "recent keys"])
    @pytest.mark.parametrize("which", ["q", "k", "v"])
    def test_a_nan_that_is_seen_is_not_hidden(self, which: str, mask: str, Lk: int) -> None:
        shape = ONE_SHAPE._replace(Lk=Lk, Lq=min(5, Lk))
        q, k, v = tensors(shape)
        allowed = dense_mask(MASKS[mask](shape), shape)
        allowed = torch.ones(shape.Lq, Lk, dtype=torch.bool) if allowed is None else allowed
        for place in range(shape.Lq if which == "q" else Lk):
            poisoned = {"q": q.clone(), "k": k.clone(), "v": v.clone()}
            poisoned[which][:, :, place, 0] = float("nan")
            out = self.attend(**poisoned, mask=MASKS[mask](shape))
            seeing = torch.arange(shape.Lq) == place if which == "q" else allowed[:, place]
            assert bool(out[:, :, seeing].isnan().any(-1).all()), (place, seeing)
            if which == "q":
                assert not out[:, :, ~seeing].isnan().any()

    @pytest.mark.parametrize("Lk", [7, 16])
    def test_an_empty_row_is_zero_whatever_its_query_holds(self, Lk: int) -> None:
        q, k, v = tensors(ONE_SHAPE._replace(Lk=Lk))
        q[:, :, 1] = float("nan")
        allowed = torch.ones(5, Lk, dtype=torch.bool)
        allowed[1] = False
        out = self.attend(q, k, v, mask=allowed)
        assert torch.equal(out[:, :, 1], torch.zeros_like(out[:, :, 1]))
        assert out.isfinite().all()

    def test_nan_in_the_bias_of_a_hidden_pair_is_hidden(self) -> None:
        if "attn_bias" in self.refused:
            return
        q, k, v = tensors()
        allowed = torch.ones(5, 7, dtype=torch.bool).tril(2)
        bias = torch.zeros(5, 7).masked_fill(~allowed, float("nan"))
        assert_within_budget(
            self.attend(q, k, v, attn_bias=bias, mask=allowed),
            exact_attention(q, k, v, mask=allowed),
            plain_attention(q, k, v, allowed=allowed),
        )

    def test_a_scale_of_zero_gives_the_mean_of_the_values(self) -> None:
        for dtype in self.dtypes:
            # fresh memory is often zero, which would be right by luck
            noise = torch.full((4096,), float("nan"), dtype=dtype)
            del noise
            self.assert_lawful([tensors(ONE_SHAPE, dtype)], ONE_SHAPE, scale=0.0)

    def test_a_bias_of_minus_infinity_hides_as_a_mask_does(self) -> None:
        if "attn_bias" in self.refused:
            return
        q, k, v = tensors()
        allowed = torch.ones(5, 7, dtype=torch.bool)
        allowed[1], allowed[2, 3], allowed[4, 0] = False, False, False
        bias = torch.zeros(5, 7).masked_fill(~allowed, float("-inf"))
        plain = plain_attention(q, k, v, allowed=allowed)
        exact = exact_attention(q, k, v, mask=allowed)
        assert_within_budget(self.attend(q, k, v, attn_bias=bias), exact, plain)
        # the mask and the bias together leave nothing to the fourth query
        half = torch.ones(5, 7, dtype=torch.bool)
        half[3, 1:] = False
        bias[3, 0] = float("-inf")
        out = self.attend(q, k, v, mask=half, attn_bias=bias)
        assert_within_budget(out, exact_attention(q, k, v, mask=half & ~bias.isneginf()), plain)
        assert out[:, :, 3].abs().max() == 0

    @pytest.mark.parametrize("Lk", [3, 16, 19])
    @pytest.mark.parametrize("loud", [float("inf"), 1e20])
    def test_scores_that_overflow_to_nan_are_not_hidden(self, loud: float, Lk: int) -> None:
        shape = ONE_SHAPE._replace(Lq=2, Lk=Lk, D=2)
        q, k, v = tensors(shape)
        q, k = torch.full_like(q, 1.0 if loud == float("inf") else loud), torch.empty_like(k)
        k[..., 0], k[..., 1] = loud, -loud
        assert bool(self.attend(q, k, v).isnan().all())

    @pytest.mark.parametrize("scale", [0.0, -1.0])
    @pytest.mark.parametrize("mask", ["no mask", "causal", "padding"])
    def test_a_scale_of_zero_or_less_is_a_scale(self, mask: str, scale: float) -> None:
        shape = ONE_SHAPE._replace(Lk=5)
        self.assert_lawful([tensors(shape)], shape, mask=MASKS[mask](shape), scale=scale)

    def test_keys_may_come_in_any_order(self) -> None:
        q, k, v = tensors()
        order = torch.randperm(7)
        allowed, bias = (
            dense_mask(MASKS["dense, a head each"](ONE_SHAPE), ONE_SHAPE),
            rules("causal", "bias", ONE_SHAPE),
        )
        given = {"mask": allowed, "attn_bias": bias["attn_bias"]}
        moved = {"mask": allowed[..., order], "attn_bias": bias["attn_bias"][..., order]}
        exact = exact_attention(q, k, v, **given)
        plain = plain_attention(q, k, v, allowed=allowed, attn_bias=bias["attn_bias"])
        assert_within_budget(self.attend(q, k[:, :, order], v[:, :, order], **moved), exact, plain)

    @pytest.mark.parametrize("mask", ["no mask", "causal", "padding", "dense, a head each"])
    def test_samples_do_not_meet(self, mask: str) -> None:
        q, k, v = tensors()
        given = MASKS[mask](ONE_SHAPE)
        together = self.attend(q, k, v, mask=given)
        allowed = dense_mask(given, ONE_SHAPE)
        for b in range(2):
            own = (
                None
                if allowed is None
                else allowed.expand(2, *allowed.shape[1:])[b : b + 1]
                if allowed.ndim == 4
                else given
            )
            alone = self.attend(q[b : b + 1], k[b : b + 1], v[b : b + 1], mask=own)
            exact = exact_attention(q[b : b + 1], k[b : b + 1], v[b : b + 1], mask=own)
            for got in (alone, together[b : b + 1]):
                assert_within_budget(got, exact, alone)

    def test_strided_and_expanded_inputs_are_legal(self) -> None:
        shape = Shape(Lk=5)
        q, k, v = tensors(shape)
        exact, plain = exact_attention(q, k, v), plain_attention(q, k, v)
        turned = (t.transpose(1, 2).contiguous().transpose(1, 2) for t in (q, k, v))
        assert_within_budget(self.attend(*turned), exact, plain)
        columns = (t.mT.contiguous().mT for t in (q, k, v))
        assert_within_budget(self.attend(*columns), exact, plain)
        shared = q, k[:1].expand(2, -1, -1, -1), v[:1].expand(2, -1, -1, -1)
        assert_within_budget(self.attend(*shared), exact_attention(*shared), plain_attention(*shared))

    @pytest.mark.parametrize("context", [torch.enable_grad, torch.no_grad, torch.inference_mode])
    def test_gradient_mode_changes_nothing(self, context: Any) -> None:
        q, k, v = tensors()
        wanted = self.attend(q, k, v, mask=hw.causal())
        with context():
            got = self.attend(q, k, v, mask=hw.causal())
        assert torch.equal(got.clone(), wanted)

    def test_a_mask_of_another_dtype_is_refused(self) -> None:
        q, k, v = tensors()
        for dtype in (torch.float32, torch.int64, torch.uint8):
            with pytest.raises(hw.errors.MaskError, match=f"must be bool, but {dtype} came, which reads as"):
                self.attend(q, k, v, mask=torch.ones(5, 7, dtype=dtype))


class GradientLaws(AttentionLaws):
    """Laws of the first and second gradient, for whatever keeps a graph."""

    def gradients(self, q: Tensor, k: Tensor, v: Tensor, **given: Any) -> tuple[Tensor, ...]:
        leaves = [t.detach().clone().requires_grad_() for t in (q, k, v)]
        out = self.attend(*leaves, **given)
        torch.manual_seed(3)
        return torch.autograd.grad(out, leaves, torch.randn(out.shape, dtype=torch.float64).to(out.dtype))

    def test_a_row_that_its_bias_closes_gives_no_gradient(self) -> None:
        if "attn_bias" in self.refused:
            return
        q, k, v = tensors()
        closed = torch.zeros(5, 7).masked_fill(torch.arange(5)[:, None] == 2, float("-inf"))
        by_bias = self.gradients(q, k, v, attn_bias=closed)
        by_mask = self.gradients(q, k, v, mask=closed == 0)
        assert by_bias[0][:, :, 2].abs().max() == 0
        for got, want in zip(by_bias, by_mask, strict=True):
            assert_within_budget(got, want.double(), want)

    @pytest.mark.parametrize("rule", RULES)
    @pytest.mark.parametrize("mask", MASKS)
    def test_gradients_equal_the_reference_in_float64(self, mask: str, rule: str) -> None:
        given = {name: value for name, value in rules(mask, rule, ONE_SHAPE).items() if value is not None}
        if self.refused & set(given):
            return
        q, k, v = tensors()
        exact_leaves = [t.double().requires_grad_() for t in (q, k, v)]
        plain_leaves = [t.clone().requires_grad_() for t in (q, k, v)]
        torch.manual_seed(3)
        out = exact_attention(*exact_leaves, **given)
        seed = torch.randn(out.shape, dtype=torch.float64)
        exact = torch.autograd.grad(out, exact_leaves, seed.float().double())
        wide = {name: given[name] for name in ("attn_bias", "scale", "softcap", "sink") if name in given}
        allowed = dense_mask(given.get("mask"), ONE_SHAPE)
        # plain softmax makes NaN of an empty row, so it sees such a row in full, and the row is cut off afterwards
        empty = torch.zeros(()).bool() if allowed is None else ~allowed.any(-1, keepdim=True)
        plain_out = plain_attention(*plain_leaves, allowed=None if allowed is None else allowed | empty, **wide)
        plain = torch.autograd.grad(plain_out.masked_fill(empty, 0.0), plain_leaves, seed.float())
        for got, want, measure in zip(self.gradients(q, k, v, **given), exact, plain, strict=True):
            assert_within_budget(got, want, measure)

    def test_a_hidden_key_gets_no_gradient(self) -> None:
        q, k, v = tensors()
        keep = torch.ones(2, 7, dtype=torch.bool)
        keep[0, 4:], keep[1, 0] = False, False
        pad = ~keep[:, None, :, None]
        nan = float("nan")
        clean = self.gradients(q, k, v, mask=hw.keys(keep))
        holed = self.gradients(q, k.masked_fill(pad, nan), v.masked_fill(pad, nan), mask=hw.keys(keep))
        for got, want in zip(holed, clean, strict=True):
            assert torch.equal(got, want)
        for gradient in clean[1:]:
            hidden = gradient.masked_select(pad)
            assert torch.equal(hidden, torch.zeros_like(hidden))

    def test_an_empty_row_gets_no_gradient(self) -> None:
        q, k, v = tensors()
        gradient = self.gradients(q, k, v, mask=MASKS["an empty row"](ONE_SHAPE))[0][:, :, 2]
        assert torch.equal(gradient, torch.zeros_like(gradient))
        for gradient in self.gradients(q, k, v, mask=torch.zeros(5, 7, dtype=torch.bool)):
            assert torch.equal(gradient, torch.zeros_like(gradient))

    def test_no_nan_is_made_on_the_way_back(self) -> None:
        q, k, v = tensors()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that anomaly detection is slow
            with torch.autograd.detect_anomaly():
                for gradient in self.gradients(q, k, v, mask=MASKS["an empty row"](ONE_SHAPE)):
                    assert gradient.isfinite().all()

    def test_inputs_that_come_from_one_another_get_the_same_gradient_in_either_mode(self) -> None:
        for related in (lambda t: (t, t, t), lambda t: (t, 2 * t, 3 * t), lambda t: (t, t.flip(2), t.flip(2) * t)):
            x = tensors(ONE_SHAPE._replace(Hq=3, Lk=5, Dv=11))[0].requires_grad_()
            outs = [self.attend(*related(x), mask=hw.causal()).square().sum() for _ in range(2)]
            (first,) = torch.autograd.grad(outs[0], x)
            (again,) = torch.autograd.grad(outs[1], x, create_graph=True)
            wide = x.detach().double().requires_grad_()
            (exact,) = torch.autograd.grad(exact_attention(*related(wide), mask=hw.causal()).square().sum(), wide)
            assert_within_budget(again.detach(), exact, first)

    def test_second_derivatives_equal_the_reference(self) -> None:
        q, k, v = tensors()

        def second(attend: Any, *inputs: Tensor) -> tuple[Tensor, ...]:
            leaves = [t.detach().clone().requires_grad_() for t in inputs]
            out = attend(*leaves, mask=hw.causal())
            first = torch.autograd.grad(out.square().sum(), leaves, create_graph=True)
            return torch.autograd.grad(sum(g.square().sum() for g in first), leaves)

        exact = second(exact_attention, q.double(), k.double(), v.double())
        reference = second(lambda *t, mask: hw.ops.reference.attention(*t, mask=mask), q, k, v)
        for got, want, plain in zip(second(self.attend, q, k, v), exact, reference, strict=True):
            assert bool(want.abs().max() > 0)
            assert_within_budget(got, want, plain, factor=4.0)


class TransformLaws(GradientLaws):
    """Laws of forward-mode derivatives and of vmap, for whatever has a rule for them."""

    @pytest.mark.parametrize("mask", ["no mask", "causal", "padding", "an empty row"])
    def test_first_second_and_forward_derivatives_pass_gradcheck(self, mask: str) -> None:
        shape = Shape(B=2, Hq=2, Hk=1, Lq=2, Lk=3, D=2, Dv=3)
        leaves = [t.requires_grad_() for t in tensors(shape, torch.float64)]
        given = {"mask": MASKS[mask](shape)}

        def call(*inputs: Tensor) -> Tensor:
            return self.attend(*inputs, **given)

        assert torch.autograd.gradcheck(call, leaves, check_forward_ad=True)
        assert torch.autograd.gradgradcheck(call, leaves)

    def test_transforms_equal_one_call_a_sample(self) -> None:
        q, k, v = tensors()
        stacked = [torch.stack([t, t * 0.5, -t]) for t in (q, k, v)]
        # building a layer draws its first weights, which the wiring then replaces
        attend = torch.func.vmap(lambda *t: self.attend(*t, mask=hw.causal()), randomness="same")
        got = attend(*stacked)
        for n in range(3):
            one = [t[n] for t in stacked]
            allowed = hw.causal().allowed(5, 7)
            assert_within_budget(
                got[n], exact_attention(*one, mask=hw.causal()), plain_attention(*one, allowed=allowed)
            )

    def test_forward_derivatives_are_not_zero_but_right(self) -> None:
        q, k, v = tensors()
        tangents = tensors(seed=9)
        _, got = torch.func.jvp(lambda *t: self.attend(*t, mask=hw.causal()), (q, k, v), tangents)
        wide = [tuple(t.double() for t in group) for group in ((q, k, v), tangents)]
        _, exact = torch.func.jvp(lambda *t: exact_attention(*t, mask=hw.causal()), *wide)
        allowed = hw.causal().allowed(5, 7)
        _, plain = torch.func.jvp(lambda *t: plain_attention(*t, allowed=allowed), (q, k, v), tangents)
        assert bool(exact.abs().max() > 0)
        assert_within_budget(got, exact, plain)
