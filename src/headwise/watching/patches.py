"""Patches: forwards of torch's own layers and the choice of a Hugging Face attention function, while a block runs."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from headwise.watching import hugging_face, native
from headwise.watching.ears import Ears, unreadable

__all__ = ["Patches"]

# called with the function as it was, and its arguments
Around = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


class Patches:
    """The methods of classes that are replaced while a block runs; put back by `remove`, in any order of blocks."""

    def __init__(self, ears: Ears) -> None:
        self._ears = ears
        self._made: list[tuple[Any, str, Any, Any]] = []

    def install(self) -> None:
        """Replace the methods."""
        ears = self._ears
        self._replace(nn.MultiheadAttention, "forward", functools.partial(_multi_head, ears))
        self._replace(F, "multi_head_attention_forward", functools.partial(_function, ears))
        self._replace(nn.TransformerEncoderLayer, "forward", functools.partial(_encoder_layer, ears))
        self._replace(nn.TransformerEncoder, "forward", functools.partial(_encoder, ears))
        if (interface := hugging_face.interface()) is not None:
            self._replace(interface, "get_interface", functools.partial(_get_interface, ears))

    def remove(self) -> None:
        """Put the methods back; one that another has replaced since stays below it, and does nothing any more."""
        while self._made:
            owner, name, original, ours = self._made.pop()
            if vars(owner).get(name) is ours:
                setattr(owner, name, original)

    def _replace(self, owner: Any, name: str, around: Around) -> None:
        original = vars(owner)[name]
        ears = self._ears

        @functools.wraps(original)
        def replaced(*args: Any, **options: Any) -> Any:
            if torch.compiler.is_compiling():
                return original(*args, **options)
            if not ears.is_open:
                with ears.elsewhere(args[0] if args else None):
                    return original(*args, **options)
            return around(original, args, options)

        self._made.append((owner, name, original, replaced))
        setattr(owner, name, replaced)


def _multi_head(ears: Ears, original: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """nn.MultiheadAttention.forward, with no function mode that would stop its fast path."""
    module = args[0]
    ears.called.append(module)
    name = ears.name_of(module)
    before, ears.functions = ears.functions, []
    try:
        with ears.deaf():
            result = original(*args, **options)
        functions = ears.functions
    finally:
        ears.functions = before
    if name is not None:
        with ears.deaf():
            # where it did not call the function, it ran as one kernel
            if functions:
                ears.read(name, lambda: native.of_function(functions[0]))
            else:
                ears.read(name, lambda: native.of_module(module, _given(original, args, options)))
    return result


def _function(ears: Ears, original: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """F.multi_head_attention_forward: noted for the module that calls it, or heard where it has none."""
    with ears.deaf():
        result = original(*args, **options)
        given = _given(original, args, options)
        if ears.functions is not None:
            ears.functions.append(given)
        elif (name := ears.where()) is not None:
            ears.read(name, lambda: native.of_function(given))
    return result


def _encoder_layer(ears: Ears, original: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """nn.TransformerEncoderLayer.forward: where its attention was not called, it ran as one kernel."""
    layer, before = args[0], len(ears.called)
    attention = layer.self_attn
    if not isinstance(attention, nn.MultiheadAttention):
        return original(*args, **options)
    with ears.deaf():
        result = original(*args, **options)
        name = ears.name_of(attention)
        if name is not None and attention not in ears.called[before:]:
            given = _given(original, args, options)
            length = ears.padded_length
            ears.read(name, lambda: native.of_encoder_layer(layer, given, length=length))
    return result


def _encoder(ears: Ears, original: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """nn.TransformerEncoder.forward: it hands its layers a nested tensor where padding can be left out."""
    src, before = _given(original, args, options)["src"], ears.padded_length
    ears.padded_length = src.shape[1] if not src.is_nested and src.ndim == 3 else None
    try:
        with ears.deaf():
            return original(*args, **options)
    finally:
        ears.padded_length = before


def _get_interface(ears: Ears, original: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """AttentionInterface.get_interface: the function that it gives, heard."""
    function = original(*args, **options)

    @functools.wraps(function)
    def heard(*given: Any, **rules: Any) -> Any:
        if not ears.is_open or not ears.is_listening or len(given) < len(hugging_face.FIRST):
            return function(*given, **rules)
        return _asked(ears, function, given, rules)

    return heard


def _asked(ears: Ears, function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """A Hugging Face attention function, heard by what it calls, or, where that is no kernel, by its own weights."""
    module, query = args[:2]
    name = ears.name_of(module)
    if name is None:
        return function(*args, **options)
    before = ears.seen._heard(name)
    with ears.asking(query):
        result = function(*args, **options)
    if ears.seen._heard(name) > before:
        return result
    with ears.deaf():
        why = unreadable(query)
        if not why:
            given = hugging_face.given_to(function, args, options)
            record = hugging_face.of_eager(given)
            dropout = float(given.get("dropout") or 0.0) if module.training else 0.0
            weights = result[1] if isinstance(result, tuple) and len(result) > 1 else None
            with torch.no_grad():
                why = hugging_face.deviation(record, weights, dropout=dropout)
        if why:
            ears.seen._miss(name, why)
        else:
            ears.add(name, record)
    return result


def _given(original: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> dict[str, Any]:
    bound = inspect.signature(original).bind(*args, **options)
    bound.apply_defaults()
    return dict(bound.arguments)
