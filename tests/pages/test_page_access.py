"""Everyone can use the page: by keyboard, by touch, by ear, with any eyes, in either theme, enlarged, and on paper."""

from pathlib import Path

import pytest
import torch

import headwise as hw
from tests.pages.browsing import PHONE
from tests.pages.made import a_map, a_page

VIEWS = ("overview", "heads", "map", "row", "statistics", "steps")
WORDS = ["The", "cat", "sat", "down", "on", "the", "mat", "</b>", "你好"]

TOO_FAINT, NAMELESS = (
    (Path(__file__).parent / "in_page" / f"{name}.js").read_text(encoding="utf-8").split("\n", 1)[1].strip()
    for name in ("too_faint", "nameless")
)


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """A page with all that there can be: weights of every size, masked pairs, NaN, rows and a head that see nothing."""
    torch.manual_seed(3)
    q, k = 3 * torch.randn(1, 3, 9, 4), torch.randn(1, 3, 9, 4)
    q[0, 0, 5, 0] = float("nan")
    lengths = torch.tensor([[1, 2, 0, 4, 5, 6, 7, 8, 9]])
    maps = {
        "some": hw.attention_map(q, k, mask=hw.causal() & hw.lengths(lengths)),
        "none": a_map(H=2, Lq=9, Lk=9, mask=hw.lengths(torch.tensor([0]))),
        "all": a_map(H=5, Lq=9, Lk=9, spread=0.5),
    }
    return a_page(maps, tokens=WORDS).save(tmp_path_factory.mktemp("odd") / "odd.html")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read_against_what_is_behind_it(open_page, odd, scheme):
    page = open_page(odd, scheme=scheme)
    for view in VIEWS:
        page.view(view)
        for layer in ("0", "2") if view not in ("overview", "steps") else ("0",):
            if view not in ("overview", "steps"):
                page.tab.select_option("#layer", layer)
            for scale in ("log", "linear"):
                if view in ("overview", "map", "row"):
                    page.tab.click(f"#scale-{scale}")
                assert page.asked(TOO_FAINT) == []
    page.view("heads")
    page.tab.click("#heads-all")
    assert page.asked(TOO_FAINT) == []
    for token in (2, 5):
        page.tab.goto(f"{odd.as_uri()}#view=row&token={token}")
        page.tab.reload()
        assert page.asked(TOO_FAINT) == []


def test_everything_that_can_be_used_has_a_name(open_page, odd):
    page = open_page(odd)
    for view in VIEWS:
        page.view(view)
        assert page.asked(NAMELESS) == []
    label = page.asked("document.getElementById('language').ariaLabel")
    assert label.startswith("中文")


@pytest.mark.parametrize(
    ("view", "thing"),
    [
        ("map", "#scale-linear"),
        ("map", "#zoom-in"),
        ("overview", "#scale-linear"),
        ("statistics", ".tables td button >> nth=6"),
        ("row", ".text .piece >> nth=3"),
        ("row", "#token-next"),
        ("heads", ".chip >> nth=1"),
        ("heads", "#heads-all"),
    ],
)
def test_a_key_that_was_pressed_leaves_the_focus_where_it_was(open_page, odd, view, thing):
    page = open_page(odd, place=f"#view={view}")
    before = page.tab.locator(thing).text_content()
    page.tab.locator(thing).focus()
    page.tab.keyboard.press("Enter")
    assert page.asked("document.activeElement.textContent") == before
    assert page.asked("document.activeElement.tagName") == "BUTTON"


def test_a_cell_that_is_touched_is_told_until_another_is(browser, odd):
    context = browser.new_context(
        viewport={"width": PHONE[0], "height": PHONE[1]}, has_touch=True, is_mobile=True, offline=True
    )
    tab = context.new_page()
    tab.goto(f"{odd.as_uri()}#view=map&layer=2")
    box = tab.locator("#map").bounding_box()
    told = []
    for part in (0.5, 0.7):
        tab.touchscreen.tap(box["x"] + box["width"] * part, box["y"] + box["height"] * part)
        assert tab.locator(".tip").is_visible()
        told.append(tab.inner_text(".tip"))
    assert told[0] != told[1]
    context.close()


@pytest.mark.parametrize("size", [(640, 450), (320, 560)], ids=["200 %", "400 %"])
def test_an_enlarged_page_needs_no_scrolling_sideways(open_page, odd, size):
    page = open_page(odd, size=size)
    for view in VIEWS:
        page.view(view)
        assert page.asked("document.documentElement.scrollWidth") <= size[0]


def test_paper_is_light_and_the_screen_is_as_before(open_page, odd):
    page = open_page(odd, scheme="dark", place="#view=row&layer=2")
    ink = "getComputedStyle(document.body).color"
    dark = page.asked(ink)
    page.tab.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    page.tab.emulate_media(media="print")
    assert page.asked(ink) == "rgb(27, 26, 34)"
    edges = "[...document.querySelectorAll('canvas')].map((each) => each.getBoundingClientRect().right)"
    # a sheet is narrower than the screen, and nothing is drawn anew for it
    page.tab.evaluate("document.body.style.maxWidth = '500px'")
    body = "document.body.getBoundingClientRect().right"
    assert page.asked(f"Math.max(...{edges}) <= {body}")
    page.tab.emulate_media(media="screen", color_scheme="dark")
    page.tab.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.asked(ink) == dark
    assert page.asked("document.documentElement.dataset.theme ?? null") is None


def test_nothing_moves_by_itself_for_those_who_asked_for_less(open_page, odd):
    page = open_page(odd, place="#view=steps")
    animations = "document.getAnimations().length"
    page.tab.emulate_media(reduced_motion="reduce")
    page.tab.click("#step-next")
    assert page.asked(animations) == 0
    page.tab.emulate_media(reduced_motion="no-preference")
    page.tab.click("#step-next")
    assert page.asked(animations) > 0
