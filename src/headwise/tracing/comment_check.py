"""Comment check: the shapes in comments, compared with the traced ones; corrected where they are surely wrong.

A word may mean several sizes, so many differences are only other names. Sure mistakes are axes in another order, one
axis that no meaning of its word explains, and a length that changes its name within a chain. A comment that names a
variable, as `q: (B, L, D)`, is of its value before or after the line. What is neither right nor surely wrong is not
compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

from headwise.dataflow import Shape
from headwise.tracing.chains import ARROW, Chain
from headwise.tracing.code_comments import Remark, remarks
from headwise.tracing.equality import SymbolScale
from headwise.tracing.shape_text import SpokenShape
from headwise.tracing.shape_words import ShapeWords, named_sizes
from headwise.tracing.size_words import LENGTHS
from headwise.tracing.steps import Comment, Trace

__all__ = ["compared"]


@dataclass(frozen=True)
class _Reading:
    """A remark with the shapes of an operation. wrong: the axes (shape, position) that do not match.

    is_sure: the remark must describe this operation.
    """

    remark: Remark
    truth: tuple[Shape, ...]
    wrong: tuple[tuple[int, int], ...]
    is_sure: bool = False


def compared(trace: Trace) -> tuple[Comment, ...]:
    """The shapes in the comments of a trace's sources: correct, wrong with the true shapes, or not compared."""
    scale = SymbolScale(trace.symbols, named_sizes(trace))
    words = ShapeWords(trace, scale)
    # only files with steps can describe them
    ran = {place.file for step in trace.steps for place in (step.place, *step.chain)}
    all_remarks = [
        remark
        for file, text in trace.sources.items()
        if file in ran
        for remark in remarks(file, text, trace.steps, trace.call)
    ]
    readings = [(remark, _read(remark, scale)) for remark in all_remarks]
    right = [reading for _, reading in readings if reading is not None and not reading.wrong]
    out = []
    for remark, reading in readings:
        if reading is None:
            true = ""
        elif reading.wrong:
            true = _corrected_axes(reading, right, scale)
        else:
            true = _corrected_length(reading, right, scale)
        is_right = reading is not None and not reading.wrong and words.understands_some(remark.chain.shapes)
        true = true or ("" if is_right else _true_shapes(remark, reading, words, scale))
        if true or is_right or _is_about_sizes(remark, words):
            out.append(Comment(remark.place, remark.chain.text, true, is_compared=bool(true) or is_right))
    if _is_guessed(trace) and 2 * sum(1 for each in out if each.true) > sum(1 for each in out if each.is_compared):
        # more likely the assumed axis order of the arguments is wrong
        out = [replace(each, true="", is_compared=False) if each.true else each for each in out]
    return tuple(sorted(out, key=lambda comment: (comment.place.file, comment.place.line, comment.place.column or 0)))


def _is_about_sizes(remark: Remark, words: ShapeWords) -> bool:
    """Whether what is not compared is a shape at all: half of it are words for sizes, or it is of a variable."""
    shapes = remark.chain.shapes
    known = [
        words.understands_some([replace(shape, elements=(element,))]) for shape in shapes for element in shape.elements
    ]
    return bool(remark.name) or remark.is_labelled or 2 * sum(known) >= len(known)


def _true_shapes(remark: Remark, reading: _Reading | None, words: ShapeWords, scale: SymbolScale) -> str:
    """The traced shapes of what a remark is surely wrong about; "": it may be right, or is not understood."""
    shapes = remark.chain.shapes
    if not words.understands_all(shapes):
        return ""
    if remark.name:
        values = remark.values
        is_open = any(words.may_be(shapes[0], value) or words.may_end(shapes[0], value) for value in values)
        return "" if is_open or not _are_named(values, scale) else ARROW.join(dict.fromkeys(map(str, values)))
    if reading is None or not reading.is_sure:
        return ""
    steps = [step for chain in (*remark.about, *remark.beside, *remark.later) for step in chain.steps]
    ranks = {len(shape.elements) for shape in shapes}
    traced = [each for step in steps for each in (*step.inputs, *step.outputs) if len(each.axes) in ranks]
    if not _are_named(traced, scale) or all(any(words.may_be(one, each) for each in traced) for one in shapes):
        return ""
    return ARROW.join(map(str, reading.truth))


