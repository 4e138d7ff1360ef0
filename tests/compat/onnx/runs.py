"""Calls of ONNX's Attention operator, drawn at random, and who else computes them: its function body and its runtimes.

The body is the operator's own definition in plain operators, which onnx hands out for each opset. It is the oracle; the
two runtimes leave it here and there, and tests/compat/test_onnx_peers.py says where.
"""

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headwise.compat import onnx as ours
from headwise.testing import BudgetError, assert_within_budget
from tests.sizes import SIZES

NAMES = ("Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen")
OUTPUTS = ("Y", "present_key", "present_value", "qk_matmul_output")
# 1/sqrt(D) has an exact square root, which the operator takes in float32
B, Hq, Hk, D, Dv = SIZES["B"], SIZES["Hq"], SIZES["Hk"], 16, SIZES["Dv"]
PAST = 4


@dataclass
class Given:
    """One call: tensors by the operator's names, attributes, and the opset whose rules hold."""

    inputs: dict[str, Tensor]
    attributes: dict[str, Any] = field(default_factory=dict)
    opset: int = 25

    def to(self, dtype: torch.dtype) -> "Given":
        """The same call with its floating tensors in another dtype."""
        cast = {name: t.to(dtype) if t.is_floating_point() else t for name, t in self.inputs.items()}
        return Given(cast, self.attributes, self.opset)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The outputs that the call asks for; presents go only without a cache kept outside."""
        presents = OUTPUTS[1:3] if "nonpad_kv_seqlen" not in self.inputs else ()
        return ("Y", *presents, *(OUTPUTS[3:] if "qk_matmul_output_mode" in self.attributes else ()))

    def by_headwise(self) -> dict[str, Tensor]:
        """What `hw.compat.onnx.attention` gives."""
        found = ours.attention(**self.inputs, **self.attributes, opset=self.opset)
        return {name: getattr(found, name) for name in self.outputs}

    def by_body(self) -> dict[str, Tensor]:
        """What the operator's function body gives."""
        from onnx.backend.test.case.node import function_expand_helper

        model, body = self._model(), self._body()
        nodes = function_expand_helper(model.graph.node[0], body, "body_")
        del model.graph.node[:]
        model.graph.node.extend(nodes)
        del model.opset_import[:]
        model.opset_import.extend(body.opset_import)
        return self._evaluated(model)

    def by_reference(self) -> dict[str, Tensor]:
        """What onnx.reference gives, whose operator is written apart from the body."""
        return self._evaluated(self._model())

    def by_runtime(self) -> dict[str, Tensor]:
        """What onnxruntime gives."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        # a refusal is raised; it need not be printed too
        options.log_severity_level, options.intra_op_num_threads = 4, 1
        session = onnxruntime.InferenceSession(self._model().SerializeToString(), options)
        return self._named(session.run(None, self._arrays()))

    def _model(self) -> Any:
        from onnx import helper

        names = ["" if name not in self.inputs else name for name in NAMES]
        wanted = ["" if name not in self.outputs else name for name in OUTPUTS]
        node = helper.make_node("Attention", _trimmed(names), _trimmed(wanted), **self.attributes)
        kinds = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in self._arrays().items()}
        given = [helper.make_tensor_value_info(name, kinds[name], self.inputs[name].shape) for name in self.inputs]
        found = [helper.make_tensor_value_info(name, kinds["Q"], None) for name in self.outputs]
        graph = helper.make_graph([node], "one_operator", given, found)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=11)

    def _body(self) -> Any:
        import onnx

        model = self._model()
        node, types = model.graph.node[0], {given.name: given.type for given in model.graph.input}
        listed = [types.get(name, onnx.TypeProto()).SerializeToString() for name in node.input]
        schema = onnx.defs.get_schema("Attention", self.opset)
        version = schema.context_dependent_function_opset_versions[-1]
        body = schema.get_context_dependent_function_with_opset_version(version, node.SerializeToString(), listed)
        return onnx.FunctionProto.FromString(body)

    def _evaluated(self, model: Any) -> dict[str, Tensor]:
        from onnx.reference import ReferenceEvaluator

        # -inf minus -inf, in rows that are then set to zero
        with np.errstate(all="ignore"):
            return self._named(ReferenceEvaluator(model).run(None, self._arrays()))

    def _arrays(self) -> dict[str, Any]:
        return {name: t.numpy() for name, t in self.inputs.items()}

    def _named(self, arrays: list[Any]) -> dict[str, Tensor]:
        return {name: torch.from_numpy(array) for name, array in zip(self.outputs, arrays, strict=True)}


def _trimmed(names: list[str]) -> list[str]:
    """The names up to the last one that is not left out."""
    return names[: max(n for n, name in enumerate(names, 1) if name)]


def drawn(seed: int, opset: int) -> Given:
    """A random call in float64: three or four axes, masks of every rank, a past or a length, every attribute."""
    rng, g = random.Random(seed), torch.Generator().manual_seed(seed)
    Lq, Lk, P = rng.choice([1, 5, 5]), rng.choice([1, 7, 7]), rng.choice([0, 0, PAST])
    heads, groups = rng.choice([(Hq, Hk), (Hk, Hk), (Hq, 1)])
    total = Lk + P

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=g, dtype=torch.float64)

    four = {"Q": normal(B, heads, Lq, D), "K": normal(B, groups, Lk, D), "V": normal(B, groups, Lk, Dv)}
    call = Given(four, {}, opset)
    if rng.random() < 0.4:
        call.inputs = {name: t.transpose(1, 2).flatten(2) for name, t in four.items()}
        call.attributes |= {"q_num_heads": heads, "kv_num_heads": groups}
    if P:
        call.inputs |= {"past_key": normal(B, groups, P, D), "past_value": normal(B, groups, P, Dv)}
    elif opset >= 24 and rng.random() < 0.4:
        call.inputs["nonpad_kv_seqlen"] = torch.randint(0, total + 1, (B,), generator=g)
    if rng.random() < 0.7:
        rank = rng.randint(1, 4)
        shape = [n if rng.random() < 0.7 else 1 for n in (B, heads, Lq)][3 - (rank - 1) :]
        scores = normal(*shape, total if opset < 24 or rng.random() < 0.5 else rng.randint(1, total))
        call.inputs["attn_mask"] = rng.choice([scores > -0.5, scores.masked_fill(scores < -1, float("-inf"))])
    if opset >= 25 and rng.random() < 0.6:
        call.attributes |= {"left_window_size": rng.choice([-1, 0, 2]), "right_window_size": rng.choice([-1, 0, 1])}
    others = {"is_causal": [1], "softcap": [1.5], "scale": [0.5625], "qk_matmul_output_mode": [0, 1, 2, 3]}
    call.attributes |= {name: rng.choice(values) for name, values in others.items() if rng.random() < 0.6}
    return call


def assert_agrees(actual: Tensor, exact: Tensor, plain: Tensor) -> None:
    """Within the budget, and -inf exactly where -inf stands."""
    hidden = exact.isneginf()
    if not torch.equal(actual.isneginf(), hidden):
        raise BudgetError(f"{int(actual.isneginf().sum())} entries are -inf, but {int(hidden.sum())} should be")
    assert_within_budget(*(t.masked_fill(hidden, 0.0) for t in (actual, exact, plain)))
