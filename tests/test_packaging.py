"""What is installed: pinned versions that fit what is declared, and every file of the package."""

import re
import tomllib

import pytest
from packaging.requirements import Requirement

from tests.arrow import SRC

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


def test_every_file_of_the_package_is_installed():
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["headwise"]
    installed = {file for pattern in ["**/*.py", *patterns] for file in SRC.glob(pattern)}
    present = {file for file in SRC.rglob("*") if file.is_file() and "__pycache__" not in file.parts}
    assert present == installed
