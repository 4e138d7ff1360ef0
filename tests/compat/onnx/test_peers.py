"""Where onnx.reference and onnxruntime 1.31 agree with the operator's function body, and each place where they do not.

The body is the definition, and headwise follows it everywhere (tests/compat/test_onnx.py). Each difference below is
pinned, so that a version that mends it is noticed.
"""

from typing import Any

import pytest
import torch

from headwise.testing import BudgetError
from tests.compat.onnx.runs import PAST, B, D, Dv, Given, Hk, Hq, assert_agrees, drawn
from tests.sizes import SIZES

pytestmark = pytest.mark.needs("onnx")
Lq, Lk = SIZES["Lq"], SIZES["Lk"]


def call(
    attributes: dict[str, Any], *, opset: int = 25, queries: int = Lq, past: int = 0, **more: torch.Tensor
) -> Given:
    q, k, v = torch.randn(B, Hq, queries, D), torch.randn(B, Hk, Lk, D), torch.randn(B, Hk, Lk, Dv)
    if past:
        more |= {"past_key": torch.randn(B, Hk, past, D), "past_value": torch.randn(B, Hk, past, Dv)}
    return Given({"Q": q, "K": k, "V": v, **more}, attributes, opset)


def assert_right(given: Given, found: dict[str, torch.Tensor]) -> None:
    """Raise unless what someone else found is right, in every output."""
    exact, plain = given.to(torch.float64).by_body(), given.by_body()
    for name, actual in found.items():
        assert_agrees(actual, exact[name], plain[name])


def masked_by_row(given: Given) -> bool:
    """Whether the mask has an axis of queries, and it is not of size 1."""
    mask = given.inputs.get("attn_mask")
    return mask is None or (mask.ndim > 1 and mask.shape[-2] == given.inputs["Q"].shape[-2])


def total(given: Given) -> int:
    return given.inputs["K"].shape[-2] + (PAST if "past_key" in given.inputs else 0)


def reference_agrees(given: Given) -> bool:
    """Outside of the differences tested below."""
    shows_raw = given.attributes.get("qk_matmul_output_mode") == 0
    return (masked_by_row(given) or "is_causal" not in given.attributes) and not (
        shows_raw and "softcap" in given.attributes
    )


def runtime_agrees(given: Given) -> bool:
    """Outside of the differences tested below."""
    mask, of = given.inputs.get("attn_mask"), given.attributes
    is_whole = mask is None or mask.shape[-1] == total(given)
    steps = given.inputs["Q"].shape[-2] == 1 and given.inputs["K"].shape[-2] > 1 and "past_key" in given.inputs
    return (
        masked_by_row(given)
        and is_whole
        and "left_window_size" not in of
        and of.get("qk_matmul_output_mode") != 2
        and not (steps and "is_causal" in of)
    )


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("opset", [23, 24, 25])
def test_the_reference_agrees_elsewhere(opset: int, seed: int) -> None:
    given = next(each for n in range(100) if reference_agrees(each := drawn(1000 * seed + n, opset)))
    given = given.to(torch.float32)
    assert_right(given, given.by_reference())
    assert_right(given, given.by_headwise())


@pytest.mark.needs("onnxruntime")
@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("opset", [23, 24, 25])
def test_onnxruntime_agrees_elsewhere(opset: int, seed: int) -> None:
    given = next(each for n in range(100) if runtime_agrees(each := drawn(2000 * seed + n, opset)))
    given = given.to(torch.float32)
    assert_right(given, given.by_runtime())
    assert_right(given, given.by_headwise())


ROW = torch.ones(1, Lk).bool()
REFERENCE = {
    # it draws the frontier with as many rows as the mask has, and repeats that of query 0
    "a frontier under a mask that queries share": call({"is_causal": 1}, attn_mask=ROW),
    # it keeps the capped scores for mode 0, which is that of the raw ones
    "raw scores beside a softcap": call({"softcap": 1.5, "qk_matmul_output_mode": 0}),
    # it pads a short mask in opset 23 too, which has no such rule, and there a size of 1 broadcasts
    "a mask that keys share, in opset 23": call({}, opset=23, attn_mask=torch.ones(Lq, 1).bool()),
}
RUNTIME = {
    # it drops the frontier where there is one query, which is only right for a single new key
    "one query, several new keys and a past": (call({"is_causal": 1}, queries=1, past=PAST), "the error is"),
    # it shows the lowest number of the dtype where a key is hidden
    "scores after the mask": (call({"is_causal": 1, "qk_matmul_output_mode": 2}), "0 entries are -inf"),
}


@pytest.mark.parametrize("name", REFERENCE)
def test_the_reference_differs(name: str) -> None:
    given = REFERENCE[name]
    assert_right(given, given.by_headwise())
    with pytest.raises(BudgetError, match="the error is"):
        assert_right(given, given.by_reference())


def test_the_reference_stops_at_a_frontier_under_a_mask_of_one_axis() -> None:
    given = call({"is_causal": 1}, attn_mask=torch.ones(Lk).bool())
    assert_right(given, given.by_headwise())
    with pytest.raises(ValueError, match="not enough values to unpack"):
        given.by_reference()


@pytest.mark.needs("onnxruntime")
@pytest.mark.parametrize("name", RUNTIME)
def test_onnxruntime_differs(name: str) -> None:
    given, sentence = RUNTIME[name]
    assert_right(given, given.by_headwise())
    with pytest.raises(BudgetError, match=sentence):
        assert_right(given, given.by_runtime())


NOT_RUN = {
    "a window": (call({"left_window_size": 2}), "Unrecognized attribute: left_window_size"),
    "a mask of one axis": (call({}, attn_mask=torch.ones(Lk).bool()), "attn_mask must be 2D or 3D or 4D"),
    "a mask that queries share": (call({}, attn_mask=ROW), "inconsistent q_sequence_length"),
    "a short mask": (call({}, attn_mask=torch.ones(Lq, 3).bool()), "inconsistent total_sequence_length"),
}


@pytest.mark.needs("onnxruntime")
@pytest.mark.parametrize("name", NOT_RUN)
def test_onnxruntime_does_not_run(name: str) -> None:
    from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidGraph, RuntimeException

    given, sentence = NOT_RUN[name]
    assert_right(given, given.by_headwise())
    with pytest.raises((Fail, InvalidGraph, RuntimeException), match=sentence):
        given.by_runtime()
