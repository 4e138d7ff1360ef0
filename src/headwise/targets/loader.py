"""Loader: runs what a target needs, and nothing else, and hands over the class, the function or the value."""

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
from headwise.targets.dependencies import Needs, is_given, needs
from headwise.targets.loaded_target import Loaded, attribute, no_name, not_run, unnamed
from headwise.targets.locations import place_of
from headwise.targets.module_import import imported
from headwise.targets.source_file import Source, no_python
from headwise.targets.stand_ins import Missing, d2l_modules, supplied
from headwise.targets.statements import Statement, flags_of, statements
from headwise.targets.target import Target
from headwise.targets.unbound_names import early_reads, form_of
from headwise.wording import Refusal, refusal

__all__ = ["check_name", "load"]


def load(target: Target, source: Source) -> Loaded:
    """The object of a target, made by running only what it needs of the source.

    That is: the imports, the definitions and the assignments that it reads, and those that they read, in the order of
    the file; with what changes these values in place, and what decorators elsewhere add to them. Then classes and
    functions beside it, where they run without more: a call may want a configuration. Never a main guard, and no call
    for its own sake. A Refusal says which line fails, or which package is missing.
    """
    if target.kind == "module":
        return imported(target, source)
    place = place_of(target)
    root = target.name.partition(".")[0]
    own, binding = _bindings(target, source, place.file_of)
    place.remember(source)
    namespace = place.namespace(binding[-1].file if binding else str(place.file))
    found = needs(own, root)
    given = _supply(found, root, namespace)
    runner = _Runner(own, namespace, target)
    for at in sorted(found.chosen):
        runner.run(at)
    value = attribute(namespace, target, source)
    if isinstance(value, Missing):
        value()
    runner.run_beside(found)
    spoken, texts = place.own_files(source)
    return Loaded(
        value, namespace, tuple(spoken), spoken, given, replace(source, texts=source.texts | texts),
        early=early_reads(own, found, given), form=form_of(target, own),
    )  # fmt: skip


def check_name(target: Target, source: Source) -> None:
    """Refuse a name that the source of a target does not bind, before anything of it is run, or torch imported.

    What only running tells (an attribute of a class, a name of a star import or of an imported module) is let through.
    """
    if target.kind != "module":
        _bindings(target, source, str)


def _bindings(target: Target, source: Source, file_of: Callable[[str], str]) -> tuple[list[Statement], list[Statement]]:
    """The statements of a source, and those that bind the name of its target; a Refusal where none may."""
    if not target.name:
        raise unnamed(target, source)
    root = target.name.partition(".")[0]
    cells = [(file_of(cell.file), cell.code) for cell in source.cells]
    own = statements(cells, note_of=root if target.kind == "note" else "")
    binding = [each for each in own if root in each.binds | each.changes]
    if not binding and not any(each.is_star for each in own):
        raise no_name(target, source)
    return own, binding


def _supply(found: Needs, root: str, namespace: dict[str, Any]) -> tuple[str, ...]:
    """Give the names that nothing binds, as far as it is known what they mean."""
    given = []
    for name in sorted(found.unbound - {root}):
        try:
            namespace[name] = supplied(name)
        except LookupError:
            # Python will say so, should it come to that
            continue
        given.append(name)
    return tuple(given)


class _Runner:
    """Runs statements of a file in its namespace."""

    def __init__(self, own: Sequence[Statement], namespace: dict[str, Any], target: Target) -> None:
        self._own, self._namespace, self._target = own, namespace, target
        self._flags = flags_of(each.node for each in own)

    def run(self, at: int) -> None:
        """Run a statement that is needed."""
        each = self._own[at]
        if each.is_future:
            return
        try:
            self._run_with_d2l(self._compiled(each))
        except SyntaxError as error:
            raise no_python(self._target.path, error) from error
        except ImportError as error:
            # a star that fails binds nothing: what it would have bound is said where it is missed
            if not each.is_import:
                raise self._missing(error, each, str(error.name)) from error
            for name in each.binds | (each.changes - self._namespace.keys()):
                self._namespace[name] = Missing(name, partial(self._missing, error, each))
        except AttentionError:
            raise
        except Exception as error:
            if self._target.kind == "note" and isinstance(error, NameError) and not each.is_definition:
                # a line that explains a part of a function is no part of the file
                return
            raise not_run(error, self._target, each.file, each.node.lineno) from error

    def _missing(self, error: ImportError, each: Statement, name: str) -> Refusal:
        """What to say where something is used that could not be imported."""
        if isinstance(error, ModuleNotFoundError):
            return refusal("refuse.target_package", name=name, package=str(error.name).partition(".")[0])
        return not_run(error, self._target, each.file, each.node.lineno)

    def run_beside(self, found: Needs) -> None:
        """Run the definitions that nothing needed asks for, where this takes no import of anything large, and no call.

        One that fails is left out.
        """
        for at, each in enumerate(self._own):
            if at not in found.chosen and each.is_definition and not each.binds & self._namespace.keys():
                self._try(at, frozenset())

    def _try(self, at: int, asked: frozenset[int]) -> bool:
        """Whether a statement that may fail has run, with what it reads before it."""
        each = self._own[at]
        if at in asked or not (each.is_definition or each.is_constant or self._is_light(each)):
            return False
        for name in sorted(each.now | (each.later if each.is_definition else frozenset())):
            if name not in self._namespace and not is_given(name):
                binding = next(
                    (i for i in range(at - 1, -1, -1) if name in self._own[i].binds | self._own[i].changes), None
                )
                if (binding is None or not self._try(binding, asked | {at})) and name in each.now:
                    return False
        try:
            exec(self._compiled(each), self._namespace)
        except Exception:  # noqa: BLE001  nothing that is needed
            return False
        return True

    def _is_light(self, each: Statement) -> bool:
        """Whether a statement is an import of something that is there anyway."""
        root = each.imported_from.partition(".")[0]
        return each.is_import and (root in sys.modules or root in sys.stdlib_module_names) and not each.is_star

    def _run_with_d2l(self, code: CodeType) -> None:
        try:
            exec(code, self._namespace)
        except ModuleNotFoundError as error:
            if str(error.name).partition(".")[0] != "d2l" or "d2l" in sys.modules:
                raise
            sys.modules.update(d2l_modules())
            exec(code, self._namespace)

    def _compiled(self, each: Statement) -> CodeType:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code: CodeType = compile(
                ast.Module([each.node], []), each.file, "exec", flags=self._flags, dont_inherit=True
            )
            return code
