"""Variable shapes: the shapes of a variable of user code before and after a line."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
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
        ends = [binding.end[0] for binding in bindings if binding.end[0] < line]
        if self._is_changed_otherwise(name, max(ends, default=first), line, end):
            return ()
        latest = [binding for binding in bindings if binding.end[0] == max(ends, default=0)]
        current = [binding for binding in bindings if binding.start[0] <= end and line <= binding.end[0]]
        before = self._results(latest, name) if latest else self._argument(name, first, last)
        after = self._results(current, name)
        # what a helper is given is known of its operations alone
        is_given = current and not latest and self._is_parameter(name, first, last)
        if (
            ((latest or is_given) and not before)
            or (current and not after)
            or (not current and any(self._is_assigned_at(name, at) for at in range(line, end + 1)))
        ):
            return ()
        return tuple(dict.fromkeys((*before, *after)))

    def _is_changed_otherwise(self, name: str, start: int, line: int, end: int) -> bool:
        """Whether a variable is bound by no plain assignment or changed in place from a line to `end`, or bound or
        changed at all below `end` in a loop around `line`; also where the code cannot be read.
        """
        first, last = self._function(line)
        try:
            tree = ast.parse(textwrap.dedent("\n".join(self._lines[first - 1 : last])))
        except SyntaxError:
            return True
        above = first - 1
        changes = [at + above for at, changed in _changes(tree) if changed == name]
        loops = [
            (node.lineno + above, (node.end_lineno or node.lineno) + above)
            for node in ast.walk(tree)
            if isinstance(node, ast.For | ast.AsyncFor | ast.While)
        ]
        later = changes + [each.start[0] for each in self._assigned if name in each.names]
        return any(start <= at <= end for at in changes) or any(
            opens <= line <= closes and end < at <= closes for opens, closes in loops for at in later
        )

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


def _changes(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The lines at which variables are bound by no plain assignment, or changed in place, each with its variable."""
    plain = {id(part) for node in ast.walk(tree) for part in _plain_targets(node)}
    plain |= {
        id(part) for node in ast.walk(tree) if isinstance(node, ast.comprehension) for part in ast.walk(node.target)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and not isinstance(node.ctx, ast.Load):
            if id(node) not in plain:
                yield node.lineno, ast.unparse(node)
            if isinstance(node, ast.Attribute):
                # q.data = t
                yield node.lineno, ast.unparse(node.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            method = node.func.attr
            if method.endswith("_") and not method.endswith("__"):
                yield node.lineno, ast.unparse(node.func.value)
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            yield node.lineno, node.name
        elif isinstance(node, ast.MatchMapping) and node.rest:
            yield node.lineno, node.rest
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((node.lineno, (name.asname or name.name).partition(".")[0]) for name in node.names)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node not in tree.body:
            yield node.lineno, node.name


def _plain_targets(node: ast.AST) -> Iterator[ast.expr]:
    """The variables that a plain assignment binds."""
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AugAssign | ast.NamedExpr) or (
        isinstance(node, ast.AnnAssign) and node.value is not None
    ):
        targets = [node.target]
    else:
        return
    for target in targets:
        yield from target.elts if isinstance(target, ast.Tuple | ast.List) else (target,)
