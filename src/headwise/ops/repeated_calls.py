"""Repeated calls: those like one before go to the backend that was chosen then, to torch's kernel without a check."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.compiler import is_dynamo_compiling

from headwise.masks import Mask
from headwise.masks.derived_tensors import DerivedTable, is_capturing, layout_table, plain_table, room, table
from headwise.masks.leaves import Allowed, Causal
from headwise.ops import grouped_queries, sdpa
from headwise.ops.backends import Backend
from headwise.ops.call import Call, Rules
from headwise.ops.dense_mask import may_have_empty_rows, may_hide_keys
from headwise.ops.device_calls import DeviceCall, device_call
from headwise.ops.sdpa_arguments import Kernel, arguments
from headwise.ops.second_derivative import SecondDerivative

# calls without a mask that are remembered; a mask keeps its own
MOST_CALLS = 256
# a mask as scores to add is kept up to this many, where torch makes them anew of a bool tensor in each call
MOST_SCORES_KEPT = 1 << 20
# on a GPU a mask of numbers, 32 MiB in halves
MOST_DEVICE_SCORES_KEPT = 1 << 24

PLAIN = (Tensor, nn.Parameter)

# what compares three tensors with those of a call before in one step: their types, dtypes, sizes, strides, devices,
# what requires gradients, and the modes and transforms that are at work, but not grad mode; not in every torch
Guards: Any = getattr(torch._C._dynamo.guards, "TensorGuards", None)
# the newest calls that are recognized by their guards, those with one mask
MOST_GUARDED = 4
_without_mask: dict[Hashable, RepeatedCall | DeviceCall | Backend] = {}


@dataclass(slots=True, frozen=True)
class RepeatedCall:
    """The arguments of torch's kernel beside q, k and v, for calls of the same shapes, dtypes, flags and mask.

    attn_mask: scores to add, broadcastable to (B, Hq, Lq, Lk), None: all pairs, or is_causal. second: what the node is
    given for second derivatives. joined: how many query heads share each key head, where their queries are joined and
    attn_mask is made for these; 0: none are. has_masked: whether a key is masked for all queries, or a query may attend
    to nothing, so that NaN and inf of theirs must not spread. has_tail: whether the kernel may take a row of NaN for
    one that may attend to nothing.
    """

    attn_mask: Tensor | None
    is_causal: bool
    scale: float
    dropout: float
    is_grouped: bool
    second: SecondDerivative
    joined: int = 0
    has_masked: bool = False
    has_tail: bool = False

    def run(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | Tensor | None, *, numbers: int = 0
    ) -> tuple[Tensor, bool]:
        """What torch's kernel gives (B, Hq, Lq, Dv), and whether it is the result.

        It is not where NaN or inf may have come in: that is left to the checked way, which takes it from here.
        mask: not read, since attn_mask was made of it. numbers: how many k and the outputs hold, where `GuardedCall`
        says so.
        """
        if self.joined:
            out = grouped_queries.attend(q, k, v, self.attn_mask, self.joined, self.scale)
        else:
            out = F.scaled_dot_product_attention(
                q, k, v, self.attn_mask, self.dropout, self.is_causal, scale=self.scale, enable_gqa=self.is_grouped
            )
        if self.has_masked and not sdpa.is_unharmed(out, k, numbers):
            return out, False
        if self.has_tail and not sdpa.has_no_zero(out):
            return out, False
        return out, not out.requires_grad or self.second.attach(out)


class GuardedCall(NamedTuple):
    """A repeated call, and what recognizes it: guards of q, k and v, and all else that its key holds.

    has_grad: whether grad mode was on. stream: the CUDA stream on which what is kept was made; 0: none. numbers: how
    many k and the outputs hold alike, where both lie in memory without gaps, the call is small, float32 and
    differentiated; else 0.
    """

    guards: Any
    scale: float | None
    backend: str
    threads: int
    has_grad: bool
    numbers: int
    stream: int
    call: RepeatedCall | DeviceCall

    def run(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | Tensor | None) -> tuple[Tensor, bool]:
        """What its call gives."""
        if self.numbers and isinstance(self.call, RepeatedCall):
            return self.call.run(q, k, v, mask, numbers=self.numbers)
        return self.call.run(q, k, v, mask)


# those without a mask; a mask keeps its own
_guarded_without_mask = DerivedTable((), (), ())


def again(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask | Tensor | None, scale: float | None, backend: str
) -> tuple[Tensor | None, bool]:
    """What `run` gives of a call without further rules that is recognized; of others None and False."""
    known = recognized(q, k, v, mask, scale, backend)
    return (None, False) if known is None else known.run(q, k, v, mask)


def recognized(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask | Tensor | None, scale: float | None, backend: str
) -> GuardedCall | None:
    """What `find` gives for the key of a call without further rules, in half the time; None: ask for its key."""
    # what other compilers trace is no plain tensor, which the guards refuse
    if is_dynamo_compiling():
        return None
    kept: DerivedTable | None = _guarded_without_mask
    if mask is not None:
        kept = getattr(mask, "_table", None) or getattr(mask, "_layout_table", None)
    if kept is None or (mask is not None and q.is_cuda and is_capturing()):
        return None
    for known in kept.guarded:
        if (
            known.guards.check(q, k, v)
            and type(known.scale) is type(scale)
            and known.scale == scale
            and type(backend) is str
            and known.backend == backend
            and known.has_grad is torch.is_grad_enabled()
            and known.threads == torch.get_num_threads()
            and forward_ad._current_level < 0
            and _kernels_are_on(q)
            and known.stream == _stream(q)
        ):
            return known if not kept.tensors or kept.is_current() else None
    return None


def _kernels_are_on(q: Tensor) -> bool:
    """Whether torch may take each of the fused kernels that it has where q is."""
    if not torch._C._get_flash_sdp_enabled():
        return False
    return q.is_cpu or (torch._C._get_mem_efficient_sdp_enabled() and torch._C._get_cudnn_sdp_enabled())


def _stream(q: Tensor) -> int:
    """The CUDA stream on which a call runs: what was made on another may not be there yet; 0: on the CPU."""
    return 0 if q.is_cpu else int(torch._C._cuda_getCurrentRawStream(q.get_device()))


def _guard(kept: DerivedTable, key: Any, call: Call, repeated: RepeatedCall | DeviceCall, out: Tensor) -> None:
    """Have the next such calls recognized; key: theirs, which has no further rules."""
    _, _, scale, backend, _, threads, _, stream = key
    guards = Guards(call.q, call.k, call.v, dynamic_dims_sizes=None, dynamic_dims_strides=None)
    k, numbers = call.k, out.numel()
    is_small = k.is_cpu and out.requires_grad and k.dtype is torch.float32 and k.numel() == numbers < sdpa.GRAIN
    has_gaps = not (is_small and _is_dense(k) and _is_dense(out))
    has_grad = torch.is_grad_enabled()
    newest = GuardedCall(guards, scale, backend, threads, has_grad, 0 if has_gaps else numbers, stream, repeated)
    kept.guarded = (newest, *kept.guarded[: MOST_GUARDED - 1])


def _is_dense(t: Tensor) -> bool:
    """Whether heads or tokens follow one another in memory without gaps."""
    return t.is_contiguous() or t.transpose(1, 2).is_contiguous()


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
        or not _kernels_are_on(q)
        or (q.is_cuda and rules["mask"] is not None and is_capturing())
    ):
        return None
    is_differentiated = torch.is_grad_enabled() and (
        q.requires_grad or k.requires_grad or v.requires_grad or (sink is not None and sink.requires_grad)
    )
    threads = torch.get_num_threads()
    layouts = (q.shape, k.shape, v.shape, q.stride(), k.stride(), v.stride())
    key = (layouts, q.dtype, scale, backend, is_differentiated, threads, q.device, _stream(q))
    if dropout == 0 and rules["softcap"] is None and sink is None:
        return key if rules["generator"] is None else None
    others = (dropout, rules["softcap"] is None, sink is None, rules["generator"] is None)
    return None if backend == "sdpa" else (*key, *others)


def find(mask: Mask | Tensor | None, key: Hashable) -> RepeatedCall | DeviceCall | Backend | None:
    """What was remembered of a call with this mask and key; None: there was none."""
    if mask is None:
        return _without_mask.get(key)
    if not isinstance(mask, Mask):
        return None
    # a call that has a key is made where results may be kept
    kept = plain_table(mask) or layout_table(mask)
    return None if kept is None else kept.results.get(key)


def remember(call: Call, key: Hashable, chosen: Backend, out: Tensor) -> None:
    """Keep the backend of a checked call, which gave `out`; of torch's kernel, what it was given.

    Not where that was given copies of q, k or v, or a mask too large to be kept.
    """
    kept = _guarded_without_mask if call.mask is None else table(call.mask) or layout_table(call.mask)
    if kept is None:
        return
    repeated = None
    if chosen.name == "sdpa":
        repeated = _repeated(call) if call.q.is_cpu else _repeated_on_device(call)
    scores = repeated.attn_mask if isinstance(repeated, RepeatedCall) else None
    size = 0 if scores is None else scores.nbytes + scores.numel()
    if call.mask is None:
        with room.lock:
            if len(_without_mask) >= MOST_CALLS:
                _without_mask.pop(next(iter(_without_mask)), None)
            _without_mask[key] = repeated or chosen
    else:
        kept.add(key, repeated or chosen, size)
    if repeated is not None and Guards is not None and not call.dropout:
        _guard(kept, key, call, repeated, out)


def _repeated(call: Call) -> RepeatedCall | None:
    """What torch's kernel gets; None where that is copies of q, k or v, or a mask too large to be kept."""
    at = arguments(call)
    scores, has_masked = at.attn_mask, False
    mask: Mask | None = Causal() if at.is_causal else None
    if at.q is not call.q or at.k is not call.k or at.v is not call.v:
        return None
    if scores is not None:
        if scores.numel() > MOST_SCORES_KEPT:
            return None
        # a mask of its own, since what is kept with a mask must not keep the mask
        with torch.inference_mode(False):
            mask = Allowed(scores.clone())
            has_masked = not (scores.any(dim=-1).all() and scores.any(dim=-2).all())
            scores = torch.zeros(scores.shape, dtype=call.q.dtype).masked_fill_(~scores, float("-inf"))
    joined = call.groups if grouped_queries.are_joined(call) else 0
    if joined:
        scores = grouped_queries.joined_scores(scores, joined)
    has_tail = call.k.shape[2] % sdpa.VECTOR > 0
    return _kept(call, at, mask, scores, joined, has_masked, has_tail)


