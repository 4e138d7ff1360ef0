"""The scripts of examples/ that several processes run give the numbers of one."""

import contextlib
import importlib
import io
import os
import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.distributed.processes import on_processes
from tests.example_scripts.running import EXAMPLES

RANKS = 4


def _run(rank: int, name: str, arguments: list[str]) -> str:
    """What a rank prints, in a process that torchrun has not started but that knows what it would have told it."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(RANKS)}
    sys.path.insert(0, str(EXAMPLES))
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        importlib.import_module(name).main(arguments, standalone_mode=False)
    return printed.getvalue()


def printed_by(name: str, *arguments: str) -> str:
    """What rank 0 prints; the others print nothing."""
    ended = on_processes(RANKS, _run, name, list(arguments), ends=True)
    assert [each.error for each in ended] == [None] * RANKS
    first, *others = (each.result for each in ended)
    assert others == [""] * (RANKS - 1)
    return first


@pytest.mark.needs("matplotlib")
def test_dates_are_learnt_on_four_processes_as_on_one(tmp_path: Path) -> None:
    picture = tmp_path / "new" / "losses.png"
    said = printed_by("dates_spread", "--steps", "3", "--picture", str(picture))
    alone, spread = re.search(r"^loss after 3 steps: (\d\.\d{6}) of one process, (\d\.\d{6}) of 4\n", said).groups()
    assert alone[:6] == spread[:6]
    assert re.search(r"\nlargest difference of a step: (0|\d\.\d)e[-+]0[067]\n", said)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_long_document_gives_the_numbers_of_one_process() -> None:
    said = printed_by("long_document", "--length", "5000")
    assert re.search(r"^5000 tokens over 4 ranks, \w+: slowest / mean work 1\.\d\d, most received \d+ tokens\n", said)
    assert re.search(r"\ngather +runs: the busiest rank receives .* in 1 step\n", said)
    assert re.search(r"\nSharedMap\(\(1, 4, 5000, 5000\), .* of 5000 rows here\); read in", said)
    # uniform weights over n keys have an entropy of log n: 6.9 where n is 1000
    assert re.search(r"\nentropy 6\.\d\d nats of a token; token \d+ receives \d+\.\d\n", said)
    assert re.search(r"\nthe last 512 tokens in one process: largest difference (0|\d)e[-+]0[0678]\n$", said)


@pytest.mark.parametrize("name", ["dates_spread", "long_document"])
def test_started_without_torchrun_they_say_how(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.delenv("RANK", raising=False)
    done = CliRunner().invoke(importlib.import_module(name).main, [])
    assert done.exit_code == 2
    assert f"torchrun --nproc-per-node 4 examples/{name}.py" in done.output
