"""The steps of one layer on a growing sequence are one layer to look and rollout, of a run and of a file."""

import pytest
import torch
from torch import nn

import headwise as hw
from headwise.analysis import rollout
from headwise.maps import load_maps
from headwise.testing import assert_within_budget
from headwise.watching import watch
from headwise.watching.sequences import layers_of
from tests.watching.models import Attend, made, x


class Decoder(nn.Module):
    """Two layers that decode: a prompt of 4 tokens, then one token a step."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.layers = nn.ModuleList(hw.MultiHeadAttention(12, 3).eval() for _ in range(2))

    def forward(self, y, caches=(None, None)):
        for layer, cache in zip(self.layers, caches, strict=True):
            y = y + layer(y, mask=hw.causal(), cache=cache)
        return y


def decoded(model, y):
    """What is seen of a sequence (B, L, 12) that is read step by step."""
    caches = [layer.cache() for layer in model.layers]
    with torch.no_grad(), watch(model) as seen:
        for start, stop in ((0, 4), *((n, n + 1) for n in range(4, y.shape[1]))):
            model(y[:, start:stop], caches)
    return seen


def test_the_steps_of_a_layer_are_one_layer():
    model, y = Decoder(), x(3, 8)
    seen = decoded(model, y)
    assert len(seen.in_order()) == 10
    assert [(name, tuple(made.shape)) for name, made in layers_of(seen)] == [
        ("layers.0", (3, 3, 8, 8)),
        ("layers.1", (3, 3, 8, 8)),
    ]
    assert "2 layers" in repr(hw.look(seen))
    # what has been computed of the whole is there the next time
    assert [made for _, made in layers_of(seen)] == [made for _, made in layers_of(seen)]


def test_rollout_of_the_steps_is_that_of_the_whole_sequence(tmp_path):
    model, y = Decoder(), x(3, 8)
    seen = decoded(model, y)
    with torch.no_grad(), watch(model) as whole:
        model(y)
    with torch.no_grad(), watch(model.double()) as exact:
        model(y.double())
    seen.save(tmp_path / "maps.safetensors")
    loaded = load_maps(tmp_path / "maps.safetensors")
    assert len(loaded) == 10
    assert "2 layers" in repr(hw.look(loaded))
    wanted, plain = rollout(exact, token=6), rollout(whole, token=6)
    for maps in (seen, loaded):
        assert_within_budget(rollout(maps, token=6), wanted, plain)


def test_more_steps_make_a_longer_sequence():
    model, y = Decoder(), x(3, 8)
    caches = [layer.cache() for layer in model.layers]
    with torch.no_grad(), watch(model) as seen:
        for start in range(0, 8, 2):
            model(y[:, start : start + 2], caches)
            assert [made.shape[2] for _, made in layers_of(seen)] == [start + 2] * 2


@pytest.mark.parametrize("size", [5, 1])
def test_a_module_that_serves_as_several_layers_is_several(size):
    shared = made(Attend)
    model = nn.Sequential(shared, made(Attend), shared)
    with torch.no_grad(), watch(model) as seen:
        model(x(3, size))
    assert [name for name, _ in layers_of(seen)] == ["0", "1", "0"]
