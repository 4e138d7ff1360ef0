"""Comments: the chains of shapes that a person wrote, compared with the truth; marked where they are surely wrong.

Every word may mean several sizes, so that most of what differs is another way to say the same. Sure are: axes in
another order, one axis that no reading of its word makes true, and a length that turns into another one on its way.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations, product

from headwise.tracing.chains import Chain
from headwise.tracing.remarks import Remark, remarks
from headwise.tracing.spoken import SpokenShape, names_in, tree_of
from headwise.tracing.trace import Comment, Shape, Symbol, Trace
from headwise.tracing.vocabulary import LENGTHS, may_mean, meanings

__all__ = ["compared"]

# symbols are compared by numbers that no product of a few of them shares
NUMBERS = (1009, 1013, 1019, 1021, 1031, 1033, 1039, 1049, 1051, 1061, 1063, 1069, 1087, 1091, 1093, 1097, 1103, 1109)
MOST_READINGS = 400


@dataclass(frozen=True)
class _Reading:
    """A remark laid beside the shapes it is about. wrong: the axes (shape, place) that no word of it makes true."""

    remark: Remark
    truth: tuple[Shape, ...]
    wrong: tuple[tuple[int, int], ...]


def compared(trace: Trace) -> tuple[Comment, ...]:
    """The chains of shapes in the comments of a trace's sources that could be read: right, or surely wrong."""
    scale = _Scale(trace.symbols)
    found = [each for file, text in trace.sources.items() for each in remarks(file, text, trace.steps)]
    readings = [(each, _read(each, scale)) for each in found]
    right = [reading for _, reading in readings if reading is not None and not reading.wrong]
    out = []
    for _, reading in readings:
        if reading is None:
            continue
        true = _length_mended(reading, right, scale) if not reading.wrong else _axes_mended(reading, right, scale)
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


class _Scale:
    """Numbers for symbols, by which expressions are compared."""

    def __init__(self, symbols: Sequence[Symbol]) -> None:
        self.symbols = symbols
        free = [each for each in symbols if not each.equals]
        self._numbers = {each.name: Fraction(n) for each, n in zip(free, NUMBERS, strict=False)}
        for each in symbols:
            if each.equals and (value := self.value(each.equals)) is not None:
                self._numbers[each.name] = value

    def value(self, expression: str) -> Fraction | None:
        """The number of an expression in symbols; None: it has none."""
        return _computed(tree_of(expression), self._numbers)

    def fits(self, element: str, axis: str) -> bool:
        """Whether what a person wrote may be said of an axis; of an axis that is not known anything may."""
        wanted = self.value(axis)
        if wanted is None:
            return True
        words = sorted(names_in(element) or ())
        choices = [self._choices(word) for word in words]
        if any(each is None for each in choices):
            return True
        readings = product(*[each or () for each in choices])
        return any(
            _computed(tree_of(element), dict(zip((word for word in words), reading, strict=True))) == wanted
            for _, reading in zip(range(MOST_READINGS), readings, strict=False)
        )

    def _choices(self, word: str) -> list[Fraction] | None:
        names = may_mean(word, self.symbols)
        if names is None:
            return None
        return sorted({self._numbers[name] for name in names if name in self._numbers})


def _computed(node: ast.expr | None, numbers: Mapping[str, Fraction]) -> Fraction | None:
    """The value of an expression; None: it is no sum, product or quotient of what has a number."""
    if isinstance(node, ast.Constant):
        return Fraction(node.value) if isinstance(node.value, int) else None
    if isinstance(node, ast.Name):
        return numbers.get(node.id)
    if not isinstance(node, ast.BinOp):
        return None
    a, b = _computed(node.left, numbers), _computed(node.right, numbers)
    if a is None or b is None:
        return None
    match node.op:
        case ast.Add():
            return a + b
        case ast.Sub():
            return a - b
        case ast.Mult():
            return a * b
        case ast.Div() | ast.FloorDiv() if b:
            return a / b
    return None


def _read(remark: Remark, scale: _Scale) -> _Reading | None:
    """A remark beside the operations it agrees with, or else disagrees with least; None: with none it can be."""
    best: _Reading | None = None
    for chain in (*remark.about, *remark.beside):
        found = _aligned(remark, _shapes(chain, is_one=len(remark.chain.shapes) == 1), scale)
        if found is not None and not found.wrong:
            return found
        # only what it must be about can prove it wrong
        if found is not None and chain in remark.about and (best is None or len(found.wrong) < len(best.wrong)):
            best = found
    return best


def _shapes(chain: Chain, *, is_one: bool) -> tuple[Shape, ...]:
    """The shapes of a chain; one shape alone tells what the expression is given or gives, and nothing in between."""
    if is_one:
        return (*chain.steps[0].inputs, *chain.steps[-1].outputs)
    return tuple(each for part in chain.parts for each in part if isinstance(each, Shape))


def _aligned(remark: Remark, truth: Sequence[Shape], scale: _Scale) -> _Reading | None:
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
    wrong = tuple(
        (n, place)
        for n, (own, shape) in enumerate(zip(said, shapes, strict=True))
        for place in _misfits(own, shape, scale)
    )
    return _Reading(remark, shapes, wrong)


def _misfits(own: SpokenShape, shape: Shape, scale: _Scale) -> list[int]:
    return [
        place
        for place, (element, axis) in enumerate(zip(own.elements, shape.axes, strict=True))
        if not axis.scrambled and not scale.fits(element, axis.text)
    ]


def _fits(own: SpokenShape, shape: Shape, scale: _Scale) -> bool:
    return len(own.elements) == len(shape.axes) and not _misfits(own, shape, scale)


def _length_mended(reading: _Reading, right: Sequence[_Reading], scale: _Scale) -> str:
    """The remark with one word for one length, where it has two of which one is another length elsewhere; "": it has.

    `[B, S, D] → linear → [B, L, H*d]` of keys: S turns into L, which is the queries' length where the person
    writes of queries.
    """
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


def _axes_mended(reading: _Reading, right: Sequence[_Reading], scale: _Scale) -> str:
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


def _reordered(own: SpokenShape, shape: Shape, scale: _Scale) -> tuple[str, ...] | None:
    """The same words in the order that is true, where heads or their width are among those that move."""
    if any(scale.value(axis.text) is None for axis in shape.axes):
        return None
    for order in permutations(own.elements):
        moved = [word for word, new in zip(own.elements, order, strict=True) if word != new]
        known = [meanings(word) for word in moved]
        if not all(known) or not any(each & {"heads", "head_width"} for each in known):
            continue
        if all(scale.fits(word, axis.text) for word, axis in zip(order, shape.axes, strict=True)):
            return order
    return None


def _renamed(reading: _Reading, right: Sequence[_Reading], n: int, place: int, scale: _Scale) -> tuple[str, ...] | None:
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
