"""Faces: a package lists its public names, and other parts import these names from the package alone."""

import ast
import re
from functools import cache
from importlib import import_module

import pytest

import headwise
from tests.arrow import SRC

# the rooms of the examination wing: nobody outside imports from the files in them
ROOMS = ("source", "targets", "recording", "calls", "dataflow", "tracing", "diagnosis")
LAZY = sorted(
    ".".join(("headwise", *file.parent.relative_to(SRC).parts))
    for file in SRC.rglob("__init__.py")
    if "lazy_names(" in file.read_text(encoding="utf-8")
)


def imported_from_rooms(source, part):
    """(line, room, file, name) of each name that a source of a part imports from another room; file "": from its face.

    name "": the module as a whole, as by `import headwise.calls.plan`.
    """
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            pairs = [(node.module or "", alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            pairs = [(alias.name, "") for alias in node.names]
        else:
            continue
        for module, name in pairs:
            top, room, *inner = [*module.split("."), "", ""][: max(2, len(module.split(".")))]
            if top == "headwise" and room in ROOMS and room != part:
                found.append((node.lineno, room, ".".join(inner), name))
    return found


@cache
def outside_imports():
    """(file, line, room, file in the room, name) of each import from a room by another part of src."""
    found = []
    for file in sorted(SRC.rglob("*.py")):
        path = file.relative_to(SRC)
        part = path.parts[0].removesuffix(".py")
        for line, *rest in imported_from_rooms(file.read_text(encoding="utf-8"), part):
            found.append((path.as_posix(), line, *rest))
    return tuple(found)


def face(room):
    """The table of a room: each public name, and the file that it comes from."""
    return import_module(f"headwise.{room}")._HOME


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from headwise.calls.plan import Plan", [(1, "calls", "plan", "Plan")]),
        ("def late():\n    from headwise.targets.child import main", [(2, "targets", "child", "main")]),
        ("import headwise.calls.plan as plan", [(1, "calls", "plan", "")]),
        ("from headwise.calls import Plan, plan", [(1, "calls", "", "Plan"), (1, "calls", "", "plan")]),
        ("from headwise.tracing.steps import Trace", []),
        ("from headwise.maps.rows import read_rows", []),
        ("import headwise", []),
    ],
)  # fmt: skip
def test_imports_from_another_room_are_read(source, found):
    assert imported_from_rooms(source, "tracing") == found


def test_no_file_inside_a_room_is_imported_from_outside():
    assert [each for each in outside_imports() if each[3]] == []


def test_what_is_imported_from_a_room_is_a_name_of_its_face():
    seen = outside_imports()
    assert {room for _, _, room, _, _ in seen} == set(ROOMS)
    assert [each for each in seen if each[4] not in face(each[2])] == []


@pytest.mark.parametrize("room", ROOMS)
def test_every_name_of_a_face_is_used_by_another_part(room):
    used = {name for _, _, other, _, name in outside_imports() if other == room}
    public = {name for name, home in headwise._HOME.items() if home == room}
    assert set(face(room)) - used - public == set()


@pytest.mark.parametrize("package", LAZY)
def test_a_lazy_name_is_what_its_file_defines(package):
    module = import_module(package)
    for name, file in module._HOME.items():
        assert getattr(module, name) is getattr(import_module(f"{package}.{file}"), name)
        assert name in dir(module)


@pytest.mark.parametrize("package", LAZY)
def test_a_lazy_name_is_not_hidden_by_a_file_of_that_name(package):
    # importing the file would put the module in the place of the name
    folder = SRC.joinpath(*package.split(".")[1:])
    files = {file.stem for file in folder.glob("*.py")} | {file.parent.name for file in folder.glob("*/__init__.py")}
    assert import_module(package)._HOME.keys() & files == set()


@pytest.mark.parametrize("package", LAZY)
def test_type_checkers_see_the_same_lazy_names(package):
    source = SRC.joinpath(*package.split(".")[1:], "__init__.py").read_text(encoding="utf-8")
    seen = re.findall(rf"^    from {re.escape(package)}(?:\.([\w.]+))? import (\w+) as (\w+)$", source, re.MULTILINE)
    module = import_module(package)
    assert all(name == renamed for _, name, renamed in seen)
    assert {name: file for file, name, _ in seen if file} == module._HOME
    assert {name for file, name, _ in seen if not file} == set(getattr(module, "_MODULES", ()))


@pytest.mark.parametrize("package", LAZY)
def test_a_face_is_sorted_and_refuses_other_names(package):
    module = import_module(package)
    assert list(module.__all__) == list(module._HOME)
    assert module.__all__ == sorted(module._HOME, key=lambda name: (not name.isupper(), not name[0].isupper(), name))
    with pytest.raises(AttributeError, match=rf"{re.escape(package)} has no public name 'Plam': dir\("):
        module.Plam  # noqa: B018 - reading the attribute is the test
