"""Figures for a paper: axes in, axes out, and what is drawn is what the map says."""

import re

import pytest
import torch

import headwise as hw
from headwise.errors import ArgumentError
from headwise.wording import Refusal
from tests.pages.made import a_map, a_page, with_nan

pytestmark = pytest.mark.needs("matplotlib")


def drawn(ax):
    """What the first picture of some axes holds, hidden entries as NaN."""
    data = ax.images[0].get_array()
    return torch.tensor(data.filled(float("nan")).tolist())


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_one_head_is_drawn_as_it_is(scale):
    made = a_map(B=2, mask=hw.causal())
    ax = made.plot(head=1, sample=1, scale=scale)
    weights = made[1, 1].masked_fill(made.logits[1, 1] == float("-inf"), float("nan"))
    wanted = weights.clamp(min=1e-3) if scale == "log" else weights
    torch.testing.assert_close(drawn(ax), wanted, equal_nan=True)


def test_without_a_head_the_mean_of_all_is_drawn_and_says_so():
    made = a_map()
    ax = made.plot()
    torch.testing.assert_close(drawn(ax), made.mean_heads()[0, 0])
    assert "mean of its heads" in ax.get_title()


def test_axes_that_are_given_are_drawn_on_and_given_back():
    from matplotlib.figure import Figure

    figure = Figure()
    ax = figure.subplots()
    assert a_map().plot(head=0, ax=ax) is ax
    assert len(ax.images) == 1


def test_tokens_are_the_labels_and_are_not_read_as_formulas():
    ax = a_map(Lq=3, Lk=3).plot(head=0, tokens=["$x^2$", "a" * 40, "_"])
    ax.figure.canvas.draw()
    labels = [label.get_text() for label in ax.get_xticklabels()]
    assert labels == ["$x^2$", "a" * 15 + "…", "_"]
    assert not any(label.get_parse_math() for label in ax.get_yticklabels())


def test_nan_is_marked():
    ax = with_nan(row=2).plot(head=0)
    (marks,) = ax.collections
    assert sorted(marks.get_offsets().tolist()) == [[0.0, 2.0], [1.0, 2.0], [2.0, 2.0]]


def test_a_long_map_is_pooled_by_its_largest_weights():
    made = a_map(H=1, Lq=1500, Lk=1300)
    ax = made.plot(head=0)
    torch.testing.assert_close(drawn(ax), made.pooled(1024, 1024, how="max")[0, 0])


def test_all_heads_of_all_layers_are_one_figure():
    attn = hw.MultiHeadAttention(12, 3)
    with hw.watch(attn) as seen:
        attn(torch.randn(1, 5, 12), mask=hw.causal())
        attn(torch.randn(1, 4, 12))
    figure = seen.plot()
    pictures = [ax for ax in figure.axes if ax.images and ax.images[0].get_array().shape[0] in (4, 5)]
    assert len(pictures) == 6


@pytest.mark.parametrize(
    ("given", "error", "sentence"),
    [
        ({"scale": "sqrt"}, ArgumentError, "one of linear, log; got 'sqrt'"),
        ({"head": 3}, Refusal, "from 0 to 2, since layer 0 has 3, but 3 came"),
        ({"sample": 1}, ArgumentError, "1 samples; got 1"),
    ],
)
def test_what_cannot_be_drawn_is_refused(given, error, sentence):
    with pytest.raises(error, match=sentence):
        a_map().plot(**given)


def test_the_same_figure_is_the_same_file(tmp_path):
    from headwise.pages.files import save_figure

    files = [tmp_path / f"{name}.svg" for name in "ab"]
    for file in files:
        save_figure(a_page(a_map()).plot(layer=0, head=1).figure, file, force=False)
    assert files[0].read_bytes() == files[1].read_bytes()
    assert re.search(rb"<svg ", files[0].read_bytes())
