"""Shape words: which words of a written shape are understood, and which of them can prove it wrong."""

from __future__ import annotations

import re
from collections.abc import Sequence

from headwise.dataflow import Shape
from headwise.tracing.equality import SymbolScale
from headwise.tracing.shape_text import SpokenShape, names_in
from headwise.tracing.size_words import LENGTHS, meanings
from headwise.tracing.steps import Trace

__all__ = ["ShapeWords", "named_sizes"]

# words that a writer puts for any width
GENERIC = frozenset(
    (
        "dim",
        "depth",
        "feature",
        "features",
        "channels",
        "width",
        "inner",
        "inner_dim",
        "hidden",
        "emb",
        "embed",
        "特征维度",
    )
)
# a name that code assigns: `a = ...`, `a, b = ...`, `self.a: int = ...`
ASSIGNED = re.compile(r"(?m)^[^=\n#]*?(?<![=!<>+\-*/%&|^])=(?!=)")
NAME = re.compile(r"[A-Za-z_]\w*")


def named_sizes(trace: Trace) -> dict[str, str]:
    """The expressions of the sizes that a constructor takes by name: {"num_hiddens": "H*d"}.

    Single letters and words for lengths are left out: comments use them for other sizes too.
    """
    sizes = {symbol.said: symbol.name for symbol in trace.symbols if symbol.said}
    sizes |= {name: value for name, value in (trace.init or {}).items() if isinstance(value, str)}
    return {word: size for word, size in sizes.items() if len(word) > 1 and not meanings(word) & {*LENGTHS}}


class ShapeWords:
    """The words of comments on a trace. scale: that of its symbols."""

    def __init__(self, trace: Trace, scale: SymbolScale) -> None:
        self._scale = scale
        self._sized = named_sizes(trace)
        # of a word that code assigns otherwise the value is unknown
        self._assigned = {
            name
            for text in trace.sources.values()
            for match in ASSIGNED.finditer(text)
            for name in NAME.findall(match[0])
        }
        self._lengths = frozenset(symbol.name for symbol in trace.symbols if symbol.meaning in LENGTHS)
        self._batch = frozenset(symbol.name for symbol in trace.symbols if symbol.meaning == "batch")
        self._is_batch_known = _attends_over_lengths(trace, self._lengths, self._batch)

    def understands_some(self, shapes: Sequence[SpokenShape]) -> bool:
        """Whether any word of the shapes has a meaning here."""
        return any(self._is_known(word) for shape in shapes for word in _words(shape))

    def understands_all(self, shapes: Sequence[SpokenShape]) -> bool:
        """Whether every word of the shapes has a meaning here."""
        return all(self._is_known(word) for shape in shapes for word in _words(shape))

    def may_be(self, written: SpokenShape, shape: Shape) -> bool:
        """Whether a written shape may describe a traced one, a word in doubt as any axis."""
        return len(written.elements) == len(shape.axes) and all(
            self._may_be_axis(element, axis.text) for element, axis in zip(written.elements, shape.axes, strict=True)
        )

    def may_end(self, written: SpokenShape, shape: Shape) -> bool:
        """Whether a written shape may describe the last axes of a traced one, as of each batch element or head."""
        count = len(written.elements)
        return count < len(shape.axes) and self.may_be(written, Shape(shape.axes[-count:]))

    def _may_be_axis(self, element: str, axis: str) -> bool:
        words = names_in(element) or frozenset()
        if not words or not all(self._is_certain(word) for word in words) or self._scale.fits(element, axis):
            return True
        axis_names = frozenset(names_in(axis) or ())
        is_length = any(meanings(word) & {*LENGTHS} for word in words)
        if is_length and axis_names <= self._lengths and not axis.isidentifier():
            # "seq_len" of cached and new keys together
            return True
        is_batch = any("batch" in meanings(word) for word in words)
        # which of the two axes is the batch is guessed where no attention shows it
        return not self._is_batch_known and (
            (is_length and axis_names <= self._batch) or (is_batch and axis_names <= self._lengths)
        )

    def _is_known(self, word: str) -> bool:
        return word in self._sized or self._scale.knows(word)

    def _is_certain(self, word: str) -> bool:
        """Whether a word means the same wherever it is written."""
        if word in self._sized:
            return True
        is_long = len(word) > 1 or not word.isascii()
        is_assigned = word in self._assigned and not meanings(word) & {"batch", *LENGTHS}
        return is_long and self._is_known(word) and word.lower() not in GENERIC and not is_assigned


def _words(shape: SpokenShape) -> list[str]:
    return [word for element in shape.elements for word in names_in(element) or ()]


def _attends_over_lengths(trace: Trace, lengths: frozenset[str], batch: frozenset[str]) -> bool:
    """Whether weights are normalised over a length, beside the batch: that tells the two apart."""
    return any(
        "softmax" in step.op and shape.axes[-1].text in lengths and any(axis.text in batch for axis in shape.axes)
        for step in trace.steps
        for shape in step.outputs
        if shape.axes
    )
