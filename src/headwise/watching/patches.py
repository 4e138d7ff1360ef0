"""Patches: forwards of torch's own layers and the choice of a Hugging Face attention function, while a block runs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from headwise.watching import hugging_face, native
from headwise.watching.chosen import is_native_layer
from headwise.watching.ears import UNREAD, Ears, no_map
from headwise.watching.record import unreadable
from headwise.watching.spots import Call, Spot, replaced

__all__ = ["Patches"]

# what one watch does with a call
Heard = Callable[[Ears, Call], Any]


class Patches:
    """The functions through which one watch hears those layers that have no hook and no function mode."""

    def __init__(self, ears: Ears) -> None:
        self._ears = ears
        self._made: list[tuple[Spot, Any]] = []

    def install(self) -> None:
        """Begin to hear them."""
        self._listen(nn.MultiheadAttention, "forward", _multi_head)
        self._listen(F, "multi_head_attention_forward", _function)
        self._listen(nn.TransformerEncoderLayer, "forward", _encoder_layer)
        self._listen(nn.TransformerEncoder, "forward", _encoder)
        if (interface := hugging_face.interface()) is not None:
            self._listen(interface, "get_interface", _get_interface)

    def remove(self) -> None:
        """Hear them no more."""
        while self._made:
            spot, listener = self._made.pop()
            spot.remove(listener)

    def step_aside(self, name: str) -> None:
        """Hear nothing, as what was compiled of a function is about to run, which else would be compiled anew.

        name: of the function, "" where it is none that a person has written.
        """
        ears = self._ears
        where = ears.caller() if ears.is_open else None
        ears.start_compiled()
        self.remove()
        if where is not None:
            of = f" of {name}()" if name else ""
            ears.seen._miss(
                where,
                f"ran what torch.compile has made{of}, and nothing can be seen in there: run the model as it was "
                "written",
            )

    def come_back(self) -> None:
        """Hear them again, as the compiled function has run."""
        self.install()
        self._ears.end_compiled()

    def _listen(self, owner: Any, name: str, heard: Heard) -> None:
        ears = self._ears

        def listener(call: Call) -> Any:
            if ears.is_open:
                return heard(ears, call)
            with ears.elsewhere(call.args[0] if call.args else None):
                return call.result()

        self._made.append((Spot.add(owner, name, listener, replaced), listener))


def _multi_head(ears: Ears, call: Call) -> Any:
    """nn.MultiheadAttention.forward, with no function mode that would stop its fast path."""
    module = call.args[0]
    if ears.called is not None:
        ears.called.append(module)
    name = ears.name_of(module)
    before, ears.functions = ears.functions, []
    try:
        with ears.deaf():
            result = call.result()
        functions = ears.functions
    finally:
        ears.functions = before
    if name is not None:
        with ears.deaf():
            # where it did not call the function, it ran as one kernel
            if functions:
                ears.read(name, lambda: native.of_function(functions[0]))
            else:
                ears.read(name, lambda: native.of_module(module, call.given()))
    return result


def _function(ears: Ears, call: Call) -> Any:
    """F.multi_head_attention_forward: noted for the module that calls it, or heard where it has none."""
    with ears.deaf():
        result = call.result()
        given = call.given()
        if ears.functions is not None:
            ears.functions.append(given)
        elif (name := ears.where()) is not None:
            ears.read(name, lambda: native.of_function(given))
    return result


def _encoder_layer(ears: Ears, call: Call) -> Any:
    """nn.TransformerEncoderLayer.forward: where its attention was not called, it ran as one kernel."""
    layer = call.args[0]
    attention = layer.self_attn
    if not is_native_layer(layer):
        return call.result()
    before, ears.called = ears.called, []
    try:
        with ears.deaf():
            result = call.result()
        called = ears.called
    finally:
        ears.called = before
    name = ears.name_of(attention)
    if name is not None and attention not in called:
        with ears.deaf():
            given, length = call.given(), ears.padded_length
            ears.read(name, lambda: native.of_encoder_layer(layer, given, length=length))
    return result


def _encoder(ears: Ears, call: Call) -> Any:
    """nn.TransformerEncoder.forward: it hands its layers a nested tensor where padding can be left out."""
    src, before = call.given()["src"], ears.padded_length
    ears.padded_length = src.shape[1] if not src.is_nested and src.ndim == 3 else None
    try:
        with ears.deaf():
            return call.result()
    finally:
        ears.padded_length = before


def _get_interface(ears: Ears, call: Call) -> Any:
    """AttentionInterface.get_interface: the function that it gives, heard."""
    function = call.result()

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
        if why := unreadable(query):
            ears.seen._miss(name, why)
            return result
        try:
            given = hugging_face.given_to(function, args, options)
            record = hugging_face.of_eager(given)
            dropout = float(given.get("dropout") or 0.0) if module.training else 0.0
            weights = result[1] if isinstance(result, tuple) and len(result) > 1 else None
            with torch.no_grad():
                why = hugging_face.deviation(record, weights, dropout=dropout)
        except UNREAD as error:
            why = no_map(error)
        if why:
            ears.seen._miss(name, why)
        else:
            ears.add(name, record)
    return result
