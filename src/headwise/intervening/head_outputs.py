"""Head outputs: what heads are to give in place of their own, zeros or what they gave in another watched run."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor

from headwise.intervening.edit_types import EditError
from headwise.watching import Seen

__all__ = ["HeadsOfRun", "MeanOutput", "PatchedOutput", "zeros"]


def zeros(context: Tensor, heads: Tensor, rows: Tensor, start: int) -> Tensor:  # noqa: ARG001  as of a run
    """Zeros in place of the context (B, heads, rows, Dv)."""
    return torch.zeros_like(context)


class HeadsOfRun:
    """What heads gave in a watched run. name_in: gives the name of their module in it; text: how it was asked for."""

    def __init__(self, run: Seen, name_in: Callable[[Seen], str], text: str) -> None:
        self._run, self._name_in, self._text = run, name_in, text
        self._outputs: list[Tensor] | None = None

    def outputs(self, like: Tensor, heads: Tensor) -> list[Tensor]:
        """The outputs (B, H, Lq, Dv) of every call; EditError where they have too few heads, or of another size."""
        outputs, last = self._computed(), int(heads.max())
        for context in outputs:
            if context.shape[1] <= last or context.shape[3] != like.shape[3]:
                raise EditError(
                    f"{self._text} needs head {last} of dimension {like.shape[3]} in the watched run, which has "
                    f"{context.shape[1]} heads of dimension {context.shape[3]}: watch the same layer"
                )
        return outputs

    def restarted(self) -> Self:
        """The same for another run of the model, with what is computed already."""
        self._computed()
        return copy.copy(self)

    def _computed(self) -> list[Tensor]:
        if self._outputs is None:
            with torch.no_grad():
                self._outputs = self._run.outputs(self._name_in(self._run))
        return self._outputs


class MeanOutput(HeadsOfRun):
    """The mean of heads over all samples and queries of a run."""

    def __call__(self, context: Tensor, heads: Tensor, rows: Tensor, start: int) -> Tensor:
        outputs = self.outputs(context, heads)
        rows_of_run = torch.cat([output.double().transpose(1, 2).flatten(0, 1) for output in outputs])
        if not rows_of_run.shape[0]:
            raise EditError(f"{self._text} needs at least one query in the watched run, but it has none")
        mean = rows_of_run.mean(0).to(context)[heads]
        return mean[None, :, None].expand_as(context)


class PatchedOutput(HeadsOfRun):
    """The outputs of heads at the same positions of a run."""

    def __init__(self, run: Seen, name_in: Callable[[Seen], str], text: str) -> None:
        super().__init__(run, name_in, text)
        self._calls = 0

    def restarted(self) -> Self:
        other = super().restarted()
        other._calls = 0
        return other

    def __call__(self, context: Tensor, heads: Tensor, rows: Tensor, start: int) -> Tensor:
        outputs = self.outputs(context, heads)
        if len(outputs) > 1 and self._calls >= len(outputs):
            raise EditError(f"{self._text} has {len(outputs)} calls in the watched run, but this is one more")
        source = outputs[0] if len(outputs) == 1 else outputs[self._calls]
        at = rows + start if len(outputs) == 1 else rows
        self._calls += 1
        B, _, L, _ = source.shape
        last = int(at.max())
        if B not in (1, context.shape[0]) or last >= L:
            raise EditError(
                f"{self._text} needs position {last} of {context.shape[0]} samples in the watched run, which has {L} "
                f"positions of {B}: watch an input of the same sizes, or give positions="
            )
        return source[:, heads][:, :, at].to(context).expand_as(context)
