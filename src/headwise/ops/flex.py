"""FlexAttention: torch's block-sparse kernel, its blocks made from a mask's tiles; no (Lq, Lk) tensor is made.

Dong et al. 2024, arXiv:2412.05496. torch.nn.attention.flex_attention is imported where it is used: it brings the
compiler with it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils import _pytree as pytree

from headwise.masks import Mask
from headwise.masks.coordinates import Grid, Point
from headwise.masks.derived_tensors import derived, has_function
from headwise.masks.leaves import Causal
from headwise.ops import reference
from headwise.ops.call import Call, transformed
from headwise.ops.flex_blocks import BLOCK, Blocks, blocks, number, shape_of, with_tensors
from headwise.ops.sdpa_arguments import reads_bias_wrong
from headwise.ops.triton_kernels import are_compiled

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
# torch's Triton kernels refuse narrower heads
NARROWEST = 16
# what a call on a GPU may hold without it, in bytes: to compile it takes seconds, and it saves milliseconds
MOST_HELD = 1 << 30
NAMED = 'to compile it takes seconds: name it with backend="flex"'
# structures of masks that are compiled; the next one is refused by torch
MOST_COMPILED = 256
# the tensors of a call that a gradient may flow to
LEARNED = ("q", "k", "v", "attn_bias", "sink")

ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


class FlexRules(NamedTuple):
    """What the kernel asks of a call: the mask, the bias with four axes, sink (Hq,), and 0-d tensors.

    offset: the position of the first query. multiplier: of the scores. column: the index of the key that is the sink,
    None: the sink is no key. Numbers are tensors, of the mask too: others would be compiled into the kernel, or be
    symbols that torch 2.13 cannot compile on the CPU.
    """

    mask: Mask | None
    offset: Tensor
    column: Tensor | None
    multiplier: Tensor
    softcap: Tensor | None
    attn_bias: Tensor | None
    sink: Tensor | None


def why_not(call: Call) -> str:
    """Why FlexAttention cannot compute this call; "" where it can."""
    kind = call.q.device.type
    if call.weight is not None:
        return "FlexAttention scores by q·k only"
    if call.dropout:
        return "FlexAttention has no dropout"
    if call.q.dtype not in DTYPES:
        return f"FlexAttention computes float16, bfloat16 and float32, and q is {call.q.dtype}"
    if kind not in ("cpu", "cuda"):
        return f"FlexAttention is run on CPU and CUDA devices, and q is on {call.q.device}"
    if kind == "cpu" and torch.compiler.is_compiling():
        return "inside torch.compile, FlexAttention is run on CUDA devices only: on the CPU, call it uncompiled"
    if 0 in call.q.shape or 0 in call.v.shape:
        return "an axis is empty, and FlexAttention needs one entry at least"
    if torch.compiler.is_exporting():
        return "an exported program holds no FlexAttention"
    if forward_ad._current_level >= 0 if torch.compiler.is_compiling() else transformed(call):
        return "FlexAttention has no rule for torch.func transforms and forward-mode derivatives"
    if call.attn_bias is not None and call.attn_bias.requires_grad and torch.is_grad_enabled():
        return "FlexAttention gives no gradient to attn_bias here"
    if _learns(call) and not has_backward(call.q.device):
        return "FlexAttention has no backward on the CPU"
    if kind == "cpu" and not _compiles_on_cpu():
        capability = torch.backends.cpu.get_cpu_capability()
        return f"torch compiles FlexAttention for CPUs with AVX2, and this is {sys.platform} with {capability}"
    return ""


def why_slower(call: Call) -> str:
    """Why "auto" passes it over: "" on a GPU, where the call without it would hold much memory."""
    if call.q.device.type != "cuda" or torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack():
        return NAMED
    return NAMED if not are_compiled(call.q.device) or _held_without(call) < MOST_HELD else ""


def _held_without(call: Call) -> int:
    """The bytes that a call holds by another backend on a GPU, at least: weights, or a mask and its copy in halves."""
    B, Hq, Lq, Lk = call.sizes
    # the scores and the weights of the definition
    most = 2 * 4 * B * Hq * Lq * Lk
    if most < MOST_HELD or call.softcap is not None or call.sink is not None or reads_bias_wrong(call):
        return most
    if call.multiplier <= 0:
        return most
    if call.mask is None or (type(call.mask) is Causal and Lq in (1, Lk) and call.attn_bias is None):
        return 0
    samples, heads, rows = shape_of(call.mask, Grid.whole(call.sizes, call.q.device))
    return 0 if rows == 1 < Lq else 3 * samples * heads * Lq * Lk


def run(call: Call) -> Tensor:
    """The outputs of a checked call, (B, Hq, Lq, Dv)."""
    is_compiling, learns = torch.compiler.is_compiling(), _learns(call)
    has_column = call.sink is not None and not gives_lse(call.q.device)
    at = None if call.mask is None else _blocks_of(call, call.mask, has_column=has_column)
    tensors = call.q, call.k, call.v
    if not learns:
        # torch asks whether inputs require a gradient, not whether one is recorded
        tensors = call.q.detach(), call.k.detach(), call.v.detach()
    rules = _rules(call, has_column=has_column)
    attend = _attend if is_compiling else compiled(_attend, is_dynamic=_takes_any_size(rules))
    out: Tensor = attend(*tensors, at, rules, learns)
    if is_compiling or not learns:
        return out
    again: Tensor = _TwiceDifferentiable.apply(out, call, *(getattr(call, name) for name in LEARNED))  # type: ignore[no-untyped-call]
    return again


@lru_cache(maxsize=8)
def compiled(function: Callable[..., Any], *, is_dynamic: bool) -> Callable[..., Any]:
    """A function, compiled once for each structure of its arguments; is_dynamic: whatever their sizes are."""
    made: Callable[..., Any] = torch.compile(  # type: ignore[call-overload]  # its overloads lack what it takes
        function, fullgraph=True, dynamic=is_dynamic, recompile_limit=MOST_COMPILED, isolate_recompiles=True
    )
    return made


def _takes_any_size(rules: FlexRules) -> bool:
    """Whether the compiled kernel takes tensors of any size into its functions, or none has a size.

    torch 2.13 writes the kernel of the CPU by replacing names of symbols in its text: that of one may begin another's.
    """
    if rules.offset.device.type != "cpu":
        return True
    if rules.mask is not None and has_function(rules.mask):
        return False
    tensors = pytree.tree_leaves((rules.mask, rules.attn_bias, rules.sink))
    return all(t.ndim == 0 for t in tensors if t is not None)


def gives_lse(device: torch.device) -> bool:
    """Whether the compiled kernel gives the logsumexp of each row; else a sink is one more key, whose value is 0."""
    return device.type != "cpu"


def has_backward(device: torch.device) -> bool:
    """Whether torch has a backward for its kernel there."""
    return device.type != "cpu"


def _attend(q: Tensor, k: Tensor, v: Tensor, at: Blocks | None, rules: FlexRules, learns: bool) -> Tensor:
    """One call of FlexAttention, with everything that is made around it."""
    from torch.nn.attention.flex_attention import AuxRequest, BlockMask, flex_attention

    Lq, Dv, has_column = q.shape[2], v.shape[3], rules.column is not None
    if at is not None:
        k, v = k.masked_fill(at.hidden, 0.0), v.masked_fill(at.hidden, 0.0)
    if has_column:
        k, v = F.pad(k, (0, 0, 0, 1)), F.pad(v, (0, 0, 0, 1))
    if q.device.type == "cuda":
        q, k, v = (F.pad(t, (0, max(0, NARROWEST - t.shape[3]))) for t in (q, k, v))
    block_mask = None
    if at is not None and rules.mask is not None:
        block_mask = BlockMask.from_kv_blocks(
            *at[:4], BLOCK_SIZE=(BLOCK, BLOCK), mask_mod=_mask_mod(rules.mask, rules), seq_lengths=(Lq, k.shape[2]),
            compute_q_blocks=learns,
        )  # fmt: skip
    arguments: dict[str, Any] = {"block_mask": block_mask, "scale": 1.0, "enable_gqa": q.shape[1] != k.shape[1]}
    if rules.sink is None or has_column:
        out: Tensor = flex_attention(q, k, v, _score_mod(rules), **arguments)
    else:
        out, more = flex_attention(q, k, v, _score_mod(rules), return_aux=AuxRequest(lse=True), **arguments)
        # a row that sees nothing has an lse of -inf, and a sink may be -inf too
        share = torch.sigmoid(more.lse - rules.sink[:, None]).masked_fill(more.lse.isneginf(), 0.0)
        out = (out * share[..., None]).to(q.dtype)
    return out[..., :Dv]


def _score_mod(rules: FlexRules) -> ScoreMod:
    """The rules of a call as FlexAttention asks for them."""
    _, _, column, multiplier, softcap, bias, sink = rules

    def score_mod(score: Tensor, b: Tensor, h: Tensor, row: Tensor, key: Tensor) -> Tensor:
        changed = score * multiplier
        if softcap is not None:
            changed = softcap * torch.tanh(changed / softcap)
        if bias is not None:
            at = _within(key, column)
            changed = changed + Point(b, h, row, at, row, at).pairs(bias).to(score.dtype)
        if multiplier.device.type == "cpu":
            # torch 2.13 takes rows of NaN for empty ones there, and makes NaN of inf
            changed = torch.where(changed.isnan(), float("inf"), changed)
        if column is not None and sink is not None:
            changed = torch.where(key == column, sink[h].to(score.dtype), changed)
        return changed

    return score_mod


def _mask_mod(mask: Mask, rules: FlexRules) -> MaskMod:
    """The mask of a call as FlexAttention asks for it."""
    offset, column = rules.offset, rules.column

    def mask_mod(b: Tensor, h: Tensor, row: Tensor, key: Tensor) -> Tensor:
        at = _within(key, column)
        allowed = mask.allows(Point(b, h, row, at, row + offset, at))
        return allowed if column is None else allowed | (key == column)

    return mask_mod


def _within(key: Tensor, column: Tensor | None) -> Tensor:
    # nothing is known of the sink's own place
    return key if column is None else torch.minimum(key, column - 1)


def _rules(call: Call, *, has_column: bool) -> FlexRules:
    """The rules of a call, all of them tensors where q is, made there without a copy from the host."""
    device, Lq, Lk = call.q.device, call.q.shape[2], call.k.shape[2]
    bias, sink = (t if t is None or _learns(call) else t.detach() for t in (call.attn_bias, call.sink))
    return FlexRules(
        None if call.mask is None else with_tensors(call.mask, device),
        number(Lk - Lq, device),
        number(Lk, device) if has_column else None,
        torch.full((), call.multiplier, dtype=torch.float32, device=device),
        None if call.softcap is None else torch.full((), call.softcap, dtype=torch.float32, device=device),
        bias[None, None] if bias is not None and bias.ndim == 2 else bias,
        sink,
    )


def _blocks_of(call: Call, mask: Mask, *, has_column: bool) -> Blocks:
    """The blocks of a call's mask, kept with it."""
    sizes, groups, device = call.sizes, call.groups, call.q.device
    if torch.compiler.is_compiling():
        return blocks(mask, *sizes, groups, device, has_column)
    # not compiled: torch 2.11 fails to on a GPU for ids of documents
    key = ("flex blocks", *sizes, groups, device, has_column)
    return derived(mask, key, lambda: blocks(mask, *sizes, groups, device, has_column))


