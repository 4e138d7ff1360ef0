"""Torch layers: calls of torch's own layers, which have no hook, and of the function that they share."""

from __future__ import annotations

from typing import Any

from torch import nn

from headwise.watching import torch_multi_head
from headwise.watching.patch_points import PatchedCall
from headwise.watching.session import Session
from headwise.watching.watched_modules import is_native_layer

__all__ = ["TorchLayers"]


class TorchLayers:
    """What one session reads of torch's own layers, each method around the call of one of them."""

    def __init__(self, session: Session) -> None:
        self._session = session
        # each nn.MultiheadAttention called in the nn.TransformerEncoderLayer that is running; None: in no such layer
        self._attentions: list[nn.Module] | None = None
        # the arguments of each F.multi_head_attention_forward in the module that is running; None: in no such module
        self._functions: list[dict[str, Any]] | None = None
        # the length of the sequences that nn.TransformerEncoder is running on
        self._padded_length: int | None = None

    def multi_head(self, call: PatchedCall) -> Any:
        """nn.MultiheadAttention.forward, with no function mode that would stop its fast path."""
        session, module = self._session, call.args[0]
        if self._attentions is not None:
            self._attentions.append(module)
        name = session.running.name_of(module)
        before, self._functions = self._functions, []
        try:
            with session.switch.off():
                result = call.result()
            functions = self._functions
        finally:
            self._functions = before
        if name is not None:
            with session.switch.off():
                # where it did not call the function, it ran as one kernel
                if functions:
                    session.collector.read(name, lambda: torch_multi_head.of_function(functions[0]))
                else:
                    session.collector.read(name, lambda: torch_multi_head.of_module(module, call.arguments()))
        return result

    def function(self, call: PatchedCall) -> Any:
        """F.multi_head_attention_forward: noted for the module that calls it, or read where it has none."""
        session = self._session
        with session.switch.off():
            result = call.result()
            arguments = call.arguments()
            if self._functions is not None:
                self._functions.append(arguments)
            elif (name := session.running.call_name()) is not None:
                session.collector.read(name, lambda: torch_multi_head.of_function(arguments))
        return result

    def encoder_layer(self, call: PatchedCall) -> Any:
        """nn.TransformerEncoderLayer.forward: where its attention was not called, it ran as one kernel."""
        session, layer = self._session, call.args[0]
        attention = layer.self_attn
        if not is_native_layer(layer):
            return call.result()
        before, self._attentions = self._attentions, []
        try:
            with session.switch.off():
                result = call.result()
            attentions = self._attentions
        finally:
            self._attentions = before
        name = session.running.name_of(attention)
        if name is not None and attention not in attentions:
            with session.switch.off():
                arguments, length = call.arguments(), self._padded_length
                session.collector.read(name, lambda: torch_multi_head.of_encoder_layer(layer, arguments, length=length))
        return result

    def encoder(self, call: PatchedCall) -> Any:
        """nn.TransformerEncoder.forward: it passes its layers a nested tensor where padding can be left out."""
        src, before = call.arguments()["src"], self._padded_length
        self._padded_length = src.shape[1] if not src.is_nested and src.ndim == 3 else None
        try:
            with self._session.switch.off():
                return call.result()
        finally:
            self._padded_length = before
