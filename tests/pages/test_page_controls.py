"""Every control of the page is used once, by mouse and by keyboard, and does what it says."""

import re

import pytest

from headwise.wording import LANGUAGES
from tests.pages.browsing import PHONE
from tests.pages.made import a_map, a_page

VIEWS = ("overview", "heads", "map", "row", "statistics", "steps")


@pytest.fixture
def page(open_page, animal_page):
    return open_page(animal_page)


def state(page):
    """What is shown."""
    return {name: str(value) for name, value in page.asked("window.headwise.shown()").items()}


def test_the_address_follows_and_opens_the_same_again(open_page, animal_page, page):
    page.view("row")
    page.tab.locator(".text .piece").nth(3).click()
    page.tab.wait_for_url("**#view=row&layer=2&head=0&token=3")
    again = open_page(animal_page, place=f"#{page.tab.url.partition('#')[2]}")
    assert state(again) == state(page)


@pytest.mark.parametrize("view", VIEWS)
def test_each_view_opens_and_draws_something(page, view):
    page.view(view)
    assert state(page)["view"] == view
    assert page.asked(f"document.getElementById('tab-{view}').getAttribute('aria-selected')") == "true"
    assert page.asked("document.getElementById('view').getBoundingClientRect().height") > 200
    drawn = "[...document.querySelectorAll('#view canvas')].map((c) => c.width * c.height)"
    assert view == "steps" or min(page.asked(drawn)) > 0


def test_the_page_opens_where_the_link_says_most(page, animal):
    assert state(page) == {"view": "overview", "layer": "2", "head": "0", "token": "12"}
    assert page.text("#title") == "all-MiniLM-L6-v2"
    assert page.text("#subtitle") == animal.text


def test_a_head_in_the_overview_opens_its_map(page):
    assert page.asked("document.querySelectorAll('.head').length") == 72
    page.tab.locator(".head").nth(3 * 12 + 1).click()
    assert {"view": "map", "layer": "3", "head": "1"}.items() <= state(page).items()


def test_a_link_opens_its_row(page):
    page.tab.get_by_label("it attends to animal with weight 0.677 in layer 3, head 1").click()
    assert state(page) == {"view": "row", "layer": "3", "head": "1", "token": "10"}
    assert page.text("ol.top li:first-child").split() == ["2", "animal", "0.677"]


def test_layer_head_and_token_are_chosen_in_the_bar(page):
    page.view("row")
    page.tab.select_option("#layer", "5")
    page.tab.select_option("#head", "11")
    page.tab.fill("#token", "99")
    page.tab.press("#token", "Tab")
    assert state(page) == {"view": "row", "layer": "5", "head": "11", "token": "15"}
    page.tab.click("#token-back")
    assert state(page)["token"] == "14"
    page.tab.click("#token-next")
    page.tab.click("#token-next")
    assert state(page)["token"] == "15"
    page.tab.locator(".text .piece").nth(3).click()
    assert state(page)["token"] == "3"


def test_the_scale_of_colours_is_chosen(page):
    before = page.asked("document.querySelector('.thumb').toDataURL()")
    page.tab.click("#scale-linear")
    assert page.asked("document.getElementById('scale-linear').getAttribute('aria-pressed')") == "true"
    assert page.asked("document.querySelector('.thumb').toDataURL()") != before
    page.tab.click("#scale-log")
    assert page.asked("document.querySelector('.thumb').toDataURL()") == before


def test_heads_are_added_and_taken_away(page):
    page.view("heads")
    pressed = "[...document.querySelectorAll('.chip[aria-pressed=true]')].map((chip) => chip.textContent)"
    assert page.asked(pressed) == ["0"]
    page.tab.locator(".chip").nth(4).click()
    assert page.asked(pressed) == ["0", "4"]
    page.tab.locator(".chip").nth(0).click()
    assert page.asked(pressed) == ["4"]
    page.tab.click("#heads-all")
    assert len(page.asked(pressed)) == 12
    page.tab.click("#heads-one")
    assert len(page.asked(pressed)) == 1


def test_a_token_is_chosen_among_the_lines(page):
    page.view("heads")
    box = page.tab.locator("#lines").bounding_box()
    page.tab.mouse.click(box["x"] + 20, box["y"] + 34 + 26 * 10 + 13)
    assert state(page)["token"] == "10"
    assert page.text(".told").startswith("it attends most to: ")


