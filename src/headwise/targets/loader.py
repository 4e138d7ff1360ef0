"""Loader: the class, function or value of a target, by running only the statements that it needs."""

from __future__ import annotations

import ast
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from types import CodeType
from typing import Any

from headwise.errors import AttentionError
from headwise.targets.dependencies import Needs, early_reads, form_of, is_predefined, needs
from headwise.targets.loaded_target import Loaded, attribute, no_name, not_run, unnamed
from headwise.targets.locations import location_of
from headwise.targets.module_import import imported
from headwise.targets.source_file import Source, no_python
from headwise.targets.stand_ins import Missing, d2l_modules, supplied
from headwise.targets.statements import Statement, flags_of, statements
from headwise.targets.target import Target
from headwise.wording import Refusal, refusal

__all__ = ["check_name", "load"]


def load(target: Target, source: Source) -> Loaded:
    """The object of a target, by running only the statements of the source that it needs.

    These are the imports, definitions and assignments that it reads, and those that they read, in the order of the
    file, with in-place changes of these values and decorators that register in them. Then the other classes and
    functions, where they need nothing more: a call may need a configuration. Main guards and bare calls never run.
    A Refusal says which line fails, or which package is missing.
    """
    if target.kind == "module":
        return imported(target, source)
    location = location_of(target)
    root = target.name.partition(".")[0]
    body, binding = _bindings(target, source, location.file_of)
    location.remember(source)
    namespace = location.namespace(binding[-1].file if binding else str(location.file))
    needed = needs(body, root)
    supplied_names = _supply(needed, root, namespace)
    runner = _Runner(body, namespace, target)
    for at in sorted(needed.chosen):
        runner.run(at)
    value = attribute(namespace, target, source)
    if isinstance(value, Missing):
        value()
    runner.run_beside(needed)
    spoken, texts = location.user_files(source)
    return Loaded(
        value, namespace, tuple(spoken), spoken, supplied_names, replace(source, texts=source.texts | texts),
        early=early_reads(body, needed, supplied_names), form=form_of(target, body),
    )  # fmt: skip


def check_name(target: Target, source: Source) -> None:
    """Refuse a name that the source of a target does not bind, before any of it runs and before torch is imported.

    Attributes of a class, and names of a star import or of an imported module, are known only by running, and pass.
    """
    if target.kind != "module":
        _bindings(target, source, str)


def _bindings(target: Target, source: Source, file_of: Callable[[str], str]) -> tuple[list[Statement], list[Statement]]:
    """The statements of a source, and those that bind the name of its target; a Refusal where none can."""
    if not target.name:
        raise unnamed(target, source)
    root = target.name.partition(".")[0]
    cells = [(file_of(cell.file), cell.code) for cell in source.cells]
    body = statements(cells, note_of=root if target.kind == "note" else "")
    binding = [statement for statement in body if root in statement.binds | statement.changes]
    if not binding and not any(statement.is_star for statement in body):
        raise no_name(target, source)
    return body, binding


def _supply(needed: Needs, root: str, namespace: dict[str, Any]) -> tuple[str, ...]:
    """Define the unbound names that have a usual meaning; these names."""
    supplied_names = []
    for name in sorted(needed.unbound - {root}):
        try:
            namespace[name] = supplied(name)
        except LookupError:
            # a NameError follows only if the name is read
            continue
        supplied_names.append(name)
    return tuple(supplied_names)


class _Runner:
    """Runs statements of a file in its namespace."""

    def __init__(self, body: Sequence[Statement], namespace: dict[str, Any], target: Target) -> None:
        self._body, self._namespace, self._target = body, namespace, target
        self._flags = flags_of(statement.node for statement in body)

    def run(self, at: int) -> None:
        """Run a needed statement. Errors: Refusal."""
        statement = self._body[at]
        if statement.is_future:
            return
        try:
            self._run_with_d2l(self._compiled(statement))
        except SyntaxError as error:
            raise no_python(self._target.path, error) from error
        except ImportError as error:
            # a failed star import binds nothing: its names are refused where they are read
            if not statement.is_import:
                raise self._missing(error, statement, str(error.name)) from error
            for name in statement.binds | (statement.changes - self._namespace.keys()):
                self._namespace[name] = Missing(name, partial(self._missing, error, statement))
        except AttentionError:
            raise
        except Exception as error:
            if self._target.kind == "note" and isinstance(error, NameError) and not statement.is_definition:
                # in a note, a line that explains part of a function is no code of the file
                return
            raise not_run(error, self._target, statement.file, statement.node.lineno) from error

    def _missing(self, error: ImportError, statement: Statement, name: str) -> Refusal:
        """The refusal of a use of a failed import."""
        if isinstance(error, ModuleNotFoundError):
            return refusal("refuse.target_package", name=name, package=str(error.name).partition(".")[0])
        return not_run(error, self._target, statement.file, statement.node.lineno)

    def run_beside(self, needed: Needs) -> None:
        """Run the other definitions that need no import of a large package and no call; leave out those that fail."""
        for at, statement in enumerate(self._body):
            if at not in needed.chosen and statement.is_definition and not statement.binds & self._namespace.keys():
                self._try(at, frozenset())

    def _try(self, at: int, asked: frozenset[int]) -> bool:
        """Whether a statement that may fail has run, after the statements that it reads."""
        statement = self._body[at]
        if at in asked or not (statement.is_definition or statement.is_constant or self._is_light(statement)):
            return False
        for name in sorted(statement.now | (statement.later if statement.is_definition else frozenset())):
            if name not in self._namespace and not is_predefined(name):
                binding = next(
                    (i for i in range(at - 1, -1, -1) if name in self._body[i].binds | self._body[i].changes), None
                )
                if (binding is None or not self._try(binding, asked | {at})) and name in statement.now:
                    return False
        try:
            exec(self._compiled(statement), self._namespace)
        except Exception:  # noqa: BLE001  this statement is not needed
            return False
        return True

    def _is_light(self, statement: Statement) -> bool:
        """Whether a statement imports a module that is loaded already, or of the standard library."""
        root = statement.imported_from.partition(".")[0]
        return (
            statement.is_import and (root in sys.modules or root in sys.stdlib_module_names) and not statement.is_star
        )

    def _run_with_d2l(self, code: CodeType) -> None:
        try:
            exec(code, self._namespace)
        except ModuleNotFoundError as error:
            if str(error.name).partition(".")[0] != "d2l" or "d2l" in sys.modules:
                raise
            sys.modules.update(d2l_modules())
            exec(code, self._namespace)

    def _compiled(self, statement: Statement) -> CodeType:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code: CodeType = compile(
                ast.Module([statement.node], []), statement.file, "exec", flags=self._flags, dont_inherit=True
            )
            return code
