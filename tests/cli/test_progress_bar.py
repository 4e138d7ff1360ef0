"""How far a command has come is drawn on a terminal, on stderr, and nowhere else."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

STEPS = """
from headwise.cli.progress import progress_bar
with progress_bar("en") as tell:
    tell("step.reading", {"file": "[bold]a[/bold].txt"})
    for done in (0, 1, 3):
        tell("step.carrying", {"done": done, "total": 4})
print("done")
"""

LOOK = """
import sys, torch, headwise as hw
maps = {name: hw.attention_map(torch.randn(1, 2, 9, 4), torch.randn(1, 2, 9, 4)) for name in "ab"}
hw.look(maps, output=sys.argv[1])
print("done")
"""


def on_a_terminal(command, **environment) -> tuple[str, str]:
    """What a command writes to stdout, a pipe, and to stderr, a terminal."""
    ours, theirs = pty.openpty()
    variables = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", **environment}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, env=variables) as process:
        os.close(theirs)
        drawn = bytearray()
        try:
            while part := os.read(ours, 1 << 16):
                drawn += part
        except OSError:
            # the other end is closed: all has been read
            pass
        finally:
            os.close(ours)
        printed = process.stdout.read()
    return printed.decode(), re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn.decode())


def test_a_terminal_sees_each_step_with_its_share():
    printed, drawn = on_a_terminal([sys.executable, "-c", STEPS])
    assert printed == "done\n"
    assert "reading [bold]a[/bold].txt" in drawn
    assert re.search(r"laying out the maps \S+ +75%", drawn)


def test_a_pipe_and_a_terminal_that_cannot_redraw_see_nothing():
    done = subprocess.run([sys.executable, "-c", STEPS], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("done\n", "")
    assert on_a_terminal([sys.executable, "-c", STEPS], TERM="dumb") == ("done\n", "")


def test_a_command_leaves_nothing_of_its_bar_behind(tmp_path):
    page = tmp_path / "steps.html"
    command = [sys.executable, "-m", "headwise", "steps", "--example", "-o", str(page)]
    printed, drawn = on_a_terminal(command)
    assert (Path(printed.removeprefix("Written: ").strip()), page.exists()) == (page, True)
    assert "writing the page" in drawn


def test_maps_looked_at_in_python_show_a_bar_on_a_terminal_and_nothing_elsewhere(tmp_path):
    command = [sys.executable, "-c", LOOK]
    printed, drawn = on_a_terminal([*command, str(tmp_path / "one.html")])
    assert printed == "done\n"
    assert "laying out the maps" in drawn
    piped = subprocess.run([*command, str(tmp_path / "two.html")], capture_output=True, text=True, check=True)
    assert (piped.stdout, piped.stderr) == ("done\n", "")
