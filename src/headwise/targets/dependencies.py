"""Dependencies: the statements of a file that a name needs, through the names they read, and what nothing binds."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Collection, Iterator, Sequence

from headwise.targets.statements import Statement
from headwise.targets.target import Target

__all__ = ["Needs", "early_reads", "form_of", "is_predefined", "needs"]

BUILT_IN = frozenset(dir(builtins))
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
# blocks that may catch an error, or skip a statement
GUARDED = (ast.Try, ast.If, ast.For, ast.While, ast.With)


class Needs:
    """The needs of some names. chosen: indices of statements; names: all that are read; unbound: without a binding."""

    def __init__(self, statements: Sequence[Statement]) -> None:
        self.chosen: set[int] = set()
        self.unbound: set[str] = set()
        self.names: set[str] = set()
        self._statements = statements
        self._visited: set[tuple[str, int, int]] = set()
        self._places: dict[str, list[int]] = {}
        for at, statement in enumerate(statements):
            for name in statement.binds | statement.changes:
                self._places.setdefault(name, []).append(at)

    def want(self, name: str) -> None:
        """Choose the statements that determine the value of a name at the end of the file, with all their needs."""
        end = len(self._statements)
        self._follow([(name, end, end)])

    def choose(self, at: int) -> None:
        """Choose a statement with all its needs."""
        self._follow(self._taken(at, len(self._statements)))

    def _follow(self, waiting: list[tuple[str, int, int]]) -> None:
        """Choose the statements that determine the values of names.

        waiting: (name, before, called): the name is looked up before the index `before`, and its value may be called at
        the index `called`, where a function reads the names in its body.
        """
        while waiting:
            lookup = waiting.pop()
            if lookup not in self._visited:
                self._visited.add(lookup)
                name, before, called = lookup
                self.names.add(name)
                if name not in self._places and not is_predefined(name):
                    self.unbound.add(name)
                for at in self._binding(name, before):
                    waiting += self._taken(at, called)

    def _binding(self, name: str, before: int) -> Iterator[int]:
        """The last statement before an index that surely binds a name, and those after it that may change it."""
        for at in reversed(self._places.get(name, ())):
            if at < before:
                yield at
                if name in self._statements[at].binds:
                    break

    def _taken(self, at: int, called: int) -> list[tuple[str, int, int]]:
        """Choose a statement whose functions may be called at an index; the lookups of the names that it reads."""
        self.chosen.add(at)
        statement = self._statements[at]
        return [
            *((name, at, when) for name in sorted(statement.now) for when in (at, called)),
            *((name, called, called) for name in sorted(statement.later)),
        ]


def is_predefined(name: str) -> bool:
    """Whether a name is a builtin, or a module attribute such as `__file__`."""
    return name in BUILT_IN or (name.startswith("__") and name.endswith("__"))


def needs(statements: Sequence[Statement], name: str) -> Needs:
    """The needs of a name: its bindings, the names that these read, and the decorators that register in its value."""
    needed = Needs(statements)
    needed.want(name)
    functions = {
        function: statement.later
        for statement in statements
        if isinstance(statement.node, ast.FunctionDef)
        for function in statement.binds
    }
    values = {
        bound
        for statement in statements
        if not statement.is_import and not isinstance(statement.node, ast.FunctionDef)
        for bound in statement.binds
    }
    while True:
        before = len(needed.chosen)
        for at, statement in enumerate(statements):
            # a star import may bind any name, and shadow any builtin
            is_added = statement.is_star or _reach(statement.decorators, functions) & needed.names & values
            if at not in needed.chosen and (is_added or _is_about_paths(statement)):
                needed.choose(at)
        if len(needed.chosen) == before:
            return needed


def _reach(names: frozenset[str], functions: dict[str, frozenset[str]]) -> set[str]:
    """Some names, and all names that the functions among them read."""
    out: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in out:
            out.add(name)
            waiting += functions.get(name, ())
    return out


def _is_about_paths(statement: Statement) -> bool:
    """Whether a statement changes the module search path: sys.path.append(…)."""
    call = statement.node.value if isinstance(statement.node, ast.Expr) else None
    return isinstance(call, ast.Call) and ast.unparse(call.func) in (
        "sys.path.append",
        "sys.path.insert",
        "sys.path.extend",
    )


def form_of(target: Target, body: Sequence[Statement]) -> str:
    """The form of a target. "file": its imports bind all its names; "open": a star import or exec may bind any name;
    "fragment": it is part of a note or a notebook, or has no imports.
    """
    if target.kind != "python" or not any(statement.is_import for statement in body):
        return "fragment"
    calls = (node for statement in body for node in ast.walk(statement.node) if isinstance(node, ast.Call))
    is_open = any(statement.is_star for statement in body) or any(
        _name(call.func) in ("exec", "globals") for call in calls
    )
    return "open" if is_open else "file"


def early_reads(body: Sequence[Statement], needed: Needs, names: Collection[str]) -> dict[str, tuple[str, ast.Name]]:
    """The first read of each name at loading, where its absence is an error: the file, and the node."""
    out: dict[str, tuple[str, ast.Name]] = {}
    for at in sorted(needed.chosen):
        statement = body[at]
        for name in sorted(statement.now & set(names) - out.keys()) if not isinstance(statement.node, GUARDED) else ():
            read = next((node for node in _run_now(statement.node) if node.id == name), None)
            if read is not None:
                out[name] = statement.file, read
    return out


def _run_now(node: ast.AST) -> Iterator[ast.Name]:
    """The names that a statement reads when it runs: not those in the bodies of its functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Name):
            yield child
        if isinstance(node, FUNCTIONS) and child in (node.body if isinstance(node.body, list) else [node.body]):
            continue
        if not isinstance(child, GUARDED):
            yield from _run_now(child)


def _name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else ""
