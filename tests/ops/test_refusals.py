"""Bad calls of hw.attention: each gets one sentence with what must hold and what came."""

from typing import Any

import pytest
import torch

import headwise as hw
from headwise.errors import ArgumentError, AttentionError, MaskError, ShapeError
from headwise.maps import additive_map
from tests.cases import tensors

REFUSALS: dict[str, tuple[dict[str, Any], type[AttentionError], str]] = {
    "rank": ({"q": torch.zeros(2, 6, 5)}, ShapeError, r"q must be \(B, Hq, Lq, D\), but it came as \(2, 6, 5\)"),
    "batch": ({"k": torch.zeros(3, 3, 7, 11)}, ShapeError, r"k has B=3, but B \(batch\) is already 2"),
    "width": ({"k": torch.zeros(2, 3, 7, 10)}, ShapeError, r"k has D=10, but D \(query/key head width\) is already 11"),
    "value length": ({"v": torch.zeros(2, 3, 8, 13)}, ShapeError, r"v has Lk=8, but Lk \(key length\) is already 7"),
    "groups": ({"q": torch.zeros(2, 5, 5, 11)}, ShapeError, "Hk=3 must divide Hq=5"),
    "dtypes": ({"k": torch.zeros(2, 3, 7, 11).half()}, ArgumentError, "torch.float32, torch.float16 and torch.float32"),
    "integers": ({n: torch.zeros(2, 3, 7, 11).long() for n in "qkv"}, ArgumentError, "share one floating dtype"),
    "device": ({"k": torch.zeros(2, 3, 7, 11, device="meta")}, ArgumentError, "are on cpu, meta and cpu"),
    "float mask": ({"mask": torch.zeros(5, 7)}, MaskError, "must be bool, but torch.float32 came, which reads as"),
    "three axes": ({"mask": torch.ones(2, 5, 7).bool()}, MaskError, r"\(2, 5, 7\) reads as \(B, Lq, Lk\), as \(H, Lq"),
    "mask size": ({"mask": torch.ones(5, 8).bool()}, MaskError, r"\(Lq=5, Lk=7\).*came as \(5, 8\)"),
    "not a mask": ({"mask": "causal"}, MaskError, "mask must be a Mask, a bool tensor or None, but str came"),
    "padding size": ({"mask": hw.keys(torch.ones(2, 6).bool())}, MaskError, r"\(B=2, Lk=7\), but came as \(2, 6\)"),
    "bias dtype": ({"attn_bias": torch.ones(5, 7).bool()}, ArgumentError, "floating, but torch.bool came"),
    "bias size": ({"attn_bias": torch.zeros(7, 5)}, ShapeError, r"\(Lq=5, Lk=7\).*came as \(7, 5\)"),
    "bias rank": ({"attn_bias": torch.zeros(6, 5, 7)}, ShapeError, r"came as \(6, 5, 7\)"),
    "dropout": ({"dropout": 1.5}, ArgumentError, "lie in 0..1; got 1.5"),
    "generator": ({"generator": torch.Generator()}, ArgumentError, "feeds dropout, but dropout is 0"),
    "no tensor": ({"k": None}, ArgumentError, "k must be a tensor, but NoneType came"),
    "scale of a tensor": ({"scale": torch.tensor(0.5)}, ArgumentError, "scale must be a plain number, but Tensor came"),
    "scale of a bool": ({"scale": True}, ArgumentError, "scale must be a plain number, but bool came"),
    "dropout of a text": ({"dropout": "0.1"}, ArgumentError, "dropout must be a plain number, but str came"),
    "endless softcap": ({"softcap": float("inf")}, ArgumentError, "greater than 0 and finite, .* got inf"),
    "bias of a list": ({"attn_bias": [[0.0]]}, ArgumentError, "attn_bias must be a tensor or None, but list came"),
    "bias elsewhere": ({"attn_bias": torch.zeros(5, 7, device="meta")}, ArgumentError, "on cpu, but is on meta"),
    "sink of a list": ({"sink": [0.0] * 6}, ArgumentError, "sink must be a tensor or None, but list came"),
    "sink of integers": ({"sink": torch.zeros(6).long()}, ArgumentError, "sink must be floating, but torch.int64 came"),
    "generator of a seed": ({"dropout": 0.5, "generator": 7}, ArgumentError, "torch.Generator or None, but int came"),
    "softcap": ({"softcap": 0.0}, ArgumentError, "greater than 0 and finite, or None for no cap; got 0.0"),
    "scale": ({"scale": float("nan")}, ArgumentError, "scale must be a finite number, or None .*; got nan"),
    "no features": (
        {"q": torch.zeros(2, 6, 5, 0), "k": torch.zeros(2, 3, 7, 0)},
        ShapeError,
        "D=0: a query and a key need one",
    ),
    "no dropout": ({"dropout": None}, ArgumentError, "dropout must be a plain number, but NoneType came"),
    "sparse": (
        {"k": torch.zeros(2, 3, 7, 11).to_sparse()},
        ArgumentError,
        "must be a dense tensor, but torch.sparse_coo",
    ),
    "sink": ({"sink": torch.zeros(5)}, ShapeError, r"sink must be \(Hq=6\,\).*came as \(5,\)"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_bad_call_is_refused_in_one_sentence(case: str) -> None:
    wrong, error, said = REFUSALS[case]
    q, k, v = tensors()
    with pytest.raises(error, match=said):
        hw.attention(**({"q": q, "k": k, "v": v} | wrong))
    with pytest.raises(error, match=said):
        hw.backends(**({"q": q, "k": k, "v": v} | wrong))


def test_nested_tensors_are_refused() -> None:
    nested = torch.nested.nested_tensor([torch.zeros(3, 7, 11), torch.zeros(3, 5, 11)], layout=torch.jagged)
    q, _k, v = tensors()
    with pytest.raises(ShapeError, match=r"k is a nested tensor: pad it, and say which keys are real with mask=keys"):
        hw.attention(q, nested, v)


def test_an_unknown_keyword_is_refused() -> None:
    q, k, v = tensors()
    with pytest.raises(TypeError, match="unexpected keyword argument 'is_casual'"):
        hw.attention(q, k, v, is_casual=True)


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("wrong", [None, 3, [1.0]], ids=repr)
def test_what_is_no_tensor_is_refused_in_a_sentence(wrong, autocast):
    t, weight = torch.randn(1, 2, 3, 4), torch.ones(4)
    calls = {
        "q": (lambda: hw.attention(wrong, t, t), lambda: hw.attention_map(wrong, t)),
        "k": (lambda: hw.attention(t, wrong, t), lambda: hw.attention_map(t, wrong)),
        "v": (lambda: hw.attention(t, t, wrong), lambda: hw.backends(t, t, wrong)),
        "weight": (lambda: hw.additive_attention(t, t, t, wrong), lambda: additive_map(t, t, wrong)),
    }
    calls["q"] += (lambda: hw.additive_attention(wrong, t, t, weight), lambda: additive_map(wrong, t, weight))
    with torch.autocast("cpu", enabled=autocast):
        for name, each in calls.items():
            for call in each:
                with pytest.raises(ArgumentError, match=f"{name} must be a tensor.*, but {type(wrong).__name__} came"):
                    call()
