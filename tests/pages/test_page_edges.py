"""The smallest, the largest and the oddest that a page may be made of."""

import pytest
import torch

import headwise as hw
from headwise.pages.encode_maps import bytes_needed, fitting_block
from headwise.wording import Refusal
from tests.pages.made import a_map, a_page, with_nan

VIEWS = ("overview", "heads", "map", "row", "statistics", "steps")

ODD = {
    "one token": lambda: a_page(a_map(H=1, Lq=1, Lk=1), tokens=["one"]),
    "more keys than queries": lambda: a_page(
        a_map(Lq=4, Lk=9), tokens={"queries": list("abcd"), "keys": list("efghijklm")}
    ),
    "more queries than keys": lambda: a_page(a_map(Lq=9, Lk=4, mask=hw.causal())),
    "one head": lambda: a_page(a_map(H=1, Lq=6, Lk=6, mask=hw.causal())),
    "nan": lambda: a_page(with_nan(row=3)),
    "all empty": lambda: a_page(a_map(mask=hw.lengths(torch.tensor([0])))),
    "one query of many keys": lambda: a_page(a_map(Lq=1, Lk=700)),
    "one key": lambda: a_page(a_map(Lq=700, Lk=1)),
    "long tokens": lambda: a_page(a_map(Lq=5, Lk=5), tokens=["x" * 10_000, "你" * 10_000, "", " ", "\n"]),
    "heads that differ": lambda: a_page({"a": a_map(H=1), "b": a_map(H=5), "c": a_map(H=17, Lq=3, Lk=40)}),
    "many layers": lambda: a_page({f"layer.{n}": a_map(H=2, seed=n) for n in range(40)}),
    "mean of heads": lambda: a_page(a_map(mask=hw.causal()).mean_heads()),
    "float64": lambda: a_page(hw.attention_map(torch.randn(1, 2, 4, 3).double(), torch.randn(1, 2, 6, 3).double())),
}


@pytest.mark.parametrize("case", ODD)
def test_every_view_shows_it(open_page, case):
    page = open_page(ODD[case]())
    for view in VIEWS:
        page.view(view)
        assert page.asked("document.getElementById('view').getBoundingClientRect().height") > 60
        assert page.asked("document.documentElement.scrollWidth") <= 1280
        for key in ("ArrowRight", "ArrowDown"):
            page.tab.keyboard.press(key)
    for key in ("3", "h", "l", "j", "+", "2", "j", "h"):
        page.tab.keyboard.press(key)


def test_cross_attention_shows_two_lists_of_tokens(open_page):
    page = open_page(ODD["more keys than queries"](), place="#view=row&token=2")
    pieces = "[...document.querySelectorAll('.text{} .piece')].map((each) => each.textContent)"
    assert page.asked(pieces.format(".from")) == list("abcd")
    assert page.asked(pieces.format(":not(.from)")) == list("efghijklm")
    assert page.asked("document.querySelector('.from .chosen').textContent") == "c"


def test_a_token_of_ten_thousand_letters_is_cut_and_stays_in_its_place(open_page):
    page = open_page(ODD["long tokens"](), place="#view=row&token=0")
    assert page.asked("document.querySelector('.piece').textContent.length") == 200
    assert page.asked("document.querySelector('.piece').getBoundingClientRect().width") <= 260


# the uint8 of what is shown, once as base64, and 300 kB for all the rest
def test_twelve_layers_of_twelve_heads_at_512_tokens_stay_small_and_paint_at_once(open_page, tmp_path):
    maps = {f"layer.{n}": a_map(H=12, Lq=512, Lk=512, D=16, seed=n) for n in range(12)}
    page = a_page(maps)
    file = page.save(tmp_path / "large.html", max_mb=60)
    shown = 12 * 12 * 512 * 512
    assert file.stat().st_size <= 1.4 * shown + 300_000
    opened = open_page(file)
    assert opened.asked("performance.getEntriesByName('first-contentful-paint')[0].startTime") <= 2000
    assert opened.asked("window.headwise.header.layers[0].block") == [1, 1]


def test_long_texts_are_pooled_until_the_page_fits(open_page, tmp_path):
    # 72 heads of 2,048 tokens; the same queries and keys in each layer
    one = a_map(H=12, Lq=2048, Lk=2048, D=4, mask=hw.causal())
    page = a_page({"a": one}, query="2047")
    counted = [tuple(one.shape)] * 6
    block = fitting_block(counted, 11_000_000)
    assert bytes_needed(counted, block) <= 11_000_000
    file = page.save(tmp_path / "long.html", max_mb=2)
    assert file.stat().st_size <= 2_000_000
    opened = open_page(file, place="#view=row&head=5&token=2047")
    assert "exact, float32" in opened.text(".facts")
    assert torch.equal(torch.tensor(opened.asked("window.headwise.row(0, 5, 2047)")).float(), one[0, :, 2047][5])


def test_8192_tokens_open_without_freezing(open_page, tmp_path):
    page = a_page(a_map(H=1, Lq=8192, Lk=8192, D=4))
    opened = open_page(page.save(tmp_path / "longest.html", max_mb=4))
    for view in VIEWS[:5]:
        began = opened.asked("performance.now()")
        opened.view(view)
        assert opened.asked("performance.now()") - began < 3000


def test_a_page_that_cannot_be_small_enough_says_what_to_leave_out(tmp_path):
    maps = {f"layer.{n}": a_map(H=9, Lq=64, Lk=64, D=4, seed=n) for n in range(4)}
    with pytest.raises(Refusal, match=r"may have 0\.1 million bytes, but its 4 layers need 0\.3 .* --max-mb") as caught:
        a_page(maps).save(tmp_path / "page.html", max_mb=0.1)
    assert "0.1" in caught.value.said("zh")
    assert list(tmp_path.iterdir()) == []


def test_a_page_may_be_allowed_any_number_of_bytes(tmp_path):
    assert a_page(a_map()).save(tmp_path / "page.html", max_mb=1e305).stat().st_size > 0
