"""The views Compare and Effects in the browser: numbers, keyboard, languages, a phone, and what is saved."""

import pytest
import torch
from torch import nn

import headwise as hw
from headwise.wording import LANGUAGES
from tests.pages.browsing import PHONE

VIEWS = ("compare", "effects")


@pytest.fixture(scope="module")
def tables():
    """A page of two layers with 2 and 12 heads, and its tables."""
    torch.manual_seed(3)
    model = nn.Sequential(hw.MultiHeadAttention(12, 2), hw.MultiHeadAttention(12, 12)).eval()
    x = torch.randn(1, 5, 12)
    with hw.watch(model) as before, torch.no_grad():
        model(x)
    with hw.watch(model) as after, torch.no_grad(), hw.intervene(model) as edits:
        edits.find("0").zero(heads=1)
        model(x)
    effects = hw.head_effects(model, x, lambda out: 0.01 * out.square().sum())
    return hw.look(before).with_table(hw.compare(before, after)).with_table(effects, metric="the sum of squares")


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_shows_the_number_of_every_head_and_chooses_it(open_page, tables, view):
    page = open_page(tables)
    page.view(view)
    shown = [table for table in tables.tables if table.view == view]
    cells = page.tab.locator(".tables td button").all_inner_texts()
    assert len(cells) == len(shown) * 14
    wanted = [value for table in shown for row in table.values for value in row]
    forms = [table.form for table in shown for _ in range(14)]
    for text, value, form in zip(cells, wanted, forms, strict=True):
        assert float(text) == pytest.approx(value / 10**form.power, abs=0.51 * 10**-form.places)
        assert text not in ("-0.0", "-0.00", "-0.000")
    if view == "effects":
        assert "which is" in page.text("#view")
        assert "the sum of squares" in page.text("#view")
        assert "in units of 10⁻³" in page.text("#view")
    page.tab.locator(".tables td button").nth(5).click()
    assert page.asked("window.headwise.shown()") == {"view": view, "layer": 1, "head": 3, "token": 0}
    page.tab.keyboard.press("ArrowRight")
    page.tab.keyboard.press("ArrowUp")
    assert page.asked("window.headwise.shown().head") in (0, 1)
    assert page.asked("window.headwise.shown().layer") == 0
    assert page.errors == []


def test_views_without_tables_have_no_tabs_and_open_the_overview(open_page, tables):
    import dataclasses

    page = open_page(dataclasses.replace(tables, tables=()), place="#view=effects")
    tabs = page.asked("[...document.querySelectorAll('[role=tab]')].map((tab) => tab.id)")
    assert tabs == [f"tab-{view}" for view in ("overview", "heads", "map", "row", "statistics", "steps")]
    assert page.asked("window.headwise.shown().view") == "overview"
    page = open_page(tables, place="#view=effects")
    assert page.asked("window.headwise.shown().view") == "effects"
    page.tab.keyboard.press("6")
    assert page.asked("window.headwise.shown().view") == "compare"


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("view", VIEWS)
def test_it_fits_a_phone_in_the_dark_and_in_each_language(open_page, tables, view, lang):
    import dataclasses

    page = open_page(dataclasses.replace(tables, lang=lang), size=PHONE, scheme="dark", place=f"#view={view}")
    (heading, *_) = {table.heading.said(lang) for table in tables.tables if table.view == view}
    assert heading in page.text("#view")
    assert page.asked("document.documentElement.scrollWidth") <= PHONE[0]
    # no number is wider than its cell
    assert page.asked(
        "[...document.querySelectorAll('.tables td button')].every((b) => b.scrollWidth <= b.clientWidth)"
    )


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("form", ["png", "svg"])
def test_its_figure_is_saved(open_page, tables, view, form):
    page = open_page(tables, place=f"#view={view}&layer=1&head=4")
    with page.tab.expect_download() as download:
        page.tab.click(f"#save-{form}")
    data = download.value.path().read_bytes()
    assert download.value.suggested_filename.endswith(f"-{view}-L1H4.{form}")
    if form == "png":
        assert data.startswith(b"\x89PNG")
        return
    text = data.decode("utf-8")
    for cell in page.tab.locator(".tables td button").all_inner_texts():
        assert f">{cell}<" in text
