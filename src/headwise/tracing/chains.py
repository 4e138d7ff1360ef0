"""Chains: steps that feed one another, joined as a person writes them: [B, L, D] → linear → [B, L, H*d] → view → …"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headwise.dataflow import Shape
from headwise.tracing.steps import Place, Step

__all__ = ["ARROW", "Chain", "Part", "chains", "holds"]

ARROW = " → "
# what stands between two tensors, by the name of the operation
BETWEEN = {
    "matmul": "@", "bmm": "@", "mm": "@", "add": "+", "sub": "-", "mul": "*", "div": "/",
    **{sign: sign for sign in ("@", "+", "-", "*", "/", "//", "%", "**", "&", "|", "^", "==", "!=", "<", "<=", ">")},
    **{sign: sign for sign in (">=", "+=", "-=", "*=", "@=", "/=", "//=", "%=", "**=", "&=", "|=", "^=")},
}  # fmt: skip
# names whose attributes are functions, and no methods of a tensor
NAMESPACES = ("torch", "F", "nn", "self", "functional", "einops", "np", "math")
# what the chain brought, where an operation takes other tensors beside it
HERE = "·"
# of more others that are alike only one is said
MOST = 3

Part = tuple[Shape | str, ...]


@dataclass(frozen=True)
class Chain:
    """Steps of one expression, each fed by the one before. turns: how many such chains say the same."""

    steps: tuple[Step, ...]
    parts: tuple[Part, ...]
    turns: int = 1

    @property
    def place(self) -> Place:
        """Where the last step, and with it the whole expression, was written."""
        return self.steps[-1].place

    @property
    def times(self) -> str:
        """How often all of it ran, as it is written behind: "× H", "×3", or ""."""
        by_loop = self.steps[0].times
        if by_loop:
            return f"× {by_loop}"
        return f"×{self.turns}" if self.turns > 1 else ""

    @property
    def scrambled(self) -> tuple[str, ...]:
        """The axes that a step mixed up: its result has them so, and what it took had not."""
        found = [
            axis.text
            for step in self.steps
            if not any(each.is_scrambled for each in step.inputs)
            for shape in step.outputs
            for axis in shape.axes
            if axis.scrambled
        ]
        return tuple(dict.fromkeys(found))

    def said(self, *, real: bool = False) -> str:
        """The chain as one line of text."""
        return ARROW.join(
            "".join(each if isinstance(each, str) else each.said(real=real) for each in part) for part in self.parts
        )


def chains(steps: Sequence[Step]) -> tuple[Chain, ...]:
    """Steps of one call of a function, joined where one stands in the other's source and gives what it takes."""
    made: list[list[Step]] = []
    waiting: list[list[Step]] = []
    for step in steps:
        inside = [each for each in waiting if holds(step.place, each[-1].place)]
        joined = _feeding(inside, step)
        if joined is None:
            joined = []
            made.append(joined)
        joined.append(step)
        # what stands inside was taken by this step, and by no other
        waiting = [each for each in waiting if all(each is not one for one in inside)]
        waiting.append(joined)
    return _told_once([Chain(tuple(each), _parts(each)) for each in made])


def holds(outer: Place, inner: Place) -> bool:
    """Whether the source of one place stands inside that of another, or is the same."""
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
    """The chain whose last result is what a step works on: its only input, or its first."""
    fitting = [each for each in inside if each[-1].times == step.times and _gives_first(each[-1], step)]
    if len(step.inputs) > 1:
        fitting = [each for each in fitting if _begins(step.place, each[-1].place)]
    return fitting[-1] if fitting else None


def _gives_first(before: Step, step: Step) -> bool:
    """Whether the first input of a step has the shape that the step before gave."""
    return bool(step.inputs) and str(step.inputs[0]) in {str(each) for each in before.outputs}


def _begins(outer: Place, inner: Place) -> bool:
    """Whether a place stands first in another: nothing comes before it but brackets, or a function's name."""
    if outer.line != inner.line or outer.column is None or inner.column is None:
        return _start(outer) == _start(inner) or outer.column is None
    before = outer.source[: inner.column - outer.column].strip()
    name = before.rstrip("( ")
    if not name:
        return True
    # of scores.masked_fill(mask == 0) the scores stand first
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
    """The other tensors that an operation takes."""
    if not others:
        return ()
    said: list[Shape | str] = [f"({HERE}"]
    if len(others) > MOST and len(set(map(str, others))) == 1:
        # how many there are is known of this run only
        said.append(", …")
        others = others[:1]
    for each in others:
        said += [", ", each]
    return (*said, ")")


def _results(shapes: Sequence[Shape]) -> Part:
    if len(shapes) > 1 and len({str(each) for each in shapes}) == 1:
        return (f"{len(shapes)} × ", shapes[0])
    said: list[Shape | str] = [shapes[0]]
    for each in shapes[1:]:
        said += [", ", each]
    return tuple(said)


def _told_once(found: Sequence[Chain]) -> tuple[Chain, ...]:
    """Chains that end on one line and say the same are told once, with their number."""
    out: dict[tuple[object, ...], Chain] = {}
    for chain in found:
        place = chain.place
        key = (place.file, place.end_line or place.line, chain.said(), chain.steps[0].times)
        same = out.get(key)
        out[key] = chain if same is None else Chain(same.steps, same.parts, same.turns + 1)
    return tuple(out.values())
