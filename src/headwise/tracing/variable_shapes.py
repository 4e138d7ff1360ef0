"""Variable shapes: the shapes of a variable of user code before and after a line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from headwise.dataflow import NamedAxis, Shape
from headwise.tracing.chains import Chain
from headwise.tracing.function_lines import functions
from headwise.tracing.result_names import Assigned, ResultNames

__all__ = ["VariableShapes"]

HEAD = re.compile(r"\s*(?:async\s+)?def\s+\w+\s*\(")


class VariableShapes:
    """The variables of one file. chains: those of its lines; call: the arguments of the target, as in `Trace`."""

    def __init__(self, file: str, text: str, chains: Sequence[Chain], call: Mapping[str, Any] | None) -> None:
        self._lines = text.split("\n")
        self._assigned = ResultNames({file: text}).assigned(file)
        self._chains = chains
        self._call = dict(call or {})

    def is_bound(self, name: str, line: int) -> bool:
        """Whether the function around a line assigns a variable or takes it as a parameter."""
        first, last = self._function(line)
        return self._is_parameter(name, first, last) or any(
            first <= binding.start[0] <= last and name in binding.names for binding in self._assigned
        )

    def around(self, name: str, line: int, end: int) -> tuple[Shape, ...]:
        """The shapes of a variable before a line, then after the lines from there to `end`; (): they are not known."""
        first, last = self._function(line)
        bindings = [each for each in self._assigned if first <= each.start[0] <= last and name in each.names]
        ends = [each.end[0] for each in bindings if each.end[0] < line]
        latest = [binding for binding in bindings if binding.end[0] == max(ends, default=0)]
        current = [binding for binding in bindings if binding.start[0] <= end and line <= binding.end[0]]
        before = self._results(latest, name) if latest else self._argument(name, first, last)
        after = self._results(current, name)
        if (
            (latest and not before)
            or (current and not after)
            or (not current and any(self._is_assigned_at(name, at) for at in range(line, end + 1)))
        ):
            return ()
        return tuple(dict.fromkeys((*before, *after)))

    def _is_assigned_at(self, name: str, line: int) -> bool:
        """Whether the text of a line assigns a name, as the first line of a longer statement does."""
        return bool(re.match(rf"\s*(?:[^#(]*,\s*)?{re.escape(name)}\b[^=#]*=(?!=)", self._lines[line - 1]))

    def _function(self, line: int) -> tuple[int, int]:
        around = [(first, last) for first, last in functions(self._lines) if first <= line <= last]
        return max(around, default=(1, len(self._lines)))

    def _results(self, assigned: Sequence[Assigned], name: str) -> tuple[Shape, ...]:
        """The shapes that assignments give to a name."""
        out: list[Shape] = []
        for binding in assigned:
            for chain in self._chains:
                place = chain.place
                span = (place.line, place.column), (place.end_line, place.end_column)
                if span == (binding.start, binding.end):
                    outputs = chain.steps[-1].outputs
                    is_paired = len(outputs) == len(binding.names) and not binding.is_each
                    out += outputs[binding.names.index(name) :][:1] if is_paired else outputs
        return tuple(out)

    def _argument(self, name: str, first: int, last: int) -> tuple[Shape, ...]:
        """The shape of an argument of the target itself."""
        axes = self._call.get(name)
        is_target = any(first <= step.place.line <= last and not step.chain for c in self._chains for step in c.steps)
        if not (is_target and isinstance(axes, list) and self._is_parameter(name, first, last)):
            return ()
        return (Shape(tuple(NamedAxis(str(axis), 0, False) for axis in axes)),)

    def _is_parameter(self, name: str, first: int, last: int) -> bool:
        """Whether the head of a function names a variable as a parameter."""
        start = next((at for at in range(first, last + 1) if HEAD.match(self._lines[at - 1])), 0)
        if not start:
            return False
        head = ""
        for text in self._lines[start - 1 : last]:
            code = text.partition("#")[0]
            head += code
            if code.rstrip().endswith(":"):
                break
        return bool(re.search(rf"[(,]\s*\*{{0,2}}{re.escape(name)}\s*[:,=)]", head))
