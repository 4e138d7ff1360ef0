"""ONNX export: a model written to a file in which headwise's attention is the standard Attention operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from headwise.atomic_write import write_whole
from headwise.compat.onnx.exporter_warnings import quiet_exporter
from headwise.errors import ArgumentError
from headwise.masks.leaves import Causal
from headwise.ops import attention
from headwise.ops.call import Call, cast_by_autocast, checked
from headwise.wording import refusal

__all__ = ["export"]

FIRST_OPSET = 23


def export(
    model: nn.Module, args: Sequence[Any], path: str | Path, *, dynamic_shapes: Any = None, opset: int = FIRST_OPSET
) -> None:
    """Write `model` as an ONNX file in which each call of `hw.attention` that fits is one Attention operator.

    model: a layer, or any module that calls headwise; exported as it is in eval mode, and handed back in its own. args:
    example inputs of its forward, in order. dynamic_shapes: which axes may have any size, as `torch.export.export`
    takes it; None: none may. opset: 23 or later, which the runtime must know.

    Masks, biases, grouped heads, scale and softcap fit the operator. A sink and additive scoring do not: these become
    plain operators with the same numbers, but for float64, whose constants torch 2.13 rounds to float32 there, and ONNX
    in a softcap. An explicit `backend=` is exported as it computes. A query that may attend to nothing gets zeros,
    whatever the runtime makes of such a row. `torch.onnx.export(..., dynamo=True, opset_version=23)` alone finds the
    operator too, but not where there is a softcap, and onnxruntime 1.31 does not run what it writes for a mask that all
    queries share.

    Warnings of the model come through; those of the exporter about itself, and about headwise's constants, do not.
    Raises ArgumentError for a lower opset, for one that torch does not write (2.13: above 25), for args that are no
    tuple or list, for a folder that does not exist, and for dropout that is on in eval mode too.

    Needs the packages onnx and onnxscript, of the extra `onnx`; else InputError.
    Vaswani et al. 2017, arXiv:1706.03762; ONNX operator Attention-23.

    >>> import tempfile, onnx, headwise as hw
    >>> x, any_size = torch.randn(2, 3, 8), {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export(hw.MultiHeadAttention(8, 2), (x,), f"{folder}/layer.onnx", dynamic_shapes=(any_size,))
    ...     graph = onnx.load(f"{folder}/layer.onnx").graph
    >>> sum(node.op_type == "Attention" for node in graph.node)
    1
    """
    _check(model, args, path, opset)
    for package in ("onnx", "onnxscript"):
        if find_spec(package) is None:
            raise refusal("refuse.extra", package=package, extra="onnx")
    modes = {part: part.training for part in model.modules()}
    try:
        model.eval()
        with quiet_exporter(), torch.no_grad():
            with Operators():
                program = torch.export.export(model, tuple(args), dynamic_shapes=dynamic_shapes, strict=False)
            written = torch.onnx.export(program, dynamo=True, opset_version=opset, verbose=False)
    finally:
        for part, was_training in modes.items():
            part.training = was_training
    version = None if written is None else written.model.opset_imports.get("")
    if written is None or version != opset:
        # torch 2.13 only logs that it could not, and its program fits no opset
        raise ArgumentError(
            f"torch.onnx.export must write opset {opset}, but gave {version}: give one that this version "
            f"of torch writes, such as {FIRST_OPSET}"
        )
    # a large one has its weights in a file beside it
    write_whole(Path(path), written.save, force=True)


def _check(model: Any, args: Any, path: Any, opset: Any) -> None:
    """Raise unless there is something to export, and somewhere to write it."""
    if not isinstance(model, nn.Module):
        raise ArgumentError(f"export takes an nn.Module, but {type(model).__name__} came: put the call into a forward")
    if not isinstance(path, str | Path):
        raise ArgumentError(f"path must be the name of a file, but {type(path).__name__} came: give a str or a Path")
    if not isinstance(args, tuple | list):
        raise ArgumentError(
            f"args must be a tuple of what forward takes, but {type(args).__name__} came: write (x,) for one input"
        )
    folder = Path(path).resolve().parent
    if not folder.is_dir():
        raise ArgumentError(f"path must lie in a folder that exists, but {folder.name!r} does not: make it first")
    if type(opset) is not int or opset < FIRST_OPSET:
        raise ArgumentError(
            f"the Attention operator came with opset {FIRST_OPSET}, but opset={opset!r}: give {FIRST_OPSET} or more, "
            "or use torch.onnx.export, which then writes plain operators"
        )


class Operators(TorchFunctionMode):
    """Makes each call of `hw.attention` that fits an Attention operator, while a model is traced for ONNX."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        options = dict(kwargs or {})
        if func is attention and options.get("backend", "auto") == "auto":
            call = checked(
                *cast_by_autocast(*args), **{name: value for name, value in options.items() if name != "backend"}
            )
            if call.dropout:
                raise ArgumentError(f"a program for ONNX draws no numbers, but dropout={call.dropout}: leave it out")
            if call.sink is None:
                return _operator(call)
        return func(*args, **options)


def _operator(call: Call) -> Tensor:
    """One Attention operator of a traced program, with zeros where a query may attend to nothing."""
    # it brings sympy, which takes a second to import
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    q, k, v, attn_mask, is_causal = call.q, call.k, call.v, None, False
    if type(call.mask) is Causal and call.attn_bias is None and statically_known_true(q.shape[2] == k.shape[2]):
        # as many queries as keys: the frontier of every version of the operator
        is_causal = True
    elif call.mask is not None:
        k, v = call.without_hidden_keys()
        attn_mask = call.allowed
    may_attend, dtype = attn_mask, q.dtype
    if call.attn_bias is not None:
        bias = call.attn_bias if call.attn_bias.ndim == 4 else call.attn_bias[None, None]
        # the operator adds a bias of the queries' dtype, and a wider one must not be narrowed
        dtype = dtype if bias.dtype is dtype else torch.promote_types(dtype, torch.float32)
        bias = bias.to(dtype)
        attn_mask = bias if may_attend is None else torch.where(may_attend, bias, float("-inf"))
        may_attend = ~attn_mask.isneginf()
    # the operator takes the square root of the scale, and in float32; torch rounds plain numbers to it too
    is_theirs = call.multiplier > 0 and dtype is not torch.float64
    q, scale = (q, call.multiplier) if is_theirs else (q * q.new_tensor(call.multiplier), 1.0)
    inputs = [q.to(dtype), k.to(dtype), v.to(dtype)]
    if attn_mask is not None:
        # a last axis of one is a short mask from opset 24 on, and onnxruntime 1.31 repeats no axis of queries
        inputs.append(attn_mask.expand(*attn_mask.shape[:2], q.shape[2], k.shape[2]))
    mixed: Tensor = torch.onnx.ops.symbolic(
        "Attention",
        inputs,
        {"is_causal": int(is_causal), "scale": scale, "softcap": call.softcap or 0.0},
        dtype=dtype,
        shape=(*q.shape[:3], v.shape[3]),
    )
    mixed = mixed if may_attend is None else mixed.masked_fill(~may_attend.any(dim=-1, keepdim=True), 0.0)
    return mixed.to(q.dtype)
