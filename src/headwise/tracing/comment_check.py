"""Comment check: the chains of shapes that a person wrote, compared with the truth; marked where they are surely wrong.

Every word may mean several sizes, so that most of what differs is another way to say the same. Sure are: axes in
another order, one axis that no reading of its word makes true, and a length that turns into another one on its way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

from headwise.dataflow import Shape
from headwise.tracing.chains import Chain
from headwise.tracing.code_comments import Remark, remarks
from headwise.tracing.equality import Scale
from headwise.tracing.shape_text import SpokenShape
from headwise.tracing.size_words import LENGTHS
from headwise.tracing.steps import Comment, Trace

__all__ = ["compared"]


@dataclass(frozen=True)
class _Reading:
    """A remark laid beside the shapes of an operation. wrong: the axes (shape, place) that no word of it makes true.

    is_sure: the remark must be about this operation.
    """

    remark: Remark
    truth: tuple[Shape, ...]
    wrong: tuple[tuple[int, int], ...]
    is_sure: bool = False


def compared(trace: Trace) -> tuple[Comment, ...]:
    """The chains of shapes in the comments of a trace's sources that could be read: right, or surely wrong."""
    scale = Scale(trace.symbols)
    # of the files of a repository only these say anything of what ran
    ran = {place.file for step in trace.steps for place in (step.place, *step.chain)}
    found = [each for file, text in trace.sources.items() if file in ran for each in remarks(file, text, trace.steps)]
    readings = [(each, _read(each, scale)) for each in found]
    right = [reading for _, reading in readings if reading is not None and not reading.wrong]
    out = []
    for _, reading in readings:
        if reading is None:
            continue
        true = _axes_mended(reading, right, scale) if reading.wrong else _length_mended(reading, right, scale)
        if true or not reading.wrong:
            out.append(Comment(reading.remark.place, reading.remark.chain.text, true))
    if _is_guessed(trace) and 2 * sum(1 for each in out if each.true) > len(out):
        # more likely the order of the arguments' axes was taken for another than it is
        out = [each for each in out if not each.true]
    return tuple(sorted(out, key=lambda each: (each.place.file, each.place.line, each.place.column or 0)))


def _is_guessed(trace: Trace) -> bool:
    """Whether arguments came with heads, so that no operation shows which axis they are."""
    heads = {each.name for each in trace.symbols if each.meaning in ("heads", "key_heads", "head_width")}
    return any(heads & set(map(str, each)) for each in (trace.call or {}).values() if isinstance(each, list))


def _read(remark: Remark, scale: Scale) -> _Reading | None:
    """A remark beside the operations it agrees with, or else disagrees with least; None: with none it can be."""
    best: _Reading | None = None
    for chain in (*remark.about, *remark.beside):
        found = _aligned(remark, _shapes(chain, is_one=len(remark.chain.shapes) == 1), scale)
        is_sure = chain in remark.about
        if found is not None and not found.wrong:
            return replace(found, is_sure=is_sure)
        # only what it must be about can prove it wrong
        if found is not None and is_sure and (best is None or len(found.wrong) < len(best.wrong)):
            best = replace(found, is_sure=True)
    return best


def _shapes(chain: Chain, *, is_one: bool) -> tuple[Shape, ...]:
    """The shapes of a chain; one shape alone tells what the expression is given or gives, and nothing in between."""
    if is_one:
        return (*chain.steps[0].inputs, *chain.steps[-1].outputs)
    return tuple(each for part in chain.parts for each in part if isinstance(each, Shape))


def _aligned(remark: Remark, truth: Sequence[Shape], scale: Scale) -> _Reading | None:
    """The shapes of a remark laid beside true ones, in order and of the same ranks, with the fewest axes wrong."""
    said = remark.chain.shapes
    best: dict[int, tuple[int, tuple[int, ...]]] = {-1: (0, ())}
    for own in said:
        after: dict[int, tuple[int, tuple[int, ...]]] = {}
        for before, (cost, path) in best.items():
            for at in range(before + 1, len(truth)):
                if len(truth[at].axes) == len(own.elements):
                    total = cost + len(_misfits(own, truth[at], scale))
                    if at not in after or total < after[at][0]:
                        after[at] = (total, (*path, at))
        best = after
    if not best:
        return None
    # of ways that are as good, the one that ends with the result
    last = min(best, key=lambda at: (best[at][0], -at))
    path = best[last][1]
    shapes = tuple(truth[at] for at in path)
    if any(axis.scrambled or scale.value(axis.text) is None for shape in shapes for axis in shape.axes):
        # no word is right for what has no name
        return None
    wrong = tuple(
        (n, place)
        for n, (own, shape) in enumerate(zip(said, shapes, strict=True))
        for place in _misfits(own, shape, scale)
    )
    return _Reading(remark, shapes, wrong)


def _misfits(own: SpokenShape, shape: Shape, scale: Scale) -> list[int]:
    return [
        place
        for place, (element, axis) in enumerate(zip(own.elements, shape.axes, strict=True))
        if not scale.fits(element, axis.text)
    ]


