"""Kernels in Triton for a GPU: statistics of the weights, and additive attention; importing this imports no triton."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from importlib.util import find_spec
from shutil import which
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from headwise.ops.call import Call, transformed
from headwise.ops.triton_kernels.tile_table import packed_entries
from headwise.wording import say

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# features of a row of q, k or v that a program holds: more would not fit the memory that smaller cards share
WIDEST = 128
# bytes of the entries of a mask's mixed tiles, up to which the kernels are taken by themselves
MOST_ENTRIES = 1 << 28


def are_taken(call: Call, block: int) -> bool:
    """Whether the kernels, in tiles of this size, are taken without being named, where none has a reason against it.

    That is for plain tensors on a GPU that runs them, outside of programs that record operations, and for masks that
    take little memory there: one with tensors on the device, of whose tiles the host knows nothing, has an entry for
    each of its pairs.
    """
    if call.q.device.type != "cuda" or not all(type(t) in (Tensor, Parameter) for t in call.tensors):
        return False
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or torch._C._len_torch_dispatch_stack():  # type: ignore[attr-defined, no-untyped-call]  # torch leaves it untyped
        return False
    # a table of tiles is made on the host, which a captured graph would not make again
    if not are_compiled(call.q.device) or torch.cuda.is_current_stream_capturing():
        return False
    return max(call.q.shape[-1], call.v.shape[-1]) <= WIDEST and packed_entries(call, block) <= MOST_ENTRIES


@lru_cache(maxsize=64)
def are_compiled(device: torch.device) -> bool:
    """Whether Triton's kernels can be made for a device: it is there, with a compiler, and the device has bfloat16."""
    if device.type != "cuda" or find_spec("triton") is None or torch.cuda.get_device_capability(device) < (8, 0):
        return False
    return any(map(which, (os.environ.get("CC", ""), "cc", "gcc", "clang")))


def on_device(call: Call) -> AbstractContextManager[Any]:
    """A block in which kernels are launched where q is: Triton asks for the current device."""
    return torch.cuda.device(call.q.device) if call.q.device.type == "cuda" else nullcontext()


def why_no_statistics(call: Call) -> str:
    """One sentence on why the kernels do not compute the statistics of a call's weights; "" where they do."""
    return _why_not(call)


def why_not_additive(call: Call) -> str:
    """One sentence on why the kernels do not compute a call of additive attention; "" where they do."""
    if call.weight is None:
        return "the kernels of additive attention need weight (Hq, D), but the call scores by q·k"
    if call.dropout:
        return f"the kernels have no dropout, but dropout={call.dropout}"
    widest = max(call.q.shape[-1], call.v.shape[-1])
    if widest > WIDEST:
        return f"the kernels of additive attention hold up to {WIDEST} features, but {widest} came"
    for name in ("attn_bias", "softcap", "sink"):
        if getattr(call, name) is not None:
            return f"the kernels of additive attention have no {name}"
    return _why_not(call)


def _why_not(call: Call) -> str:
    """What keeps every kernel from a call."""
    if call.q.dtype not in DTYPES:
        return f"the kernels take float32, bfloat16 and float16, but q is {call.q.dtype}"
    if transformed(call):
        return "the kernels have no rule for torch.func transforms and forward-mode derivatives"
    if find_spec("triton") is None:
        return f"triton is not installed: {say('install.extra', extra='gpu')}"
    if call.q.device.type == "cuda":
        return ""
    from headwise.ops.triton_kernels.scores import INTERPRETED

    if call.q.device.type == "cpu" and INTERPRETED:
        return ""
    return f"the kernels run on CUDA devices, but q is on {call.q.device}"
