"""Of a file, what the target needs runs, in its order, and nothing else."""

import inspect
import linecache
import re
import sys
from ast import literal_eval
from pathlib import Path

import pytest

from headwise.wording import Refusal
from tests.targets.loaded import loaded, written

TRAPS = """
print("printed")
mha = Attention(512, 8)
output = mha(1 / 0)
for step in range(10**12):
    loss = train(step)
while True:
    pass
assert False
raise SystemExit
with open("written", "w") as file:
    result = file.write("x")
if __name__ == "__main__":
    sys.exit(main())
if "__main__" == __name__: raise KeyboardInterrupt
train()
[1 / 0 for _ in range(3)]
del nothing
"""


def test_nothing_runs_that_the_target_does_not_read(home, capsys):
    written(
        home, "own.py", f"import sys\nclass Attention:\n    width = 3\n{TRAPS}\ndef train(step=1):\n    return mha\n"
    )
    assert loaded("own.py:Attention").object.width == 3
    assert capsys.readouterr().out == ""
    assert not (home / "written").exists()


def needed():
    """Files, each with what f() in it must give; each needs more than the definition itself."""
    text = Path(__file__).with_name("needed.txt").read_text(encoding="utf-8")
    heads = re.findall(r"^=== (.*): (.*)\n", text, re.MULTILINE)
    return {name: (code, literal_eval(value)) for (name, value), code in zip(heads, CUT.split(text)[1:], strict=True)}


CUT = re.compile(r"^=== .*\n", re.MULTILINE)
NEEDED = needed()


@pytest.mark.parametrize("what", NEEDED)
def test_all_that_the_target_reads_runs(home, what, capsys):
    text, value = NEEDED[what]
    (home / "own.py").write_text(text + TRAPS, encoding="utf-8")
    assert loaded("own.py:f").object() == value
    assert capsys.readouterr().out == ""


def test_neighbours_and_packages_can_be_imported(home):
    written(home, "sub/own_helper.py", "from own_deeper import N\n\n\ndef help(x):\n    return x + N\n")
    written(home, "sub/own_deeper.py", "N = 40\n")
    written(home, "sub/own.py", "from own_helper import help\ndef f(): return help(2)\n")
    found = loaded("sub/own.py:f")
    assert found.object() == 42
    assert sorted(found.spoken.values()) == ["sub/own.py", "sub/own_deeper.py", "sub/own_helper.py"]
    assert set(found.files) == set(found.spoken)
    assert found.source.texts["sub/own_deeper.py"] == "N = 40\n"


def test_relative_imports_work(home):
    written(home, "pack/__init__.py", "TOP = 1\nfrom .layers.own import f\n")
    written(home, "pack/sizes.py", "N = 3\n")
    written(home, "pack/layers/__init__.py", "")
    written(home, "pack/layers/near.py", "M = 4\n")
    imports = "from ..sizes import N\nfrom .near import M\nfrom . import near\nfrom pack import TOP\n"
    written(home, "pack/layers/own.py", f"{imports}def f(): return [N, M, near.M, TOP, __package__]\n")
    assert loaded("pack/layers/own.py:f").object() == [3, 4, 4, 1, "pack.layers"]


def test_relative_imports_work_in_folders_that_are_no_packages(home):
    written(home, "packed/sizes.py", "N = 3\n")
    written(home, "packed/deep/own.py", "from ..sizes import N\ndef f(): return N\n")
    assert loaded("packed/deep/own.py:f").object() == 3


def test_a_file_named_like_one_of_pythons_own_does_not_replace_it(home):
    written(home, "random.py", "raise ValueError\n")
    written(home, "own_sizes.py", "N = 5\n")
    written(home, "own.py", "import random\nfrom own_sizes import N\ndef f(): return random.Random(0).randint(N, N)\n")
    sys.modules.pop("random")
    assert loaded("own.py:f").object() == 5