def _fits(own: SpokenShape, shape: Shape, scale: Scale) -> bool:
    return len(own.elements) == len(shape.axes) and not _misfits(own, shape, scale)


def _length_mended(reading: _Reading, right: Sequence[_Reading], scale: Scale) -> str:
    """The remark with one word for one length, where it has two of which one is another length elsewhere; "": it has.

    `[B, S, D] → linear → [B, L, H*d]` of keys: S turns into L, which is the queries' length where the person
    writes of queries.
    """
    if not reading.is_sure:
        return ""
    lengths = {each.name for each in scale.symbols if each.meaning in LENGTHS}
    here = list(_bound(reading, lengths))
    for length in sorted(lengths):
        words = list(dict.fromkeys(word for word, axis in here if axis == length))
        if len(words) < 2:
            continue
        others = {
            word
            for each in right
            if each is not reading and len({axis for _, axis in _bound(each, lengths)}) == 1
            for word, axis in _bound(each, lengths)
            if axis != length
        }
        strays = [word for word in words[1:] if word in others]
        if strays and words[0] not in others:
            return _said_again(reading, strays, length, words[0])
    return ""


def _bound(reading: _Reading, lengths: set[str]) -> Iterator[tuple[str, str]]:
    """Which single word of a remark stands for which length."""
    for own, shape in zip(reading.remark.chain.shapes, reading.truth, strict=True):
        for element, axis in zip(own.elements, shape.axes, strict=True):
            if axis.text in lengths and element.isidentifier():
                yield element, axis.text


def _axes_mended(reading: _Reading, right: Sequence[_Reading], scale: Scale) -> str:
    """The remark with the axes that are surely wrong put right; "": none is sure."""
    said = reading.remark.chain.shapes
    mended: dict[int, tuple[str, ...]] = {}
    later = [step.outputs for chain in reading.remark.later for step in chain.steps[-1:]]
    for n in sorted({shape for shape, _ in reading.wrong}):
        places = [place for shape, place in reading.wrong if shape == n]
        if any(_fits(said[n], shape, scale) for shapes in later for shape in shapes):
            # it tells what comes of several statements
            return ""
        found = _reordered(said[n], reading.truth[n], scale)
        if found is None and len(reading.wrong) == 1:
            found = _renamed(reading, right, n, places[0], scale)
        if found is None:
            return ""
        mended[n] = found
    return _with(reading, mended)


def _reordered(own: SpokenShape, shape: Shape, scale: Scale) -> tuple[str, ...] | None:
    """The same words in the order that is true, where heads or their width are among those that move."""
    for order in permutations(own.elements):
        moved = [word for word, new in zip(own.elements, order, strict=True) if word != new]
        known = [scale.meanings_in(word) for word in moved]
        if not all(known) or not any(each & {"heads", "head_width"} for each in known):
            continue
        if all(scale.fits(word, axis.text) for word, axis in zip(order, shape.axes, strict=True)):
            return order
    return None


def _renamed(reading: _Reading, right: Sequence[_Reading], n: int, place: int, scale: Scale) -> tuple[str, ...] | None:
    """A shape with another word for one axis, where that word stands for something else in what is right."""
    axis = reading.truth[n].axes[place].text
    elements = reading.remark.chain.shapes[n].elements
    names = {each.name for each in scale.symbols}
    uses = [use for each in (reading, *right) for use in _bound(each, names)]
    meant = {own for word, own in uses if word == elements[place]} - {axis}
    others = [word for word, own in uses if own == axis and word != elements[place] and scale.fits(word, axis)]
    if axis not in names or not meant or not others:
        return None
    return (*elements[:place], others[0], *elements[place + 1 :])


def _said_again(reading: _Reading, strays: Sequence[str], axis: str, word: str) -> str:
    """The remark with another word where one of several strays stands for an axis."""
    mended = {
        n: tuple(
            word if element in strays and true.text == axis else element
            for element, true in zip(own.elements, shape.axes, strict=True)
        )
        for n, (own, shape) in enumerate(zip(reading.remark.chain.shapes, reading.truth, strict=True))
    }
    return _with(reading, mended)


def _with(reading: _Reading, mended: Mapping[int, tuple[str, ...]]) -> str:
    """The text of a remark with other elements in some of its shapes, all else as it was."""
    chain = reading.remark.chain
    text = chain.text
    for n in sorted(mended, reverse=True):
        own = chain.shapes[n]
        start, end = own.start - chain.start, own.end - chain.start
        text = text[:start] + _respelled(text[start:end], own.elements, mended[n]) + text[end:]
    return text


def _respelled(text: str, old: Sequence[str], new: Sequence[str]) -> str:
    out, at = [], 0
    for before, after in zip(old, new, strict=True):
        place = text.index(before, at)
        out.append(text[at:place] + after)
        at = place + len(before)
    return "".join(out) + text[at:]
