"""The samples of a batch: each is on the page, with its own tokens, numbers and facts, as far as they fit."""

import math

import pytest
import torch

import headwise as hw
from headwise.errors import ArgumentError
from headwise.pages import page_data
from headwise.wording import Refusal
from tests.pages.made import a_map, a_page

pytestmark = pytest.mark.needs("chromium", "playwright")

# within the quantisation of a byte
CLOSE = 0.041
NAMES = [list("abcde"), list("fghij"), list("klmno")]


def three():
    """Three samples of which the second is padded, and the third has a query that may attend to nothing."""
    kept = torch.ones(3, 5, dtype=torch.bool)
    kept[1, 3:] = False
    allowed = torch.ones(3, 1, 5, 5, dtype=torch.bool)
    allowed[2, 0, 4] = False
    return a_map(B=3, H=2, Lq=5, Lk=5, mask=hw.keys(kept) & hw.allowed(allowed))


def read(page, layer=0):
    return page.asked(f"[0, 1].map((head) => window.headwise.codes({layer}, head).map(window.headwise.weightOf))")


def same(got, weights):
    wanted = weights.flatten(1).tolist()
    return all(
        math.isclose(a, b, rel_tol=CLOSE, abs_tol=2**-28)
        for ours, theirs in zip(got, wanted, strict=True)
        for a, b in zip(ours, theirs, strict=True)
    )


def test_each_sample_is_chosen_and_has_its_own_numbers_tokens_and_facts(open_page):
    made = three()
    page = open_page(a_page({"x": made}, tokens=NAMES), place="#view=row&token=4")
    said = [page.asked("document.getElementById('sample').textContent")]
    assert said == ["0 · a b c d e1 · f g h i j2 · k l m n o"]
    for sample in (2, 1, 0):
        page.tab.select_option("#sample", str(sample))
        assert same(read(page), made[sample])
        assert page.text(".stepper .current").split() == ["4", NAMES[sample][4]]
        exact = page.asked("window.headwise.row(0, 1, 4)")
        assert exact == pytest.approx(made[sample, 1, 4].tolist(), rel=1e-6)
        facts = page.text("#shown")
        assert f"Sample {sample}, counted from 0, of a batch of 3." in facts
        assert ("40.0 % of the pairs may not attend" in facts) == (sample == 1)
        assert ("Rows that may attend to nothing: 2." in facts) == (sample == 2)


def test_samples_change_by_keyboard_and_are_in_the_address(open_page):
    page = open_page(a_page({"x": three()}), place="#view=map&sample=1")
    shown = "window.headwise.shown().sample"
    assert page.asked(shown) == 1
    page.tab.keyboard.press("s")
    page.tab.keyboard.press("s")
    assert page.asked(shown) == 0
    page.tab.keyboard.press("Shift+S")
    assert page.asked(shown) == 2
    page.tab.wait_for_timeout(300)
    assert "sample=2" in page.asked("location.hash")
    assert page.tab.get_by_role("combobox", name="Sample").input_value() == "2"
    assert "s S sample" in page.text("#hints")


def test_pictures_and_statistics_are_those_of_the_sample(open_page):
    made = a_map(B=2, H=2, Lq=40, Lk=40)
    page = open_page(a_page({"x": made}), place="#view=statistics")
    label = "document.querySelector('#entropies').getAttribute('aria-label')"
    first, thumb = page.asked(label), page.asked("document.querySelector('.tables td button').textContent")
    page.tab.keyboard.press("s")
    assert page.asked(label) != first
    mean = float(made.entropy()[1, 0].mean())
    assert page.asked("document.querySelector('.tables td button').textContent") == f"{mean:.1f}"
    assert thumb == f"{float(made.entropy()[0, 0].mean()):.1f}"
    page.view("overview")
    seen = "document.querySelector('.head canvas').toDataURL()"
    second = page.asked(seen)
    page.tab.keyboard.press("s")
    assert page.asked(seen) != second


def test_of_one_sample_there_is_nothing_to_choose(open_page):
    page = open_page(a_page({"x": a_map()}), place="#view=map")
    assert not page.tab.is_visible("#sampling")
    page.tab.keyboard.press("s")
    assert "sample" not in page.asked("window.headwise.shown()")
    assert "sample" not in page.text("#hints")


def test_all_samples_count_towards_the_size_and_those_that_do_not_fit_are_named(open_page):
    made = a_map(B=9, H=4, Lq=200, Lk=200)
    whole, less = a_page({"x": made}), a_page({"x": made}).of_sample(4)
    assert page_data.packed(whole, 12.0, lambda *_: None).samples == tuple(range(9))
    packed = page_data.packed(less, 1.0, lambda *_: None)
    assert packed.samples == (3, 4, 5)
    assert len(less.html(max_mb=1.0).encode()) <= 1e6
    page = open_page(less, max_mb=1.0, place="#view=map")
    assert "The page holds samples 3–5; 6 more of the batch are left out" in page.text("#shown")
    assert page.asked("window.headwise.shown().sample") == 4
    assert same(page.asked("[window.headwise.codes(0, 2).map(window.headwise.weightOf)]"), made[4, 2:3])


def test_samples_that_are_asked_for_are_all_there_pooled_where_they_must_be(open_page):
    made = a_map(B=9, H=4, Lq=200, Lk=200)
    asked = a_page({"x": made}).of_samples([7, 0, 1, 2, 3, 4])
    page = open_page(asked, max_mb=1.0, place="#view=map")
    assert page.asked("window.headwise.shown().sample") == 7
    assert "Pooled: each cell is the largest of 2 × 2 weights" in page.text("#shown")
    largest = made[7].unflatten(2, (100, 2)).unflatten(1, (100, 2)).amax((2, 4))
    assert same(page.asked("[0, 1].map((h) => window.headwise.codes(0, h).map(window.headwise.weightOf))"), largest[:2])
    with pytest.raises(Refusal, match="6 samples of its 1 layers need 0"):
        asked.html(max_mb=0.15)


def test_samples_that_are_not_there_are_refused():
    page = a_page({"x": three()})
    with pytest.raises(ArgumentError, match=r"0\.\.2, since the maps have 3 samples; got 3"):
        page.of_samples([0, 3])
    with pytest.raises(ArgumentError, match="must hold a sample at least"):
        page.of_samples([])


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        (NAMES[:2], "each of the 3 samples, but 2 came"),
        ([*NAMES[:2], list("abcd")], "sample 0 has 5 and sample 2 has 4"),
    ],
)
def test_tokens_of_samples_must_be_those_of_each(tokens, said):
    with pytest.raises(ArgumentError, match=said):
        a_page({"x": three()}, tokens=tokens)


def test_a_query_is_found_in_whichever_sample_has_it():
    page = a_page({"x": three()}, tokens=NAMES, query="m")
    assert (page.sample, page.opening["token"], page.chosen) == (2, 2, (2,))
