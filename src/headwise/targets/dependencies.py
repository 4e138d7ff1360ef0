"""Dependencies: which statements of a file a name needs, through everything they read."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Sequence

from headwise.targets.statements import Statement

__all__ = ["Needs", "is_given", "needs"]

BUILT_IN = frozenset(dir(builtins))


class Needs:
    """What some names need. chosen: places of statements; names: all that were asked for; unbound: those none binds."""

    def __init__(self, statements: Sequence[Statement]) -> None:
        self.chosen: set[int] = set()
        self.unbound: set[str] = set()
        self.names: set[str] = set()
        self._statements = statements
        self._seen: set[tuple[str, int, int]] = set()
        self._places: dict[str, list[int]] = {}
        for at, own in enumerate(statements):
            for name in own.binds | own.changes:
                self._places.setdefault(name, []).append(at)

    def want(self, name: str) -> None:
        """Choose what gives a name the value it has at the end of the file, and all that this needs."""
        end = len(self._statements)
        self._follow([(name, end, end)])

    def choose(self, at: int) -> None:
        """Choose a statement and all that it needs."""
        self._follow(self._taken(at, len(self._statements)))

    def _follow(self, waiting: list[tuple[str, int, int]]) -> None:
        """Choose what gives names their values.

        Each comes with the place before which it is looked up, and the one at which what it is may be called: a
        function reads the names in it as they are then.
        """
        while waiting:
            one = waiting.pop()
            if one not in self._seen:
                self._seen.add(one)
                name, before, called = one
                self.names.add(name)
                if name not in self._places and not is_given(name):
                    self.unbound.add(name)
                for at in self._binding(name, before):
                    waiting += self._taken(at, called)

    def _binding(self, name: str, before: int) -> Iterator[int]:
        """The last statement before a place that surely binds a name, and those after it that may change it."""
        for at in reversed(self._places.get(name, ())):
            if at < before:
                yield at
                if name in self._statements[at].binds:
                    break

    def _taken(self, at: int, called: int) -> list[tuple[str, int, int]]:
        """Take a statement, of which what it makes may be called at a place; what it reads."""
        self.chosen.add(at)
        own = self._statements[at]
        return [
            *((name, at, when) for name in sorted(own.now) for when in (at, called)),
            *((name, called, called) for name in sorted(own.later)),
        ]


def is_given(name: str) -> bool:
    """Whether a name that a file does not bind is there all the same: Python's own, or like `__file__`."""
    return name in BUILT_IN or (name.startswith("__") and name.endswith("__"))


def needs(statements: Sequence[Statement], name: str) -> Needs:
    """What a name needs: what binds it, all that this reads, and what is added to it by decorators elsewhere."""
    found = Needs(statements)
    found.want(name)
    functions = {each: own.later for own in statements if isinstance(own.node, ast.FunctionDef) for each in own.binds}
    own_values = {
        each
        for own in statements
        if not own.is_import and not isinstance(own.node, ast.FunctionDef)
        for each in own.binds
    }
    while True:
        before = len(found.chosen)
        for at, own in enumerate(statements):
            # a star may bind any name, and hide any of Python's own
            is_added = own.is_star or _reach(own.decorators, functions) & found.names & own_values
            if at not in found.chosen and (is_added or _is_about_paths(own)):
                found.choose(at)
        if len(found.chosen) == before:
            return found


def _reach(names: frozenset[str], functions: dict[str, frozenset[str]]) -> set[str]:
    """Names, and all that the functions among them read."""
    out: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in out:
            out.add(name)
            waiting += functions.get(name, ())
    return out


def _is_about_paths(own: Statement) -> bool:
    """Whether a statement says where modules are: sys.path.append(…)."""
    call = own.node.value if isinstance(own.node, ast.Expr) else None
    return isinstance(call, ast.Call) and ast.unparse(call.func) in (
        "sys.path.append",
        "sys.path.insert",
        "sys.path.extend",
    )
