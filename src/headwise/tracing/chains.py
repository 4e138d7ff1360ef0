"""Chains: the steps of one expression in a row: [B, L, D] → linear → [B, L, H*d] → view → …"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headwise.dataflow import Shape
from headwise.tracing.steps import Place, Step

__all__ = ["ARROW", "Chain", "Part", "chains", "holds"]

ARROW = " → "
# the sign between two tensors, by the name of the operation
BETWEEN = {
    "matmul": "@", "bmm": "@", "mm": "@", "add": "+", "sub": "-", "mul": "*", "div": "/",
    **{sign: sign for sign in ("@", "+", "-", "*", "/", "//", "%", "**", "&", "|", "^", "==", "!=", "<", "<=", ">")},
    **{sign: sign for sign in (">=", "+=", "-=", "*=", "@=", "/=", "//=", "%=", "**=", "&=", "|=", "^=")},
}  # fmt: skip
# names whose attributes are functions, not methods of a tensor
NAMESPACES = ("torch", "F", "nn", "self", "functional", "einops", "np", "math")
# the output of the chain so far, where an operation has other inputs too
HERE = "·"
# of more equal inputs only one is shown
MOST = 3

Part = tuple[Shape | str, ...]


@dataclass(frozen=True)
class Chain:
    """Steps of one expression; each takes the output of the one before. turns: the number of equal chains."""

    steps: tuple[Step, ...]
    parts: tuple[Part, ...]
    turns: int = 1

    @property
    def place(self) -> Place:
        """The place of the last step, which contains the whole expression."""
        return self.steps[-1].place

    @property
    def times(self) -> str:
        """How often the chain ran, as text: "× H", "×3", or ""."""
        by_loop = self.steps[0].times
        if by_loop:
            return f"× {by_loop}"
        return f"×{self.turns}" if self.turns > 1 else ""

    @property
    def scrambled(self) -> tuple[str, ...]:
        """The axes that a step scrambles: they are scrambled in its outputs, and in none of its inputs."""
        axes = [
            axis.text
            for step in self.steps
            if not any(tensor.is_scrambled for tensor in step.inputs)
            for shape in step.outputs
            for axis in shape.axes
            if axis.scrambled
        ]
        return tuple(dict.fromkeys(axes))

    def text(self, *, real: bool = False) -> str:
        """The chain as one line of text."""
        return ARROW.join(
            "".join(text if isinstance(text, str) else text.said(real=real) for text in part) for part in self.parts
        )


def chains(steps: Sequence[Step]) -> tuple[Chain, ...]:
    """Steps of one call of a function, joined where one is nested in the source of the next and is its first input."""
    groups: list[list[Step]] = []
    waiting: list[list[Step]] = []
    for step in steps:
        inside = [each for each in waiting if holds(step.place, each[-1].place)]
        group = _feeding(inside, step)
        if group is None:
            group = []
            groups.append(group)
        group.append(step)
        # a nested chain is the input of this step alone
        waiting = [each for each in waiting if all(each is not taken for taken in inside)]
        waiting.append(group)
    return _merged([Chain(tuple(each), _parts(each)) for each in groups])


def holds(outer: Place, inner: Place) -> bool:
    """Whether the source of one place contains that of another, or is the same."""
    if outer.file != inner.file:
        return False
    if outer.column is None or inner.column is None:
        return outer.line == inner.line
    return _start(outer) <= _start(inner) and _end(inner) <= _end(outer)


def _start(place: Place) -> tuple[int, int]:
    return place.line, place.column or 0


def _end(place: Place) -> tuple[int, int]:
    return place.end_line or place.line, place.end_column or 0


def _feeding(inside: Sequence[list[Step]], step: Step) -> list[Step] | None:
    """The nested chain whose last output is the only or first input of a step; None: there is none."""
    fitting = [each for each in inside if each[-1].times == step.times and _gives_first(each[-1], step)]
    if len(step.inputs) > 1:
        fitting = [each for each in fitting if _begins(step.place, each[-1].place)]
    return fitting[-1] if fitting else None


def _gives_first(before: Step, step: Step) -> bool:
    """Whether the first input of a step has the shape of an output of the step before."""
    return bool(step.inputs) and str(step.inputs[0]) in {str(tensor) for tensor in before.outputs}


def _begins(outer: Place, inner: Place) -> bool:
    """Whether an inner place begins an outer one, after at most brackets or a function name."""
    if outer.line != inner.line or outer.column is None or inner.column is None:
        return _start(outer) == _start(inner) or outer.column is None
    before = outer.source[: inner.column - outer.column].strip()
    name = before.rstrip("( ")
    if not name:
        return True
    # in scores.masked_fill(mask == 0) the scores come first
    is_method = "." in name and name.partition(".")[0] not in NAMESPACES
    return before.endswith("(") and name.replace(".", "").isidentifier() and not is_method


def _is_between(step: Step) -> bool:
    return len(step.inputs) == 2 and step.op in BETWEEN


def _parts(steps: Sequence[Step]) -> tuple[Part, ...]:
    parts: list[Part] = []
    for before, step in zip([None, *steps], steps, strict=False):
        if before is None and step.inputs:
            parts.append((step.inputs[0],))
        if _is_between(step):
            parts[-1] = (*parts[-1], f" {BETWEEN[step.op]} ", step.inputs[1])
        else:
            parts.append((step.op, *_beside(step.inputs[1:])))
        if step.outputs:
            parts.append(_results(step.outputs))
    return tuple(parts)


def _beside(others: Sequence[Shape]) -> Part:
    """The text of the inputs besides the first."""
    if not others:
        return ()
    pieces: list[Shape | str] = [f"({HERE}"]
    if len(others) > MOST and len(set(map(str, others))) == 1:
        # their number holds for this run only
        pieces.append(", …")
        others = others[:1]
    for shape in others:
        pieces += [", ", shape]
    return (*pieces, ")")


def _results(shapes: Sequence[Shape]) -> Part:
    if len(shapes) > 1 and len({str(shape) for shape in shapes}) == 1:
        return (f"{len(shapes)} × ", shapes[0])
    pieces: list[Shape | str] = [shapes[0]]
    for shape in shapes[1:]:
        pieces += [", ", shape]
    return tuple(pieces)


def _merged(unmerged: Sequence[Chain]) -> tuple[Chain, ...]:
    """Chains, with equal ones that end on one line merged and counted."""
    out: dict[tuple[object, ...], Chain] = {}
    for chain in unmerged:
        place = chain.place
        key = (place.file, place.end_line or place.line, chain.text(), chain.steps[0].times)
        same = out.get(key)
        out[key] = chain if same is None else Chain(same.steps, same.parts, same.turns + 1)
    return tuple(out.values())
