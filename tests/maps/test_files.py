"""A file gives back the maps it was given, and a file that is not sound is refused in one sentence."""

import json
import struct

import pytest
import safetensors
import torch
from safetensors.torch import load_file

import headwise as hw
from headwise.errors import ArgumentError, InputError, StaleMapError
from headwise.maps import AttentionMap, additive_map, attention_map, load_maps, save_maps
from tests.cases import DIFFERENT, MASKS, RULES, rules
from tests.maps.oracle import inputs, made


@pytest.fixture
def path(tmp_path):
    return tmp_path / "maps.safetensors"


def saved(path, **changes):
    """The header of a sound file with changes to it, and its data."""
    save_maps(path, {"a": made(inputs(mask=hw.keys(torch.ones(2, 7, dtype=torch.bool)) & hw.causal()))})
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    return json.loads(raw[8 : 8 + length]) | changes, raw[8 + length :]


def rewritten(path, header, data):
    text = json.dumps(header).encode() if isinstance(header, dict | list) else header
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def retold(path, change):
    """A sound file whose description of its maps has been changed."""
    header, data = saved(path)
    told = json.loads(header["__metadata__"]["headwise"])
    told = change(told) or told
    header["__metadata__"]["headwise"] = json.dumps(told)
    rewritten(path, header, data)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("rule", RULES)
def test_a_map_comes_back_as_it_was(mask, rule, path):
    for dtype in (torch.float32, torch.bfloat16):
        for with_lse in (False, True):
            m = made(inputs(dtype=dtype, **rules(mask, rule, DIFFERENT)), with_lse=with_lse)
            # a rule comes back as its answers
            shown = repr(m) if mask != "a rule" else repr(m).split(" mask=")[0]
            m.save(path)
            again = AttentionMap.load(path)
            assert repr(again).startswith(shown)
            assert torch.equal(again.dense(), m.dense())
            assert torch.equal(again.received(), m.received())


@pytest.mark.parametrize(
    "mask",
    [
        ~hw.causal() | hw.prefix(torch.tensor([2, 3])),
        hw.causal().at(torch.arange(5), torch.arange(7).flip(0)) & hw.window(before=3, after=2),
        hw.keys(torch.arange(9).expand(2, 9) > 3).at(torch.arange(5), torch.arange(7), columns=torch.arange(7) + 2),
        hw.causal() & hw.rule(lambda b, h, i, j: (i + j + h) % 2 == 0),
    ],
    ids=repr,
)
def test_masks_of_masks_come_back(mask, path):
    m = made(inputs(mask=mask))
    m.save(path)
    assert torch.equal(AttentionMap.load(path).dense(), m.dense())


def test_additive_scoring_comes_back(path):
    m = additive_map(**{**inputs(), "weight": torch.linspace(-1, 1, 66).view(6, 11)})
    m.save(path)
    assert torch.equal(AttentionMap.load(path).dense(), m.dense())


def test_several_maps_and_their_tokens_come_back_by_name(path):
    maps = {"layers.0.attn": made(inputs()), "": made(inputs(mask=hw.causal(), dtype=torch.float64))}
    save_maps(path, maps, tokens=[["a", "\u2028é"], ["b"]])
    again = load_maps(path)
    assert list(again) == list(maps)
    assert again.tokens == [["a", "\u2028é"], ["b"]]
    for name, m in maps.items():
        assert torch.equal(again[name].dense(), m.dense())
    save_maps(path, {})
    assert (len(load_maps(path)), load_maps(path).tokens) == (0, None)
    with pytest.raises(InputError, match="must hold one map, but holds 0"):
        AttentionMap.load(path)


def test_any_reader_of_safetensors_reads_it(path):
    given = inputs(mask=hw.keys(torch.ones(2, 7, dtype=torch.bool)), attn_bias=torch.zeros(5, 7))
    made(given).save(path)
    with safetensors.safe_open(path, "pt") as file:
        assert file.metadata()["schema"] == "1"
    found = load_file(path)
    assert torch.equal(found["0.q"], given["q"])
    assert torch.equal(found["0.mask.keep"], given["mask"].keep)


def test_a_tensor_that_maps_share_is_written_once(path):
    allowed = torch.ones(5, 7, dtype=torch.bool)
    save_maps(path, {str(n): made(inputs(mask=allowed, seed=n)) for n in range(3)})
    assert sum(name.endswith(".mask.t") for name in load_file(path)) == 1


