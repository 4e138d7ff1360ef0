"""Provenance: the token and feature that each entry of a tensor comes from; of a score, its query and key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from headwise.dataflow.index_maps import Moved, is_movement, moved
from headwise.recording import Operation, Record, record, tensors

__all__ = [
    "LEARNED",
    "LOST",
    "Follower",
    "Marks",
    "Origin",
    "beside",
    "followed",
    "numbered",
    "own_of",
    "place_of",
    "sample_held",
    "sample_of",
    "source_of",
    "sources_of",
    "token",
    "tokens",
]

# a token is one number: source, batch element and position; no call has as many of them
SOURCE, SAMPLE = 10**12, 10**6
# what is learned is numbered from here, and what is an argument before it
LEARNED = 1000


@dataclass(frozen=True)
class Marks:
    """The provenance of a tensor. kind "token": arrays t (token) and f (feature); "pair": x and y (two tokens) and h
    (head); "lost": it depends on the inputs in an unknown way. Arrays have the shape of the tensor; -1: no one token.
    """

    kind: str
    arrays: Mapping[str, Tensor]

    def through(self, change: Callable[[Tensor], Tensor]) -> Marks:
        """The marks after a rearrangement of the entries."""
        return Marks(self.kind, {name: change(each) for name, each in self.arrays.items()})

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the tensor."""
        return tuple(next(iter(self.arrays.values())).shape)


LOST = Marks("lost", {})


def token(source: int | Tensor, sample: Tensor, place: Tensor) -> Tensor:
    """The numbers of tokens."""
    return source * SOURCE + sample * SAMPLE + place


def source_of(t: Tensor) -> Tensor:
    """The argument of each token; -1: no token."""
    return torch.where(t < 0, t, t // SOURCE)


def sources_of(marks: Marks | None, side: str = "t") -> set[int]:
    """The arguments whose tokens a tensor holds; empty: none, or they are not known. side: of a pair, "x" or "y"."""
    if marks is None or marks.kind != ("token" if side == "t" else "pair"):
        return set()
    return set(source_of(marks.arrays[side]).unique().tolist()) - {-1}


def sample_of(t: Tensor) -> Tensor:
    """The batch element of each token; -1: no token."""
    return torch.where(t < 0, t, t % SOURCE // SAMPLE)


def place_of(t: Tensor) -> Tensor:
    """The position of each token; -1: no token."""
    return torch.where(t < 0, t, t % SAMPLE)


def beside(x: Tensor, y: Tensor) -> Tensor:
    """The tokens x of pairs of x and y: what is learned is the same for all, and so of the batch element of y."""
    is_learned = (source_of(x) >= LEARNED) & (y >= 0)
    return torch.where(is_learned, token(0, sample_of(y), x - sample_of(x) * SAMPLE), x)


def own_of(t: Tensor) -> Tensor:
    """Batch element and position of each token in one number, without the argument; -1: no token. What is learned is of
    every batch element.
    """
    return torch.where(t < 0, -1, torch.where(source_of(t) >= LEARNED, t % SAMPLE, t % SOURCE))


def sample_held(t: Tensor) -> Tensor:
    """The batch element of each token; -1: no token, or one of every batch element."""
    return torch.where(source_of(t) >= LEARNED, -1, sample_of(t))


def numbered(heads: Tensor, features: Tensor) -> Tensor:
    """A number from 0 for each pair of head and feature, in order; -1: either is unknown."""
    pairs = heads * (features.max() + 1) + features if features.numel() else features
    numbers: Tensor = torch.unique(pairs, return_inverse=True)[1]
    return torch.where((heads < 0) | (features < 0), -1, numbers.reshape(pairs.shape))


def tokens(shape: tuple[int, ...], roles: tuple[str, ...], source: int) -> Marks:
    """The marks of an argument. roles: of each axis, "sample", "place" or "feature"."""
    codes = {role: torch.zeros(shape, dtype=torch.int64) for role in ("sample", "place", "feature")}
    for axis, role in enumerate(roles):
        line = torch.arange(shape[axis]).reshape([-1 if at == axis else 1 for at in range(len(shape))])
        codes[role] = codes[role] * shape[axis] + line
    return Marks("token", {"t": token(source, codes["sample"], codes["place"]), "f": codes["feature"]})


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
