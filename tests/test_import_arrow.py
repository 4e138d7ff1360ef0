"""The import arrow: a part imports only from the parts before it."""

import ast
from graphlib import TopologicalSorter

import pytest

from tests.arrow import ORDER, SRC, wrong_imports, wrong_ways

# rooms in which a file still imports, inside a function, one that imports it
CIRCULAR = ("distributed", "masks", "ops", "tracing")
AGAINST = {
    "at the top": "from headwise.layer import MultiHeadAttention",
    "lazy": "def late():\n    if True:\n        from headwise.layer import KVCache",
    "plain": "import headwise.layer",
    "plain, renamed": "import torch, headwise.layer.cache as cache",
    "relative": "from ..layer import MultiHeadAttention",
    "relative to the top": "from .. import layer",
    "a public name": "from headwise import MultiHeadAttention",
    "a part": "from headwise import masks, layer",
    "for types only": "if TYPE_CHECKING:\n    from headwise.layer import MultiHeadAttention",
    "by a string": "importlib.import_module('headwise.layer.cache')",
    "by a relative string": "import_module('..layer', __package__)",
    "by a table of strings": "COMMANDS = {'look': 'headwise.layer'}",
    "by a built string": "import_module(f'headwise.layer.{name}')",
}


@pytest.mark.parametrize("source", AGAINST.values(), ids=AGAINST)
def test_an_import_against_the_arrow_is_found(source):
    (sentence,) = wrong_imports(source, "headwise.ops.attention")
    last_line = len(source.splitlines())
    assert sentence.startswith(f"headwise.ops.attention, line {last_line}: imports headwise.")
    assert sentence.endswith("but ops must not import layer")


@pytest.mark.parametrize(
    "source",
    [
        "import headwise",
        "import headwise as hw",
        "from headwise import *",
        "import_module(f'headwise.{name}')",
        "from .. import *",
    ],
)
def test_importing_all_of_headwise_is_found(source):
    (sentence,) = wrong_imports(source, "headwise.ops.attention")
    assert sentence.endswith("but ops must not import all of headwise")


@pytest.mark.parametrize(
    "source",
    [
        "from headwise.masks import Mask",
        "from ..masks.tiles import classify",
        "from . import reference",
        "from .reference import attention",
        "from headwise import causal, __version__",
        "from headwise.ops import merge",
        "import_module('.reference', __package__)",
        "import torch.nn.functional as F",
        "import headwise_extra, headwiser.layer",
        "'see headwise.layer for more'",
        "'headwise.json'",
    ],
)
def test_an_import_along_the_arrow_is_not_complained_of(source):
    assert wrong_imports(source, "headwise.ops.attention") == []


def test_a_relative_import_is_read_from_where_the_file_is():
    assert wrong_imports("from .cache import KVCache", "headwise.layer", is_package=True) == []
    assert wrong_imports("from .layer import KVCache", "headwise.ops", is_package=True) == []
    assert len(wrong_imports("from ..layer import KVCache", "headwise.ops", is_package=True)) == 1
    assert len(wrong_imports("from .layer import KVCache", "headwise.shapes")) == 1


def test_testing_may_import_all_but_pages_and_cli_and_nobody_imports_it():
    assert wrong_imports("from headwise.diagnosis import doctor", "headwise.testing") == []
    assert len(wrong_imports("import headwise.pages, headwise.cli", "headwise.testing")) == 2
    assert len(wrong_imports("from headwise import testing", "headwise.cli.look")) == 1


def test_python_m_headwise_may_import_the_command_line_and_nobody_imports_it():
    assert wrong_imports("from headwise.cli import main", "headwise.__main__") == []
    assert len(wrong_imports("from headwise import __main__", "headwise.cli")) == 1


def test_a_part_that_the_arrow_does_not_name_is_found():
    (sentence,) = wrong_imports("", "headwise.utils")
    assert sentence == "headwise.utils is in no part of the arrow: put utils into tests/arrow.py"


def test_a_tree_is_read_file_by_file(tmp_path):
    (tmp_path / "ops").mkdir()
    (tmp_path / "__init__.py").write_text("from headwise.cli import main")
    (tmp_path / "ops" / "__init__.py").write_text("from .attention import attention")
    (tmp_path / "ops" / "attention.py").write_text("import torch\nfrom ..layer import KVCache")
    assert wrong_ways(tmp_path) == [
        "headwise.ops.attention, line 2: imports headwise.layer, but ops must not import layer"
    ]


def test_no_import_of_headwise_goes_against_the_arrow():
    assert wrong_ways() == []
    assert (SRC / f"{ORDER[0]}.py").exists()


def imported_inside(room):
    """Of each file of a room, those of its files that it imports, in functions too, but not for types alone."""
    files = {".".join(("headwise", *file.relative_to(SRC).with_suffix("").parts)): file for file in room.rglob("*.py")}
    graph = {}
    for name, file in files.items():
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for_types = {
            id(inner)
            for node in ast.walk(tree)
            if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
            for inner in ast.walk(node)
        }
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and id(node) not in for_types]
        named = {f"{node.module}.{alias.name}" for node in imports for alias in node.names}
        graph[name] = (named | {node.module for node in imports}) & files.keys() - {name}
    return graph


@pytest.mark.parametrize("room", [part for part in ORDER if (SRC / part).is_dir() and part not in CIRCULAR])
def test_the_files_of_a_room_import_in_one_direction(room):
    graph = imported_inside(SRC / room)
    assert sum(map(len, graph.values())) > 0
    # raises CycleError, with the files of the circle
    assert len(list(TopologicalSorter(graph).static_order())) == len(graph)
