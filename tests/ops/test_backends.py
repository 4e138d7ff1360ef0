"""The laws of attention for each backend and for the automatic choice, and what the table says of them."""

import inspect
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

import headwise as hw
from headwise.errors import ArgumentError, BackendError
from headwise.ops.backends import TABLE
from tests.cases import tensors
from tests.contract import GradientLaws, TransformLaws


class TestReference(TransformLaws):
    def attend(self, q: Tensor, k: Tensor, v: Tensor, **given: Any) -> Tensor:
        return hw.attention(q, k, v, backend="reference", **given)


class TestAuto(TransformLaws):
    def attend(self, q: Tensor, k: Tensor, v: Tensor, **given: Any) -> Tensor:
        return hw.attention(q, k, v, **given)


class TestSdpa(GradientLaws):
    refused: ClassVar[frozenset[str]] = frozenset({"softcap", "sink"})
    refused_shapes: ClassVar[frozenset[str]] = frozenset({"no sample", "no query"})

    def attend(self, q: Tensor, k: Tensor, v: Tensor, **given: Any) -> Tensor:
        return hw.attention(q, k, v, backend="sdpa", **given)


class TestBlockwise(TransformLaws):
    def attend(self, q: Tensor, k: Tensor, v: Tensor, **given: Any) -> Tensor:
        return hw.attention(q, k, v, backend="blockwise", **given)


@pytest.mark.usefixtures("tiny_tiles")
class TestBlockwiseInTinyTiles(TransformLaws):
    def attend(self, q: Tensor, k: Tensor, v: Tensor, **given: Any) -> Tensor:
        return hw.attention(q, k, v, backend="blockwise", **given)


REASONS = {
    "softcap": ({"softcap": 3.0}, "torch's kernels have no softcap"),
    "sink": ({"sink": torch.zeros(6)}, "torch's kernels have no sink"),
    "dropout": ({"dropout": 0.25}, r"torch would leave its fused kernel for the dense path \(dropout\)"),
    "generator": ({"dropout": 0.25, "generator": torch.Generator()}, "draw dropout from the global generator only"),
    "learned bias": (
        {"attn_bias": torch.zeros(5, 7, requires_grad=True)},
        "torch's fused kernels give no gradient to attn_bias",
    ),
}


@pytest.mark.parametrize("case", REASONS)
def test_an_explicit_backend_runs_or_raises_with_the_sentence_of_the_table(case: str) -> None:
    rules, reason = REASONS[case]
    q, k, v = tensors()
    with pytest.raises(BackendError, match=rf'backend="sdpa" cannot run this call: .*{reason}'):
        hw.attention(q, k, v, backend="sdpa", **rules)
    table = hw.backends(q, k, v, **rules)
    assert table.chosen == "reference"
    with pytest.raises(BackendError) as refused:
        hw.attention(q, k, v, backend="sdpa", **rules)
    assert table.reasons["sdpa"] in str(refused.value)
    assert "reference  runs" in str(table)


def test_an_unknown_backend_lists_the_known_ones() -> None:
    q, k, v = tensors()
    with pytest.raises(
        ArgumentError, match='backend must be "auto", "blockwise", "sdpa", "flex", "reference"; got "flash"'
    ):
        hw.attention(q, k, v, backend="flash")


def test_the_automatic_choice_alone_has_no_reason_against_it() -> None:
    q, k, v = tensors()
    for rules in ({}, {"mask": hw.causal()}, {"softcap": 2.0}, {"mask": hw.lengths([0, 3])}):
        table = hw.backends(q, k, v, **rules)
        able = [backend.name for backend in TABLE if not table.reasons[backend.name]]
        assert able == [table.chosen]


def test_transforms_go_to_a_backend_with_a_rule_for_them() -> None:
    q, k, v = tensors()
    with pytest.raises(BackendError, match=r"have no rule for torch\.func transforms"):
        torch.func.jvp(lambda t: hw.attention(t, k, v, backend="sdpa"), (q,), (q,))
    with pytest.raises(BackendError, match=r"have no rule for torch\.func transforms"):
        torch.func.vmap(lambda t: hw.attention(t, k, v, backend="sdpa"))(q[None])


def test_no_dense_path_of_torch_is_taken_in_silence() -> None:
    # other widths of values, other strides and grouped heads are what torch itself would compute densely
    q, k, v = tensors()
    asked = []
    original = torch.nn.functional.scaled_dot_product_attention

    def spy(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, **more: Any) -> Tensor:
        asked.append(torch._fused_sdp_choice(q, k, v, attn_mask, 0.0, more["is_causal"], enable_gqa=more["enable_gqa"]))
        return original(q, k, v, attn_mask=attn_mask, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.functional, "scaled_dot_product_attention", spy)
        hw.attention(q, k, v)
        hw.attention(q.mT.contiguous().mT, k, v[..., :4], mask=hw.causal())
    assert asked == [1, 1]


def test_dropout_zeroes_the_share_it_says_and_keeps_the_mean() -> None:
    generator = torch.Generator().manual_seed(5)
    q, k = torch.zeros(1, 1, 2000, 4), torch.zeros(1, 1, 500, 4)
    v = torch.eye(500)[None, None]
    weights = hw.attention(q, k, v, dropout=0.25, generator=generator)
    kept = weights > 0
    # 10^6 draws: the share has a standard deviation of 0.00043
    assert abs(float(kept.float().mean()) - 0.75) < 0.002
    assert torch.allclose(weights[kept], torch.tensor(1 / 500 / 0.75))
    assert hw.attention(q, k, v, dropout=1.0).abs().max() == 0.0


def test_dropout_repeats_with_its_generator_and_passes_its_own_gradient() -> None:
    q, k, v = tensors()
    v.requires_grad_()

    def drawn(seed: int) -> Tensor:
        return hw.attention(q, k, v, dropout=0.5, generator=torch.Generator().manual_seed(seed))

    assert torch.equal(drawn(1), drawn(1))
    assert not torch.equal(drawn(1), drawn(2))
    seen = hw.attention(q, k, torch.eye(7).expand(2, 3, 7, 7), dropout=0.5, generator=torch.Generator().manual_seed(1))
    (gradient,) = torch.autograd.grad(drawn(1).sum(), v)
    expected = seen.unflatten(1, (3, 2)).sum(dim=(2, 3))[..., None].expand_as(v)
    assert torch.allclose(gradient, expected, atol=1e-5)


@pytest.mark.parametrize("name", ["foo", "prepared", "weight"])
def test_what_is_no_rule_is_refused_by_its_name(name: str) -> None:
    q, k, v = tensors()
    for function in (hw.attention, hw.backends):
        with pytest.raises(TypeError, match=rf"{function.__name__}\(\) got an unexpected keyword argument '{name}'"):
            function(q, k, v, **{name: None})


def test_backends_takes_what_attention_takes() -> None:
    ours, theirs = (inspect.signature(function).parameters for function in (hw.attention, hw.backends))
    assert {name: (each.kind, each.default) for name, each in ours.items()} == {
        name: (each.kind, each.default) for name, each in theirs.items()
    }
