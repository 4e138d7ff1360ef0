"""What is masked, empty, NaN, zero or a mean is said as such, wherever it is shown."""

import math
from unittest.mock import patch

import pytest
import torch

import headwise as hw
from headwise.pages import page_data
from tests.pages.made import a_map, a_page, with_nan


def pooled(open_page, made, **options):
    """A page of long maps that had to be pooled, opened."""
    page = open_page(a_page(made, query=options.pop("query", None)), max_mb=0.35, **options)
    assert page.asked("window.headwise.header.layers[0].block[0]") > 1
    return page


@pytest.mark.parametrize("row", [7, 250])
def test_an_exact_row_of_a_pooled_map_keeps_masked_apart_from_zero(open_page, row):
    torch.manual_seed(0)
    q, k = torch.randn(1, 2, 300, 4), torch.randn(1, 2, 300, 4)
    # so unlikely that its weight is 0, though it may be attended to
    bias = torch.zeros(300, 300)
    bias[row, 3] = -300.0
    made = hw.attention_map(q, k, mask=hw.causal(), attn_bias=bias)
    page = pooled(open_page, made, query=str(row), place=f"#view=row&token={row}")
    kinds = page.asked("[...document.querySelectorAll('.text .piece')].map((each) => each.dataset.weight)")
    assert made[0, 0, row, 3] == 0
    assert kinds[3] == "0"
    assert kinds[row + 1 :] == ["masked"] * (299 - row)
    assert page.asked(f"window.headwise.weight(0, 1, {row}, 299).code") == 1
    assert page.asked(f"window.headwise.weight(0, 1, {row}, 3).code") == 2


def test_an_exact_row_that_may_attend_to_nothing_is_said_to_be_empty(open_page):
    lengths = torch.full((1, 300), 300)
    lengths[0, 9] = 0
    page = pooled(open_page, a_map(H=2, Lq=300, Lk=300, mask=hw.lengths(lengths)), query="9", place="#view=row&token=9")
    assert "row that may attend to nothing" in page.text(".facts")
    assert "nats" not in page.text(".facts")


def test_what_is_said_of_a_pooled_row_is_said_to_be_of_its_block(open_page):
    made = a_map(H=2, Lq=300, Lk=300, mask=hw.causal())
    page = pooled(open_page, made, place="#view=row&token=120")
    size = page.asked("window.headwise.header.layers[0].block[0]")
    start = 120 // size * size
    facts = page.text(".facts")
    assert f"Mean entropy of {size} queries" in facts
    assert f"{float(made.entropy()[0, 0, start : start + size].mean()):.3f} nats" in facts
    assert f"largest of {size} queries × {size} keys" in facts
    assert "Masked keys" not in facts


def test_the_mean_entropy_of_a_head_is_over_the_rows_that_have_one(open_page):
    lengths = torch.tensor([[4, 0, 3, 0, 6, 6]])
    maps = {
        "some": a_map(H=2, Lq=6, Lk=6, mask=hw.lengths(lengths)),
        "none": a_map(H=2, mask=hw.lengths(torch.tensor([0]))),
        "nan": with_nan(row=2),
    }
    page = open_page(a_page(maps), place="#view=statistics")
    table = "document.querySelectorAll('.tables table')[0]"
    rows = f"[...{table}.querySelectorAll('tbody tr')]"
    cells = page.asked(f"{rows}.map((row) => [...row.querySelectorAll('td')].map((cell) => cell.textContent))")
    seen = maps["some"].entropy()[0][:, [0, 2, 4, 5]].mean(-1)
    assert cells[0] == [f"{float(x):.1f}" for x in seen]
    assert cells[1] == ["–", "–"]
    assert cells[2] == ["NaN", f"{float(maps['nan'].entropy()[0, 1].mean()):.1f}"]
    page.view("overview")
    labels = page.asked("[...document.querySelectorAll('.head')].map((each) => each.ariaLabel)")
    assert "may attend to nothing" in labels[2]
    assert "NaN" in labels[4]


def test_the_mean_of_a_long_head_counts_each_row_once(open_page):
    made = a_map(H=2, Lq=301, Lk=301, mask=hw.causal())
    page = pooled(open_page, made)
    told = page.asked("window.headwise.header.layers[0].samples[0].entropy")
    assert told == pytest.approx(made.entropy()[0].mean(-1).tolist(), rel=1e-5)


@pytest.mark.parametrize(("row", "said"), [(2, "may attend to nothing"), (4, "NaN in head 0")])
def test_a_token_without_weights_is_not_said_to_look_at_nothing(open_page, row, said):
    torch.manual_seed(1)
    q, k = torch.randn(1, 2, 6, 4), torch.randn(1, 2, 6, 4)
    q[0, 0, 4, 0] = math.nan
    made = hw.attention_map(q, k, mask=hw.lengths(torch.tensor([[6, 6, 0, 6, 6, 6]])))
    page = open_page(a_page(made), place=f"#view=heads&token={row}")
    assert said in page.text(".told")
    assert "attends to nothing" not in page.text(".told")


def test_lines_that_are_left_out_are_said_to_be(open_page):
    page = open_page(a_page(a_map(Lq=4, Lk=4)), place="#view=heads")
    assert "Lines weaker than 0.02 are not drawn; those of the chosen token, than 0.004." in page.text("#view")


@pytest.mark.parametrize("values", [[math.nan], [math.nan] * 1500])
def test_a_chart_never_draws_nan_as_zero(open_page, values):
    q, k = torch.randn(1, 1, len(values), 4), torch.randn(1, 1, len(values), 4)
    q[0, 0, len(values) // 2] = math.nan
    page = open_page(a_page(hw.attention_map(q, k)), place="#view=statistics")
    drawn = page.asked(
        "(() => { const c = document.getElementById('entropies'), pen = c.getContext('2d');"
        " return Array.from(new Uint32Array(pen.getImageData(0, 0, c.width, c.height).data.buffer)); })()"
    )
    # red 205, green 60, blue 20, which nothing else on the page is
    assert 0xFF143CCD in drawn


def test_a_weight_below_the_scale_is_not_said_to_be_within_4_percent(open_page):
    bias = torch.zeros(3, 3)
    bias[1, 2] = -60.0
    made = hw.attention_map(torch.zeros(1, 1, 3, 2), torch.zeros(1, 1, 3, 2), attn_bias=bias)
    with patch.object(page_data, "EXACT_BYTES", 0):
        page = open_page(a_page(made), place="#view=map&token=1")
    for _ in range(3):
        page.tab.keyboard.press("ArrowRight")
    assert page.text(".tip").endswith("less than 2⁻²⁸")


def test_a_thousand_rows_that_see_nothing_are_drawn_at_once(open_page):
    page = open_page(a_page(a_map(H=1, Lq=1024, Lk=1024, D=2, mask=hw.lengths(torch.tensor([0])))), place="#view=map")
    took = page.tab.evaluate(
        "() => { const began = performance.now(); for (let n = 0; n < 5; n += 1)"
        " window.dispatchEvent(new Event('resize')); return (performance.now() - began) / 5; }"
    )
    assert took < 500


@pytest.mark.needs("transformers")
def test_a_page_of_a_text_whose_links_are_all_left_out_says_so(open_page, bert_folder):
    page = hw.look("it was.", model=bert_folder).page()
    assert "None is left: no word attends" in open_page(page).text(".links")
    # a page of another sample was asked for no links
    assert open_page(page.of_sample(0)).text(".links") == ""
    assert open_page(a_page(a_map())).text(".links") == ""
