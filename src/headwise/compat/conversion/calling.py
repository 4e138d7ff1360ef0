"""Calling: a question put to somebody's module in the words of its forward."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from headwise.errors import AttentionError

__all__ = ["CannotAskError", "Question", "additive", "ask", "in_float64"]


class Question(NamedTuple):
    """One call of attention: query (B, Lq, E), keys (B, Lk, kdim), values (B, Lk, vdim), and allowed (B, 1, Lq, Lk).

    is_self: keys and values are the query itself. allowed: None: every query sees every key.
    """

    name: str
    query: Tensor
    keys: Tensor
    values: Tensor
    allowed: Tensor | None
    is_self: bool


class CannotAskError(AttentionError):
    """A module whose forward has no words for a question."""


def ask(module: nn.Module, _: object, question: Question) -> Tensor:
    """The answer of a module, called by the names that its forward gives its arguments.

    Known: hidden_states and an added mask, with key_value_states or encoder_hidden_states for other keys; valid_lens
    after queries, keys, values; mask of 1 and 0 after query, key, value; or one input and no mask.
    """
    names = list(inspect.signature(module.forward).parameters)
    x, keys, values, allowed = question.query, question.keys, question.values, question.allowed
    if "hidden_states" in names:
        return _asked_in_hidden_states(module, names, question)
    if "valid_lens" in names:
        return _output(module(x, keys, values, valid_lens(question)))
    if len(names) >= 4 and names[3] in ("mask", "attention_mask", "attn_mask"):
        # a mask of three axes is (B, Lq, Lk) to the Annotated Transformer, which adds the heads itself
        adds_heads = hasattr(module, "linears")
        given = allowed[:, 0] if allowed is not None and adds_heads else allowed
        return _output(module(x, keys, values, given))
    if len(names) == 1 and question.is_self and allowed is None:
        return _output(module(x))
    raise CannotAskError(f"forward({', '.join(names)}) has no words for {question.name}")


def _asked_in_hidden_states(module: nn.Module, names: list[str], question: Question) -> Tensor:
    given: dict[str, Any] = {}
    if not question.is_self:
        other = next((name for name in ("key_value_states", "encoder_hidden_states") if name in names), None)
        if other is None:
            raise CannotAskError(f"forward({', '.join(names)}) takes no other keys")
        given[other] = question.keys
    crosses = not question.is_self and "encoder_attention_mask" in names
    masks = ["encoder_attention_mask"] if crosses else [name for name in ("mask", "attention_mask") if name in names]
    if not masks:
        raise CannotAskError(f"forward({', '.join(names)}) takes no mask")
    given[masks[0]] = additive(question)
    return _output(module(question.query, **given))


def valid_lens(question: Question) -> Tensor | None:
    """How many leading keys each query sees, (B, Lq); CannotAskError where it does not see leading keys only."""
    if question.allowed is None:
        return None
    counts = question.allowed[:, 0].sum(-1)
    leading = torch.arange(question.keys.shape[1], device=counts.device) < counts[..., None]
    if not torch.equal(leading, question.allowed[:, 0]):
        raise CannotAskError(f"valid_lens cannot say {question.name}")
    return counts


def additive(question: Question) -> Tensor | None:
    """The mask as Hugging Face's eager attention adds it, (B, 1, Lq, Lk): 0, or the lowest number there is."""
    if question.allowed is None:
        return None
    lowest = torch.finfo(question.query.dtype).min
    return torch.zeros_like(question.allowed, dtype=question.query.dtype).masked_fill(~question.allowed, lowest)


@contextmanager
def in_float64() -> Iterator[None]:
    """A block in which float64 is never narrowed to float32, as many modules do to be safe in halves."""
    with _Widened():
        yield


class _Widened(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if args and isinstance(args[0], Tensor) and args[0].dtype == torch.float64:
            if func is Tensor.float:
                return args[0]
            kwargs = {name: torch.float64 if value is torch.float32 else value for name, value in kwargs.items()}
            args = tuple(torch.float64 if value is torch.float32 else value for value in args)
        return func(*args, **kwargs)


def _output(answer: Any) -> Tensor:
    output: Tensor = answer[0] if isinstance(answer, tuple) else answer
    return output