def _are_named(shapes: Sequence[Shape], scale: SymbolScale) -> bool:
    """Whether every axis has a name that an expression can be compared with."""
    return not any(axis.scrambled or scale.value(axis.text) is None for shape in shapes for axis in shape.axes)


def _is_guessed(trace: Trace) -> bool:
    """Whether arguments have a head axis, whose position no operation shows."""
    heads = {symbol.name for symbol in trace.symbols if symbol.meaning in ("heads", "key_heads", "head_width")}
    return any(heads & set(map(str, each)) for each in (trace.call or {}).values() if isinstance(each, list))


def _read(remark: Remark, scale: SymbolScale) -> _Reading | None:
    """A remark with the operation that it matches, or matches best; None: it fits none."""
    best: _Reading | None = None
    if remark.values:
        named = [_aligned(remark, (value,), scale) for value in remark.values]
        found = [replace(reading, is_sure=True) for reading in named if reading is not None]
        return min(found, key=lambda reading: len(reading.wrong), default=None)
    for chain in (*remark.about, *remark.beside):
        reading = _aligned(remark, _shapes(chain, is_one=len(remark.chain.shapes) == 1), scale)
        is_sure = chain in remark.about
        if reading is not None and not reading.wrong:
            return replace(reading, is_sure=is_sure)
        # only an operation that it must describe can prove it wrong
        if reading is not None and is_sure and (best is None or len(reading.wrong) < len(best.wrong)):
            best = replace(reading, is_sure=True)
    return best


def _shapes(chain: Chain, *, is_one: bool) -> tuple[Shape, ...]:
    """The shapes of a chain. is_one: a single written shape is an input or an output, nothing in between."""
    if is_one:
        return (*chain.steps[0].inputs, *chain.steps[-1].outputs)
    return tuple(each for part in chain.parts for each in part if isinstance(each, Shape))


def _aligned(remark: Remark, truth: Sequence[Shape], scale: SymbolScale) -> _Reading | None:
    """The shapes of a remark matched to traced ones of the same ranks, in order, with the fewest wrong axes."""
    spoken_shapes = remark.chain.shapes
    best: dict[int, tuple[int, tuple[int, ...]]] = {-1: (0, ())}
    for written in spoken_shapes:
        after: dict[int, tuple[int, tuple[int, ...]]] = {}
        for before, (cost, path) in best.items():
            for at in range(before + 1, len(truth)):
                if len(truth[at].axes) == len(written.elements):
                    total = cost + len(_misfits(written, truth[at], scale))
                    if at not in after or total < after[at][0]:
                        after[at] = (total, (*path, at))
        best = after
    if not best:
        return None
    # among equal alignments, the one that ends with the result
    last = min(best, key=lambda at: (best[at][0], -at))
    path = best[last][1]
    shapes = tuple(truth[at] for at in path)
    if not _are_named(shapes, scale):
        # no word is right for an axis without a name
        return None
    wrong = tuple(
        (n, place)
        for n, (written, shape) in enumerate(zip(spoken_shapes, shapes, strict=True))
        for place in _misfits(written, shape, scale)
    )
    return _Reading(remark, shapes, wrong)


def _misfits(written: SpokenShape, shape: Shape, scale: SymbolScale) -> list[int]:
    return [
        place
        for place, (element, axis) in enumerate(zip(written.elements, shape.axes, strict=True))
        if not scale.fits(element, axis.text)
    ]


def _fits(written: SpokenShape, shape: Shape, scale: SymbolScale) -> bool:
    return len(written.elements) == len(shape.axes) and not _misfits(written, shape, scale)


def _corrected_length(reading: _Reading, right: Sequence[_Reading], scale: SymbolScale) -> str:
    """The remark with one word for one length, where it uses two and one of them is another length elsewhere; "": none.

    `[B, S, D] → linear → [B, L, H*d]` of keys: S becomes L, which elsewhere is the length of the queries.
    """
    if not reading.is_sure:
        return ""
    lengths = {symbol.name for symbol in scale.symbols if symbol.meaning in LENGTHS}
    here = list(_bound(reading, lengths))
    for length in sorted(lengths):
        words = list(dict.fromkeys(word for word, axis in here if axis == length))
        if len(words) < 2:
            continue
        others = {
            word
            for candidate in right
            if candidate is not reading and len({axis for _, axis in _bound(candidate, lengths)}) == 1
            for word, axis in _bound(candidate, lengths)
            if axis != length
        }
        strays = [word for word in words[1:] if word in others]
        if strays and words[0] not in others:
            return _replaced_strays(reading, strays, length, words[0])
    return ""


