"""Reading what has been seen: by name, by part of a name, all at once, from a file."""

import pytest
import torch
from torch import nn

import headwise as hw
from headwise.errors import ArgumentError
from headwise.maps import AttentionMap, load_maps
from headwise.watching import watch
from headwise.watching.watched_maps import UnseenError
from tests.watching.models import Attend, Handmade, made, x


@pytest.fixture
def seen():
    torch.manual_seed(4)
    model = nn.ModuleDict({name: Attend() for name in ("one", "other")})
    model["deep"] = nn.ModuleList([nn.ModuleList([Attend()]) for _ in range(12)])
    with torch.no_grad(), watch(model) as found:
        model["one"](x())
        model["other"](x(2, 7))
        for inner in model["deep"]:
            inner[0](x())
        model["one"](x())
    return found


def test_it_is_a_mapping_in_running_order(seen):
    assert list(seen)[:3] == ["one", "other", "deep.0.0"]
    assert len(seen) == 14
    assert "other" in seen
    assert "deep" not in seen
    assert isinstance(seen["other"], AttentionMap)
    assert seen["other"].shape == (2, 2, 7, 7)
    assert seen.get("deep") is None


def test_a_part_of_a_name_must_be_whole_and_unique(seen):
    assert seen.find("deep.1") is seen["deep.1.0"]
    assert seen.find("11") is seen["deep.11.0"]
    assert seen.find("other") is seen["other"]
    with pytest.raises(ArgumentError, match=r'"deep" must name one map, but names 12: "deep.0.0", .* and 4 more'):
        seen.find("deep")
    with pytest.raises(UnseenError, match=r'no map was seen under "eep.1"; seen: "one", .* and 6 more'):
        seen.find("eep.1")


def test_the_empty_name_of_a_watched_layer_is_explained():
    attn = hw.MultiHeadAttention(6, 2)
    with hw.watch(attn) as own:
        attn(torch.zeros(2, 3, 6))
    with pytest.raises(UnseenError, match=r'under "attn"; seen: "" \(the model itself\)$'):
        own["attn"]


def test_a_missing_name_says_what_there_is(seen):
    with pytest.raises(KeyError, match=r'no map was seen under "two"; seen: "one"'):
        seen["two"]
    with pytest.raises(UnseenError, match=r'no map was seen under "two"'):
        seen.calls("two")
    with pytest.raises(UnseenError, match=r'no map was seen under "two"'):
        seen.joined("two")


def test_a_missing_name_says_why_it_was_not_seen():
    model = nn.Sequential(Handmade())
    with watch(model) as found:
        model(x())
    with pytest.raises(UnseenError, match=r'under "0"; unseen: "0": computes a softmax of its own .*; seen: nothing'):
        found["0"]


def test_attentions_are_dense_in_running_order_within_their_budget(seen):
    dense = seen.to_attentions()
    assert len(dense) == 15
    assert torch.equal(dense[1], seen["other"].dense())
    assert torch.equal(dense[14], seen.calls("one")[1].dense())
    # 14 maps of 3·2·5·5 and one of 2·2·7·7, of 4 bytes each
    needed = 4 * (14 * 150 + 196)
    assert len(seen.to_attentions(max_bytes=needed)) == 15
    with pytest.raises(ArgumentError, match="15 maps, and max_bytes allows"):
        seen.to_attentions(max_bytes=needed - 1)


@pytest.mark.needs("safetensors")
def test_a_file_gives_every_call_back(seen, tmp_path):
    seen.save(tmp_path / "maps.safetensors", tokens=["a", "b"])
    again = load_maps(tmp_path / "maps.safetensors")
    assert list(again)[:3] == ["one[0]", "other", "deep.0.0"]
    assert len(again) == 15
    assert [name.partition("[")[0] for name in again] == [name for name, _ in seen.in_order()]
    assert torch.equal(again["other"].dense(), seen["other"].dense())
    assert torch.equal(again["one[1]"].dense(), seen.calls("one")[1].dense())
    assert list(again.tokens) == ["a", "b"]


def test_what_is_seen_can_be_forgotten_and_seen_anew():
    model = made(Attend)
    with watch(model) as found:
        model(x())
        found.clear()
        assert len(found) == 0
        model(x(2, 7))
    assert found[""].shape == (2, 2, 7, 7)


def test_it_reads_as_a_list_of_names_shapes_and_reasons():
    model = nn.Sequential(made(Attend), Handmade())
    with watch(model) as found:
        model(x())
        model[0](x())
    first, second, third = repr(found).splitlines()
    assert first == "Seen: 1 module, 2 calls"
    assert second == '  "0"  (3, 2, 5, 5) and 1 more'
    assert third.startswith('  "1"  unseen: computes a softmax of its own')


def test_calls_and_joined_take_a_part_of_a_name(seen):
    assert seen.calls("deep.11") == [seen["deep.11.0"]]
    assert seen.joined("11").shape == seen["deep.11.0"].shape
    with pytest.raises(UnseenError):
        seen["deep.11"]
    for read in (seen.calls, seen.joined):
        with pytest.raises(ArgumentError, match='"deep" must name one map, but names 12'):
            read("deep")


def test_where_nothing_has_run_every_reading_says_so(tmp_path):
    with watch(made(Attend)) as found:
        pass
    readings = (lambda: found[""], lambda: found.find("0"), lambda: found.calls(""), lambda: found.joined(""))
    readings += (found.to_attentions, lambda: found.save(tmp_path / "maps.safetensors"))
    for read in readings:
        with pytest.raises(UnseenError, match="no attention has run: call the model inside of the block"):
            read()
    assert "0 calls; no attention has run" in repr(found)
    assert list(tmp_path.iterdir()) == []
    model = Handmade()
    model.forward = lambda y: y
    with watch(model) as found:
        model(x())
    with pytest.raises(UnseenError, match=r"seen: nothing$"):
        found["0"]
    assert found.to_attentions() == ()


@pytest.mark.needs("safetensors")
def test_loaded_maps_are_found_as_those_that_were_seen(seen, tmp_path):
    seen.save(tmp_path / "maps.safetensors")
    again = load_maps(tmp_path / "maps.safetensors")
    assert again.find("deep.1") is again["deep.1.0"]
    assert again.find("one[1]") is again["one[1]"]
    with pytest.raises(ArgumentError, match=r'"one" must name one map, but names 2: "one\[0\]", "one\[1\]"'):
        again.find("one")
    with pytest.raises(KeyError, match=r'no map was saved under "eep"; saved: "one\[0\]", .* and 7 more'):
        again.find("eep")
    with pytest.raises(ArgumentError, match='no map was saved under "two"'):
        again["two"]
    assert again.get("two") is None


def test_a_repr_of_many_modules_is_short_and_printing_lists_all():
    model = torch.nn.Sequential(*(hw.MultiHeadAttention(8, 2) for _ in range(23)))
    with hw.watch(model) as seen:
        model(torch.randn(1, 3, 8))
    lines = repr(seen).split("\n")
    assert lines[0] == "Seen: 23 modules, 23 calls"
    assert lines[-1] == "  … and 12 more: print lists all"
    assert str(seen).split("\n")[1:] == [f'  "{n}"  (1, 2, 3, 3)' for n in range(23)]
