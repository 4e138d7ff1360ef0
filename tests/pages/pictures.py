"""The pictures of the page in docs/, taken in Chromium; python -m tests.pages.pictures --write renews them."""

import sys
import tempfile
from io import BytesIO
from pathlib import Path

from headwise.pages import look
from headwise.pages.models import silent
from headwise.pages.text_heads import EffectRequest, effects_of_text
from tests.pages.browsing import chromium, opened
from tests.pages.conftest import ANIMAL

DOCS = Path(__file__).parents[2] / "docs"
SIZE = (1080, 900)
VIEWS = ("overview", "heads", "map", "row", "statistics", "effects", "steps")
OTHER = "The animal was too tired to cross the street."


def pictures() -> dict[str, bytes]:
    """Each view of the page of the README's sentence, as a PNG, and its effects on a similarity."""
    from PIL import Image

    found = {}
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        asked = EffectRequest(ANIMAL, None, None, OTHER)
        page = look(ANIMAL, query="it", layer=3, head=1).page()
        file = page.with_table(effects_of_text(asked, silent).effects).save(f"{folder}/page.html")
        for view in VIEWS:
            with opened(browser, file, size=SIZE, place=f"#view={view}&layer=3&head=1&token=10") as page:
                if view == "steps":
                    page.tab.fill("#step-slider", "8")
                    page.tab.wait_for_timeout(1500)
                picture = Image.open(BytesIO(page.tab.screenshot())).convert("RGB")
                # 256 colours among which those of small marks are kept
                picture = picture.quantize(256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
            with BytesIO() as small:
                picture.save(small, "PNG", optimize=True)
                found[view] = small.getvalue()
    return found


def main() -> None:
    """Say how large the pictures are, or write them."""
    for view, picture in pictures().items():
        print(f"page-{view}.png  {len(picture):,} bytes")
        if sys.argv[1:] == ["--write"]:
            (DOCS / f"page-{view}.png").write_bytes(picture)


if __name__ == "__main__":
    main()
