"""A model that gives NaN can still be looked at: NaN is told and shown, and is never a link, a 0 or an error."""

import json
import math

import pytest
import torch

import headwise as hw
from headwise.pages.heat_map import pooled
from headwise.pages.nan_weights import numbers_or_none, said_of_nan
from tests.pages.small_models import BERT, SENTENCE, build, save


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """A model whose second layer has a query bias that is NaN in head 0."""
    model = build("Bert", **BERT)
    with torch.no_grad():
        model.get_parameter("encoder.layer.1.attention.self.query.bias")[0] = math.nan
    return save(tmp_path_factory.mktemp("broken") / "small-bert", model)


@pytest.mark.needs("transformers")
@pytest.mark.parametrize("asked", [{}, {"layer": 1, "head": 0}, {"query": "was"}], ids=["all", "layer", "query"])
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_nan_is_said_and_is_no_link(broken, asked, lang):
    seen = hw.look(SENTENCE, model=broken, lang=lang, **asked)
    assert seen.weights[1][0].isnan().all()
    rows = len(seen.tokens)
    assert all(link.weight > 0 for found in seen.links for link in (*found.links, *found.special))
    assert [note for note in seen.notes if "NaN" in note and str(rows) in note]
    assert "NaN" in str(seen)
    assert seen.links[0].links


@pytest.mark.needs("transformers")
def test_every_form_of_file_holds_it(broken, tmp_path):
    seen = hw.look(SENTENCE, model=broken, layer=1, head=0)
    weights = json.loads(json.dumps(seen.to_dict(), allow_nan=False))["maps"][0]["weights"]
    assert {weight for row in weights for weight in row} == {None}
    for suffix in ("html", "json", "txt", "svg"):
        hw.look(SENTENCE, model=broken, layer=1, head=0, output=tmp_path / f"a.{suffix}")
        assert (tmp_path / f"a.{suffix}").stat().st_size > 0
    json.loads((tmp_path / "a.json").read_text(encoding="utf-8"), parse_constant=pytest.fail)


def test_the_sentence_counts_rows_and_names_the_first():
    weights = {0: torch.rand(2, 3, 3), 4: torch.rand(5, 3, 3)}
    assert said_of_nan(weights, lang="en") == ()
    weights[4][3, 1, 2] = weights[4][3, 1, 0] = weights[4][4, 0, 0] = math.nan
    assert said_of_nan(weights, lang="en") == (
        "NaN: 2 of 21 rows of weights hold NaN, the first in layer 4, head 3; the model itself computed them.",
    )
    assert numbers_or_none(weights[4][3, 1:2, 2:]) == [[None]]


def test_a_block_of_the_terminal_that_holds_nan_is_nan():
    found = pooled([[0.1, 0.2, 0.3], [0.4, math.nan, 0.6], [0.5, 0.1, 0.0]], 2)
    assert math.isnan(found[0][0])
    assert found[0][1:] + found[1] == [0.6, 0.5, 0.0]
