"""The layer beside nn.MultiheadAttention, and beside projections and SDPA as one writes them by hand."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import headwise as hw
from benchmarks.harness import (
    EXTRA_MICROSECONDS,
    RATIO,
    Case,
    Cases,
    Quantity,
    Tensors,
    WrongNumbersError,
    same_numbers,
)
from headwise.testing import plain_attention

Form = Literal["separate", "packed"]


@dataclass(frozen=True)
class Sizes:
    """Batch, length, width and heads of self-attention."""

    B: int
    L: int
    E: int = 512
    H: int = 8

    def __str__(self) -> str:
        return f"B={self.B} L={self.L} E={self.E} H={self.H}"


class Written(nn.Module):
    """Self-attention as it is written by hand, with three projections or with one packed one."""

    def __init__(self, E: int, H: int, form: Form) -> None:
        super().__init__()
        self.H = H
        self.into = nn.ModuleList([nn.Linear(E, E) for _ in range(3)] if form == "separate" else [nn.Linear(E, 3 * E)])
        self.out = nn.Linear(E, E)

    def forward(self, x: Tensor) -> Tensor:
        """x (B, L, E) -> (B, L, E)."""
        B, L, E = x.shape
        parts = [project(x) for project in self.into] if len(self.into) == 3 else self.into[0](x).chunk(3, dim=-1)
        q, k, v = (part.view(B, L, self.H, E // self.H).transpose(1, 2) for part in parts)
        out: Tensor = self.out(self.mix(q, k, v).transpose(1, 2).reshape(B, L, E))
        return out

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """(B, H, L, D) each -> (B, H, L, D)."""
        return F.scaled_dot_product_attention(q, k, v)


def forward() -> Cases:
    """Forward in eval beside nn.MultiheadAttention, whose own fast path runs without gradients only."""
    for L, target in ((128, 0.95), (512, 1.2), (2048, 1.4)):
        yield beside_torch(Sizes(4, L), has_grad=False, target=target)
        yield beside_torch(Sizes(4, L), has_grad=True)


def training() -> Cases:
    """Forward and backward in training beside nn.MultiheadAttention, as it is called by default and without weights.

    The target is for the default. Without weights both sides do the same matrix products and little else: theirs ran
    at 81 to 88 % of the rate of such products alone (torch 2.13, float32), so 1.15 to 1.23 is the most there is.
    """
    for L in (512, 2048):
        yield training_beside_torch(Sizes(4, L), need_weights=True, target=1.3)
        yield training_beside_torch(Sizes(4, L), need_weights=False)


def written() -> Cases:
    """Forward beside what a person writes by hand."""
    for B in (1, 4):
        for L in (16, 64, 256, 1024, 2048):
            for form in ("separate", "packed"):
                yield beside_written(Sizes(B, L), form, target=0.95)


def overhead() -> Cases:
    """What one call costs beside the same work written by hand, where there is little work."""
    for has_grad in (False, True):
        for form in ("separate", "packed"):
            yield beside_written(Sizes(1, 16), form, has_grad=has_grad, quantity=EXTRA_MICROSECONDS, target=60)


def beside_torch(at: Sizes, *, has_grad: bool, target: float | None = None) -> Case:
    """One forward of both layers in eval with the same weights."""
    torch.manual_seed(0)
    layer, their_layer, x = hw.MultiHeadAttention(at.E, at.H).eval(), torch_layer(at).eval(), inputs(at)
    load(layer, weights_of(their_layer))

    def ours() -> Tensors:
        with torch.set_grad_enabled(has_grad):
            return (layer(x),)

    def theirs() -> Tensors:
        with torch.set_grad_enabled(has_grad):
            return (their_layer(x, x, x, need_weights=False)[0],)

    defined = functools.partial(definition, x, weights_of(their_layer), at.H)
    check = same_numbers(ours, theirs, defined, x.dtype)
    name = f"forward eval {'with grad' if has_grad else 'no_grad'}"
    return Case(name, "nn.MHA need_weights=False", str(at), "float32", ours, theirs, check, target=target)


def training_beside_torch(at: Sizes, *, need_weights: bool, dropout: float = 0.0, target: float | None = None) -> Case:
    """One forward and backward of both layers in training, to the gradients of the input and of every parameter.

    With dropout, the numbers are compared without it, and each side is seen to draw anew.
    """
    torch.manual_seed(0)
    layer, their_layer, x = hw.MultiHeadAttention(at.E, at.H), torch_layer(at), inputs(at).requires_grad_()
    weights, weight_of_out = weights_of(their_layer), inputs(at)
    load(layer, weights)

    def ours() -> Tensors:
        return differentiated(layer(x), [x, *layer.parameters()], weight_of_out)

    def theirs() -> Tensors:
        out = their_layer(x, x, x, need_weights=need_weights)[0]
        return differentiated(out, [x, *their_layer.parameters()], weight_of_out)

    def ours_packed() -> Tensors:
        out, dx, dWq, dbq, dWk, dbk, dWv, dbv, dWo, dbo = ours()
        return out, dx, torch.cat([dWq, dWk, dWv]), torch.cat([dbq, dbk, dbv]), dWo, dbo

    defined = functools.partial(definition, x, weights, at.H, weight_of_out=weight_of_out)

    def check() -> None:
        layer.dropout = their_layer.dropout = 0.0
        same_numbers(ours_packed, theirs, defined, x.dtype)()
        layer.dropout = their_layer.dropout = dropout
        for side, run in (("ours", ours), ("theirs", theirs)):
            if dropout and torch.equal(run()[0], run()[0]):
                raise WrongNumbersError(f"{side} gives the same output twice, so it drops nothing")

    beside = f"nn.MHA need_weights={need_weights}"
    name = f"train, dropout {dropout}, f+b" if dropout else "forward+backward train"
    return Case(name, beside, str(at), "float32", ours, theirs, check, target=target)


def beside_written(
    at: Sizes, form: Form, *, has_grad: bool = False, quantity: Quantity = RATIO, target: float | None = None
) -> Case:
    """One forward of the layer and of the same thing written by hand, with the same weights."""
    torch.manual_seed(0)
    layer, by_hand, x = hw.MultiHeadAttention(at.E, at.H), Written(at.E, at.H, form), inputs(at)
    weights = tuple(torch.cat([getattr(p, kind) for p in by_hand.into]).detach() for kind in ("weight", "bias"))
    weights += (by_hand.out.weight.detach(), by_hand.out.bias.detach())
    load(layer, weights)

    def called(module: nn.Module) -> Callable[[], Tensors]:
        def run() -> Tensors:
            with torch.set_grad_enabled(has_grad):
                return (module(x),)

        return run

    ours, theirs = called(layer), called(by_hand)
    check = same_numbers(ours, theirs, functools.partial(definition, x, weights, at.H), x.dtype)
    name = f"forward {'with grad' if has_grad else 'no_grad'}"
    return Case(name, f"{form} Linears + SDPA", str(at), "float32", ours, theirs, check, quantity, target)


def definition(
    x: Tensor,
    weights: Tensors,
    H: int,
    dtype: torch.dtype,
    *,
    weight_of_out: Tensor | None = None,
    turn: Callable[[Tensor], Tensor] | None = None,
    allowed: Tensor | None = None,
) -> Tensors:
    """Self-attention in dtype: out, and given its weight in a loss, also the gradients of x and of the weights.

    turn: what queries and keys go through, None: nothing. allowed: bool (L, L), None: all. Sample by sample, so that
    one (H, L, L) matrix is held at a time.
    """
    x = x.detach().to(dtype).requires_grad_(weight_of_out is not None)
    weights = tuple(w.detach().to(dtype).requires_grad_(weight_of_out is not None) for w in weights)
    W, b, W_out, b_out = weights
    outs = []
    for index in range(x.shape[0]):
        L, E = x.shape[1:]
        q, k, v = (x[index] @ W.T + b).view(1, L, 3, H, E // H).permute(2, 0, 3, 1, 4)
        if turn is not None:
            q, k = turn(q), turn(k)
        out = plain_attention(q, k, v, allowed=allowed).transpose(1, 2).reshape(L, E) @ W_out.T + b_out
        if weight_of_out is not None:
            out.backward(weight_of_out[index].to(dtype))
        outs.append(out.detach())
    gradients = (t.grad for t in (x, *weights) if t.grad is not None)
    return torch.stack(outs), *gradients


def differentiated(out: Tensor, to: list[Tensor], weight: Tensor) -> Tensors:
    """out, and the gradients of sum(out * weight)."""
    return out, *torch.autograd.grad(out, to, weight)


def inputs(at: Sizes) -> Tensor:
    """Activations of a unit spread."""
    return torch.randn(at.B, at.L, at.E)


def torch_layer(at: Sizes) -> nn.MultiheadAttention:
    """nn.MultiheadAttention with biases that are not all zero, which they are at first."""
    layer = nn.MultiheadAttention(at.E, at.H, batch_first=True)
    for bias in (layer.in_proj_bias, layer.out_proj.bias):
        nn.init.normal_(bias)
    return layer


def weights_of(layer: nn.MultiheadAttention) -> Tensors:
    """The packed weight and bias of the three projections, then weight and bias of the output's."""
    packed = (layer.in_proj_weight, layer.in_proj_bias, layer.out_proj.weight, layer.out_proj.bias)
    return tuple(t.detach() for t in packed)


def load(layer: hw.MultiHeadAttention, weights: Tensors) -> None:
    """Give our layer these weights, packed as nn.MultiheadAttention packs them; biases only where it has them."""
    W, b, W_out, b_out = weights
    rows = zip(("q_proj", "k_proj", "v_proj", "out_proj"), (*W.chunk(3), W_out), (*b.chunk(3), b_out), strict=True)
    loaded = {f"{name}.{kind}": t for name, w, c in rows for kind, t in (("weight", w), ("bias", c))}
    layer.load_state_dict({name: t for name, t in loaded.items() if name in layer.state_dict()})
