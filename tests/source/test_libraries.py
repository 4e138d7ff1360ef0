"""What is installed is nobody's own code, in whatever environment it lies."""

import sys
import types
from pathlib import Path

import pytest
import torch

from headwise.source.libraries import is_installed, is_library
from headwise.targets.locations import user_modules


@pytest.mark.parametrize("folder", [".venv/lib/python3.11/site-packages", "lib/python3/dist-packages"])
def test_packages_of_an_environment_in_the_persons_folder_are_not_their_own(folder, tmp_path, monkeypatch):
    files = {"neighbour": tmp_path / "neighbour.py", "stranger": tmp_path / folder / "stranger" / "__init__.py"}
    for name, file in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")
        module = types.ModuleType(name)
        module.__file__ = str(file)
        monkeypatch.setitem(sys.modules, name, module)
    assert list(user_modules((tmp_path,))) == [str(files["neighbour"])]


def test_pythons_own_files_are_of_a_library_and_are_no_package():
    assert (is_library(types.__file__), is_installed(types.__file__)) == (True, False)
    assert is_installed(torch.__file__)
    assert not is_library(str(Path(__file__).resolve()))
