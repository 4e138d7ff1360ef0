"""hw.attention beside F.scaled_dot_product_attention with the same rule, and additive scoring beside its plain form."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

import headwise as hw
from benchmarks.dropped import check_drops, check_same_drops
from benchmarks.harness import TIMES, Case, Cases, Tensors, compare, same_numbers
from benchmarks.layer import Sizes, differentiated, training_beside_torch
from benchmarks.machine import Machine
from benchmarks.rate import attention_flops
from benchmarks.rules import CAUSAL, PADDED, Rule, definition, documents, sampled_rows, window

# from here on a quick look leaves out
LONG = 8192


@dataclass(frozen=True)
class Shape:
    """One sample of self-attention: its length, heads and head size."""

    L: int
    H: int = 8
    D: int = 64

    def __str__(self) -> str:
        return f"B=1 H={self.H} D={self.D} L={self.L}"


def kernels() -> Cases:
    """What a user gets from backend="auto", rule by rule."""
    machine = Machine.here()
    has_bfloat16 = any(each in machine.flags for each in ("avx512_bf16", "amx_bf16"))
    is_wide = machine.kernels.startswith("AVX512")
    # where torch's kernel is the fastest, "auto" takes it
    for L in (2048, 8192):
        yield beside_sdpa(Shape(L), torch.bfloat16, target=1.9 if has_bfloat16 and is_wide else 1.0)
    yield beside_sdpa(Shape(2048), torch.bfloat16, has_backward=True, target=1.4)
    # here both sides run torch's kernel, so that only noise is between them
    for has_backward in (False, True):
        yield beside_sdpa(Shape(2048), has_backward=has_backward, target=0.97)
    yield beside_sdpa(Shape(512), rule=CAUSAL, target=1.15 if is_wide else 1.0)
    yield beside_sdpa(Shape(2048), dropout=0.1, target=3.5)
    yield beside_sdpa(Shape(2048), dropout=0.1, has_backward=True, target=1.8)
    yield beside_sdpa(Shape(2048), rule=PADDED, target=1.8)
    for L, target in ((2048, 2.5), (8192, 10)):
        yield beside_sdpa(Shape(L), rule=window(128), target=target)
    yield growth(Shape(8192), times=4, rule=window(128), target=4.6)
    yield beside_sdpa(Shape(8192), rule=documents(16), target=12)
    for need_weights in (True, False):
        yield training_beside_torch(Sizes(4, 512), need_weights=need_weights, dropout=0.1, target=1.6)
    yield additive(Shape(512, D=16), target=2)


def beside_sdpa(
    at: Shape,
    dtype: torch.dtype = torch.float32,
    *,
    rule: Rule | None = None,
    dropout: float = 0.0,
    has_backward: bool = False,
    target: float | None = None,
) -> Case:
    """One forward, or forward and backward to q, k and v, of both; the dense mask that SDPA needs is ready made."""
    q, k, v, weight_of_out = inputs(at, dtype)
    mask = None if rule is None else rule.mask(at.L)
    theirs_too = {} if rule is None else _for_sdpa(rule, at.L)

    def ours_of(v: Tensor, chance: float) -> Tensor:
        return hw.attention(q, k, v, mask=mask, dropout=chance)

    def theirs_of(v: Tensor, chance: float) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, dropout_p=chance, **theirs_too)

    def run(attend: Callable[[Tensor, float], Tensor], chance: float) -> Tensors:
        if has_backward:
            return differentiated(attend(v, chance), [q, k, v], weight_of_out)
        with torch.no_grad():
            return (attend(v, chance),)

    if has_backward:
        for t in (q, k, v):
            t.requires_grad_()

    def check() -> None:
        # the gradients of k and v are sums over all rows
        rows = torch.arange(at.L) if has_backward else sampled_rows(at.L)
        sides = [lambda each=each: _rows_of(run(each, 0.0), rows) for each in (ours_of, theirs_of)]
        weight = weight_of_out if has_backward else None
        same_numbers(*sides, lambda dtype: definition((q, k, v), rule, rows, dtype, weight), dtype)()
        if dropout:
            for side, each in (("ours", ours_of), ("theirs", theirs_of)):
                check_drops(side, each, q, k, dropout)
                if has_backward:
                    out, _, _, dv = run(each, dropout)
                    check_same_drops(side, out, weight_of_out, v, dv)

    seen = rule.allowed(torch.arange(at.L), at.L).expand(at.L, -1).sum().item() if rule is not None else at.L**2
    words = [*([rule.name] if rule is not None else []), *([f"dropout {dropout}"] if dropout else [])]
    return Case(
        ", ".join([*words, "f+b" if has_backward else "forward"]), "SDPA", str(at), str(dtype).removeprefix("torch."),
        lambda: run(ours_of, dropout), lambda: run(theirs_of, dropout), check, target=target,
        flops=attention_flops(pairs=seen, heads=at.H, D=at.D, has_backward=has_backward), is_long=at.L >= LONG,
    )  # fmt: skip


def growth(at: Shape, *, times: int, rule: Rule, target: float | None = None) -> Case:
    """Our own time at so many times the length over that at the length."""
    long = dataclasses.replace(at, L=times * at.L)

    def at_length(shape: Shape) -> tuple[Callable[[], Tensors], Callable[[], None]]:
        (q, k, v, _), mask, rows = inputs(shape, torch.float32), rule.mask(shape.L), sampled_rows(shape.L)

        def run() -> Tensors:
            return (hw.attention(q, k, v, mask=mask),)

        def check() -> None:
            exact, plain = (definition((q, k, v), rule, rows, dtype) for dtype in (torch.float64, torch.float32))
            compare("ours", _rows_of(run(), rows), exact, plain)

        return run, check

    (ours, check_long), (theirs, check_short) = at_length(long), at_length(at)

    def check() -> None:
        check_long()
        check_short()

    return Case(
        f"{rule.name}, forward", f"the same at L={at.L}", str(long), "float32", ours, theirs, check, TIMES, target,
        is_long=long.L >= LONG,
    )  # fmt: skip


def additive(at: Shape, *, target: float | None = None) -> Case:
    """One forward of additive scoring beside its formula as one writes it."""
    q, k, v, _ = inputs(at, torch.float32)
    weight = torch.randn(at.H, at.D)

    def ours() -> Tensors:
        with torch.no_grad():
            return (hw.additive_attention(q, k, v, weight),)

    def theirs() -> Tensors:
        with torch.no_grad():
            return (plain_additive(q, k, v, weight),)

    check = same_numbers(ours, theirs, lambda dtype: additive_definition((q, k, v), weight, dtype), torch.float32)
    return Case("additive forward", "its plain form", str(at), "float32", ours, theirs, check, target=target)


def plain_additive(q: Tensor, k: Tensor, v: Tensor, weight: Tensor) -> Tensor:
    """softmax(wᵀ tanh(q + k)) v with every sum q + k at once, (B, H, Lq, Lk, D)."""
    scores = torch.tanh(q[:, :, :, None] + k[:, :, None]) @ weight[:, None, :, None]
    return torch.softmax(scores.squeeze(-1), dim=-1) @ v


def additive_definition(qkv: Tensors, weight: Tensor, dtype: torch.dtype) -> Tensors:
    """The plain form in dtype, head by head, so that one head's sums are held at a time."""
    q, k, v = (t.to(dtype) for t in qkv)
    heads = (slice(h, h + 1) for h in range(q.shape[1]))
    parts = [plain_additive(q[:, h], k[:, h], v[:, h], weight[h].to(dtype)) for h in heads]
    return (torch.cat(parts, dim=1),)


def inputs(at: Shape, dtype: torch.dtype) -> Tensors:
    """q, k, v, and a weight for the output in a loss."""
    torch.manual_seed(0)
    return tuple(torch.randn(1, at.H, at.L, at.D).to(dtype) for _ in range(4))


def _for_sdpa(rule: Rule, L: int) -> dict[str, object]:
    return {"is_causal": True} if rule.is_causal else {"attn_mask": rule.allowed(torch.arange(L), L)}


def _rows_of(found: Tensors, rows: Tensor) -> Tensors:
    # gradients are compared whole
    return found[0][:, :, rows], *found[1:]
