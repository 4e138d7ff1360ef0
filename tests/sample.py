"""Sample: what make test runs: all tests that take no time, and of the others a part, another one with each commit.

    python -m tests.sample RESULTS.xml

adds to slow_tests.txt what a run of tests found slow, `make full PYTEST_FLAGS=--junitxml=RESULTS.xml` or `make test`.
What it holds stays, for a sample has few cases of it. A test that it does not hold is run, and so is each one in a file
of tests that has changed since the commit before.
"""

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from pathlib import Path
from statistics import mean
from typing import Any

__all__ = ["Sample"]

# of so many slow tests one is run; slow is what takes so many seconds a case, or all cases of a test together
SHARE, SLOW, SLOW_TOGETHER = 10, 0.3, 1.0
# tests of each file of the project: no case stands for another
EVERY = ("tests/test_names.py", "tests/test_style.py")
RECORD = Path(__file__).with_name("slow_tests.txt")


class Sample:
    """The tests of one commit. seconds: of each slow test, by its name; commit: its number, "": there is no git.

    changed: files of tests whose slow ones are all run.
    """

    def __init__(self, seconds: dict[str, float], commit: str, changed: frozenset[str]) -> None:
        self._seconds, self._commit, self._changed = seconds, commit, changed

    @classmethod
    def of(cls, root: Path) -> "Sample":
        """That of the commit which is checked out."""
        commit = _git(root, "rev-parse", "HEAD").strip()
        changed = _git(root, "diff", "--name-only", "HEAD~1") if commit else ""
        return cls(recorded(), commit, frozenset(changed.splitlines()))

    def kept(self, items: list) -> list:
        """The tests that are run, in their order."""
        units: dict[str, list] = defaultdict(list)
        for item in items:
            units[unit_of(item)].append(item)
        seconds = {unit: sum(self._seconds.get(name_of(each.nodeid), 0) for each in units[unit]) for unit in units}
        # neighbours cost alike, so that every part of them does
        slow = sorted((unit for unit in units if seconds[unit]), key=lambda unit: (-seconds[unit], unit))
        drawn = set(slow[int(self._commit or "0", 16) % SHARE :: SHARE])
        left = {
            item.nodeid for unit in set(slow) - drawn for item in units[unit]
            # where it stands, and where it is written, which an inherited law is elsewhere
            if not {item.nodeid.partition("::")[0], item.location[0]} & self._changed
        }  # fmt: skip
        return [item for item in items if item.nodeid not in left]

    def __str__(self) -> str:
        of = f"commit {self._commit[:7]}" if self._commit else "no commit"
        return f"sample: of the slow tests one of {SHARE}, those of {of}; make full runs all"


def unit_of(item: Any) -> str:
    """What is run together: a test alone, or those of a file that wait for something which is made once for them."""
    file = item.nodeid.partition("::")[0]
    made = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {})
    is_shared = any(each[-1].scope != "function" and each[-1].baseid == file for each in made.values())
    return file if is_shared else item.nodeid


def name_of(nodeid: str) -> str:
    """The name of a test without its case."""
    return nodeid.partition("[")[0]


def recorded() -> dict[str, float]:
    """The seconds of slow tests, by name."""
    lines = RECORD.read_text(encoding="utf-8").splitlines()
    return {name: float(seconds) for seconds, _, name in (line.partition(" ") for line in lines)}


def _git(root: Path, *arguments: str) -> str:
    """What git says; "": it cannot be asked, or knows nothing of that."""
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return "" if done.returncode else done.stdout


def _measured(results: Path) -> dict[str, float]:
    """The mean seconds of the cases of each slow test, from a file as pytest writes it."""
    found: dict[str, list[float]] = defaultdict(list)
    for case in ElementTree.parse(results).getroot().iter("testcase"):
        parts = case.attrib["classname"].split(".")
        file = next(n for n, part in enumerate(parts) if part.startswith("test_")) + 1
        name = "::".join(["/".join(parts[:file]) + ".py", *parts[file:], name_of(case.attrib["name"])])
        found[name].append(float(case.attrib["time"]))
    is_slow = {name: mean(seconds) >= SLOW or sum(seconds) >= SLOW_TOGETHER for name, seconds in found.items()}
    kept = recorded()
    slow = (name for name in found if name in kept or (is_slow[name] and not name.startswith(EVERY)))
    return kept | {name: mean(found[name]) for name in slow}


def main(arguments: list[str]) -> None:
    slow = _measured(Path(arguments[0]))
    lines = (f"{seconds:.3f} {name}\n" for name, seconds in sorted(slow.items()))
    RECORD.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
