"""What cannot be meant is refused in one sentence, by the layer, its specs, its caches and the masks."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import headwise as hw
from headwise.errors import ArgumentError, AttentionError, CacheError, ConversionError, MaskError, ShapeError
from headwise.positions import Llama3Scaling, YarnScaling

E, HEADS, B, L = 12, 3, 2, 5
WIDTHS = ("embed_dim", "num_heads", "num_kv_heads", "head_dim", "v_head_dim", "kdim", "vdim", "out_dim")

SPECS: dict[str, tuple[Callable[[], object], str]] = {
    **{
        f"{name}={wrong!r}": (
            partial(hw.MultiHeadAttention, **({"embed_dim": E, "num_heads": HEADS} | {name: wrong})),
            f"{name} must be an int of 1 or more; got {name}={wrong!r}, a {type(wrong).__name__}",
        )
        for name in WIDTHS
        for wrong in (4.0, "4", True)
    },
    "no width": (lambda: hw.MultiHeadAttention(None, 3), "embed_dim must be an int of 1 or more; got embed_dim=None"),
    **{
        f"bias={wrong!r}": (
            lambda wrong=wrong: hw.MultiHeadAttention(E, HEADS, bias=wrong),
            f"bias must be True or False; got bias={wrong!r}, a {type(wrong).__name__}",
        )
        for wrong in ("yes", 1, None)
    },
    "dropout text": (lambda: hw.MultiHeadAttention(E, HEADS, dropout="0.1"), "dropout must be a plain number, but str"),
    "dropout flag": (lambda: hw.MultiHeadAttention(E, HEADS, dropout=True), "dropout must be a plain number, but bool"),
    "norms": (lambda: hw.MultiHeadAttention(E, HEADS, qk_norm=["rms"]), r"qk_norm must be None, .*; got \['rms'\]"),
    "dtype of integers": (lambda: hw.MultiHeadAttention(E, HEADS, dtype=torch.int64), "floating .*; got torch.int64"),
    "complex dtype": (lambda: hw.MultiHeadAttention(E, HEADS, dtype=torch.complex64), "; got torch.complex64"),
    "dtype by name": (lambda: hw.MultiHeadAttention(E, HEADS, dtype="float32"), "torch.dtype.*; got 'float32'"),
    "device": (lambda: hw.MultiHeadAttention(E, HEADS, device="nowhere"), "device must be a .* got 'nowhere'"),
    "device number": (lambda: hw.MultiHeadAttention(E, HEADS, device=3.5), "device must be a .* got 3.5"),
    "scale of 0": (lambda: hw.DotProduct(scale=0), "scale must be finite and not 0, .*; got scale=0"),
    "scale flag": (lambda: hw.DotProduct(scale=True), "scale must be a plain number, but bool came"),
    "scale tensor": (lambda: hw.DotProduct(scale=torch.tensor(1.0)), "scale must be a plain number, but Tensor came"),
    "softcap": (lambda: hw.DotProduct(softcap=float("inf")), "greater than 0 and finite, .*; got inf"),
    "softcap text": (lambda: hw.DotProduct(softcap="30"), "softcap must be a plain number, but str came"),
    "sink": (lambda: hw.DotProduct(sink=True), r'sink must be None, "learned" or "zero"; got True'),
    "hidden_dim": (lambda: hw.Additive(8.0), "hidden_dim must be an int of 1 or more; got hidden_dim=8.0, a float"),
    "base": (lambda: hw.Rotary(base="1e4"), "base must be a plain number, but str came"),
    "pairing": (lambda: hw.Rotary(pairing=["half"]), r"pairing must be one of .*; got \['half'\]"),
    "dim": (lambda: hw.Rotary(dim=4.0), "dim must be an int of 0 or more; got dim=4.0"),
    "yarn": (lambda: YarnScaling("4", original_length=64), "factor must be a plain number, but str came"),
    "llama": (lambda: Llama3Scaling(8.0, 1.0, 4.0, "64"), "original_length must be a plain number, but str came"),
    "buckets": (lambda: hw.RelativeBias(num_buckets=8.0), "num_buckets must be an int .*; got num_buckets=8.0"),
    "distance": (lambda: hw.RelativeBias(max_distance="x"), "max_distance must be an int .*; got .*'x', a str"),
    "bidirectional": (lambda: hw.RelativeBias(bidirectional=1), "bidirectional must be True or False; got .*=1, a int"),
    "shared": (lambda: hw.RelativeBias(shared=nn.Linear(2, 2)), "that another layer has built.* but Linear came"),
    "positional": (lambda: hw.MultiHeadAttention(E, HEADS, 0.1), "embed_dim and num_heads by their place .* dropout="),
    "d_model": (lambda: hw.MultiHeadAttention(d_model=E, nhead=HEADS), "takes no d_model=: give embed_dim="),
}  # fmt: skip


@pytest.mark.parametrize("case", SPECS)
def test_a_layer_or_spec_of_the_wrong_type_is_refused(case: str) -> None:
    make, said = SPECS[case]
    with pytest.raises(ArgumentError, match=said):
        make()


def test_whole_numbers_of_numpy_are_whole_numbers() -> None:
    assert hw.MultiHeadAttention(np.int64(E), np.int32(HEADS)).widths.D == 4


WRONG: dict[str, tuple[Any, str]] = {
    "array": (np.zeros((B, L, E)), r"{0} must be a tensor \(B, L, {1}=12\), but ndarray came: make it with torch.as_t"),
    "list": ([[0.0]], r"{0} must be a tensor \(B, L, {1}=12\), but list came"),
    "text": ("hello", r"{0} must be a tensor \(B, L, {1}=12\), but str came"),
    "embeddings as integers": (torch.zeros(B, L, E).long(), r"{0} must be floating, .* torch.int64 \(2, 5, 12\) came"),
    "token ids": (torch.zeros(B, L).long(), r"but torch.int64 \(2, 5\) came: token ids where embeddings are meant"),
    "bool": (torch.ones(B, L, E).bool(), r"{0} must be floating, .* but torch.bool \(2, 5, 12\) came: cast it first"),
    "complex": (torch.zeros(B, L, E, dtype=torch.complex64), r"{0} must be floating, .* torch.complex64 .* came: cast"),
    "half": (
        torch.zeros(B, L, E).half(),
        "{0} must be of .*, torch.float32 on cpu, but torch.float16 on cpu came",
    ),
    "double": (torch.zeros(B, L, E).double(), "{0} must be of .*, torch.float32 on cpu, but torch.float64 on cpu came"),
    "elsewhere": (
        torch.zeros(B, L, E, device="meta"),
        "{0} must be .*, torch.float32 on cpu, but torch.float32 on meta",
    ),
    "sparse": (torch.eye(E).expand(1, E, E).to_sparse(), "{0} must be a dense tensor, but torch.sparse_coo came"),
}


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize("name", ["query", "key", "value"])
def test_an_input_of_the_wrong_type_is_refused(name: str, case: str) -> None:
    layer, x = hw.MultiHeadAttention(E, HEADS), torch.zeros(B, L, E)
    wrong, said = WRONG[case]
    given = {"query": x, "key": x, "value": x.clone()} | {name: wrong}
    said = said.format(name, {"query": "embed_dim", "key": "kdim", "value": "vdim"}[name])
    with pytest.raises(ArgumentError, match=said):
        layer(**given)
    if name != "query":
        with pytest.raises(ArgumentError, match=said):
            layer.memory(given["key"], given["value"])


def test_a_projection_that_takes_another_dtype_may() -> None:
    # refused is only what torch refuses: hooks, wrappers and autocast may cast
    layer, x = hw.MultiHeadAttention(E, HEADS), torch.randn(B, L, E)
    for projection in (layer.q_proj, layer.k_proj, layer.v_proj):
        projection.register_forward_pre_hook(lambda module, args: (args[0].float(),))
    assert torch.equal(layer(x.double()), layer(x.double().float()))
    layer.q_proj.register_forward_hook(failing)
    with pytest.raises(RuntimeError, match="of its own"):
        layer(x)


def failing(*_: object) -> None:
    raise RuntimeError("of its own")


def exhausted(*_: object) -> None:
    raise torch.OutOfMemoryError("of 80 GiB")


def test_what_fails_in_a_projection_for_another_reason_is_raised_as_it_came() -> None:
    layer, x = hw.MultiHeadAttention(E, HEADS), torch.randn(B, L, E)
    hook = layer.k_proj.register_forward_pre_hook(failing)
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(RuntimeError, match=r"^of its own$"):
        layer(x.bfloat16())
    hook.remove()
    layer.k_proj.register_forward_pre_hook(exhausted)
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(torch.OutOfMemoryError, match=r"^of 80 GiB$"):
        layer(x.bfloat16())
    with pytest.raises(torch.OutOfMemoryError, match=r"^of 80 GiB$"):
        layer(x, x.half(), x)


def test_autocast_refuses_float64_by_its_name() -> None:
    # which it leaves as it is
    layer, x = hw.MultiHeadAttention(E, HEADS), torch.randn(B, L, E)
    said = "query must be of the layer's dtype .*, torch.float32 on cpu, but torch.float64 on cpu came"
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(ArgumentError, match=said):
        layer(x.double())


CALLS: dict[str, tuple[dict[str, Any], type[AttentionError], str]] = {
    "cache flag": (
        {"cache": True},
        ArgumentError,
        "must be a KVCache or None, but bool came: make one with attn",
    ),
    "cache of others": ({"cache": (1, 2)}, ArgumentError, "cache must be a KVCache or None, but tuple came"),
    "mask flag": ({"mask": True}, MaskError, "mask must be a Mask, a bool tensor or None, but bool came"),
    "mask function": ({"mask": hw.causal}, MaskError, "a Mask, a bool tensor or None, but function came"),
    "bias": ({"attn_bias": 1.0}, ArgumentError, "attn_bias must be a tensor or None, but float came"),
    "positions": ({"positions": [0, 1]}, ArgumentError, r"integers, \(5,\) or \(B=2, 5\), but list came"),
    "one position": ({"positions": 3}, ArgumentError, r"positions of tokens must be a tensor of .*, but int came"),
    "three": ({"positions": (1, 2, 3)}, ArgumentError, "a pair .of queries, of keys., but 3 came in a tuple"),
    "unbatched": ({"query": torch.zeros(L, E), "key": "no"}, ArgumentError, "key must be a tensor .*, but str came"),
    "words": ({"position_ids": 1}, ArgumentError, "takes no position_ids=: give positions="),
    "dropout": ({"dropout_p": 0.1}, ArgumentError, "takes no dropout_p=: give dropout= to MultiHeadAttention, which"),
    "scale": ({"scale": 2.0}, ArgumentError, r"takes no scale=: give score=hw.DotProduct\(scale=...\) to Multi"),
}


@pytest.mark.parametrize("case", CALLS)
def test_a_call_with_an_argument_of_the_wrong_type_is_refused(case: str) -> None:
    given, error, said = CALLS[case]
    with pytest.raises(error, match=said):
        hw.MultiHeadAttention(E, HEADS)(**({"query": torch.zeros(B, L, E)} | given))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"length": True, "batch": 2}, "length must be an int of 1 or more; got length=True, a bool"),
        ({"length": 5.0, "batch": 2}, "length must be an int of 1 or more; got length=5.0, a float"),
        ({"length": 5, "batch": "2"}, "batch must be an int of 0 or more; got batch='2', a str"),
        ({"window": 4.0}, "window must be an int of 1 or more; got window=4.0, a float"),
        ({"window": 4, "sinks": True}, "sinks must be an int of 0 or more; got sinks=True, a bool"),
        ({"window": 4, "sinks": -1}, "sinks must be 0 or more; got sinks=-1"),
        ({"sinks": None}, "sinks must be an int of 0 or more; got sinks=None"),
    ],
)
def test_a_cache_of_the_wrong_sizes_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        hw.MultiHeadAttention(E, HEADS).cache(**given)


@torch.no_grad()
def test_a_cache_is_cropped_and_reordered_by_whole_numbers() -> None:
    layer, x = hw.MultiHeadAttention(E, HEADS), torch.zeros(B, L, E)
    cache, memory, mask = layer.cache(), layer.memory(x), hw.lengths([2, 3])
    layer(x, cache=cache)
    for length in (2.0, True, torch.tensor(2), None):
        with pytest.raises(CacheError, match="length must be an int of 0 or more; got length="):
            cache.crop(length)
    wrong = {
        "list came": [0, 1],
        r"torch.float32 \(2,\) came": torch.tensor([0.0, 1.0]),
        r"torch.bool \(2,\) came": torch.tensor([True, False]),
        r"torch.int64 \(1, 1\) came": torch.tensor([[0]]),
        r"\[5\] came": torch.tensor([5]),
        r"\[0, -1\] came": torch.tensor([0, -1]),
    }
    for came, index in wrong.items():
        for reorder in (cache.reorder, memory.reorder, mask.reorder):
            with pytest.raises(
                ArgumentError, match=rf"int64 or int32 in 0\.\.1, one for each sample picked, but {came}"
            ):
                reorder(index)
    assert cache.seen == L


PATTERNS: dict[str, tuple[Callable[[], object], str]] = {
    "lengths": (lambda: hw.lengths({}), r"lengths\(n\) must be integers, but dict came: give a tensor or a list"),
    "no lengths": (lambda: hw.lengths(None), r"lengths\(n\) must be integers, but NoneType came"),
    "keys": (lambda: hw.keys([True]), r"keys\(keep\) must be a bool tensor, but list came"),
    "documents": (lambda: hw.documents([0, 1]), r"documents\(ids\) must be a tensor of integers, but list came"),
    "prefix": (lambda: hw.prefix("2"), r"prefix\(n\) counts tokens, so it must be an int, but '2' came"),
    "window": (lambda: hw.window(keys=3.0), r"window\(keys=\) counts tokens, so it must be an int, but 3.0 came"),
    "allowed": (lambda: hw.allowed(None), "a mask must be a bool tensor, but NoneType came"),
    "rule": (lambda: hw.rule(3), r"rule\(fn\) needs a function of \(b, h, i, j\), but 3 came"),
    "rule of two": (
        lambda: hw.rule(lambda i, j: i > j),
        "but .* does not take four arguments",
    ),
    "joined": (lambda: hw.causal() & True, "a mask joins only with a mask, but bool came"),
    "drawn": (lambda: hw.causal().draw("5", 5), "Lq must be an int of 0 or more; got Lq='5', a str"),
    "drawn below": (lambda: hw.causal().draw(5, -1), "Lk must be 0 or more; got Lk=-1"),
    "batch": (lambda: hw.causal().allowed(2, 3, batch=2.0), "batch must be an int of 0 or more; got batch=2.0"),
    "tiles": (lambda: hw.causal().tiles(2, 2, block=3), "block .* has two numbers; got block=3"),
    "positions": (lambda: hw.causal().at([1], [2]), "positions i must be a tensor of integers, but list came"),
}


@pytest.mark.parametrize("case", PATTERNS)
def test_a_mask_of_the_wrong_type_is_refused(case: str) -> None:
    make, said = PATTERNS[case]
    with pytest.raises(MaskError, match=said):
        make()


def test_a_rule_may_be_whatever_takes_four_arguments() -> None:
    assert hw.rule(lambda *args: args[2] >= args[3]).draw(2, 2) == "#.\n##"
    assert hw.rule(lambda b, h, i, j, k=1: i >= j * k).draw(2, 2) == "#.\n##"


def test_the_state_dict_of_nn_multiheadattention_is_refused_with_the_way_to_it() -> None:
    class Block(nn.Module):
        def __init__(self, attn: nn.Module) -> None:
            super().__init__()
            self.attn = attn

    ours = Block(hw.MultiHeadAttention(E, HEADS))
    for options, name in (({}, "in_proj_weight"), ({"kdim": 7}, "q_proj_weight")):
        theirs = nn.MultiheadAttention(E, HEADS, **options)
        way = rf'hw\.compat\.convert\(its_state_dict, convention="torch", num_heads={HEADS}\)'
        with pytest.raises(ConversionError, match=rf"has the weights attn\.q_proj, .* but attn\.{name} came, .*{way}"):
            ours.load_state_dict(Block(theirs).state_dict())
        with pytest.raises(ConversionError, match=rf"has the weights q_proj, .* but {name} came"):
            ours.attn.load_state_dict(theirs.state_dict(), strict=False)
    done = hw.compat.convert(nn.MultiheadAttention(E, HEADS).state_dict(), convention="torch", num_heads=HEADS)
    ours.attn.load_state_dict(done.layer.state_dict())


def test_a_nested_tensor_is_refused_as_before() -> None:
    nested = torch.nested.nested_tensor([torch.zeros(3, E), torch.zeros(2, E)], layout=torch.jagged)
    with pytest.raises(ShapeError, match="query is a nested tensor: pad it"):
        hw.MultiHeadAttention(E, HEADS)(nested)
