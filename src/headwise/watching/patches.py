"""Patches: forwards of torch's own layers and the choice of a Hugging Face attention function, while a block runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import nn

from headwise.watching import hugging_face
from headwise.watching.hugging_face_calls import HuggingFaceCalls
from headwise.watching.patch_points import PatchedCall, PatchPoint, replaced
from headwise.watching.session import Session
from headwise.watching.torch_layers import TorchLayers

__all__ = ["Patches"]


class Patches:
    """The functions by which one session reads those layers that have no hook and no function mode."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._torch_layers, self._hugging_face = TorchLayers(session), HuggingFaceCalls(session)
        self._installed: list[tuple[PatchPoint, Any]] = []

    def install(self) -> None:
        """Put the patches in."""
        layers = self._torch_layers
        self._patch(nn.MultiheadAttention, "forward", layers.multi_head)
        self._patch(F, "multi_head_attention_forward", layers.function)
        self._patch(nn.TransformerEncoderLayer, "forward", layers.encoder_layer)
        self._patch(nn.TransformerEncoder, "forward", layers.encoder)
        if (interface := hugging_face.interface()) is not None:
            self._patch(interface, "get_interface", self._hugging_face.get_interface)

    def remove(self) -> None:
        """Take the patches out."""
        while self._installed:
            point, listener = self._installed.pop()
            point.remove(listener)

    def step_aside(self, name: str) -> None:
        """Take the patches out while compiled code runs, which else would be compiled anew.

        name: of the compiled function, "" where user code gives it none.
        """
        session = self._session
        caller = session.running.caller() if session.is_open else None
        if caller is not None:
            of = f" of {name}()" if name else ""
            session.miss_compiled(
                caller,
                f"ran what torch.compile has made{of}, and nothing can be seen in there: run the model as it was "
                "written",
            )
        session.switch.start_compiled()
        self.remove()

    def come_back(self) -> None:
        """Put the patches in again, as the compiled code has run."""
        self.install()
        self._session.switch.end_compiled()

    def _patch(self, owner: Any, name: str, read: Callable[[PatchedCall], Any]) -> None:
        session = self._session

        def listener(call: PatchedCall) -> Any:
            if session.is_open:
                return read(call)
            with session.hookless(call.args[0] if call.args else None):
                return call.result()

        self._installed.append((PatchPoint.add(owner, name, listener, replaced), listener))
