"""The axes that docstrings name, none of which a call is found with one entry for."""

import pytest
import torch
from torch import nn

from headwise.calls import find, parameters
from headwise.calls.documented_axes import documented_axes, documented_calls


class Mixes(nn.Module):
    """Mixes parts into words.

    words: (batch, n, width); parts [batch, m, width]
    """

    def __init__(self, width):
        super().__init__()
        self.w = nn.Linear(width, width)

    def forward(self, words, parts, real, scale=1.0):
        """real (batch, n): 1 = real. scale: a number (or none)."""
        scores = self.w(words) @ parts.transpose(1, 2) * scale
        return scores.masked_fill(real[:, None] == 0, -1e9).softmax(-1) @ parts * real[..., None]


def test_each_argument_has_the_names_of_its_axes():
    assert documented_axes(Mixes, ["words", "parts", "real", "scale", "other"]) == {
        "words": ("batch", "n", "width"),
        "parts": ("batch", "m", "width"),
        "real": ("batch", "n"),
    }


@pytest.mark.parametrize("text", ["x: (2, 3)", "x: (batch, 2 * n)", "x: a tensor", "x: (batch)", "y: (b, n)"])
def test_what_is_no_shape_of_names_is_left(text):
    def forward(x):
        return x

    forward.__doc__ = text
    assert documented_axes(forward, ["x"]) == {}


def test_no_axis_with_a_name_is_called_with_one_entry():
    plans = find(Mixes, namespace={"torch": torch, "nn": nn}).plans
    assert plans
    shapes = [shape for plan in plans for shape in plan.call.values() if isinstance(shape, list)]
    masks = [plan.call["_mask"]["shape"] for plan in plans if "_mask" in plan.call]
    assert [shape for shape in (*shapes, *masks) if "1" in map(str, shape)] == []


class Series(nn.Module):
    """Forecasts (batch, steps, channels).

    series: (batch, steps, channels), day: (batch, steps) token ids
    """

    def __init__(self, channels=3, width=8):
        super().__init__()
        self.w = nn.Linear(channels, width)

    def forward(self, series, day, near, rate=None):
        # near (batch, steps, steps) and more
        return self.w(series) + near.sum(-1, keepdim=True) + day[..., None]


def test_a_call_has_the_sizes_that_words_name():
    call = next(documented_calls(Series, ["series", "day", "near"], parameters(Series)))
    assert call == {
        "series": ["B", "L", 3],
        "day": {"_ids": ["B", "L"], "below": "5"},
        "near": ["B", "L", "L"],
    }


def test_where_an_argument_is_not_told_there_is_no_call():
    assert list(documented_calls(Series, ["series", "day", "near", "rate"], parameters(Series))) == []


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("x: (B, H, W, C)", ["B", "h", "w", "D"]),
        ("x: (N, T, dim)", ["B", "L", "D"]),
        ("x: [b, n_heads, q, k]", ["B", "H", "L", "S"]),
        ("x: (batch, n, 3)", ["B", "L", 3]),
    ],
)
def test_words_of_axes_have_their_usual_meaning(text, shape):
    def forward(x):
        return x

    forward.__doc__ = text
    assert list(documented_calls(forward, ["x"], [])) == [{"x": shape}]
