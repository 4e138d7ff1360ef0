"""Bad input of a map is refused in one sentence with what came; what is saved can be read."""

import struct

import pytest
import torch

import headwise as hw
from headwise.errors import ArgumentError, InputError
from headwise.maps import AttentionMap, additive_map, attention_map, load_maps, natural_lse, save_maps
from tests.maps.oracle import inputs, made

REFUSED = {
    "topk(1.5)": (lambda m: m.topk(1.5), "k must be a whole number, but 1.5 came"),
    "topk of a text": (lambda m: m.topk("3"), "k must be a whole number, but '3' came"),
    "pooled(2.5, 3)": (lambda m: m.pooled(2.5, 3), "h must be a whole number, but 2.5 came"),
    "pooled(2, None)": (lambda m: m.pooled(2, None), "w must be a whole number, but None came"),
    "max_bytes": (lambda m: m.dense(max_bytes="1 GB"), "max_bytes must be a whole number, but '1 GB' came"),
    "no query in a tile": (lambda m: m.tiles(block=(0, 2)), r"both must be 1 or more; got \(0, 2\)"),
    "one number of a tile": (lambda m: m.tiles(block=(4,)), r"it has two numbers; got \(4,\)"),
    "a tile of an int": (lambda m: m.tiles(block=4), "it has two numbers; got 4"),
    "half a key in a tile": (lambda m: m.tiles(block=(4, 0.5)), "block must be a whole number, but 0.5 came"),
}


@pytest.mark.parametrize("mask", [None, hw.causal()], ids=["no mask", "causal"])
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_count_is_refused(name, mask):
    ask, sentence = REFUSED[name]
    for m in (made(inputs(mask=mask)), made(inputs(mask=mask)).mean_heads()):
        if hasattr(m, "tiles") or "tile" not in name:
            with pytest.raises(ArgumentError, match=sentence) as caught:
                ask(m)
            assert "\n" not in str(caught.value)


def test_counts_of_any_whole_kind_are_taken():
    m = made(inputs())
    assert torch.equal(m.topk(torch.tensor(2))[0], m.topk(2)[0])
    assert m.pooled(torch.tensor(2), 3).shape == (2, 6, 2, 3)


def test_what_must_be_a_tensor_is_refused_by_its_kind():
    given = inputs()
    with pytest.raises(ArgumentError, match=r"lse must be a tensor \(B=2, Hq=6, Lq=5\).*but list came"):
        attention_map(**given, lse=[0.0])
    with pytest.raises(ArgumentError, match=r"weight must be a tensor \(Hq, D\).*but list came"):
        additive_map(**given, weight=[1.0])
    with pytest.raises(ArgumentError, match="lse must be a tensor, but list came"):
        natural_lse([1.0])


@pytest.mark.parametrize("tokens", [5, "abc", [1, 2], [["a"], "b"], [None]])
def test_tokens_that_are_no_texts_are_refused(tokens, tmp_path):
    with pytest.raises(ArgumentError, match="tokens must be texts, or a list of texts to each sample, or None, but"):
        save_maps(tmp_path / "m", {}, tokens=tokens)
    assert not list(tmp_path.iterdir())


def test_a_map_is_saved_by_a_text():
    with pytest.raises(ArgumentError, match="maps are kept by names, but int 1 came"):
        save_maps("m", {1: made(inputs())})


def test_a_file_that_is_not_there_is_refused(tmp_path):
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(InputError, match=rf"{path} cannot be read \(.*give the file that save_maps wrote"):
            load_maps(path)
    with pytest.raises(InputError, match=rf"that exists, but {tmp_path / 'none'} does not: make it first"):
        save_maps(tmp_path / "none" / "m", {})


def test_what_is_written_can_be_read_though_it_has_very_many_tokens(tmp_path, monkeypatch):
    path, tokens = tmp_path / "m", ["x" * 30] * 1_000_000
    save_maps(path, {}, tokens=tokens)
    assert load_maps(path).tokens == tokens
    (length,) = struct.unpack("<Q", path.read_bytes()[:8])
    for most in (length, length - 1):
        monkeypatch.setattr("headwise.maps.container.LONGEST_HEADER", most)
        if most == length:
            save_maps(path, {}, tokens=tokens)
            assert len(load_maps(path).tokens) == len(tokens)
        else:
            with pytest.raises(ArgumentError, match=rf"may take {most} bytes.*but take {length}: write several files"):
                save_maps(path, {}, tokens=tokens)


@pytest.mark.parametrize("given", [5, None, b"maps"])
def test_what_is_no_path_is_refused(given):
    for use in (load_maps, AttentionMap.load, lambda path: save_maps(path, {})):
        with pytest.raises(ArgumentError, match=f"maps are in a file, but {type(given).__name__} .* give its path"):
            use(given)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("mean", r"dense\(\)\.mean for that of all of it, or mean_heads\(\) for the mean of the heads"),
        ("sum", r"dense\(\)\.sum for that of all of it, or received\(\) for the sums of the columns"),
        ("max", r"dense\(\)\.max .*, or topk\(1\)\[0\] for the largest weight of a row, or max_logit\(\)"),
        ("softmax", r"dense\(\)\.softmax for that of all of it, though its rows are normalised already$"),
        ("numpy", r"dense\(\)\.numpy for that of all of it$"),
    ],
)
def test_what_only_a_tensor_has_is_answered_with_what_to_write(name, said):
    m = hw.attention_map(torch.zeros(1, 2, 3, 4), torch.zeros(1, 2, 5, 4))
    for owner in (m, m.mean_heads(), m.logits):
        assert not hasattr(owner, name)
        with pytest.raises(ArgumentError, match=rf"^{type(owner).__name__} has no {name}, .* write {said}"):
            getattr(owner, name)
    with pytest.raises(AttributeError, match=r"^'AttentionMap' object has no attribute 'menu'$"):
        getattr(m, "menu")  # noqa: B009  asked for, not used
