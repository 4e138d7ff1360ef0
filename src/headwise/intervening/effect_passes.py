"""Effect passes: the effect of every head measured by forward passes, of one head or of several on copies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from headwise.errors import ArgumentError
from headwise.intervening.batch_copies import CopyError, batch_of, check_equal, check_model, repeated, split
from headwise.intervening.edit_types import EditError, HeadReplacement
from headwise.intervening.edits import Edits
from headwise.intervening.effects_table import Effects
from headwise.intervening.entry_point import intervene
from headwise.intervening.head_outputs import HeadsOfRun
from headwise.intervening.positions import position_set

__all__ = ["EffectPasses", "Progress", "MeasuredRun", "number_of"]

# told the key and the values of each slow step
Progress = Callable[[str, Mapping[str, object]], None]
Place = tuple[str, int]
# what a forward pass on other inputs than the user's may raise
UNRUN = (ArgumentError, RuntimeError, ValueError, TypeError, IndexError, KeyError, AttributeError)
# what a pass of several heads holds at most, so that it takes no more memory than a forward of so many tokens, beyond
# which one costs no less (MiniLM on a core: 1.05 ms at 16 tokens, 0.39 in 32 copies of them, 0.38 in 64)
TOKENS, BYTES = 1024, 1 << 28
# with fewer heads the unchanged copy costs more than is gained (1.0 at 128 tokens, 0.8 at 256)
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

    output, base: what the unchanged model gave, and its metric. shapes: those of the maps of every call of a module.
    edit_of: gives the edit of all heads of a module. save: is called with what is measured after each pass.
    """

    run: MeasuredRun
    effects: Effects
    output: Any
    shapes: Mapping[str, Sequence[tuple[int, ...]]]
    edit_of: Callable[[Edits, str], HeadReplacement]
    save: Callable[[Mapping[Place, float]], None]

    def measure(self, known: Mapping[Place, float], batch: int | None, tell: Progress) -> Effects:
        """The table with what each head does. known: is not measured again; batch: heads a pass, None: by sizes.

        Where copies cannot be told apart, a batch that was asked for raises ArgumentError, and one that was not is 1.
        """
        size, alone = (1, "") if batch == 1 else self._size(batch)
        measured = dict(known)
        with torch.no_grad(), intervene(self.run.model) as edits:
            while pending := [place for place in self.effects.places() if place not in measured]:
                tell("step.heads", {"done": len(measured), "total": sum(self.effects.heads)})
                places = pending[:size]
                try:
                    values = self._together(edits, places) if len(places) > 1 else [self._alone(edits, *places[0])]
                except CopyError as error:
                    if batch is not None:
                        raise _refusal(batch, error) from error
                    # what several gave in earlier passes is measured anew, too
                    size, alone, measured = 1, str(error), dict(known)
                    self.save(measured)
                    continue
                measured.update(zip(places, values, strict=True))
                self.save(measured)
        return replace(self.effects.with_measured(measured), batch=size, alone=alone)

    def _size(self, batch: int | None) -> tuple[int, str]:
        """How many heads a pass measures, and why not more than one, "" where it does."""
        try:
            check_model(self.run.model)
            batch_of(self.run.inputs)
            split(self.output, self.output, 1)
        except CopyError as error:
            if batch is not None:
                raise _refusal(batch, error) from error
            return 1, str(error)
        if batch is not None:
            return batch, ""
        tokens = max(shape[0] * max(shape[2:]) for calls in self.shapes.values() for shape in calls)
        size = sum(leaf.nbytes for leaf in tree_leaves(self.output) if isinstance(leaf, Tensor))
        # one of the copies is the unchanged one
        most = min(TOKENS // max(1, tokens), BYTES // max(1, size)) - 1
        if most >= LEAST:
            return most, ""
        return 1, (
            f"beside the input of {tokens} tokens and {size} bytes of output, {max(most, 0)} heads fit into {TOKENS} "
            f"tokens and {BYTES} bytes, and less than {LEAST} gain nothing: batch= takes them all the same"
        )

    def _alone(self, edits: Edits, name: str, head: int) -> float:
        """The effect of one head, from one pass."""
        asked = self.edit_of(edits, name)
        edit = replace(asked, heads=position_set("heads", head), make=_restarted(asked))
        target = edits[name].add(edit)
        effect = number_of(self.run.metric(self.run.output(self.run.inputs))) - self.effects.base
        if not target.count(edit):
            raise ArgumentError(f'"{name}" ran when it was watched, but not when head {head} was to be changed')
        edits.clear()
        return effect

    def _together(self, edits: Edits, places: Sequence[Place]) -> list[float]:
        """The effects of several heads, from one pass over a copy of the batch for each, and an unchanged one."""
        # the unchanged one is the last: what a model shares out over a batch in its order, the last one lacks first
        copies = len(places) + 1
        asked: list[tuple[str, HeadReplacement]] = []
        try:
            for number, (name, head) in enumerate(places):
                whole = self.edit_of(edits, name)
                make = _OfCopy(_restarted(whole), [(shape[0], shape[2]) for shape in self.shapes[name]])
                edit = replace(whole, heads=position_set("heads", head), make=make, copy=(number, copies))
                asked.append((name, edit))
                edits[name].add(edit)
            try:
                output = self.run.output(repeated(self.run.inputs, batch_of(self.run.inputs), copies))
            except UNRUN as error:
                line = (str(error) or type(error).__name__).splitlines()[0]
                raise CopyError(f"the model does not run on {copies} copies of the inputs: {line}") from error
            if lost := next((name for name, edit in asked if not edits[name].count(edit)), None):
                raise CopyError(f'"{lost}" did not run on {copies} copies of the inputs')
        finally:
            edits.clear()
        *changed, same = split(output, self.output, copies)
        check_equal(same, self.output)
        values = [number_of(self.run.metric(part)) for part in (*changed, same)]
        if number_of(self.run.metric(self.output)) != self.effects.base:
            raise CopyError("metric gives another number of the same output after another run: it reads more than that")
        return [value - values[-1] for value in values[:-1]]


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


def _refusal(batch: int, error: CopyError) -> ArgumentError:
    return ArgumentError(f"batch={batch} heads cannot be measured in one pass: {error}; pass batch=1")


def number_of(value: Any) -> float:
    """The number that a metric gave; ArgumentError where it is none."""
    if isinstance(value, Tensor) and value.numel() == 1:
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float):
        shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise ArgumentError(f"metric must give one number, but gave {shape}: take such as logits[0, -1, token]")
    return float(value)