def test_a_file_is_written_whole_or_not_at_all(path, monkeypatch):
    made(inputs()).save(path)
    before = path.read_bytes()
    monkeypatch.setattr("headwise.maps.container._bytes", lambda t: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        made(inputs(mask=hw.causal())).save(path)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_what_cannot_be_written_is_refused(path, monkeypatch):
    m = made(inputs(mask=hw.rule(lambda b, h, i, j: (b + h + i + j) % 2 == 0)))
    monkeypatch.setattr("headwise.maps.serialization.MAX_MASK_BYTES", 419)
    with pytest.raises(ArgumentError, match=r"rule\(.*take 420 bytes, more than 419"):
        m.save(path)
    with pytest.raises(ArgumentError, match="'mean' is HeadMean"):
        save_maps(path, {"mean": made(inputs()).mean_heads()})
    with pytest.raises(ArgumentError, match="tokens must be texts"):
        save_maps(path, {}, tokens=[1, 2])
    given = inputs()
    stale = made(given)
    given["k"].zero_()
    with pytest.raises(StaleMapError, match=r"k \(2, 3, 7, 11\)"):
        stale.save(path)
    assert not path.exists()


def test_every_truncation_is_refused(path):
    made(inputs(mask=hw.causal())).save(path)
    raw = path.read_bytes()
    for size in [*range(16), 100, 400, len(raw) - 1]:
        path.write_bytes(raw[:size])
        with pytest.raises(InputError, match="is no file of maps"):
            load_maps(path)
    path.write_bytes(raw + b"x")
    with pytest.raises(InputError, match="bytes of data, and"):
        load_maps(path)


HUGE = {"dtype": "F32", "shape": [1 << 40, 1 << 40], "data_offsets": [0, 4]}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"x": HUGE}, "x .* takes .* bytes, and has 4"),
        ({"x": {**HUGE, "shape": [2**70]}}, "shape of x"),
        ({"x": {**HUGE, "shape": [-1, -1]}}, "shape of x"),
        ({"x": {**HUGE, "shape": [True]}}, "shape of x"),
        ({"x": {**HUGE, "shape": [1] * 9}}, "at most 8 counts"),
        ({"x": {**HUGE, "shape": [1.0]}}, "shape of x"),
        ({"x": {**HUGE, "dtype": "F8"}}, "dtype of x must be one of F64"),
        ({"x": {**HUGE, "dtype": ["F32"]}}, "dtype of x"),
        ({"x": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}}, "data_offsets of x"),
        ({"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, "starts at byte 0 of the data"),
        ({"x": {"dtype": "F32", "shape": [1], "data_offsets": [1 << 50, (1 << 50) + 4]}}, "starts at byte 11258999"),
        ({"x": {"dtype": "F32", "shape": [1]}}, "x must have dtype, shape and data_offsets"),
        ({"x": 3}, "x must have dtype"),
        ({"__metadata__": []}, "metadata does not map"),
        ({"__metadata__": {"schema": 1}}, "metadata does not map"),
        ({"__metadata__": {}}, "must have schema 1.*but has none"),
        ({"__metadata__": {"schema": "2"}}, "must have schema 1.*but has 2"),
        ({"__metadata__": {"schema": "1", "headwise": "{"}}, "does not describe its maps"),
        ({"__metadata__": {"schema": "1", "headwise": "[" * 100_000}}, "does not describe its maps"),
        ({"__metadata__": {"schema": "1", "headwise": "[]"}}, "must name its maps"),
        ({"__metadata__": {"schema": "1", "headwise": '{"maps": {}, "tokens": [1]}'}}, "their tokens"),
    ],
)  # fmt: skip
def test_a_header_that_lies_is_refused(change, sentence, path):
    rewritten(path, *saved(path, **change))
    with pytest.raises(InputError, match=sentence) as caught:
        load_maps(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "header",
    [b"\xff\xfe", b"[1]", b"{", b"[" * 100_000, b'{"a": NaN}', b'{"a": 1, "a": 2}', b"null"],
    ids=["not text", "a list", "cut", "deep", "NaN", "twice", "null"],
)
def test_a_header_that_is_no_object_is_refused(header, path):
    rewritten(path, header, b"")
    with pytest.raises(InputError, match="is no file of maps: its header is"):
        load_maps(path)


def test_a_header_longer_than_the_file_is_refused_before_it_is_read(path):
    path.write_bytes(struct.pack("<Q", 1 << 62) + b"{}")
    with pytest.raises(InputError, match="claims 4611686018427387904 bytes, and at most 2"):
        load_maps(path)


