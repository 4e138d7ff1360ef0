"""The command line as a person calls it, and a small model to call it with."""

from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

from headwise.cli import main
from tests.pages.conftest import bert_folder, gpt2_folder

__all__ = ["bert_folder", "gpt2_folder"]


@pytest.fixture
def headwise(monkeypatch) -> Callable[..., Result]:
    """headwise("look", "text", ...) -> what click saw: exit_code, stdout, stderr."""
    monkeypatch.setenv("COLUMNS", "100")
    return lambda *args: CliRunner().invoke(main, [str(arg) for arg in args], prog_name="headwise")
