"""Oracles and measured budgets, for headwise's own tests and for other people's test suites."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from headwise.errors import ArgumentError, AttentionError
from headwise.masks import Mask
from headwise.ops import reference

# how many times as wrong as plain PyTorch a path may be, both against float64
FACTOR = 2.0


class BudgetError(AttentionError, AssertionError):
    """A result is further from the float64 one than plain PyTorch in the same dtype justifies."""


def exact_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Mask | Tensor | None = None,
    attn_bias: Tensor | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sink: Tensor | None = None,
) -> Tensor:
    """The reference in float64: what a path in any dtype is measured against.

    Shapes and meanings as in `hw.attention`.

    >>> q = torch.randn(1, 2, 3, 4, dtype=torch.bfloat16)
    >>> exact_attention(q, q, q).dtype
    torch.float64
    """
    q, k, v = q.double(), k.double(), v.double()
    attn_bias, sink = (t if t is None else t.double() for t in (attn_bias, sink))
    return reference.attention(q, k, v, mask=mask, attn_bias=attn_bias, scale=scale, softcap=softcap, sink=sink)


def plain_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    allowed: Tensor | None = None,
    attn_bias: Tensor | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sink: Tensor | None = None,
) -> Tensor:
    """Attention as one writes it in PyTorch: matmul in the dtype, softmax in float32, cast, matmul.

    q (B, Hq, Lq, D), k (B, Hk, Lk, D), v (B, Hk, Lk, Dv) -> (B, Hq, Lq, Dv). allowed: bool, True = may attend. Its
    distance from float64 is the yardstick of `assert_within_budget`, so it shares no code with headwise.

    >>> q = torch.randn(1, 2, 3, 4)
    >>> plain_attention(q, q, q).shape
    torch.Size([1, 2, 3, 4])
    """
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    scores = (q @ k.transpose(-1, -2)) * (q.shape[-1] ** -0.5 if scale is None else scale)
    wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
    if softcap is not None:
        wide = softcap * torch.tanh(wide / softcap)
    if attn_bias is not None:
        wide = wide + attn_bias
    if allowed is not None:
        wide = torch.where(allowed, wide, float("-inf"))
    if sink is not None:
        column = sink.to(wide.dtype).view(1, -1, 1, 1).expand(*wide.shape[:3], 1)
        wide = torch.cat([wide, column], dim=-1)
    weights = torch.softmax(wide, dim=-1)[..., : k.shape[2]]
    if allowed is not None:
        weights = torch.where(allowed, weights, 0.0)
    return weights.to(v.dtype) @ v


def assert_within_budget(actual: Tensor, exact: Tensor, plain: Tensor, *, factor: float = FACTOR) -> None:
    """Raise BudgetError unless `actual` is at most `factor` times as far from `exact` as `plain` is.

    All of one shape; exact in float64; actual and plain in one dtype. Distances are the largest over all entries; a
    few rounding steps of the largest entry are free, as where plain happens to be exact. NaN must stand where NaN
    stands.

    >>> x = torch.randn(5, dtype=torch.float64)
    >>> assert_within_budget(x.float(), x, x.float())
    >>> assert_within_budget(x.float() * 1.001, x, x.float())
    Traceback (most recent call last):
    ...
    headwise.testing.BudgetError: ...
    """
    if actual.shape != exact.shape or actual.dtype is not plain.dtype:
        raise BudgetError(
            f"shape and dtype must be {tuple(exact.shape)} and {plain.dtype}; got {tuple(actual.shape)} and "
            f"{actual.dtype}"
        )
    if not torch.equal(actual.isnan(), exact.isnan()):
        raise BudgetError(f"{int(actual.isnan().sum())} entries are NaN, but {int(exact.isnan().sum())} should be")
    if actual.numel() == 0:
        return
    exact = exact.double().nan_to_num()
    error = (actual.double().nan_to_num() - exact).abs().max().item()
    yardstick = (plain.double().nan_to_num() - exact).abs().max().item()
    free = 4 * torch.finfo(actual.dtype).eps * max(exact.abs().max().item(), torch.finfo(actual.dtype).tiny)
    if not error <= factor * yardstick + free:
        raise BudgetError(
            f"the error is {error:.3g}, but plain PyTorch's is {yardstick:.3g} and {factor} times that is allowed"
        )


def assert_path_invariant(call: Callable[[nn.Module], Tensor], layer: nn.Module, exact: Tensor, plain: Tensor) -> None:
    """Raise BudgetError unless `call(layer)` gives the same numbers in training and in eval, with and without grad.

    call: runs the layer on inputs of the caller's choosing, without dropout. exact, plain: as in
    `assert_within_budget`. The layer's mode is restored.

    >>> import headwise as hw
    >>> attn, x = hw.MultiHeadAttention(8, 2), torch.randn(2, 3, 8)
    >>> exact = hw.MultiHeadAttention(8, 2, dtype=torch.float64)
    >>> _ = exact.load_state_dict(attn.state_dict())
    >>> assert_path_invariant(lambda layer: layer(x), attn, exact(x.double()), attn(x))
    """
    was_training = layer.training
    try:
        for training in (True, False):
            layer.train(training)
            for context in (torch.enable_grad, torch.no_grad, torch.inference_mode):
                with context():
                    assert_within_budget(call(layer).detach().clone(), exact.detach(), plain.detach())
    finally:
        layer.train(was_training)


class SoundnessError(AttentionError, AssertionError):
    """The doctor finds a fault in an attention class."""


def assert_sound(
    target: type[nn.Module] | nn.Module | Callable[..., object],
    *,
    call: Mapping[str, Any] | None = None,
    **init: object,
) -> None:
    """Raise SoundnessError unless the doctor finds no fault in a class, a function or a module that is built.

    init: how the class is built, sizes as numbers or symbols ("H*d"), where the doctor is not to find that out;
    call: how it is called, as `hw.doctor` takes
    it. The error is the doctor's report; that there is nothing it could examine is an error too.

    >>> assert_sound(lambda q, k, v: torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, dim=-1) @ v)
    """
    from headwise.diagnosis import doctor

    # pytest shows the line of the test, and not this one
    __tracebackhide__ = True
    if isinstance(init.get("init"), dict):
        raise ArgumentError(
            f"the arguments of the constructor must come by name, but init={init['init']!r} came: write "
            f"assert_sound({getattr(target, '__name__', 'target')}, **{init['init']!r})"
        )
    found = doctor(target, init=init or None, call=call)
    if found.verdict != "sound":
        raise SoundnessError(str(found))
