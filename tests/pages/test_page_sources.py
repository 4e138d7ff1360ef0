"""What a page can be made of, and which tokens stand at which rows and columns."""

import pytest
import torch
from torch import nn

import headwise as hw
from headwise.errors import ArgumentError
from headwise.maps import save_maps
from headwise.pages.page import Page
from headwise.wording import Refusal
from tests.pages.made import a_map, a_page

LETTERS = list("abcdefghijklm")


class TwoLayers(nn.Module):
    """Self-attention, then attention to something else."""

    def __init__(self):
        super().__init__()
        self.own = hw.MultiHeadAttention(12, 3)
        self.other = hw.MultiHeadAttention(12, 2)

    def forward(self, x, memory):
        return self.other(self.own(x, mask=hw.causal()), memory)


@pytest.fixture
def seen():
    torch.manual_seed(0)
    model = TwoLayers()
    with hw.watch(model) as seen:
        model(torch.randn(2, 5, 12), torch.randn(2, 7, 12))
    return seen


def tokens_of(page):
    return [(page.sides[layer.queries].tokens, page.sides[layer.keys].tokens) for layer in page.layers]


def test_a_watch_becomes_a_page_of_its_maps_in_running_order(seen):
    page = hw.look(seen, tokens={"queries": LETTERS[:5], "keys": LETTERS[5:12]})
    assert isinstance(page, Page)
    assert [layer.name for layer in page.layers] == ["own", "other"]
    first, other = tuple("abcde"), tuple("fghijkl")
    assert tokens_of(page) == [(first, first), (first, other)]
    assert page.layers[1].map is seen["other"]


def test_without_tokens_rows_and_columns_are_numbered(seen):
    assert tokens_of(hw.look(seen))[1] == (tuple("01234"), tuple("0123456"))


def test_of_a_batch_the_first_sample_is_shown_and_any_other_on_request(seen):
    page = hw.look(seen, tokens=[LETTERS[:5], LETTERS[5:10]])
    assert tokens_of(page)[0][0] == tuple("abcde")
    assert (page.sample, page.of_sample(1).sample, page.to_dict()["samples"]) == (0, 1, 2)
    with pytest.raises(ArgumentError, match=r"0\.\.1, since the maps have 2 samples; got 2"):
        page.of_sample(2)


def test_two_lists_of_one_length_are_queries_and_keys():
    page = a_page(a_map(Lq=3, Lk=3), tokens={"queries": list("abc"), "keys": list("xyz")})
    assert tokens_of(page) == [(tuple("abc"), tuple("xyz"))]


def test_a_map_maps_by_name_and_files_are_looked_at(tmp_path, seen):
    made = a_map(Lq=4, Lk=4)
    assert [layer.name for layer in hw.look(made).layers] == [""]
    assert [layer.name for layer in hw.look({"x": made, "y": made.mean_heads()}).layers] == ["x", "y"]
    save_maps(tmp_path / "maps.safetensors", {"one": made}, tokens=list("wxyz"))
    assert tokens_of(hw.look(hw.load_maps(tmp_path / "maps.safetensors")))[0][0] == tuple("wxyz")


def test_several_calls_of_one_module_are_layers_of_their_own():
    attn = hw.MultiHeadAttention(8, 2)
    with hw.watch(attn) as twice:
        attn(torch.randn(1, 3, 8))
        attn(torch.randn(1, 4, 8))
    assert [layer.map.shape[2] for layer in hw.look(twice).layers] == [3, 4]


def test_a_query_is_carried_exactly_and_opened_at():
    made = a_map(H=2, Lq=150, Lk=150)
    page = a_page(made, tokens=[f"t{n % 140}" for n in range(150)], query="t7")
    assert page.chosen == (7, 147)
    assert page.opening == {"layer": 0, "head": 0, "token": 7}