def _bound(reading: _Reading, lengths: set[str]) -> Iterator[tuple[str, str]]:
    """The pairs (word, axis name) of a remark whose axis is one of some names."""
    for written, shape in zip(reading.remark.chain.shapes, reading.truth, strict=True):
        for element, axis in zip(written.elements, shape.axes, strict=True):
            if axis.text in lengths and element.isidentifier():
                yield element, axis.text


def _corrected_axes(reading: _Reading, right: Sequence[_Reading], scale: SymbolScale) -> str:
    """The remark with its wrong axes corrected; "": no correction is sure."""
    written = reading.remark.chain.shapes
    corrected: dict[int, tuple[str, ...]] = {}
    followers = () if reading.remark.values else reading.remark.later
    later = [step.outputs for chain in followers for step in chain.steps[-1:]]
    for n in sorted({shape for shape, _ in reading.wrong}):
        places = [place for shape, place in reading.wrong if shape == n]
        if any(_fits(written[n], shape, scale) for shapes in later for shape in shapes):
            # it describes the result of several statements
            return ""
        elements = _reordered(written[n], reading.truth[n], scale)
        if elements is None and len(reading.wrong) == 1:
            elements = _renamed(reading, right, n, places[0], scale)
        if elements is None:
            return ""
        corrected[n] = elements
    return _rewritten(reading, corrected)


def _reordered(written: SpokenShape, shape: Shape, scale: SymbolScale) -> tuple[str, ...] | None:
    """The same words in the correct order, where heads or head width are among the moved ones; None: there is none."""
    for order in permutations(written.elements):
        moved = [word for word, new in zip(written.elements, order, strict=True) if word != new]
        word_meanings = [scale.meanings_in(word) for word in moved]
        if not all(word_meanings) or not any(meaning & {"heads", "head_width"} for meaning in word_meanings):
            continue
        if all(scale.fits(word, axis.text) for word, axis in zip(order, shape.axes, strict=True)):
            return order
    return None


def _renamed(
    reading: _Reading, right: Sequence[_Reading], n: int, place: int, scale: SymbolScale
) -> tuple[str, ...] | None:
    """A shape with another word for one axis, where correct remarks use the present word for another axis."""
    axis = reading.truth[n].axes[place].text
    elements = reading.remark.chain.shapes[n].elements
    names = {symbol.name for symbol in scale.symbols}
    uses = [use for each in (reading, *right) for use in _bound(each, names)]
    meant = {bound_axis for word, bound_axis in uses if word == elements[place]} - {axis}
    others = [
        word for word, bound_axis in uses if bound_axis == axis and word != elements[place] and scale.fits(word, axis)
    ]
    if axis not in names or not meant or not others:
        return None
    return (*elements[:place], others[0], *elements[place + 1 :])


def _replaced_strays(reading: _Reading, strays: Sequence[str], axis: str, word: str) -> str:
    """The remark with one word in place of all strays for an axis."""
    corrected = {
        n: tuple(
            word if element in strays and true.text == axis else element
            for element, true in zip(written.elements, shape.axes, strict=True)
        )
        for n, (written, shape) in enumerate(zip(reading.remark.chain.shapes, reading.truth, strict=True))
    }
    return _rewritten(reading, corrected)


def _rewritten(reading: _Reading, corrected: Mapping[int, tuple[str, ...]]) -> str:
    """The text of a remark with other elements in some of its shapes."""
    chain = reading.remark.chain
    text = chain.text
    for n in sorted(corrected, reverse=True):
        written = chain.shapes[n]
        start, end = written.start - chain.start, written.end - chain.start
        text = text[:start] + _respelled(text[start:end], written.elements, corrected[n]) + text[end:]
    return text


def _respelled(text: str, old: Sequence[str], new: Sequence[str]) -> str:
    out, at = [], 0
    for before, after in zip(old, new, strict=True):
        place = text.index(before, at)
        out.append(text[at:place] + after)
        at = place + len(before)
    return "".join(out) + text[at:]
