"""Tensor origins: beside the record of a probe run, where its tensors come from and how they were moved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from headwise.dataflow.index_maps import Moved, is_movement, moved
from headwise.recording import Operation, Record, record, tensors

__all__ = ["Follower", "Source", "followed"]


@dataclass(frozen=True)
class Source:
    """Where a tensor came from that no recorded operation made. kind: "argument", "parameter" or "made"."""

    kind: str
    name: str = ""


@dataclass
class Follower:
    """Watches a run. sources: by the number of the tensor; moves: by the place of the operation in the record."""

    known: dict[int, Source]
    sources: dict[int, Source] = field(default_factory=dict)
    moves: dict[int, tuple[Moved, ...]] = field(default_factory=dict)

    def observe(
        self,
        at: int,
        operation: Operation,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        options: Mapping[str, Any],
    ) -> None:
        """Take note of an operation that has just run, while its tensors are at hand."""
        given = list(tensors((args, options)))
        for seen, tensor in zip(operation.inputs, given, strict=True):
            if seen.number not in self.sources:
                self.sources[seen.number] = self.known.get(id(tensor)) or Source("made")
        if is_movement(operation.function) and given:
            found = moved(function, args, options, given[0])
            if found is not None:
                self.moves[at] = found


def followed(
    call: Callable[[], Any],
    model: nn.Module | None,
    named: Mapping[str, Tensor],
    own: tuple[str, ...],
    *,
    kernels: bool,
) -> tuple[Record, Follower]:
    """Run a call, recorded and watched. named: the tensors among its arguments, by their names."""
    known = {id(tensor): Source("argument", name) for name, tensor in named.items()}
    if model is not None:
        known |= {id(each): Source("parameter", name) for name, each in model.named_parameters(remove_duplicate=False)}
        known |= {id(each): Source("buffer", name) for name, each in model.named_buffers(remove_duplicate=False)}
    follower = Follower(known)
    done = record(call, model=model, user_files=own, kernels=kernels, observe=follower.observe)
    return done, follower
