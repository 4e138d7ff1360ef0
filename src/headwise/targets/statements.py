"""Statements: the names that each top-level statement of a file binds, and those that it reads, now or when called."""

from __future__ import annotations
import __future__

import ast
import copy
import dis
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType

from headwise.targets.source_file import first_parameter, is_main_guard, parsed

__all__ = ["Statement", "flags_of", "statements"]

LOADS = ("LOAD_NAME", "LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS")
COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
# methods that change their object in place
CHANGES = frozenset(
    (
        "append",
        "extend",
        "insert",
        "add",
        "update",
        "setdefault",
        "remove",
        "pop",
        "clear",
        "sort",
        "reverse",
        "discard",
    )
)
Placed = tuple[str, ast.stmt]
CALLED = ("forward", "__call__", "call")
PLAIN = ("nn.Module", "torch.nn.Module", "Module", "object")


@dataclass(frozen=True)
class Statement:
    """One statement. binds: names that it surely binds; changes: names that it may bind, or whose value it changes.

    now: the names that it reads when it runs; later: those that its functions read when they are called. decorators:
    those that its decorators read.
    """

    node: ast.stmt
    file: str
    binds: frozenset[str]
    changes: frozenset[str]
    now: frozenset[str]
    later: frozenset[str]
    decorators: frozenset[str]
    is_star: bool = False

    @property
    def is_import(self) -> bool:
        """Whether this is an import."""
        return isinstance(self.node, ast.Import | ast.ImportFrom)

    @property
    def imported(self) -> str:
        """The name that an import imports; "": no import."""
        return self.node.names[0].name if isinstance(self.node, ast.Import | ast.ImportFrom) else ""

    @property
    def imported_from(self) -> str:
        """The module of an absolute import; "": no import, or a relative one."""
        if isinstance(self.node, ast.ImportFrom):
            return "" if self.node.level else self.node.module or ""
        return self.imported

    @property
    def is_future(self) -> bool:
        """Whether this is `from __future__ import …`."""
        return isinstance(self.node, ast.ImportFrom) and self.node.module == "__future__"

    @property
    def is_definition(self) -> bool:
        """Whether this is a class, or a function without decorators."""
        return isinstance(self.node, ast.ClassDef) or (
            isinstance(self.node, ast.FunctionDef) and not self.node.decorator_list
        )

    @property
    def is_constant(self) -> bool:
        """Whether this is an assignment without a call."""
        return isinstance(self.node, ast.Assign | ast.AnnAssign) and not any(
            isinstance(part, ast.Call | ast.comprehension | ast.Await) for part in ast.walk(self.node)
        )


def statements(cells: Sequence[tuple[str, str]], *, note_of: str = "") -> list[Statement]:
    """The statements of cells (file, code), in order, with one statement per imported name and without main guards.

    note_of: the class to load from a note, which may define it in fragments; "": no note.
    """
    nodes = [(file, node) for file, code in cells for node in _flat(parsed(code).body)]
    flags = flags_of(node for _, node in nodes)
    return [_statement(node, file, flags) for file, node in (_joined(nodes, note_of) if note_of else nodes)]


def flags_of(nodes: Iterable[ast.stmt]) -> int:
    """The compiler flags of the `from __future__ import …` among some statements."""
    flags = 0
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            for alias in node.names:
                feature = getattr(__future__, alias.name, None)
                flags |= feature.compiler_flag if feature else 0
    return flags


