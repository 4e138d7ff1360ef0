"""The pictures in docs/, taken in Chromium of real pages; python -m tests.pages.pictures --write renews them."""

import subprocess
import sys
import tempfile
from io import BytesIO
from pathlib import Path

from headwise.pages import look
from headwise.pages.models import silent
from headwise.pages.text_heads import EffectRequest, effects_of_text
from headwise.pages.text_look import TextRequest, looked
from tests.pages.browsing import chromium, opened
from tests.pages.conftest import ANIMAL

DOCS = Path(__file__).parents[2] / "docs"
SIZE = (1080, 900)
VIEWS = ("overview", "heads", "map", "row", "statistics", "effects")
OTHER = "The animal was too tired to cross the street."
WIDE = "The animal didn't cross the street because it was too wide."
TRACED = "examples/first_attention.py:FirstAttention"
# each picture, and the lines that give it
GALLERY = {
    "page-overview.png": f'headwise look "{ANIMAL}" -o heads.html',
    "page-map.png": f'headwise look "{ANIMAL}" --layer 3 --head 1 -o map.html',
    "page-heads.png": f'headwise look "{ANIMAL}" --query it -o links.html',
    "page-statistics.png": f'headwise look "{ANIMAL}" -o statistics.html',
    "page-steps.png": f"headwise steps {TRACED} -o steps.html",
    "page-trace.png": f"headwise trace {TRACED} --html trace.html",
    "page-effects.png": f'headwise effects "{ANIMAL}" --similar "{OTHER}" -o effects.html',
    "page-compare.png": f'headwise look "{ANIMAL}" --against "{WIDE}" -o compare.html',
}


def pictures() -> dict[str, bytes]:
    """Each view of the page of the README's sentence as a PNG, its effects, a comparison, and a trace."""
    found = {}
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        asked = EffectRequest(ANIMAL, None, None, OTHER)
        page = look(ANIMAL, query="it", layer=3, head=1).page()
        file = page.with_table(effects_of_text(asked, silent).effects).save(f"{folder}/page.html")
        for view in VIEWS:
            with opened(browser, file, size=SIZE, place=f"#view={view}&layer=3&head=1&token=10") as shown:
                found[view] = compressed(shown.tab.screenshot())
        file = looked(TextRequest(ANIMAL, against=WIDE), silent).page().save(f"{folder}/compare.html")
        with opened(browser, file, size=SIZE, place="#view=compare&layer=3&head=1") as shown:
            found["compare"] = compressed(shown.tab.screenshot())
        for command, option in (("trace", "--html"), ("steps", "-o")):
            file = Path(folder, f"{command}.html")
            headwise = Path(sys.executable).with_name("headwise")
            said = [headwise, command, TRACED, option, file]
            subprocess.run(said, cwd=DOCS.parent, check=True, stdout=subprocess.DEVNULL)
            with opened(browser, file, size=(1080, 700)) as shown:
                if command == "steps":
                    shown.tab.fill("#step-slider", "8")
                    shown.tab.wait_for_timeout(1500)
                found[command] = compressed(shown.tab.screenshot())
    return found


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
    for view, picture in pictures().items():
        print(f"page-{view}.png  {len(picture):,} bytes")
        if sys.argv[1:] == ["--write"]:
            (DOCS / f"page-{view}.png").write_bytes(picture)


if __name__ == "__main__":
    main()
