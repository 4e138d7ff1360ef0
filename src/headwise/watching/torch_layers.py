"""Torch layers: calls of torch's own layers, which have no hook, and of the function that they share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwise.watching import torch_multi_head
from headwise.watching.patch_points import PatchedCall
from headwise.watching.record import CallRecord
from headwise.watching.session import Session
from headwise.watching.watched_modules import is_native_layer

__all__ = ["TorchLayers"]


@contextmanager
def without_fast_path() -> Iterator[None]:
    """A block in which torch's layers run as they are written, so that their parts are called."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


class TorchLayers:
    """What one session reads of torch's own layers, each method around the call of one of them."""

    def __init__(self, session: Session) -> None:
        self._session = session
        # each nn.MultiheadAttention called in the nn.TransformerEncoderLayer that is running; None: in no such layer
        self._attentions: list[nn.Module] | None = None
        # the arguments of each F.multi_head_attention_forward in the module that is running, and what it gave; None: in
        # no such module
        self._functions: list[tuple[dict[str, Any], Any]] | None = None
        # the name of the module that is running whose calls are changed; None: there is none
        self._name: str | None = None
        # the length of the sequences that nn.TransformerEncoder is running on
        self._padded_length: int | None = None

    def multi_head(self, call: PatchedCall) -> Any:
        """nn.MultiheadAttention.forward, with no function mode that would stop its fast path."""
        session, module = self._session, call.args[0]
        if self._attentions is not None:
            self._attentions.append(module)
        name = session.running.name_of(module)
        if session.edits(name):
            return self._edited(call, name)
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
                    session.collector.read(name, lambda: self._record(name, *functions[0]))
                else:
                    session.collector.read(name, lambda: torch_multi_head.of_module(module, call.arguments()))
        return result

    def _edited(self, call: PatchedCall, name: str | None) -> Any:
        """nn.MultiheadAttention.forward, by the function that its fast path would pass by."""
        before, self._name = (self._name, self._functions), name
        self._functions = None
        try:
            with without_fast_path():
                return call.result()
        finally:
            self._name, self._functions = before

    def function(self, call: PatchedCall) -> Any:
        """F.multi_head_attention_forward: noted for the module that calls it, or read where it has none."""
        session = self._session
        edited = self._name if self._name is not None else session.running.call_name()
        if self._functions is None and edited is not None and session.edits(edited):
            with session.switch.off():
                return torch_multi_head.result_of(session, edited, call.arguments())
        with session.switch.off():
            result = call.result()
            arguments = call.arguments()
            if self._functions is not None:
                self._functions.append((arguments, result))
            elif (name := session.running.call_name()) is not None:
                session.collector.read(name, lambda: self._record(name, arguments, result))
        return result

    def _record(self, name: str, arguments: dict[str, Any], result: Any) -> CallRecord:
        """What F.multi_head_attention_forward computed by, and the gradient of what it gave where that is wanted."""
        record = torch_multi_head.of_function(arguments)
        weight = arguments["out_proj_weight"].detach()

        def heads(gradient: Tensor) -> Tensor:
            """The gradient of what the heads gave, by that of their projection, (Lq, B, E) or (Lq, E)."""
            B, Hq, Lq, _ = record.q.shape
            return F.linear(gradient, weight.T).view(Lq, B, Hq, -1).permute(1, 2, 0, 3)

        return self._session.followed(name, record, result[0], heads)

    def encoder_layer(self, call: PatchedCall) -> Any:
        """nn.TransformerEncoderLayer.forward: where its attention was not called, it ran as one kernel."""
        session, layer = self._session, call.args[0]
        attention = layer.self_attn
        if not is_native_layer(layer):
            return call.result()
        if self._session.edits(self._session.running.name_of(attention)):
            with without_fast_path():
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
        names = (self._session.running.name_of(module) for module in call.args[0].modules())
        if any(self._session.edits(name) for name in names):
            with without_fast_path():
                return call.result()
        src, before = call.arguments()["src"], self._padded_length
        self._padded_length = src.shape[1] if not src.is_nested and src.ndim == 3 else None
        try:
            with self._session.switch.off():
                return call.result()
        finally:
            self._padded_length = before
