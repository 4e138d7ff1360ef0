"""ONNX's own tests of its Attention operator, every one, through hw.compat.onnx.attention."""

import warnings
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from headwise.compat import onnx as ours

pytestmark = pytest.mark.needs("onnx")
# as in onnx/backend/test/runner: two steps of bfloat16
BFLOAT16_STEPS = 2**-6


def listed() -> dict[str, Any]:
    """The cases of the installed onnx by name; those named expanded are the same cases without the operator."""
    if not find_spec("onnx"):
        return {"onnx is missing": None}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # its cases are made as it is imported
        import_module("onnx.backend.test.case.node.attention")
        made = import_module("onnx.backend.test.case.node")._NodeTestCases
    operators = {case.name: case for case in made if case.model.graph.node[0].op_type == "Attention"}
    return {name.removeprefix("test_attention_"): case for name, case in operators.items()}


CASES = listed()


def tensor(array: Any) -> Tensor:
    """torch knows no bfloat16 of numpy."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.astype(np.float32)).bfloat16()
    return torch.from_numpy(np.array(array))


def test_the_cases_are_all_that_onnx_1_23_has() -> None:
    opsets = [case.model.opset_import[0].version for case in CASES.values()]
    assert {opset: opsets.count(opset) for opset in sorted(set(opsets))} == {23: 69, 24: 13, 25: 11}


@pytest.mark.parametrize("name", CASES)
def test_the_outputs_are_those_of_the_case(name: str) -> None:
    from onnx import helper

    case = CASES[name]
    node, ((inputs, outputs),) = case.model.graph.node[0], case.data_sets
    attributes = {each.name: helper.get_attribute_value(each) for each in node.attribute}
    if len(node.output) == 4:
        attributes.setdefault("qk_matmul_output_mode", 0)
    arrays = iter(inputs)
    given = [tensor(next(arrays)) if each else None for each in node.input]
    found = ours.attention(*given, **attributes, opset=case.model.opset_import[0].version)
    got = [each for each, wanted in zip(found, node.output, strict=False) if wanted]
    for actual, wanted in zip(got, map(tensor, outputs), strict=True):
        assert (actual.dtype, actual.shape) == (wanted.dtype, wanted.shape)
        rtol = max(case.rtol, BFLOAT16_STEPS) if actual.dtype is torch.bfloat16 else case.rtol
        torch.testing.assert_close(actual, wanted, rtol=rtol, atol=case.atol)
