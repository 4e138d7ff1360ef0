"""A map is timed where its numbers are right, and a watched model where watching changes nothing."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import headwise as hw
from benchmarks import maps, minilm
from benchmarks.harness import Absent, WrongNumbersError
from benchmarks.kernels import Shape
from benchmarks.maps import one_row, reductions, watched, watched_case
from headwise.wording import refusal

SMALL = Shape(L=9, H=3, D=5)
BUILT = {
    "known": lambda: reductions(SMALL, is_lse_known=True),
    "unknown": lambda: reductions(SMALL, is_lse_known=False),
    "row": lambda: one_row(SMALL),
}


class Model(nn.Module):
    """Embeds and attends as many times as it has layers."""

    def __init__(self, layers=2):
        super().__init__()
        self.embed = nn.Embedding(11, 12)
        self.layers = nn.Sequential(*(hw.MultiHeadAttention(12, 3) for _ in range(layers)))

    def forward(self, ids):
        return SimpleNamespace(last_hidden_state=self.layers(self.embed(ids)))


class Named(nn.Module):
    """One layer whose projections bear BERT's names."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 12)
        self.layer = nn.ModuleDict({"query": nn.Linear(12, 12), "key": nn.Linear(12, 12)})

    def forward(self, ids):
        x = self.embed(ids)
        return SimpleNamespace(last_hidden_state=self.layer["query"](x) @ self.layer["key"](x).mT)


def holding_model():
    torch.manual_seed(0)
    return maps.holding_case(Named(), torch.arange(7)[None], 1, shape="one layer, L=7")


def watched_model(layers=2):
    return watched_case(Model().eval(), torch.arange(7)[None], layers, shape="two layers, L=7")


@pytest.mark.parametrize("name", BUILT)
def test_a_map_gives_the_numbers_of_the_dense_map(name):
    case = BUILT[name]()
    assert case.check() is None
    assert len(case.ours()) == (1 if name == "row" else 3)
    assert case.theirs()[0].shape == ((9,) if name == "row" else (1, 3, 9, 5))


@pytest.mark.parametrize("name", BUILT)
def test_the_map_of_other_queries_is_refused(name, monkeypatch):
    right = maps.attention_map
    monkeypatch.setattr(maps, "attention_map", lambda q, k, **more: right(q * 1.01, k, **more))
    with pytest.raises(WrongNumbersError, match="ours is wrong in tensor 0"):
        BUILT[name]().check()


def test_the_lse_that_is_given_does_not_enter_what_is_read_of_whole_rows(monkeypatch):
    right, given = maps.lse_of_kernel, []
    monkeypatch.setattr(maps, "lse_of_kernel", lambda *qkv: given.append(right(*qkv) + 0.01) or given[-1])
    case = BUILT["known"]()
    case.check()
    assert len(given) == 1


def test_no_reading_is_left_from_the_call_before(monkeypatch):
    made = []
    right = maps.attention_map
    monkeypatch.setattr(maps, "attention_map", lambda *inputs, **more: made.append(1) or right(*inputs, **more))
    case = BUILT["unknown"]()
    case.ours(), case.ours()
    assert len(made) == 2


def test_watching_that_changes_nothing_and_sees_every_layer_passes():
    case = watched_model()
    assert case.check() is None
    assert torch.equal(case.ours()[0], case.theirs()[0])


def test_watching_that_changes_the_output_is_refused(monkeypatch):
    @contextmanager
    def meddling(model):
        handle = model.layers.register_forward_hook(lambda module, inputs, out: out * (1 + 2**-20))
        yield [None, None]
        handle.remove()

    monkeypatch.setattr(maps, "watch", meddling)
    with pytest.raises(WrongNumbersError, match="ours changes the output of the model"):
        watched_model().check()


def test_watching_that_misses_a_layer_is_refused():
    with pytest.raises(WrongNumbersError, match="ours sees 2 maps, but the model has 3 layers"):
        watched_model(layers=3).check()


@pytest.mark.needs("transformers", "minilm", "safetensors")
def test_the_embedded_model_passes():
    case = watched(tokens=8)
    assert case.check() is None
    assert case.shape == "MiniLM, B=1 L=8"


def test_without_transformers_the_case_is_one_line(monkeypatch):
    monkeypatch.setattr(minilm, "is_installed", lambda name: False)
    line = "not installed: pip install '.[models]' in the folder of headwise"
    assert watched(tokens=8) == Absent("watched forward", "unwatched", "MiniLM, B=1 L=8", line)


@pytest.mark.needs("transformers")
def test_without_the_model_the_case_is_one_line_of_what_to_install(monkeypatch):
    def refuse():
        raise refusal("refuse.extra", package="a model", extra="models")

    monkeypatch.setattr(minilm, "embedded_folder", refuse)
    found = watched(tokens=8)
    assert (type(found), found.reason) == (Absent, str(refusal("refuse.extra", package="a model", extra="models")))


def test_the_group_passes_its_checks_at_a_64th_of_its_lengths(monkeypatch):
    monkeypatch.setattr(maps, "Shape", lambda L: Shape(L // 64))
    made = {None: watched_model, maps.holding_case: holding_model}
    monkeypatch.setattr(maps, "watched", lambda *, tokens, target=None, make=None: made[make]())
    cases = list(maps.maps())
    assert [case.check() for case in cases] == [None] * 5
    assert len({(case.name, case.shape) for case in cases}) == 5
    assert [case.quantity.name for case in cases] == [*["ours/theirs"] * 2, "ours", *["ours/theirs"] * 2]


def test_holding_queries_and_keys_leaves_no_hook_and_counts_them():
    model, case = Named(), holding_model()
    assert torch.equal(case.ours()[0], case.theirs()[0])
    maps.holding_case(model, torch.arange(7)[None], 1, shape="").ours()
    assert not any(part._forward_hooks for part in model.modules())
    with pytest.raises(WrongNumbersError, match="ours holds 2 tensors, but 3 layers have 6"):
        maps.holding_case(model, torch.arange(7)[None], 3, shape="").check()