def mask_of(told):
    return told["maps"]["a"]["mask"]


def window(before):
    return {"mask": "Window", "fields": {"before": before, "after": 0}}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda t: t["maps"]["a"].pop("q"), "map 'a' must have"),
        (lambda t: t["maps"]["a"].update(more=1), "map 'a' must have"),
        (lambda t: t["maps"].update(a=[]), "map 'a' must have"),
        (lambda t: t["maps"]["a"].update(q=None), "q of map 'a' must be a tensor"),
        (lambda t: t["maps"]["a"].update(sink=3), "sink of map 'a' must be a tensor"),
        (lambda t: t["maps"]["a"].update(scale="1"), "scale of map 'a' must be a number"),
        (lambda t: t["maps"]["a"].update(scale=True), "scale of map 'a' must be a number"),
        (lambda t: t["maps"]["a"].update(softcap=-1.0), "does not fit together: softcap"),
        (lambda t: t["maps"]["a"].update(k=t["maps"]["a"]["mask"]["fields"]["left"]["fields"]["keep"]), "does not fit"),
        (lambda t: t["maps"]["a"].update(lse=t["maps"]["a"]["q"]), "does not fit together: lse"),
        (lambda t: t["maps"]["a"].update(q={"tensor": "no"}), "names a tensor 'no'"),
        (lambda t: t["maps"]["a"].update(q={"tensor": []}), r"names a tensor \[\]"),
        (lambda t: t["maps"]["a"].update(mask=3), "does not fit together: mask must be"),
        (lambda t: t["maps"]["a"].update(mask=t["maps"]["a"]["q"]), "does not fit together: a mask must be bool"),
        (lambda t: mask_of(t).update(mask="Ruled"), "must be one of Causal.*is 'Ruled'"),
        (lambda t: mask_of(t).update(mask=["And"]), "must be one of Causal"),
        (lambda t: mask_of(t)["fields"].pop("left"), "And of map 'a' lacks a field"),
        (lambda t: mask_of(t)["fields"].update(left=None), "a mask is joined of masks, but NoneType"),
        (lambda t: mask_of(t)["fields"]["left"]["fields"].update(keep=3), "Keys of map 'a'"),
        (lambda t: mask_of(t)["fields"]["left"]["fields"].update(keep=t["maps"]["a"]["q"]), "Keys of map 'a'"),
        (lambda t: mask_of(t)["fields"].update(left=window(before="x")), "Window"),
        (lambda t: mask_of(t)["fields"].update(left=window(before=-1)), "Window"),
        (
            lambda t: mask_of(t).update(
                mask="Placed", fields={"mask": dict(mask_of(t)), "i": None, "j": None, "columns": None}
            ),
            "Placed of map 'a'",
        ),
        (lambda t: mask_of(t)["fields"].update(left={"mask": "Prefix", "fields": {"n": None}}), "Prefix"),
    ],
)  # fmt: skip
def test_a_description_that_does_not_fit_is_refused(change, sentence, path):
    retold(path, lambda told: change(told) and None)
    with pytest.raises(InputError, match=sentence):
        load_maps(path)


def test_a_mask_of_very_many_masks_comes_back(path):
    mask = hw.causal()
    for _ in range(150):
        mask = ~mask
    m = made(inputs(mask=mask))
    m.save(path)
    assert torch.equal(AttentionMap.load(path).dense(), m.dense())


def test_a_mask_nested_too_deep_is_refused(path):
    def deepen(told):
        for _ in range(101):
            told["maps"]["a"]["mask"] = {"mask": "Not", "fields": {"mask": mask_of(told)}}

    retold(path, deepen)
    with pytest.raises(InputError, match="nested more than 100 deep"):
        load_maps(path)


def test_a_bool_of_any_byte_is_true_or_false(path):
    header, data = saved(path)
    start, stop = header["0.mask.left.keep"]["data_offsets"]
    rewritten(path, header, data[:start] + bytes(range(7)) * 2 + data[stop:])
    m = load_maps(path)["a"]
    assert (m[0, 0, -1] == 0).tolist() == [True] + [False] * 6
    assert m.stored()[0].mask.left.keep.view(torch.uint8).unique().tolist() == [0, 1]


def test_a_map_alone_has_no_gradient_and_lies_on_the_cpu(path):
    given = inputs()
    attention_map(given["q"].requires_grad_(), given["k"]).save(path)
    assert not AttentionMap.load(path).entropy().requires_grad