@pytest.mark.parametrize(
    ("given", "error", "sentence"),
    [
        ({"tokens": "abcde"}, ArgumentError, "a list of texts, or one for each sample; got str"),
        ({"tokens": [1, 2]}, ArgumentError, "got|must be texts"),
        ({"tokens": list("ab")}, ArgumentError, r"2 came; the maps: 'own': Lq=5, Lk=5, 'other': Lq=5, Lk=7"),
        ({"tokens": {"rows": ["a"]}}, ArgumentError, '"queries" and "keys"; got rows'),
        ({"layer": 2}, Refusal, "from 0 to 1, since Attention maps has 2, but 2 came"),
        ({"layer": 1, "head": 2}, Refusal, "from 0 to 1, since layer 1 has 2, but 2 came"),
        ({"query": "z"}, Refusal, "“z” is none: choose one of 0, 1, 2, 3, 4"),
        ({"model": "bert"}, ArgumentError, "model reads a text"),
        ({"lang": "fr"}, Refusal, "one of en, zh, but came as fr"),
        ({"output": "page.json"}, Refusal, r"one of \.html, \.png, \.svg, \.pdf, but came as page.json"),
    ],
    ids=lambda given: next(iter(given)) if isinstance(given, dict) else "",
)
def test_what_does_not_fit_is_refused(seen, given, error, sentence):
    with pytest.raises(error, match=sentence):
        hw.look(seen, **given)


def test_what_is_no_map_is_refused():
    with pytest.raises(ArgumentError, match="maps by their names, or a map; got list"):
        hw.look([a_map()])
    with pytest.raises(ArgumentError, match="tokens are of maps"):
        hw.look("a text", tokens=["a", "text"])
    with pytest.raises(Refusal, match="none was seen"):
        hw.look({})
    with pytest.raises(Refusal, match=r"that of empty is \(1, 2, 0, 3\)"):
        hw.look({"empty": hw.attention_map(torch.zeros(1, 2, 0, 4), torch.zeros(1, 2, 3, 4))})


def test_what_could_not_be_seen_is_said_on_the_page():
    from headwise.watching import Seen

    seen = Seen()
    seen._miss("block.1", "compiled")
    with pytest.raises(Refusal, match=r"unseen: block\.1: compiled"):
        hw.look(seen)


@pytest.mark.parametrize("suffix", [".html", ".svg", ".png", ".pdf"])
@pytest.mark.needs("matplotlib")
def test_a_page_of_maps_is_written_in_the_form_of_the_suffix(seen, tmp_path, suffix):
    file = tmp_path / f"maps{suffix}"
    starts = {".html": b"<!doctype", ".svg": b"<?xml", ".png": b"\x89PNG", ".pdf": b"%PDF"}
    hw.look(seen, output=file)
    first = file.read_bytes()
    assert first.startswith(starts[suffix])
    with pytest.raises(Refusal, match="exists"):
        hw.look(seen, output=file)
    hw.look(seen, output=file, force=True)
    assert file.read_bytes() == first
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"layer": "layers.1"}, "must be numbers, from 0, but 'layers.1' came"),
        ({"head": [0, "1"]}, "must be numbers, from 0, but .0, '1'. came"),
    ],
)
def test_a_layer_or_head_that_is_no_number_is_refused_in_one_sentence(given, said):
    with pytest.raises(ArgumentError, match=said):
        hw.look({"a": a_map()}, **given)


@pytest.mark.parametrize("text", [("a", "b", "c"), ("a",), ("a", 3)])
def test_a_tuple_that_is_no_pair_of_texts_is_refused_in_one_sentence(text):
    with pytest.raises(ArgumentError, match="must be two texts"):
        hw.look(text)


@pytest.mark.parametrize("max_mb", ["3", None, 0, float("nan")])
def test_a_limit_that_is_no_number_of_bytes_is_refused_in_one_sentence(max_mb):
    with pytest.raises(ArgumentError, match="max_mb must be more than 0"):
        hw.look({"a": a_map()}).html(max_mb=max_mb)
