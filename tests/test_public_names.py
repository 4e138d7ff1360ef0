"""The public names: few, sorted, documented, and nothing else."""

import inspect
import re

import pytest

import headwise
from headwise import _HOME, _MODULES
from tests.arrow import ORDER, SRC
from tests.fresh import run_fresh


def test_the_public_names_are_sorted_and_few():
    assert headwise.__all__ == sorted(set(headwise.__all__))
    assert len(headwise.__all__) <= 36


@pytest.mark.parametrize("name", headwise.__all__)
def test_a_public_name_can_be_imported_and_shows_an_example(name):
    found = getattr(headwise, name)
    assert found.__name__ == name
    assert ">>> " in inspect.getdoc(found)
    assert inspect.getdoc(found).splitlines()[0].endswith((".", "?"))


@pytest.mark.parametrize("name", headwise.__all__)
def test_a_public_name_comes_from_the_part_that_the_table_names(name):
    assert _HOME[name] in ORDER
    assert getattr(headwise, name).__module__.split(".")[:2] == ["headwise", _HOME[name]]


@pytest.mark.parametrize("name", _MODULES)
def test_a_public_module_is_reachable_and_documented(name):
    assert getattr(headwise, name).__name__ == f"headwise.{name}"
    assert getattr(headwise, name).__doc__


@pytest.mark.parametrize("name", headwise.__all__)
def test_a_package_never_bears_the_name_of_a_public_function(name):
    assert name not in ORDER
    assert not (SRC / name).exists()
    assert not (SRC / f"{name}.py").exists()


def test_type_checkers_see_the_same_names():
    source = (SRC / "__init__.py").read_text(encoding="utf-8")
    seen = re.findall(r"^    from headwise(?:\.(\w+))? import (\w+) as (\w+)$", source, flags=re.MULTILINE)
    assert all(name == renamed for _, name, renamed in seen)
    assert {name: home for home, name, _ in seen if home} == _HOME
    assert tuple(name for home, name, _ in seen if not home) == _MODULES


def test_nothing_else_is_public():
    assert dir(headwise) == sorted([*headwise.__all__, *_MODULES])
    assert run_fresh("import headwise\nprint([name for name in vars(headwise) if name[0] != '_'])") == "[]\n"


def test_a_star_import_brings_the_public_names_and_no_more():
    star = "from headwise import *\nprint(sorted(name for name in globals() if name[0] != '_'))"
    assert run_fresh(star) == f"{headwise.__all__}\n"


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(
        AttributeError,
        match=r"no public name 'MultiheadAttention': did you mean MultiHeadAttention\? dir\(headwise\) lists",
    ):
        headwise.MultiheadAttention  # noqa: B018 - reading the attribute is the test


def test_the_layer_takes_at_most_sixteen_arguments_and_its_options_by_keyword():
    _, *arguments = inspect.signature(headwise.MultiHeadAttention.__init__).parameters.values()
    assert len(arguments) <= 16
    positional = [each.name for each in arguments if each.kind is not inspect.Parameter.KEYWORD_ONLY]
    assert positional == ["embed_dim", "num_heads"]


@pytest.mark.parametrize("name", [name for name in headwise.__all__ if name.islower()])
def test_a_public_function_takes_at_most_ten_options_and_swallows_none(name):
    arguments = inspect.signature(getattr(headwise, name)).parameters.values()
    assert len([each for each in arguments if each.kind is inspect.Parameter.KEYWORD_ONLY]) <= 10
    # options may be passed on as one only where a TypedDict names each of them
    rest = [str(each.annotation) for each in arguments if each.kind is inspect.Parameter.VAR_KEYWORD]
    assert all("Unpack[" in annotation for annotation in rest)