def test_a_package_that_is_not_there_matters_only_where_it_is_used(home):
    written(
        home,
        "own.py",
        """
        import nowhere_a, nowhere_b.sub as b
        from nowhere_c import Base, Kind, flag, hint
        def unhurt(x: Kind[int] | None = None, y: "Other" = 2, z: nowhere_a.Tensor | b.C = 3): return y
        def calls(): return flag(1)
        def asks(): return 1 if hint else 2
        class Child(Base): pass
        @nowhere_a.decorated(2)
        def decorated(): pass
        """,
    )
    assert loaded("own.py:unhurt").object() == 2
    for name, package in (("calls", "flag"), ("asks", "hint")):
        with pytest.raises(Refusal, match=f"uses {package} of the package nowhere_c, which is not installed"):
            loaded(f"own.py:{name}").object()
    with pytest.raises(Refusal, match="uses Base of the package nowhere_c, which"):
        loaded("own.py:Child")
    with pytest.raises(Refusal, match=r"uses nowhere_a.decorated of the package nowhere_a, which"):
        loaded("own.py:decorated")
    with pytest.raises(Refusal, match="uses hint of the package nowhere_c, which"):
        loaded("own.py:hint")


def test_a_line_that_fails_is_told(home):
    written(home, "own.py", "def divide(a):\n    return 1 / a\n\n\nN = divide(0)\n\n\ndef f():\n    return N\n")
    with pytest.raises(
        Refusal, match=r"own.py must run up to f, but line 2 raised ZeroDivisionError: division by zero"
    ):
        loaded("own.py:f")
    written(home, "own.py", "def f(n=nothing):\n    return n\n")
    with pytest.raises(Refusal, match="line 1 raised NameError: name 'nothing' is not defined"):
        loaded("own.py:f")


def test_what_a_call_may_want_stands_beside_the_target(home, capsys):
    written(
        home,
        "own.py",
        """
        import nowhere
        from dataclasses import dataclass
        WIDTH = 16
        class Attention: pass
        @dataclass
        class Config:
            width: int = WIDTH
        def make(): return Config()
        from fractions import Fraction
        def half(): return Fraction(1, 2)
        class Sized:
            def __init__(self): self.width = half()
        class Broken(nowhere.Base): pass
        big = print("built")
        class Reads:
            x = big
        def show(): return big
        """,
    )
    found = loaded("own.py:Attention")
    assert eval("make().width + Config(width=3).width", found.namespace) == 19
    # what such a thing reads when it is called is there as well
    assert eval("Sized().width", found.namespace) == 0.5
    assert not {"Broken", "big", "Reads", "nowhere"} & set(found.namespace)
    assert capsys.readouterr().out == ""


def test_a_value_and_what_is_inside_a_class_can_be_named(home):
    written(home, "own.py", "class Outer:\n    class Inner:\n        n = 3\nvalue = Outer.Inner()\n")
    assert loaded("own.py:Outer.Inner").object.n == 3
    assert loaded("own.py:value").object.n == 3


def test_spans_and_inspect_find_the_source(home):
    file = written(home, "own.py", "# first\nclass A:\n    def forward(self):\n        return 1\n")
    found = loaded("own.py:A")
    assert (found.files, found.spoken) == ((str(file),), {str(file): "own.py"})
    assert inspect.getsource(found.object) == file.read_text().partition("\n")[2]
    assert linecache.getline(str(file), 4) == "        return 1\n"


def test_a_module_is_imported_as_it_is(home):
    found = loaded("torch.nn:MultiheadAttention")
    import torch

    assert found.object is torch.nn.MultiheadAttention
    assert list(found.spoken.values()) == ["torch.nn.modules.activation"]
    assert "class MultiheadAttention" in found.source.texts["torch.nn.modules.activation"]
    written(home, "own_module.py", "def f(): return 3\nprint('imported')\n")
    assert loaded("own_module:f").object() == 3
    with pytest.raises(Refusal, match=r"module nowhere.at_all must be installed"):
        loaded("nowhere.at_all:A")
    with pytest.raises(Refusal, match="did you mean MultiheadAttention"):
        loaded("torch.nn:MultiHeadAttention")


def test_imports_of_several_parts_of_a_package_all_run(home):
    for name in ("__init__", "one", "two", "three"):
        written(home, f"packs/{name}.py", f"NAME = '{name}'\n")
    imports = "import packs.one\nimport packs\nimport packs.two\nimport packs.three as three\nimport packs.missing\n"
    written(home, "own.py", f"{imports}def f(): return [packs.one.NAME, packs.two.NAME, three.NAME]\n")
    assert loaded("own.py:f").object() == ["one", "two", "three"]