def _learns(call: Call) -> bool:
    return torch.is_grad_enabled() and any(t.requires_grad for t in call.tensors)


def _compiles_on_cpu() -> bool:
    return sys.platform != "darwin" and torch.backends.cpu.get_cpu_capability().startswith("AVX")


class _TwiceDifferentiable(torch.autograd.Function):
    """Hands `out` on; where a second derivative is wanted, its gradient is that of the definition, recomputed."""

    @staticmethod
    def forward(ctx: Any, out: Tensor, call: Call, *tensors: Tensor | None) -> Tensor:
        ctx.save_for_backward(*tensors)
        ctx.rules = {name: getattr(call, name) for name in ("mask", "scale", "softcap")}
        return out.view_as(out)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        if not torch.is_grad_enabled():
            return gradients[0], None, *(None for _ in LEARNED)
        # views: the tensors may come from one another, and a gradient ends where it is asked for
        known: dict[str, Any] = {
            name: t if t is None else t.view_as(t) for name, t in zip(LEARNED, ctx.saved_tensors, strict=True)
        }
        wanted = [name for name, needed in zip(LEARNED, ctx.needs_input_grad[2:], strict=True) if needed]
        with torch.autocast(gradients[0].device.type, enabled=False):
            again = reference.run(Call(**known, **ctx.rules))
        inputs = [known[name] for name in wanted]
        found = dict(zip(wanted, torch.autograd.grad(again, inputs, gradients[0], create_graph=True), strict=True))
        return None, None, *(found.get(name) for name in LEARNED)
