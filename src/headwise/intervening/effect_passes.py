"""Effect passes: the effect of every head measured by forward passes, of one head or of several on copies."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from headwise.errors import ArgumentError
from headwise.intervening.batch_copies import (
    CopyError,
    batch_of,
    check_equal,
    check_model,
    check_precision,
    repeated,
    split,
)
from headwise.intervening.edit_types import EditError, HeadReplacement
from headwise.intervening.edits import Edits
from headwise.intervening.effects_table import Effects, Measurement
from headwise.intervening.entry_point import intervene
from headwise.intervening.head_outputs import HeadsOfRun
from headwise.intervening.positions import position_set

__all__ = ["EffectPasses", "Progress", "MeasuredRun", "number_of"]

# told the key and the values of each slow step
Progress = Callable[[str, Mapping[str, object]], None]
Place = tuple[str, int]
# what a pass of several heads holds at most, so that it takes no more memory than a forward of so many tokens, beyond
# which one costs no less (MiniLM on a core: 1.05 ms at 16 tokens, 0.39 in 32 copies of them, 0.38 in 64)
TOKENS, BYTES = 1024, 1 << 28
# with fewer heads the unchanged copies cost more than is gained (with one of them: 1.0 at 128 tokens, 0.8 at 256)
LEAST = 8


@dataclass(frozen=True, eq=False)
class MeasuredRun:
    """A model, what it takes, and what is read of its output."""

    model: nn.Module
    inputs: Any
    metric: Callable[[Any], Any]

    def output(self, inputs: Any) -> Any:
        """What the model gives: a mapping is keywords, a tuple arguments, all else the one argument."""
        if isinstance(inputs, Mapping):
            return self.model(**inputs)
        return self.model(*inputs) if isinstance(inputs, tuple) else self.model(inputs)


@dataclass(frozen=True, eq=False)
class EffectPasses:
    """How the effects of heads are measured.

    output, base: what the unchanged model gave, and its metric. is_written: whether the metric wrote into that output.
    shapes: those of the maps of every call of a module. edit_of: gives the edit of all heads of a module. save: is
    called after each pass, with what is measured and why no pass measures several heads.
    """

    run: MeasuredRun
    effects: Effects
    output: Any
    is_written: bool
    shapes: Mapping[str, Sequence[tuple[int, ...]]]
    edit_of: Callable[[Edits, str], HeadReplacement]
    save: Callable[[Mapping[Place, Measurement], str], None]

    def measure(self, known: Mapping[Place, Measurement], batch: int | None, tell: Progress) -> Effects:
        """The table with what each head does. known: is not measured again; batch: heads a pass, None: by sizes.

        Where copies cannot be told apart, a batch that was asked for raises ArgumentError, and one that was not is 1;
        what passes of several heads gave, also in an earlier run that `known` is of, is then measured again.
        """
        measured = dict(known) if batch != 1 else _of_one_head(known)
        size, alone, is_compared = 1, "", False
        try:
            size, alone = (1, "") if batch == 1 else self._size(batch)
        except CopyError as error:
            measured, alone = self._given_up(measured, batch, error)
        with torch.no_grad(), intervene(self.run.model) as edits:
            while pending := [place for place in self.effects.places() if place not in measured]:
                tell("step.heads", {"done": len(measured), "total": sum(self.effects.heads)})
                places = pending[:size]
                try:
                    if len(places) > 1:
                        values = self._together(edits, places, is_compared=is_compared)
                        is_compared = True
                    else:
                        values = [number_of(self.run.metric(self._alone(edits, *places[0]))) - self.effects.base]
                except CopyError as error:
                    size, (measured, alone) = 1, self._given_up(measured, batch, error)
                    continue
                for place, value in zip(places, values, strict=True):
                    measured[place] = Measurement(value, len(places))
                self.save(measured, alone)
        if batch != 1:
            alone = alone or "no pass had more than one head left to measure"
        return self.effects.with_measured(measured, alone)

    def _given_up(
        self, measured: Mapping[Place, Measurement], batch: int | None, error: CopyError
    ) -> tuple[dict[Place, Measurement], str]:
        """What is left, and why, once copies cannot be told apart; ArgumentError where a batch was asked for."""
        left = _of_one_head(measured)
        if len(left) < len(measured):
            self.save(left, str(error))
        if batch is not None:
            raise ArgumentError(f"batch={batch} heads cannot be measured in one pass: {error}; pass batch=1") from error
        return left, str(error)

    def _size(self, batch: int | None) -> tuple[int, str]:
        """How many heads a pass measures, and why not more than one, "" where it does; CopyError where none can."""
        check_model(self.run.model)
        check_precision(self.run.model, self.output)
        batch_of(self.run.inputs)
        split(self.output, self.output, 1)
        if self.is_written:
            raise CopyError("metric writes into the output, which copies are compared with: let it write into a clone")
        if batch is not None:
            return batch, ""
        tokens = max(shape[0] * max(shape[2:]) for calls in self.shapes.values() for shape in calls)
        size = sum(leaf.nbytes for leaf in tree_leaves(self.output) if isinstance(leaf, Tensor))
        # two of the copies are unchanged
        most = min(TOKENS // max(1, tokens), BYTES // max(1, size)) - 2
        if most >= LEAST:
            return most, ""
        return 1, (
            f"beside two unchanged copies of the input of {tokens} tokens and {size} bytes of output, {max(most, 0)} "
            f"heads fit into {TOKENS} tokens and {BYTES} bytes, and less than {LEAST} gain nothing: batch= takes them "
            "all the same"
        )

    def _alone(self, edits: Edits, name: str, head: int) -> Any:
        """The output with one head changed, without copies."""
        asked = self.edit_of(edits, name)
        edit = replace(asked, heads=position_set("heads", head), make=_restarted(asked))
        target = edits[name].add(edit)
        output = self.run.output(self.run.inputs)
        if not target.count(edit):
            raise ArgumentError(f'"{name}" ran when it was watched, but not when head {head} was to be changed')
        edits.clear()
        return output

    def _together(self, edits: Edits, places: Sequence[Place], *, is_compared: bool) -> list[float]:
        """The effects of several heads, from one pass over a copy of the batch for each, between two unchanged ones.

        Checked within rounding: in every pass, that the changed copies change neither the first nor the last copy,
        whose outputs must be that of the input alone; unless is_compared, that the copy in the middle gives what its
        head gives without copies. Nothing is proved of the other copies: a model passes that mixes its batch among
        those only.
        """
        copies = len(places) + 2
        parts = split(self._output_of_copies(edits, places, copies), self.output, copies)
        check_equal(parts[0], self.output, "an unchanged first copy beside changed ones")
        check_equal(parts[-1], self.output, "an unchanged last copy beside changed ones")
        if not is_compared:
            number = len(places) // 2
            name, head = places[number]
            title = f'the copy with head {head} of "{name}" changed'
            alone = self._alone(edits, name, head)
            check_equal(parts[number + 1], split(alone, self.output, 1)[0], title)
        try:
            values = [number_of(self.run.metric(part)) for part in parts[1:]]
            again = number_of(self.run.metric(self.output))
        except CopyError:
            raise
        except Exception as error:
            raise CopyError(f"metric fails on the output of one of {copies} copies: {_line(error)}") from error
        if again != self.effects.base and not (math.isnan(again) and math.isnan(self.effects.base)):
            raise CopyError("metric gives another number of the same output after another run: it reads more than that")
        return [value - values[-1] for value in values[:-1]]

    def _output_of_copies(self, edits: Edits, places: Sequence[Place], copies: int) -> Any:
        """The output of one pass in which every copy but the first and the last has one head changed."""
        asked: list[tuple[str, HeadReplacement]] = []
        try:
            for number, (name, head) in enumerate(places, start=1):
                whole = self.edit_of(edits, name)
                make = _OfCopy(_restarted(whole), [(shape[0], shape[2]) for shape in self.shapes[name]])
                edit = replace(whole, heads=position_set("heads", head), make=make, copy=(number, copies))
                asked.append((name, edit))
                edits[name].add(edit)
            try:
                output = self.run.output(repeated(self.run.inputs, batch_of(self.run.inputs), copies))
            except Exception as error:
                # user code may refuse a batch that the user did not give by any exception
                raise CopyError(f"the model does not run on {copies} copies of the inputs: {_line(error)}") from error
            if lost := next((name for name, edit in asked if not edits[name].count(edit)), None):
                raise CopyError(f'"{lost}" did not run on {copies} copies of the inputs')
        finally:
            edits.clear()
        return output


def _of_one_head(measured: Mapping[Place, Measurement]) -> dict[Place, Measurement]:
    """What passes of one head measured."""
    return {place: row for place, row in measured.items() if row.batch == 1}


def _line(error: Exception) -> str:
    """The first line of what an exception says, or its class."""
    return (str(error) or type(error).__name__).splitlines()[0]


@dataclass(eq=False)
class _OfCopy:
    """What one head gives in one copy. sizes: batch and queries of the calls of the module on the input alone."""

    make: Callable[[Tensor, Tensor, Tensor, int], Tensor]
    sizes: Iterable[tuple[int, int]]

    def __call__(self, context: Tensor, heads: Tensor, rows: Tensor, start: int) -> Tensor:
        size = (context.shape[0], context.shape[2])
        if size not in self.sizes:
            raise EditError(f"a call of {size} elements and queries in one copy was of {[*self.sizes]} without copies")
        return self.make(context, heads, rows, start)


def _restarted(edit: HeadReplacement) -> Callable[[Tensor, Tensor, Tensor, int], Tensor]:
    """What makes the outputs of heads, as of a run that begins."""
    make: object = edit.make
    return make.restarted() if isinstance(make, HeadsOfRun) else edit.make  # type: ignore[return-value]


def number_of(value: Any) -> float:
    """The number that a metric gave; ArgumentError where it is none."""
    if isinstance(value, Tensor) and value.numel() == 1:
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float):
        shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise ArgumentError(f"metric must give one number, but gave {shape}: take such as logits[0, -1, token]")
    return float(value)
