"""python -m headwise.masks shows every pattern."""

import subprocess
import sys

import headwise as hw
from headwise.masks.__main__ import patterns


def test_every_pattern_is_shown():
    shown = {repr(mask).partition("(")[0] for mask in patterns()}
    assert {name for name in hw.__all__ if name.islower() and hw._HOME[name] == "masks"} <= shown


def test_the_pictures_are_eight_by_eight():
    done = subprocess.run([sys.executable, "-m", "headwise.masks"], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    drawn = [cell for line in done.stdout.splitlines() for cell in line.split() if set(cell) <= set(".#")]
    assert sorted(drawn) == sorted("\n".join(mask.draw(8, 8) for mask in patterns()).split())
