"""Call keys: all that the checks of a call and the choice of its backend read beside its mask, to remember it by."""

from __future__ import annotations

from collections.abc import Hashable

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from headwise.masks.derived_tensors import is_capturing
from headwise.ops.call import Rules

__all__ = ["PLAIN_KEY", "key_of", "kernels_are_on", "stream_of"]

PLAIN = (Tensor, nn.Parameter)
# the parts of the key of a call without dropout, softcap, sink and generator
PLAIN_KEY = 8


def key_of(q: Tensor, k: Tensor, v: Tensor, rules: Rules, backend: str) -> Hashable | None:
    """All that the checks of a call and the choice of its backend read beside the mask; None: it must be checked.

    None: while compiling, under a transform, a dispatch mode or autocast, for tensors that are not plain ones on the
    CPU or one CUDA device, with a bias, and with a mask while a CUDA graph is captured.
    """
    if torch.compiler.is_compiling() or (backend != "auto" and backend != "sdpa") or rules["attn_bias"] is not None:
        return None
    scale, sink, dropout = rules["scale"], rules["sink"], rules["dropout"]
    # 1.0, 1 and True are one key, and True is refused
    if (scale is not None and type(scale) is not float) or type(dropout) not in (float, int):
        return None
    if sink is not None and type(sink) not in PLAIN:
        return None
    for t in (q, k, v):
        if type(t) not in PLAIN or not (t.is_cpu or t.is_cuda):
            return None
        if t.device != q.device or t.layout is not torch.strided or t.stride()[-1:] != (1,):
            return None
    if k.dtype is not q.dtype or v.dtype is not q.dtype:
        return None
    if (
        torch._C._functorch.peek_interpreter_stack() is not None
        or torch._C._len_torch_dispatch_stack()
        or forward_ad._current_level >= 0
        or torch.is_autocast_enabled(q.device.type)
        or not kernels_are_on(q)
        or (q.is_cuda and rules["mask"] is not None and is_capturing())
    ):
        return None
    is_differentiated = torch.is_grad_enabled() and (
        q.requires_grad or k.requires_grad or v.requires_grad or (sink is not None and sink.requires_grad)
    )
    threads = torch.get_num_threads()
    layouts = (q.shape, k.shape, v.shape, q.stride(), k.stride(), v.stride())
    key = (layouts, q.dtype, scale, backend, is_differentiated, threads, q.device, stream_of(q))
    if dropout == 0 and rules["softcap"] is None and sink is None:
        return key if rules["generator"] is None else None
    others = (dropout, rules["softcap"] is None, sink is None, rules["generator"] is None)
    return None if backend == "sdpa" else (*key, *others)


def kernels_are_on(q: Tensor) -> bool:
    """Whether torch may take each of the fused kernels that it has where q is."""
    if not torch._C._get_flash_sdp_enabled():
        return False
    return q.is_cpu or (torch._C._get_mem_efficient_sdp_enabled() and torch._C._get_cudnn_sdp_enabled())


def stream_of(q: Tensor) -> int:
    """The CUDA stream on which a call runs: what was made on another may not be there yet; 0: on the CPU."""
    return 0 if q.is_cpu else int(torch._C._cuda_getCurrentRawStream(q.get_device()))