def _repeated_on_device(call: Call) -> RepeatedCall | DeviceCall | None:
    """The same on a GPU: a mask of numbers is kept as scores to add, where nothing of a key or a row is cleared."""
    at = arguments(call)
    if at.attn_mask is not None:
        kept = table(call.mask) if call.mask is not None else None
        is_cleared = may_hide_keys(call.mask, call.sizes) or may_have_empty_rows(call.mask, call.sizes)
        if kept is None or kept.tensors or is_cleared or at.attn_mask.numel() > MOST_DEVICE_SCORES_KEPT:
            return device_call(call)
    if at.q is not call.q or at.k is not call.k or at.v is not call.v:
        return None
    scores = at.attn_mask
    with torch.inference_mode(False):
        if scores is not None:
            scores = torch.zeros_like(scores, dtype=call.q.dtype).masked_fill_(~scores, float("-inf"))
    # a mask of numbers is the key of what is kept with it
    return _kept(call, at, call.mask, scores)


def _kept(call: Call, at: Kernel, mask: Mask | None, scores: Tensor | None, *others: Any) -> RepeatedCall:
    """The arguments of a call. mask: that of its second derivatives. others: joined, has_masked, has_tail."""
    second = SecondDerivative({"mask": mask, "attn_bias": None, "scale": call.multiplier, "dropout": call.dropout})
    return RepeatedCall(scores, at.is_causal, call.multiplier, call.dropout, at.is_grouped, second, *others)
