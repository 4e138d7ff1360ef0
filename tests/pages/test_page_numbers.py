"""The numbers that the page shows are those of the tensor, within what the page says of itself."""

import math

import pytest
import torch

import headwise as hw
from headwise.pages.weight_codes import decoded
from tests.pages.made import a_map, a_page, with_nan

MASKS = {
    "none": None,
    "causal": hw.causal(),
    "empty rows": hw.lengths(torch.tensor([[4, 0, 8, 1, 0, 5]])) & hw.causal(),
}


def numbers(page, layer, head, size):
    """Every weight as the page reads it, NaN as None."""
    script = (
        f"Array.from({{ length: {size[0]} }}, (_, i) => Array.from({{ length: {size[1]} }}, (_, j) => "
        f"window.headwise.weight({layer}, {head}, i, j).weight))"
    )
    return torch.tensor([[math.nan if x is None else x for x in row] for row in page.asked(script)])


def test_the_page_decodes_every_byte_as_python_does(open_page):
    page = open_page(a_page(a_map()))
    theirs = page.asked("Array.from({ length: 256 }, (_, code) => window.headwise.weightOf(code))")
    ours = decoded(torch.arange(256, dtype=torch.uint8)).double()
    torch.testing.assert_close(
        torch.tensor([math.nan if x is None else x for x in theirs])[:254].double(), ours[:254], rtol=1e-5, atol=0.0
    )
    assert theirs[255] is None or math.isnan(theirs[255])


@pytest.mark.parametrize("mask", MASKS)
def test_small_maps_are_carried_exactly(open_page, mask):
    made = a_map(Lq=6, Lk=8, mask=MASKS[mask])
    page = open_page(a_page(made))
    for head in range(3):
        rows = torch.stack([made[0, :, row][head] for row in range(6)])
        assert torch.equal(numbers(page, 0, head, (6, 8)).float(), rows)


def test_the_page_of_a_sentence_carries_every_row_exactly(open_page, animal_page, animal):
    page = open_page(animal_page)
    read = page.asked("window.headwise.weight(5, 11, 15, 3)")
    assert read["isExact"] is True
    assert read["weight"] == float(animal.maps[5][1][0, :, 15][11, 3])


def test_larger_maps_are_at_most_4_percent_off_and_chosen_rows_exact(open_page):
    made = a_map(H=2, Lq=130, Lk=150, mask=hw.causal())
    page = open_page(a_page({"first": a_map(H=2), "second": made}, query="17", layer=[1]))
    read = numbers(page, 1, 1, (130, 150))
    weights = made[0, 1]
    seen = weights > 2.0**-28
    assert float(((read - weights).abs() / weights)[seen].max()) < 0.04
    assert float(read[weights == 0].abs().max()) == 0.0
    exact = made[0, :, 17][1]
    assert torch.equal(read[17].float(), exact)
    assert not torch.allclose(read[18].float(), weights[18], rtol=1e-3)


def test_a_pooled_page_shows_the_largest_of_each_block_and_says_so(open_page):
    made = a_map(H=3, Lq=300, Lk=300, mask=hw.causal())
    page = open_page(a_page(made, query="299"), max_mb=0.31)
    block = page.asked("window.headwise.header.layers[0].block")
    assert block[0] == block[1] > 1
    codes = torch.tensor(page.asked("window.headwise.codes(0, 2)"), dtype=torch.uint8)
    size = page.asked("window.headwise.header.layers[0].size")
    pooled = torch.nn.functional.max_pool2d(made[:1, 2], block[0], ceil_mode=True)[0]
    read = decoded(codes.view(size))
    assert float(((read - pooled).abs() / pooled.clamp(min=2.0**-28))[pooled > 2.0**-28].max()) < 0.04
    assert torch.equal(torch.tensor(page.asked("window.headwise.row(0, 2, 299)")).float(), made[0, :, 299][2])
    page.view("map")
    assert f"largest of {block[0]} × {block[1]} weights" in page.text("#shown")
    assert "carried exactly, as float32: 1." in page.text("#shown")


def test_what_is_said_of_a_row_is_its_entropy_and_its_sum(open_page):
    made = a_map(Lq=6, Lk=6, mask=hw.causal())
    page = open_page(a_page(made), place="#view=row&layer=0&head=2&token=4")
    facts = page.text(".facts")
    entropy = float(made.entropy()[0, 2, 4])
    assert f"{entropy:.3f} nats" in facts
    assert "1.0000" in facts
    assert "exact, float32" in facts
    shown = page.asked("[...document.querySelectorAll('.text .piece')].map((each) => each.dataset.weight)")
    assert shown[5] == "masked"
    assert [float(x) for x in shown[:5]] == pytest.approx(made[0, 2, 4, :5].tolist(), abs=1e-7)


def test_statistics_are_those_of_the_map(open_page):
    made = {"one": a_map(H=3, Lq=6, Lk=6, seed=1), "two": a_map(H=2, Lq=6, Lk=6, seed=2)}
    page = open_page(a_page(made), place="#view=statistics")
    cells = page.asked(
        "[...document.querySelectorAll('.tables table')].map((table) => [...table.querySelectorAll('tbody tr')]"
        ".map((row) => [...row.querySelectorAll('td')].map((cell) => cell.textContent)))"
    )
    entropies = [[f"{float(x):.1f}" for x in m.entropy()[0].mean(-1)] for m in made.values()]
    distances = [[f"{float(x):.1f}" for x in m.distance()[0]] for m in made.values()]
    assert cells == [entropies, distances]
    received = made["one"].received()[0, 0]
    best = int(received.argmax())
    assert f"{best} {float(received[best]):.2f}" in page.text(".charts")


def test_nan_is_shown_as_nan_and_never_as_zero(open_page):
    page = open_page(a_page(with_nan(row=2)), place="#view=row&head=0&token=2")
    assert "the model itself computed NaN" in page.text(".facts")
    kinds = page.asked("[...document.querySelectorAll('.text .piece')].map((each) => each.dataset.weight)")
    assert kinds == ["nan"] * 3 + ["masked"] * 3
    assert "Rows that hold NaN: 1." in page.text("#shown")


def test_an_empty_row_is_shown_as_one(open_page):
    page = open_page(a_page(a_map(Lq=5, Lk=3, mask=hw.causal())), place="#view=row&token=1")
    assert "row that may attend to nothing" in page.text(".facts")
    assert "It attends to nothing." in page.text("#view")
    assert "Rows that may attend to nothing: 6." in page.text("#shown")


def test_joined_words_share_out_the_same_weight(open_page, animal_page, animal):
    page = open_page(animal_page, place="#view=map&layer=3&head=1&token=10")
    page.tab.check("#joined")
    label = page.asked("document.getElementById('map').getAttribute('aria-label')")
    words = len(animal.words) + 2
    assert f"{words} rows, {words} columns" in label
    page.tab.keyboard.press("j")
    assert "16 rows, 16 columns" in page.asked("document.getElementById('map').getAttribute('aria-label')")
