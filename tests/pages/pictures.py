"""The pictures in docs/, taken in Chromium of real pages; python -m tests.pages.pictures --write renews them."""

import os
import shlex
import subprocess
import sys
import tempfile
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from tests.pages.browsing import chromium, opened
from tests.pages.conftest import ANIMAL

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
OTHER = "The animal was too tired to cross the street."
WIDE = "The animal didn't cross the street because it was too wide."
TRACED = "examples/first_attention.py:FirstAttention"


class Shot(NamedTuple):
    """The command that writes a page, and what is shown of that: a view, None: as it opens; step: of Steps."""

    command: str
    view: str | None = None
    step: int | None = None
    size: tuple[int, int] = (1080, 900)


GALLERY = {
    "page-overview.png": Shot(f'headwise look "{ANIMAL}" --query it --layer 3 --head 1 -o demo.html'),
    "page-map.png": Shot(f'headwise look "{ANIMAL}" --layer 3 --head 1 -o map.html', "map"),
    "page-heads.png": Shot(f'headwise look "{ANIMAL}" --query it -o links.html', "heads"),
    "page-statistics.png": Shot(f'headwise look "{ANIMAL}" -o statistics.html', "statistics"),
    "page-steps.png": Shot(f"headwise steps {TRACED} -o steps.html", step=9, size=(1080, 700)),
    "page-trace.png": Shot(f"headwise trace {TRACED} --html trace.html", size=(1080, 700)),
    "page-effects.png": Shot(f'headwise effects "{ANIMAL}" --similar "{OTHER}" -o effects.html', "effects"),
    "page-compare.png": Shot(f'headwise look "{ANIMAL}" --against "{WIDE}" -o compare.html', "compare"),
}


def pictures() -> dict[str, bytes]:
    """Each picture of the gallery as a PNG, taken of what its command writes."""
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        # what a command names lies beside where it writes
        Path(folder, "examples").symlink_to(ROOT / "examples")
        return {name: taken(browser, shot, Path(folder)) for name, shot in GALLERY.items()}


def taken(browser, shot: Shot, folder: Path) -> bytes:
    """Run a command in a folder and take the picture of the page that it writes there."""
    words = shlex.split(shot.command)
    subprocess.run(
        [sys.executable, "-m", *words],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, check=True, capture_output=True,
    )  # fmt: skip
    with opened(browser, folder / words[-1], size=shot.size) as page:
        if shot.view is not None:
            page.view(shot.view)
        if shot.step is not None:
            page.tab.fill("#step-slider", str(shot.step - 1))
        # what fades in has done so
        page.tab.wait_for_timeout(1500)
        return compressed(page.tab.screenshot())


def compressed(taken: bytes) -> bytes:
    """A picture in 256 colours, among which those of small marks are kept."""
    from PIL import Image

    picture = Image.open(BytesIO(taken)).convert("RGB")
    picture = picture.quantize(256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    with BytesIO() as small:
        picture.save(small, "PNG", optimize=True)
        return small.getvalue()


def main() -> None:
    """Say how large the pictures are, or write them."""
    for name, picture in pictures().items():
        print(f"{name}  {len(picture):,} bytes")
        if sys.argv[1:] == ["--write"]:
            (DOCS / name).write_bytes(picture)


if __name__ == "__main__":
    main()