def test_the_map_is_zoomed_moved_and_read(page):
    page.view("map")
    label = "document.getElementById('map').getAttribute('aria-label')"
    picture = "document.getElementById('map').toDataURL()"
    whole = page.asked(picture)
    page.tab.click("#zoom-in")
    zoomed = page.asked(picture)
    assert zoomed != whole
    box = page.tab.locator("#map").bounding_box()
    middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.tab.mouse.move(*middle)
    before = page.asked(label)
    page.tab.mouse.down()
    page.tab.mouse.move(middle[0] - 90, middle[1], steps=4)
    page.tab.mouse.up()
    page.tab.mouse.move(*middle)
    assert page.asked(label) != before
    page.tab.click("#zoom-out")
    page.tab.click("#zoom-fit")
    page.tab.mouse.move(*middle)
    assert re.search(r"^\S+ → \S+: [\d.e−]+, exact$", page.asked(label))
    assert page.asked(label).endswith(page.text(".tip span"))
    page.tab.keyboard.down("Control")
    page.tab.mouse.wheel(0, -400)
    page.tab.keyboard.up("Control")
    page.tab.mouse.click(*middle)
    page.tab.dblclick("#map")
    page.tab.mouse.move(2, 2)
    assert page.tab.locator(".tip").is_hidden()


def test_the_steps_are_played_stepped_and_taken_back(page):
    page.view("steps")
    assert page.text(".what").startswith("Step 1 of 11")
    page.tab.click("#step-next")
    page.tab.click("#step-next")
    page.tab.click("#step-back")
    assert "Split the queries into heads" in page.text(".what")
    page.tab.fill("#step-slider", "8")
    assert "Weighted sum" in page.text(".what")
    assert page.tab.locator(".tensor.new td").count() == 12
    page.tab.uncheck("#step-numbers")
    assert page.tab.locator(".tensor td").count() == 0
    page.tab.click("#step-play")
    assert page.text("#step-play") == "Stop"
    page.tab.click("#step-play")
    assert page.text("#step-play") == "Play"


def test_the_language_and_the_theme_are_switched(page):
    colour = "getComputedStyle(document.body).backgroundColor"
    light = page.asked(colour)
    page.tab.click("#theme")
    assert page.asked(colour) != light
    page.tab.click("#language")
    assert page.asked("document.documentElement.lang") == "zh-Hans"
    for view in VIEWS:
        page.view(view)
        shown = page.asked("document.getElementById('view').innerText + document.getElementById('bar').innerText")
        assert re.search("[\u4e00-\u9fff]", shown)
        left = [s for k, s in LANGUAGES["en"].items() if k.startswith("page.") and len(s) > 12 and "{" not in s]
        assert [sentence for sentence in left if sentence in shown] == []
    page.tab.click("#language")
    assert page.text("#tab-map") == "Map"


def test_everything_goes_by_keyboard(page):
    press = page.tab.keyboard.press
    press("3")
    assert state(page)["view"] == "map"
    for key in ("h", "l", "ArrowDown", "ArrowRight", "+", "-", "0", "j"):
        press(key)
    assert state(page) == {"view": "map", "layer": "3", "head": "1", "token": "13"}
    press("H")
    press("L")
    press("4")
    press("ArrowRight")
    assert state(page) == {"view": "row", "layer": "2", "head": "0", "token": "14"}
    press("6")
    press(" ")
    assert page.text("#step-play") == "Stop"
    press("ArrowRight")
    page.tab.focus("#tab-steps")
    press("ArrowRight")
    assert state(page)["view"] == "overview"
    press("ArrowRight")
    assert state(page)["view"] == "heads"


def test_no_control_is_without_a_name(page):
    unnamed = (
        "[...document.querySelectorAll('button, select, input, canvas[role]')].filter((each) => each.offsetParent"
        " && !(each.getAttribute('aria-label') || each.innerText?.trim() || each.closest('label')?.innerText.trim()))"
        ".map((each) => each.outerHTML.slice(0, 80))"
    )
    for view in VIEWS:
        page.view(view)
        assert page.asked(unnamed) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wider_than_a_phone(open_page, animal_page, scheme):
    page = open_page(animal_page, size=PHONE, scheme=scheme)
    for view in VIEWS:
        page.view(view)
        assert (view, page.asked("document.documentElement.scrollWidth")) == (view, PHONE[0])


@pytest.mark.parametrize("place", ["#view=nothing&layer=99&head=-3&token=x", "#", "#layer=1e9", "#view=__proto__"])
def test_an_address_that_asks_for_what_is_not_there_is_brought_back(open_page, place):
    page = open_page(a_page({"a": a_map(), "b": a_map(H=2)}), place=place)
    assert state(page)["view"] == "overview"
    assert int(state(page)["layer"]) in (0, 1)
