"""Rollout against its definition, on dense matrices."""

from importlib import import_module

import pytest
import torch
from torch import nn

import headwise as hw
from headwise.analysis import rollout
from headwise.errors import ArgumentError
from headwise.maps import load_maps
from headwise.testing import assert_within_budget
from headwise.watching import watch
from tests.watching.models import Attend, Handmade, made, x

# headwise.analysis.token_flow is the function
ROLLOUT = import_module("headwise.analysis.token_flow")


class Causal(hw.MultiHeadAttention):
    def forward(self, y):
        return super().forward(y, mask=hw.causal() & hw.keys(self.keep))


@pytest.fixture
def seen():
    torch.manual_seed(6)
    sink = hw.DotProduct(sink="zero")
    model = nn.Sequential(hw.MultiHeadAttention(12, 3), Causal(12, 2), hw.MultiHeadAttention(12, 4, score=sink))
    # the first token of a sample is padding, so that its row of the second layer is empty
    model[1].keep = torch.ones(3, 5, dtype=torch.bool)
    model[1].keep[2, 0] = False
    with torch.no_grad(), watch(model) as found:
        model(x())
    return found


def by_definition(seen, dtype):
    product = torch.eye(5, dtype=dtype)
    for weights in seen.to_attentions():
        layer = weights.to(dtype).mean(dim=1) + torch.eye(5, dtype=dtype)
        product = (layer / layer.sum(-1, keepdim=True)) @ product
    return product


@pytest.mark.parametrize(("strip", "few"), [(1, 5), (ROLLOUT.STRIP, 5), (1, 0)])
@pytest.mark.parametrize("token", [0, 3, -1])
def test_rollout_is_a_row_of_the_product_of_all_layers(seen, token, strip, few, monkeypatch):
    monkeypatch.setattr(ROLLOUT, "STRIP", strip)
    monkeypatch.setattr(ROLLOUT, "FEW", few)
    got = rollout(seen, token=token)
    assert_within_budget(
        got, by_definition(seen, torch.float64)[:, token], by_definition(seen, torch.float32)[:, token]
    )


def test_a_layer_that_could_not_be_watched_is_not_passed_over_in_silence():
    model = nn.Sequential(made(Attend), made(Handmade), made(Attend))
    with torch.no_grad(), watch(model) as found:
        model(x())
    with pytest.raises(ArgumentError, match=r'every layer, but 1 could not be watched: "1" computes a softmax'):
        rollout(found, token=0)
    exact, plain = (by_definition(found, dtype)[:, 0] for dtype in (torch.float64, torch.float32))
    assert_within_budget(rollout(found, token=0, skip_unseen=True), exact, plain)


def test_a_token_that_is_not_there_is_refused(seen):
    with pytest.raises(ArgumentError, match=r"token must lie in -5..4, as there are L=5 tokens; got 5"):
        rollout(seen, token=5)


def test_maps_of_several_stacks_are_refused():
    model = made(Attend)
    with watch(model) as seen:
        pass
    with pytest.raises(ArgumentError, match="seen is empty"):
        rollout(seen, token=0)
    with watch(model) as seen:
        model(x())
        model(x(3, 7))
    with pytest.raises(ArgumentError, match=r'\(B=3, H, L=5, L=5\), but "" gave \(3, 2, 7, 7\)'):
        rollout(seen, token=0)


@pytest.mark.needs("safetensors")
def test_rollout_through_a_file_is_that_of_the_run_in_its_order(tmp_path):
    first, second = made(Attend), made(Attend)
    model = nn.Sequential(first, second, first)
    with torch.no_grad(), watch(model) as found:
        model(x())
    found.save(tmp_path / "maps.safetensors")
    again = load_maps(tmp_path / "maps.safetensors")
    assert list(again) == ["0[0]", "1", "0[1]"]
    assert torch.equal(rollout(again, token=2), rollout(found, token=2))
    with pytest.raises(ArgumentError, match="goes through what watch or load_maps gives, but dict came"):
        rollout(dict(again), token=2)


@pytest.mark.needs("safetensors")
def test_a_file_remembers_what_could_not_be_watched(tmp_path):
    model = nn.Sequential(made(Attend), made(Handmade))
    with torch.no_grad(), watch(model) as found:
        model(x())
    found.save(tmp_path / "maps.safetensors")
    again = load_maps(tmp_path / "maps.safetensors")
    assert dict(again.unseen) == dict(found.unseen)
    with pytest.raises(ArgumentError, match=r'every layer, but 1 could not be watched: "1" computes a softmax'):
        rollout(again, token=0)
    assert torch.equal(rollout(again, token=0, skip_unseen=True), rollout(found, token=0, skip_unseen=True))
