"""Texts, tokens and names of modules are text, whatever is in them: nothing runs, nothing is asked for."""

import dataclasses
import json
import re

import pytest

import headwise as hw
from headwise.pages.document import as_json
from headwise.wording.screen import visible
from tests.pages.browsing import PHONE
from tests.pages.made import a_map, a_page

EVIL = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(2)>",
    "<!-- put script -->",
    "--></style><svg onload=alert(3)>",
    "&lt;b&gt; &amp; &#60;",
    "\u2028\u2029\x00\x1b[31m\u202e",
    "<!--<script>",
    "javascript:alert(4)",
    "{}${alert(5)}`\\'\"",
    "https://example.com/x.js",
    "</title><script>alert(6)</script>",
)
# what would end the elements that a title stands in
TITLE = EVIL[0] + EVIL[3] + EVIL[-1]


def evil_page():
    """Markup in every place that a person or a model fills in."""
    count = len(EVIL)
    maps = {name: a_map(H=2, Lq=count, Lk=count, seed=n) for n, name in enumerate(EVIL[:3])}
    page = a_page(maps, tokens=EVIL)
    link = {"from": EVIL[0], "to": EVIL[1], "weight": 0.5, "layer": 0, "head": 1, "query": 2}
    return dataclasses.replace(page, title=TITLE, text="".join(EVIL), notes=EVIL, links=(link,))


@pytest.mark.parametrize("size", [(1280, 900), PHONE], ids=["desktop", "phone"])
def test_markup_is_shown_and_never_run(open_page, size):
    page = open_page(evil_page(), size=size)
    assert page.text("#title") == TITLE
    assert page.tab.title() == TITLE
    elements = "document.querySelectorAll('img, svg, #view script, #shown script, iframe, object, embed').length"
    for view in ("overview", "heads", "map", "row", "statistics", "steps"):
        page.view(view)
        assert page.asked(elements) == 0
        # the page's own, and no other
        assert page.asked("[...document.scripts].filter((each) => !each.type).length") == 1


def test_tokens_are_shown_as_they_are(open_page):
    page = open_page(evil_page(), place="#view=row&token=1")
    shown = page.asked("[...document.querySelectorAll('.text .piece')].map((each) => each.textContent)")
    assert shown == [visible(token) for token in EVIL]


def test_a_saved_svg_is_well_formed_and_holds_no_markup_of_theirs(open_page):
    from xml.etree import ElementTree

    page = open_page(evil_page(), place="#view=map&token=1")
    with page.tab.expect_download() as waiting:
        page.tab.click("#save-svg")
    tree = ElementTree.parse(waiting.value.path())
    kinds = {element.tag.rpartition("}")[2] for element in tree.iter()}
    assert kinds <= {"svg", "rect", "text", "image", "g", "clipPath", "path", "line"}


@pytest.mark.parametrize("evil", EVIL)
def test_no_data_can_end_its_block(evil):
    text = as_json({evil: [evil]})
    assert json.loads(text) == {evil: [evil]}
    assert not re.search("[<>&\u2028\u2029]", text)


def test_a_script_that_somebody_adds_does_not_run(open_page, tmp_path):
    file = a_page(a_map()).save(tmp_path / "page.html")
    added = "<script>document.title = 'run'</script><style>body { display: none }</style></body>"
    file.write_text(file.read_text(encoding="utf-8").replace("</body>", added), encoding="utf-8")
    page = open_page(file)
    assert page.tab.title() == "Attention maps"
    assert page.asked("getComputedStyle(document.body).display") == "block"
    assert len(page.errors) == 2
    assert all("Content Security Policy" in error for error in page.errors)
    page.errors.clear()


@pytest.mark.parametrize(
    "text",
    ["你好，世界", "مرحبا بالعالم", "👩‍👩‍👧‍👦 🇨🇳 é", "naïve </script> & <b>", "हिन्दी भाषा"],
    ids=["chinese", "right to left", "emoji", "markup", "hindi"],
)
@pytest.mark.needs("transformers")
def test_tokens_of_a_byte_level_vocabulary_are_pieces_of_the_text(open_page, gpt2_folder, text):
    seen = hw.look(text, model=gpt2_folder)
    page = open_page(seen.page(), place="#view=row&token=0")
    assert page.text("#subtitle") == text
    shown = page.asked("[...document.querySelectorAll('.text .piece')].map((each) => each.textContent)")
    assert shown == [token.text for token in seen.tokens]
    assert {piece for piece in shown if piece.strip("␣")} <= {
        text[start:end].strip() for start in range(len(text)) for end in range(start + 1, len(text) + 1)
    } | {token.text for token in seen.tokens if token.span is None}
    assert not re.search("[ÃÂäåæçðŁł]", "".join(shown).replace("ï", ""))
