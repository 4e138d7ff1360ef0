"""Each view of the page as a figure: its numbers are the map's, and each goes into SVG, PDF and PNG."""

import io
import re

import pytest
import torch

import headwise as hw
from headwise.errors import ArgumentError
from headwise.pages.colours import HEADS
from headwise.pages.views import MOST_LINES, VIEWS, VIEWS_OF_ALL
from tests.arrow import SRC
from tests.pages.made import a_map, a_page, with_nan

pytestmark = pytest.mark.needs("matplotlib")

NAMES = {"queries": list("abcde"), "keys": list("tuvwxyz")}
STARTS = {"svg": b"<?xml", "pdf": b"%PDF-", "png": b"\x89PNG"}


def as_file(figure, form):
    out = io.BytesIO()
    figure.savefig(out, format=form)
    return out.getvalue()


@pytest.mark.parametrize("form", STARTS)
@pytest.mark.parametrize("view", VIEWS)
def test_each_view_of_a_map_goes_into_each_form(view, form):
    figure = a_map().plot(view=view, head=1, tokens=NAMES).figure
    assert as_file(figure, form).startswith(STARTS[form])


@pytest.mark.parametrize("form", STARTS)
@pytest.mark.parametrize("view", VIEWS_OF_ALL)
def test_each_view_of_a_watch_goes_into_each_form(view, form):
    attn = hw.MultiHeadAttention(12, 3)
    with hw.watch(attn) as seen:
        attn(torch.randn(2, 5, 12), mask=hw.causal())
    assert as_file(seen.plot(view=view, sample=1), form).startswith(STARTS[form])


def heights(ax):
    return [bar.get_height() for bar in ax.patches]


def test_a_row_is_the_row_of_the_map():
    made = a_map(B=2)
    ax = made.plot(view="row", head=2, token=3, sample=1, tokens=NAMES)
    assert heights(ax) == pytest.approx(made[1, 2, 3].tolist())
    assert [each.get_text() for each in ax.get_xticklabels()] == NAMES["keys"]
    assert ax.get_title() == "Layer 0 · Head 2 · 3 d · Sample 1"
    assert heights(made.plot(view="row")) == pytest.approx(made.mean_heads()[0, 0, 0].tolist())


def test_sums_are_those_of_the_map():
    made = a_map(B=2, mask=hw.causal())
    assert heights(made.plot(view="entropy", head=1)) == pytest.approx(made.entropy()[0, 1].tolist())
    assert heights(made.plot(view="received", sample=1)) == pytest.approx(made.received()[1].mean(0).tolist())


def test_lines_go_to_what_is_looked_at_each_head_in_its_colour():
    from matplotlib.colors import to_hex

    made = a_map(mask=hw.causal())
    ax = made.plot(view="heads", head=1, token=2, tokens=NAMES)
    ends = {tuple(map(tuple, patch.get_path().vertices[[0, -1]].tolist())) for patch in ax.patches}
    weights = made[0, 1, 2]
    assert ends == {((0.0, 2.0), (1.0, float(j))) for j in range(7) if weights[j] >= 0.01}
    assert {to_hex(patch.get_edgecolor()) for patch in ax.patches} == {HEADS[1]}
    every = made.plot(view="heads", tokens=NAMES)
    assert {to_hex(patch.get_edgecolor()) for patch in every.patches} == set(HEADS[:3])
    assert len(every.patches) == int((made[0] >= 0.01).sum())


def test_colours_of_heads_are_those_of_the_page():
    script = (SRC / "pages" / "assets" / "source" / "colours.js").read_text(encoding="utf-8")
    listed = re.search(r"HEADS = \[(.*?)\]", script, re.DOTALL)[1]
    assert tuple(re.findall(r'"(#\w+)"', listed)) == HEADS


def test_statistics_say_each_heads_numbers():
    made = {"x": a_map(B=2), "y": a_map(B=2, H=2, seed=1)}
    left, right = a_page(made).of_sample(1).plot_all(view="statistics").axes
    for ax, values in (
        (left, [each.entropy()[1].mean(-1) for each in made.values()]),
        (right, [each.distance()[1] for each in made.values()]),
    ):
        assert [each.get_text() for each in ax.texts] == [f"{value:.1f}" for row in values for value in row.tolist()]


def test_nan_and_rows_without_keys_are_drawn():
    ax = with_nan(row=3).plot(view="row", head=0, token=3)
    assert len(ax.collections[0].get_offsets()) == 4
    assert heights(ax) == [0.0] * 6
    figure = a_page(with_nan(row=3)).plot_all(view="statistics")
    assert figure.axes[0].texts[0].get_text() == "NaN"
    assert heights(a_map(mask=hw.lengths(torch.tensor([0]))).plot(view="row")) == [0.0] * 7


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"view": "overview"}, "one of map, heads, row, entropy, received to be drawn on axes; got 'overview'"),
        ({"view": "row", "token": 5}, r"token must lie in 0\.\.4, since there are 5 queries; got 5"),
        ({"view": "map", "token": 1}, 'a token is of the views "heads" and "row"; got token=1'),
        ({"view": "heads", "scale": "log"}, "only a map or a row has a scale"),
    ],
)
def test_what_a_view_does_not_read_is_refused(options, said):
    with pytest.raises(ArgumentError, match=said):
        a_map().plot(**options)


def test_too_many_lines_and_pages_without_maps_are_refused():
    from headwise.pages.page import Page
    from headwise.pages.steps import worked_example

    with pytest.raises(ArgumentError, match=f"at most {MOST_LINES} tokens, but 161 came"):
        a_map(Lq=161, Lk=161).plot(view="heads")
    empty = Page(title="steps", layers=(), sides=(), steps=worked_example())
    for draw in (empty.plot, empty.plot_all, lambda: empty.plot(view="row"), lambda: empty.plot_all(view="statistics")):
        with pytest.raises(ArgumentError, match="this page has none, only steps"):
            draw()


def test_rows_that_may_attend_to_nothing_count_in_no_mean_and_are_no_bars_of_zero():
    made = a_map(H=2, Lq=6, Lk=6, mask=hw.lengths(torch.tensor([[4, 0, 3, 0, 6, 6]])))
    maps = {"some": made, "none": a_map(H=2, Lq=6, Lk=6, mask=hw.lengths(torch.tensor([0])))}
    page = a_page(maps)
    figure = page.plot_all(view="statistics")
    texts = [text.get_text() for text in figure.axes[0].texts]
    means = made.entropy()[0][:, [0, 2, 4, 5]].mean(-1)
    assert texts == [*(f"{float(mean):.1f}" for mean in means), "–", "–"]
    assert [text.get_text() for text in figure.axes[1].texts][2:] == ["–", "–"]
    marks = page.plot(view="entropy", layer=0, head=1).collections
    assert [mark.get_offsets()[:, 0].tolist() for mark in marks] == [[1.0, 3.0]]
