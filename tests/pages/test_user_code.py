"""hw.look of code: a class, a function or a module in memory, or the name of one, as the command line shows it."""

import functools
import json
import math
import re

import pytest
import torch
from torch import nn

import headwise as hw
from headwise.errors import ArgumentError, InputError
from headwise.pages.code_inputs import say_inputs
from headwise.pages.user_code import look_at_code

SOURCE = """
import math
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.qkv = heads, nn.Linear(dim, 3 * dim)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        B, L, D = x.shape
        q, k, v = (t.view(B, L, self.heads, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        weights = nn.functional.dropout(scores.softmax(-1), 0.5, self.training)
        return (weights @ v).transpose(1, 2).reshape(B, L, D)
"""
INIT, CALL = {"dim": 12, "heads": 3}, {"x": ["B", "L", "D"]}


def broken(x):
    raise KeyError("nothing")


@pytest.fixture
def named(tmp_path, monkeypatch):
    """The class and the name of its file, which is that of the folder in which the test runs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "attn.py").write_text(SOURCE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "attn", raising=False)
    return __import__("attn").Attention, "attn.py:Attention"


def test_a_class_and_its_name_give_the_same_maps(named):
    kind, name = named
    here, there = hw.look(functools.partial(kind, **INIT), call=CALL), look_at_code(name, init=INIT, call=CALL)
    assert (here.init, here.call, here.sizes, here.tokens) == (there.init, there.call, there.sizes, there.tokens)
    assert (here.target, there.target, list(here.maps)) == ("Attention", name, list(there.maps))
    assert here.maps["Attention"].shape == (2, 3, 11, 11)
    # what is read from a file lies in another order in memory
    assert torch.allclose(here.maps["Attention"].dense(), there.maps["Attention"].dense())
    assert str(here).splitlines()[2:] == str(there).splitlines()[2:]


def test_a_module_is_looked_at_with_its_own_weights(named):
    module = named[0](12, 3)
    with torch.no_grad():
        # no query prefers a key to another
        module.qkv.weight[:12], module.qkv.bias[:12] = 0.0, 0.0
    seen = hw.look(module, call=CALL)
    assert torch.allclose(seen.maps["Attention"].dense(), torch.full((2, 3, 11, 11), 1 / 11))
    assert "with its own weights" in str(seen)
    assert "with its own weights" not in str(hw.look(functools.partial(named[0], **INIT)))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_module_stays_as_it_was_and_so_does_torch(named, dtype):
    module = named[0](12, 3).to(dtype).train()
    before, state = {name: each.clone() for name, each in module.state_dict().items()}, torch.get_rng_state()
    with torch.inference_mode():
        seen = hw.look(module)
    assert module.training
    assert all(torch.equal(each, before[name]) for name, each in module.state_dict().items())
    assert {each.dtype for each in module.state_dict().values()} == {dtype}
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.allclose(seen.maps["Attention"].dense().sum(-1), torch.ones(2, 3, 11))


class Table(nn.Module):
    """Attention over the rows of an embedding table."""

    def __init__(self, vocab=29, width=12):
        super().__init__()
        self.rows = nn.Embedding(vocab, width)

    def forward(self, ids):
        x = self.rows(ids)
        return (x @ x.mT / x.shape[-1] ** 0.5).softmax(-1) @ x


@pytest.mark.parametrize(
    ("target", "inputs"),
    [(functools.partial(nn.MultiheadAttention, 12, 3, batch_first=True), "random embeddings"),
     (Table, "random token ids")],
)  # fmt: skip
def test_random_inputs_are_positions_and_bear_no_words(target, inputs):
    seen = hw.look(target)
    (layer_map,) = seen.maps.values()
    positions = tuple(map(str, range(layer_map.shape[2])))
    page = seen.page()
    assert seen.tokens == page.sides[0].tokens == positions
    assert f"Inputs: {inputs}. Rows and columns are positions" in " ".join(str(seen).split())
    assert f"Inputs: {inputs}." in page.notes[0]
    # a link between random inputs says nothing
    assert "→" not in str(seen)
    assert page.links == ()


EMBEDDED = ["B", "L", "D"]


@pytest.mark.parametrize(
    ("call", "inputs"),
    [({"x": EMBEDDED}, "random embeddings"), ({"query": ["L", "D"]}, "random embeddings"),
     ({"pixel_values": ["B", "3", "img", "img"]}, "random numbers"), ({"image": ["3", "h", "w"]}, "random numbers"),
     ({"x": ["B", "H", "L", "d"]}, "random numbers"), ({"x": ["B", "L"]}, "random numbers"),
     ({"x": EMBEDDED, "lengths": ["B"]}, "random embeddings and other random numbers"),
     ({"x": EMBEDDED, "mask": ["B", "L", "S"]}, "random embeddings and other random numbers"),
     ({"x": EMBEDDED, "ids": {"_ids": ["B", "L"], "below": "V"}}, "random embeddings and token ids"),
     ({"ids": {"_ids": ["B", "L"], "below": "V"}, "bias": ["L", "L"]}, "random token ids and other random numbers"),
     ({"x": EMBEDDED, "ids": {"_ids": ["B"]}, "rope": {"_tuple": [["L", "d"]]}},
      "random embeddings, token ids and other random numbers"),
     ({"n": 3}, "the arguments of the call")],
)  # fmt: skip
def test_inputs_are_named_by_what_they_are(call, inputs):
    assert say_inputs(call, "en").startswith(f"Inputs: {inputs}. ")
    assert re.match("输入：.+。行和列", say_inputs(call, "zh"))


def test_a_function_is_looked_at():
    def attention(query, key, value):
        return torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), dim=-1) @ value

    (made,) = hw.look(attention).maps.values()
    assert made.shape[-2:] == (11, 11)


def test_it_is_shown_and_written_as_a_look_at_a_text_is(named, tmp_path):
    seen = hw.look(functools.partial(named[0], **INIT), head=2)
    assert repr(seen) == "<Look at Attention: 1 map, 3 heads>"
    assert "Layer 0, head 2" in str(seen)
    assert seen._repr_html_().startswith("<pre")
    assert seen.save("heads.html") == tmp_path.joinpath("heads.html").relative_to(tmp_path)
    assert "Content-Security-Policy" in (tmp_path / "heads.html").read_text(encoding="utf-8")
    assert json.loads(seen.save("heads.json").read_text(encoding="utf-8")) == seen.to_dict()
    assert seen.save("heads.txt").read_text(encoding="utf-8") == f"{seen}\n"
    with pytest.raises(InputError, match=r"heads\.json exists: choose another name, or give force=True"):
        seen.save("heads.json")
    with pytest.raises(InputError, match=r"heads\.json"):
        hw.look(named[0], output="heads.json")
    assert hw.look(functools.partial(named[0], **INIT), output="heads.json", force=True).to_dict()["init"] == {
        "dim": "H*d",
        "heads": "H",
    }


def test_a_partial_that_cannot_run_is_told_by_the_name_of_its_class(named):
    with pytest.raises(InputError, match=r"^functools\.partial\(Attention, \.\.\.\) names hedas, .* among dim, heads"):
        hw.look(functools.partial(functools.partial(named[0], heads=3), hedas=4))


@pytest.mark.needs("matplotlib")
def test_a_figure_is_drawn(named):
    assert hw.look(named[0]).save("heads.svg").read_text(encoding="utf-8").startswith("<?xml")


@pytest.mark.parametrize(
    ("target", "options", "sentence"),
    [
        ("code", {"query": "it"}, "query came with code: leave query out"),
        ("code", {"model": "bert"}, "model came with code: leave model out"),
        ("code", {"tokens": ["a"]}, "tokens came with code: leave tokens out"),
        ("a text", {"call": {}}, "call came with a text: leave call out"),
        ("attn.py:Attention", {}, "must be a sentence, but attn.py:Attention names code: give the class itself"),
        ("maps", {"call": {}}, "call came with maps: leave call out"),
        ("code", {"layer": 1}, "since Attention has 1, but 1 came"),
        ("built", {"head": 3}, "must be from 0 to 2, since layer 0 has 3, but 3 came"),
        ("code", {"call": {"y": ["B"]}}, "^call= names y, which is no parameter: choose among x"),
        ("broken", {}, r"built and called by functools\.partial\(broken, \.\.\.\) and call=\.$"),
        ("meta", {}, "Attention must hold numbers to be run, but its parameters are on the meta device"),
        ("linear", {}, r"no call of attention was seen: run hw\.doctor\(Linear\)"),
        (3, {}, "must be a text, code, a watch's maps, maps by their names, or a map; got int"),
    ],
)
def test_what_cannot_be_looked_at_is_refused_in_the_words_of_python(named, target, options, sentence):
    made = {
        "code": named[0],
        "built": named[0](12, 3),
        "broken": broken,
        "maps": {"a": hw.attention_map(torch.ones(1, 2, 3, 4), torch.ones(1, 2, 3, 4))},
        "meta": named[0](12, 3).to("meta"),
        "linear": nn.Linear(3, 5),
    }
    with pytest.raises((ArgumentError, InputError), match=sentence):
        hw.look(made.get(target, target), **options)


@pytest.mark.needs("transformers")
def test_a_look_at_a_text_is_saved_too(bert_folder, tmp_path):
    seen = hw.look("The animal was tired.", model=bert_folder)
    assert json.loads(seen.save(tmp_path / "look.json").read_text(encoding="utf-8")) == seen.to_dict()
    assert seen.save(tmp_path / "look.html").read_text(encoding="utf-8").startswith("<!doctype html>")
