"""What is installed: pinned versions that fit what is declared, and every file of the package."""

import re
import subprocess
import tomllib

import pytest
from packaging.requirements import Requirement

import headwise
from tests.arrow import SRC
from tests.distribution import complaints
from tests.filemap import READMES
from tests.fresh import run_fresh

ROOT = SRC.parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = PROJECT["project"]["optional-dependencies"]
DECLARED = [
    *PROJECT["project"]["dependencies"],
    # the gpu extra is triton, which each torch pins for itself
    *(each for extra, group in EXTRAS.items() if extra != "gpu" for each in group),
    *PROJECT["build-system"]["requires"],
]
PINS = dict(
    re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), flags=re.MULTILINE)
)


@pytest.mark.parametrize("declared", DECLARED)
def test_a_declared_package_is_pinned_to_a_version_that_fits(declared):
    requirement = Requirement(declared)
    assert requirement.specifier.contains(PINS[requirement.name])


def test_every_line_of_the_constraints_is_a_pin():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert len(PINS) == len([line for line in lines if line and not line.startswith("#")])
    assert PINS["torch"] == "2.13.0"


def test_the_version_is_written_once():
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "headwise.__version__"}


def test_who_cites_names_the_version_of_the_sources():
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"^version: (.*)$", cited, flags=re.MULTILINE) == [headwise.__version__]


def test_every_file_of_the_package_is_installed():
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["headwise"]
    installed = {file for pattern in ["**/*.py", *patterns] for file in SRC.glob(pattern)}
    present = {file for file in SRC.rglob("*") if file.is_file() and "__pycache__" not in file.parts}
    assert present == installed


def commands_of(target: str, folder: object) -> str:
    """What make would run for a target where nothing is installed."""
    make = ["make", "--dry-run", target, f"VENV={folder}/absent"]
    return subprocess.run(make, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def extras_installed(commands: str) -> list[list[str]]:
    return [extras.split(",") for extras in re.findall(r"--editable '\.\[([a-z,]+)\]'", commands)]


def test_the_demo_installs_nothing_of_development(tmp_path):
    assert extras_installed(commands_of("demo", tmp_path)) == [["models", "plot"]]


@pytest.mark.parametrize("target", ["test", "check", "docs", "bench", "install"])
def test_what_develops_is_installed_on_top_of_the_demo(target, tmp_path):
    assert extras_installed(commands_of(target, tmp_path)) == [["models", "plot"], ["models", "plot", "dev", "docs"]]


@pytest.mark.parametrize("readme", READMES)
@pytest.mark.parametrize("extra", EXTRAS)
def test_a_readme_says_what_every_extra_gives(readme, extra):
    assert (ROOT / readme).read_text(encoding="utf-8").count(f"`[{extra}]`") == 1


def test_every_public_name_loads_with_the_required_packages_alone():
    modules = {re.split(r"[\[<>=;]", each)[0].replace("-", "_") for group in EXTRAS.values() for each in group}
    # numpy warns at torch's first look for it
    source = "import warnings\nwarnings.simplefilter('ignore')\nimport headwise\n"
    source += "print([name for name in dir(headwise) if getattr(headwise, name) is None])"
    assert run_fresh(source, without=tuple(sorted(modules))) == "[]\n"


def test_the_classifiers_name_the_oldest_python_that_is_taken():
    floor = PROJECT["project"]["requires-python"].removeprefix(">=")
    assert f"Programming Language :: Python :: {floor}" in PROJECT["project"]["classifiers"]


PACKAGE = [f"headwise/{file.relative_to(SRC).as_posix()}" for file in SRC.rglob("*") if "__pycache__" not in file.parts]
WHEEL = [*(name for name in PACKAGE if (SRC.parent / name).is_file()), "headwise-0.dist-info/RECORD"]


def test_a_whole_wheel_raises_no_complaint():
    assert complaints(WHEEL) == []


def test_a_wheel_that_lacks_a_file_or_holds_a_strange_one_is_told():
    short = [name for name in WHEEL if not name.endswith(".html") and name != "headwise/py.typed"]
    said = complaints([*short, "tests/cases.py", "docs/notes.md"])
    assert "lacks headwise/py.typed" in said
    assert "holds no file of .html" in said
    assert [each for each in said if each.startswith("must")] == [
        "must not hold docs/notes.md",
        "must not hold tests/cases.py",
    ]
