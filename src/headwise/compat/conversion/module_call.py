"""Module call: a user's module called with test inputs, bound to the parameter names of its forward."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from headwise.errors import AttentionError

__all__ = ["CannotAskError", "Question", "additive", "ask", "in_float64", "twin_of"]

# how forwards name the number of leading keys that a query sees, and a mask of 1 and 0
_LENGTHS = ("valid_lens", "valid_len", "valid_lengths", "lens", "lengths", "vl")
_MASKS = ("mask", "attention_mask", "attn_mask", "src_mask")
_STARRED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


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
    """The answer of a module, called as its forward asks for.

    By names: hidden_states and an added mask, with key_value_states or encoder_hidden_states for other keys. By place:
    query, keys and values, or one input, whatever they are called; then what masks keys, known by its name: a mask of
    1 and 0, or how many leading keys count. Where that has another name, only calls without a mask are made.
    """
    words = [p for p in inspect.signature(module.forward).parameters.values() if p.kind not in _STARRED]
    names = [word.name for word in words]
    if "hidden_states" in names:
        return _asked_in_hidden_states(module, names, question)
    hiding = next((word for word in words if word.name in (*_LENGTHS, *_MASKS)), None)
    before = words if hiding is None else words[: words.index(hiding)]
    needed = [word for word in before if word.default is word.empty and word.kind is not word.KEYWORD_ONLY]
    inputs = next((count for count in (3, 1) if len(needed) >= count), 0)
    # one more, of any other name, may be what masks keys
    unknown = needed[inputs:]
    is_askable = inputs == 3 or (inputs == 1 and question.is_self)
    if not is_askable or len(unknown) > (hiding is None and inputs == 3):
        raise CannotAskError(f"forward({', '.join(names)}) has no words for {question.name}")
    masks = _hidden_as(module, hiding, question)
    answer = _output(module(*question[1:4][:inputs], *(None for _ in unknown), **masks))
    if answer.shape[:2] != question.query.shape[:2]:
        raise CannotAskError(f"forward({', '.join(names)}) answers {question.name} with {tuple(answer.shape)}")
    return answer


def _hidden_as(module: nn.Module, hiding: inspect.Parameter | None, question: Question) -> dict[str, Any]:
    """The mask of a question, under the name that the module has for it."""
    allowed = question.allowed
    if hiding is None:
        if allowed is not None:
            raise CannotAskError(
                f"{type(module).__name__} has no argument that is known to mask keys for {question.name}"
            )
        return {}
    if hiding.name in _LENGTHS:
        return {hiding.name: valid_lens(question)}
    # a mask of three axes is (B, Lq, Lk) to the Annotated Transformer, which adds the heads itself
    adds_heads = hasattr(module, "linears")
    return {hiding.name: allowed[:, 0] if allowed is not None and adds_heads else allowed}


def _asked_in_hidden_states(module: nn.Module, names: list[str], question: Question) -> Tensor:
    options: dict[str, Any] = {}
    if not question.is_self:
        key_argument = next((name for name in ("key_value_states", "encoder_hidden_states") if name in names), None)
        if key_argument is None:
            raise CannotAskError(f"forward({', '.join(names)}) takes no other keys")
        options[key_argument] = question.keys
    crosses = not question.is_self and "encoder_attention_mask" in names
    masks = ["encoder_attention_mask"] if crosses else [name for name in ("mask", "attention_mask") if name in names]
    if not masks:
        raise CannotAskError(f"forward({', '.join(names)}) takes no mask")
    options[masks[0]] = additive(question)
    return _output(module(question.query, **options))


def twin_of(module: nn.Module) -> Any:
    """A copy of a module, in which what it keeps of its last call has no way back to that call."""
    with _Parted():
        return copy.deepcopy(module)


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


class _Parted(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # torch refuses to copy what a call has computed, such as the weights that a module keeps to show
        if func is Tensor.__deepcopy__ and not args[0].is_leaf:
            tensor, memo = args
            memo[id(tensor)] = tensor.detach().clone()
            return memo[id(tensor)]
        return func(*args, **(kwargs or {}))


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