def _flat(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        if is_main_guard(node):
            continue
        if isinstance(node, ast.If) and isinstance(node.test, ast.Constant) and node.test.value is True:
            # the opening line above indented code of a note
            yield from _flat(node.body)
        elif isinstance(node, ast.Import | ast.ImportFrom) and len(node.names) > 1:
            for alias in node.names:
                single = copy.copy(node)
                single.names = [alias]
                yield single
        else:
            yield node


def _statement(node: ast.stmt, file: str, flags: int) -> Statement:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            code = compile(ast.Module([node], []), file, "exec", flags=flags, dont_inherit=True)
        except SyntaxError:
            # such as a return outside of a function; the error of a definition is raised when it runs
            none = frozenset[str]()
            defined = {node.name} if isinstance(node, ast.ClassDef | ast.FunctionDef) else none
            return Statement(node, file, none.union(defined), none, none, none, none)
    now, later, bound = _reads(code)
    is_plain = not isinstance(node, ast.If | ast.Try | ast.For | ast.While | ast.With | ast.Match | ast.Delete)
    # "import a.b" and "import a" bind a, which another import may have bound with other submodules
    is_plain &= not (isinstance(node, ast.Import) and not node.names[0].asname)
    changes = frozenset(_changed(node))
    is_star = isinstance(node, ast.ImportFrom) and node.names[0].name == "*"
    decorators = [name for each in getattr(node, "decorator_list", ()) for name in _names(each)]
    return Statement(
        node,
        file,
        binds=frozenset(bound) if is_plain else frozenset(),
        changes=changes if is_plain else changes | frozenset(bound),
        now=frozenset(now),
        later=frozenset(later),
        decorators=frozenset(decorators),
        is_star=is_star,
    )


def _names(node: ast.AST) -> Iterator[str]:
    yield from (each.id for each in ast.walk(node) if isinstance(each, ast.Name))


def _changed(node: ast.stmt) -> Iterator[str]:
    """The names whose values a statement changes in place: x[i] = …, x.a = …, x.append(…), setattr(x, …)."""
    for part in ast.walk(node) if not isinstance(node, ast.ClassDef | ast.FunctionDef) else ():
        if isinstance(part, ast.Assign | ast.AugAssign | ast.AnnAssign):
            for target in part.targets if isinstance(part, ast.Assign) else [part.target]:
                root = _root(target)
                if root and not isinstance(target, ast.Name):
                    yield root
        elif isinstance(part, ast.Call) and isinstance(node, ast.Expr) and part is node.value:
            if isinstance(part.func, ast.Attribute) and part.func.attr in CHANGES:
                yield _root(part.func)
            elif isinstance(part.func, ast.Name) and part.func.id == "setattr" and part.args:
                yield _root(part.args[0])


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _reads(code: CodeType) -> tuple[set[str], set[str], set[str]]:
    """The names that top-level code reads now and later, and those that it binds."""
    now: set[str] = set()
    later: set[str] = set()
    bound: set[str] = set()
    for instruction in dis.get_instructions(code):
        name = instruction.argval
        if instruction.opname.startswith(LOADS):
            now.add(str(name))
        elif instruction.opname == "STORE_NAME" and name != "__annotations__":
            bound.add(str(name))
    for inner in _inside(code):
        _read_inside(inner, now, later, is_now=inner.co_name in COMPREHENSIONS or _is_class(inner))
    return now, later, bound


def _read_inside(code: CodeType, now: set[str], later: set[str], *, is_now: bool) -> None:
    stored: set[str] = set()
    for instruction in dis.get_instructions(code):
        if instruction.opname == "STORE_NAME":
            stored.add(str(instruction.argval))
        elif instruction.opname.startswith("LOAD_GLOBAL") or (
            instruction.opname.startswith(LOADS) and str(instruction.argval) not in stored
        ):
            (now if is_now else later).add(str(instruction.argval))
    for inner in _inside(code):
        _read_inside(inner, now, later, is_now=is_now and (inner.co_name in COMPREHENSIONS or _is_class(inner)))


def _inside(code: CodeType) -> Iterator[CodeType]:
    return (constant for constant in code.co_consts if isinstance(constant, CodeType))


def _is_class(code: CodeType) -> bool:
    # the body of a class stores its module and qualified name first
    return "__qualname__" in code.co_names and "__module__" in code.co_names


def _joined(nodes: Sequence[Placed], name: str) -> list[Placed]:
    """Statements with one definition of a class, as complete as possible, where a note defines it several times.

    Among several definitions, the last one that can be built and called stays. Where none can be called, the last one
    gets the methods of the others, and then a bare `def forward(self, …)` of the note.
    """
    places = [place for place, (_, node) in enumerate(nodes) if isinstance(node, ast.ClassDef) and node.name == name]
    if not places:
        return list(nodes)
    most = max(_wholeness(nodes[place][1]) for place in places)
    dropped = {place for place in places if _wholeness(nodes[place][1]) < most}
    last = max(set(places) - dropped)
    file, kept = nodes[last]
    if isinstance(kept, ast.ClassDef) and not _is_called(kept):
        kept = copy.copy(kept)
        others = [statement for place in places if place != last for statement in _body(nodes[place][1])]
        loose = [node for _, node in nodes if first_parameter(node) == "self"]
        for method in (*others, *loose):
            if isinstance(method, ast.FunctionDef) and method.name not in _methods(kept):
                kept.body = [*kept.body, method]
    return [(file, kept) if place == last else each for place, each in enumerate(nodes) if place not in dropped]


def _wholeness(node: ast.stmt) -> int:
    """2: the class can be built and called; 1: one of the two; 0: neither."""
    if not isinstance(node, ast.ClassDef):
        return 0
    if any(ast.unparse(base) not in PLAIN for base in node.bases):
        # the base class may define the rest
        return 2
    return ("__init__" in _methods(node)) + _is_called(node)


def _is_called(node: ast.ClassDef) -> bool:
    return bool(_methods(node) & set(CALLED)) or any(ast.unparse(base) not in PLAIN for base in node.bases)


def _methods(node: ast.ClassDef) -> set[str]:
    return {statement.name for statement in node.body if isinstance(statement, ast.FunctionDef)}


def _body(node: ast.stmt) -> list[ast.stmt]:
    return node.body if isinstance(node, ast.ClassDef) else []
