"""Tensor origins: the origins of the tensors of a probe run, and the layouts of moved ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from headwise.dataflow.index_maps import Moved, is_movement, moved
from headwise.recording import Operation, Record, record, tensors

__all__ = ["Follower", "Origin", "followed"]


@dataclass(frozen=True)
class Origin:
    """The origin of a tensor that no recorded operation returned. kind: "argument", "parameter", "buffer" or "made"."""

    kind: str
    name: str = ""


@dataclass
class Follower:
    """Observes a run. sources: by the number of the tensor; moves: by the index of the operation in the record."""

    origins: dict[int, Origin]
    sources: dict[int, Origin] = field(default_factory=dict)
    moves: dict[int, tuple[Moved, ...]] = field(default_factory=dict)

    def observe(
        self,
        at: int,
        operation: Operation,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        options: Mapping[str, Any],
    ) -> None:
        """Note an operation that has just run, while its tensors are in memory."""
        input_tensors = list(tensors((args, options)))
        for state, tensor in zip(operation.inputs, input_tensors, strict=True):
            if state.number not in self.sources:
                self.sources[state.number] = self.origins.get(id(tensor)) or Origin("made")
        if is_movement(operation.function) and input_tensors:
            layouts = moved(function, args, options, input_tensors[0])
            if layouts is not None:
                self.moves[at] = layouts


def followed(
    call: Callable[[], Any],
    model: nn.Module | None,
    named: Mapping[str, Tensor],
    user_files: tuple[str, ...],
    *,
    kernels: bool,
) -> tuple[Record, Follower]:
    """The record of a call, and its observer. named: the tensors among its arguments, by name."""
    origins = {id(tensor): Origin("argument", name) for name, tensor in named.items()}
    if model is not None:
        origins |= {
            id(param): Origin("parameter", name) for name, param in model.named_parameters(remove_duplicate=False)
        }
        origins |= {id(each): Origin("buffer", name) for name, each in model.named_buffers(remove_duplicate=False)}
    follower = Follower(origins)
    recording = record(call, model=model, user_files=user_files, kernels=kernels, observe=follower.observe)
    return recording, follower
