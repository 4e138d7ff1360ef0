"""Number tables: what compare and head_effects give, on the page and as figures."""

import dataclasses
import io
import math
import re

import pytest
import torch
from torch import nn

import headwise as hw
from headwise.errors import ArgumentError
from headwise.pages.number_tables import _format_plain, tables_of
from headwise.wording import CHINESE, ENGLISH

pytestmark = pytest.mark.needs("matplotlib")
STARTS = {"svg": b"<?xml", "pdf": b"%PDF-", "png": b"\x89PNG"}


@pytest.fixture(scope="module")
def page():
    torch.manual_seed(3)
    model = nn.Sequential(hw.MultiHeadAttention(12, 2), hw.MultiHeadAttention(12, 4)).eval()
    x = torch.randn(1, 5, 12)
    with hw.watch(model) as before, torch.no_grad():
        model(x)
    with hw.watch(model) as after, torch.no_grad(), hw.intervene(model) as edits:
        edits.find("0").zero(heads=1)
        model(x)
    effects = hw.head_effects(model, x, lambda out: out.square().sum())
    return hw.look(before).with_table(hw.compare(before, after)).with_table(effects)


def test_the_page_holds_the_numbers_of_every_head(page):
    tables = page.to_dict()["tables"]
    assert [table["view"] for table in tables] == ["compare"] * 3 + ["effects"] * 2
    for table in tables:
        assert [len(row) for row in table["values"]] == [2, 4]
        assert all(isinstance(value, float) for row in table["values"] for value in row)
    # the first layer's weights are those before the edit
    assert tables[0]["values"][0] == [0.0, 0.0]
    assert max(tables[0]["values"][1]) > 0
    # a later table takes the place of an earlier one
    again = page.with_table(hw.compare(*[page_maps(page)] * 2))
    assert [table.view for table in again.tables] == ["effects"] * 2 + ["compare"] * 3
    assert again.tables[2].values == ((0.0, 0.0), (0.0, 0.0, 0.0, 0.0))


def page_maps(page):
    from headwise.maps.files import LoadedMaps

    return LoadedMaps({layer.name: layer.map for layer in page.layers}, None)


@pytest.mark.parametrize("form", STARTS)
@pytest.mark.parametrize("view", ["compare", "effects"])
def test_each_view_of_tables_goes_into_each_form(page, view, form):
    figure = page.plot_all(view=view)
    assert len(figure.axes) == {"compare": 3, "effects": 2}[view]
    out = io.BytesIO()
    figure.savefig(out, format=form)
    assert out.getvalue().startswith(STARTS[form])


def test_a_figure_shows_the_numbers_of_the_table(page):
    (ax, _) = page.plot_all(view="effects").axes
    table = page.tables[3]
    values = [value for row in table.values for value in row]
    assert [text.get_text() for text in ax.texts] == [table.form.write(value) for value in values]
    assert "which is" in ax.figure.get_suptitle()


@pytest.mark.parametrize(
    ("value", "largest", "text", "unit"),
    [(0.0123, 0.5, "12.3", "10⁻³"), (-0.00001, 0.5, "0.0", "10⁻³"), (3.21, 12.0, "3.21", ""), (-1.2, 1.3, "-1.200", ""),
     (250.0, 250.0, "250.0", ""), (0.00071, 0.00071, "710.0", "10⁻⁶"), (-0.0005, 0.071, "-0.50", "10⁻³"),
     (0.0, 0.0, "0.000", ""), (0.000999999, 0.000999999, "1.000", "10⁻³"), (0.99996, 0.99996, "1.000", ""),
     (9.9996, 9.9996, "10.00", ""), (31415.0, 31415.0, "31415", "")],
)  # fmt: skip
def test_effects_have_four_digits_of_the_largest(page, value, largest, text, unit):
    effects = hw.head_effects(hw.MultiHeadAttention(12, 3), torch.randn(1, 5, 12), lambda out: out.sum())
    scaled = dataclasses.replace(effects, estimated=None, measured=torch.tensor([[value, -largest, math.nan]]).double())
    (table,) = tables_of(scaled, metric="the sum")
    assert (table.form.write(value), table.form.unit) == (text, unit)
    assert table.caption("en") == ENGLISH[table.key] + (f", in units of {unit}" if unit else "")
    assert table.caption("zh") == CHINESE[table.key] + (f"，单位 {unit}" if unit else "")
    assert "to the sum, which is" in table.heading
    assert "对the sum的影响" in table.to_dict()["heading"]["zh"]


def test_differences_of_runs_have_places_for_the_largest(page):
    divergence, _, received = (table for table in page.tables if table.view == "compare")
    assert (received.form.power, received.form.unit) == (0, "")
    assert all(re.fullmatch(r"\d\.\d{2,}", received.form.write(value)) for row in received.values for value in row)
    # 2e-7 nats are not 0
    assert divergence.form.unit == "10⁻⁹"
    assert max(float(divergence.form.write(value)) for value in divergence.values[1]) > 100


@pytest.mark.parametrize(
    ("largest", "text", "unit"),
    [(0.034, "0.034", ""), (1.234, "1.23", ""), (1.2e-5, "0.000012", ""), (1e-9, "1.000", "10⁻⁹"),
     (-3.21e-6, "-3.210", "10⁻⁶"), (0.0, "0.00", "")],
)  # fmt: skip
def test_small_differences_are_not_written_as_zero(page, largest, text, unit):
    form = _format_plain([[0.0, largest, math.nan]])
    assert (form.write(largest), form.unit) == (text, unit)


def test_tables_of_other_heads_are_refused(page):
    other = hw.MultiHeadAttention(12, 3)
    effects = hw.head_effects(other, torch.randn(1, 5, 12), lambda out: out.sum())
    with pytest.raises(ArgumentError, match=r"heads of the page, \[2, 4\] in its layers, but is of \[3\]"):
        page.with_table(effects)
    with pytest.raises(ArgumentError, match="but dict came"):
        page.with_table({})
    with pytest.raises(ArgumentError, match=r"shows what hw\.compare gave"):
        hw.look(page_maps(page)).plot_all(view="compare")


def test_an_effect_that_is_not_known_is_none_on_the_page(page):
    effects = hw.head_effects(hw.MultiHeadAttention(12, 3), torch.randn(1, 5, 12), lambda out: out.sum() * math.nan)
    from headwise.pages.number_tables import tables_of

    assert tables_of(effects)[0].to_dict()["values"] == [[None, None, None]]
