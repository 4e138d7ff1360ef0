"""Distribution: builds sdist and wheel, and tries each as a stranger has it; python -m tests.distribution, make dist.

Both are checked by twine and installed in an empty environment of their own, away from the sources, where
`distribution_smoke.py` runs; a stranger's type checker has to see the types. The archives are left in dist/.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from tests.arrow import SRC

ROOT = SRC.parents[1]
SMOKE = Path(__file__).with_name("distribution_smoke.py")
# a page is written from these, which Python does not import
ASSETS = (".css", ".html", ".js", ".json")
# what a person writes with headwise, and what a type checker has to say of it
TYPED = """import torch

import headwise as hw

layer: torch.nn.Module = hw.MultiHeadAttention(12, 6)
mask: hw.Mask = hw.causal() & hw.window(keys={keys})
"""
MISTAKE = (
    'wrong.py:6: error: Argument "keys" to "window" has incompatible type "str"; expected "int | None"  [arg-type]'
)


def main() -> None:
    """Build, check and try; the first thing that is not right ends it with a sentence."""
    start = time.monotonic()
    wheel, sdist = archives = built(ROOT / "dist")
    _run(sys.executable, "-m", "twine", "check", "--strict", *map(str, archives))
    for archive, names in ((wheel, zipfile.ZipFile(wheel).namelist()), (sdist, _sources(sdist))):
        problems = complaints(names)
        if problems:
            sys.exit(f"{archive.name}:\n" + "\n".join(problems))
    for archive in archives:
        with tempfile.TemporaryDirectory() as folder:
            try_archive(archive, Path(folder), is_typed=archive is wheel)
        print(f"{archive.name}: right, {time.monotonic() - start:.0f} s since the start", flush=True)


def built(folder: Path) -> tuple[Path, Path]:
    """The wheel and the sdist, built anew into an empty folder; the wheel from the sdist, so it is complete."""
    shutil.rmtree(folder, ignore_errors=True)
    _run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT))
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def _sources(sdist: Path) -> list[str]:
    """The files of an sdist that are installed, named as in the wheel."""
    with tarfile.open(sdist) as archive:
        paths = [PurePosixPath(each.name) for each in archive.getmembers() if each.isfile()]
    strangers = [str(path) for path in paths if path.parts[1] in ("tests", "benchmarks", "docs", "examples")]
    inside = [str(path.relative_to(*path.parts[:1], "src")) for path in paths if path.parts[1] == "src"]
    return [name for name in inside if not name.startswith("headwise.egg-info/")] + strangers


def complaints(names: Iterable[str], root: Path = SRC) -> list[str]:
    """What a wheel with files of these names lacks of the package in `root`, and what it holds besides."""
    wanted = {
        f"headwise/{file.relative_to(root).as_posix()}"
        for file in root.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    held = {name for name in names if not re.match(r"headwise-[^/]+\.dist-info/", name)}
    kinds = {PurePosixPath(name).suffix for name in held}
    return [
        *(f"lacks {name}" for name in sorted(wanted - held)),
        *(f"must not hold {name}" for name in sorted(held - wanted)),
        *(f"holds no file of {kind}" for kind in ASSETS if kind not in kinds),
    ]


def try_archive(archive: Path, folder: Path, *, is_typed: bool) -> None:
    """Install an archive in an environment in `folder` and try it there, beside an empty folder to run in."""
    environment, empty = folder / "environment", folder / "empty"
    empty.mkdir()
    _run(sys.executable, "-m", "venv", str(environment))
    python = environment / "bin" / "python"
    # not compiled ahead: what is imported is, once
    options = ("--quiet", "--no-compile", "--constraint", str(ROOT / "constraints.txt"))
    _run(str(python), "-m", "pip", "install", *options, str(archive), at=empty)
    _run(str(python), "-m", "pip", "check", at=empty)
    _run(str(python), "-I", str(SMOKE), at=empty)
    if is_typed:
        check_types(python, folder)


def check_types(python: Path, folder: Path) -> None:
    """Have mypy read two files of a stranger's beside the installed package: it sees what is wrong in the second."""
    for name, keys in (("right.py", "2"), ("wrong.py", "'2'")):
        (folder / name).write_text(TYPED.format(keys=keys), encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file",
        os.devnull,
        "--python-executable",
        str(python),
    ]
    done = subprocess.run(
        [*command, "right.py", "wrong.py"], cwd=folder, env=_environment(), capture_output=True, text=True, check=False
    )
    said = [line for line in done.stdout.splitlines() if ": error: " in line]
    if said != [MISTAKE]:
        sys.exit(f"mypy must say this alone: {MISTAKE}\nit said:\n{done.stdout}{done.stderr}")
    print("types: the right file passes, the wrong one is refused")


def _run(*command: str, at: Path = ROOT) -> None:
    if subprocess.run(command, cwd=at, env=_environment(), check=False).returncode:
        sys.exit(f"failed: {' '.join(command)}")


def _environment() -> dict[str, str]:
    """The variables of this process, less those by which Python finds other sources or keeps no compiled ones."""
    mine = ("PYTHONPATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE", "MYPYPATH", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if name not in mine}


if __name__ == "__main__":
    main()
