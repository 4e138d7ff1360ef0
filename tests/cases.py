"""Calls of attention to try laws on: sizes that differ from each other, and every rule and some of their pairs."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

import headwise as hw
from tests.sizes import SIZES


class Shape(NamedTuple):
    B: int = SIZES["B"]
    Hq: int = SIZES["Hq"]
    Hk: int = SIZES["Hk"]
    Lq: int = SIZES["Lq"]
    Lk: int = SIZES["Lk"]
    D: int = SIZES["D"]
    Dv: int = SIZES["Dv"]


DIFFERENT = Shape()


def tensors(
    shape: Shape = DIFFERENT, dtype: torch.dtype = torch.float32, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """q (B, Hq, Lq, D), k (B, Hk, Lk, D) and v (B, Hk, Lk, Dv)."""
    generator = torch.Generator().manual_seed(seed)
    B, Hq, Hk, Lq, Lk, D, Dv = shape
    sizes = ((B, Hq, Lq, D), (B, Hk, Lk, D), (B, Hk, Lk, Dv))
    q, k, v = (torch.randn(size, generator=generator, dtype=torch.float64) for size in sizes)
    return q.to(dtype), k.to(dtype), v.to(dtype)


def _random(*sizes: int, seed: int = 1) -> Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed))


def _keep(s: Shape) -> Tensor:
    """The last keys of the last sample, and the first key of the first, are padding; no sample loses all."""
    keep = torch.ones(s.B, s.Lk, dtype=torch.bool)
    if s.Lk > 1 and s.B:
        keep[-1, s.Lk // 2 + 1 :] = False
        keep[0, 0] = s.B == 1
    return keep


def _dense(s: Shape) -> Tensor:
    return _random(s.B, s.Hq, s.Lq, s.Lk, seed=2) > 0.3


def _bias(s: Shape) -> Tensor:
    return _random(s.B, s.Hq, s.Lq, s.Lk, seed=3)


def _empty_row(s: Shape) -> Tensor:
    allowed = torch.ones(s.Lq, s.Lk, dtype=torch.bool)
    allowed[s.Lq // 2 : s.Lq // 2 + 1] = False
    return allowed


MASKS = {
    "no mask": lambda s: None,
    "causal": lambda s: hw.causal(),
    "window": lambda s: hw.window(before=2, after=1),
    "recent keys": lambda s: hw.window(keys=3),
    "padding": lambda s: hw.keys(_keep(s)),
    "padding and causal": lambda s: hw.keys(_keep(s)) & hw.causal(),
    "lengths, one of them 0": lambda s: hw.lengths((torch.arange(s.B) * 3).clamp(max=s.Lk)),
    "a length to each query": lambda s: hw.lengths(torch.arange(s.Lq).clamp(max=s.Lk).expand(s.B, -1)),
    "documents": lambda s: hw.documents(torch.arange(s.Lq) // 3, torch.arange(s.Lk) // 3),
    "prefix": lambda s: hw.causal() | hw.prefix(2),
    "an empty row": lambda s: _empty_row(s),
    "dense, a head each": lambda s: _dense(s),
    "dense, a sample each": lambda s: _dense(s)[:, :1],
    "dense, shared by queries": lambda s: hw.allowed(_dense(s)[:, :, :1]),
    "dense, shared by keys": lambda s: hw.allowed(_dense(s)[..., :1]),
    "a rule": lambda s: hw.rule(lambda b, h, i, j: (i - j + b + h) % 3 != 0),
    "the opposite": lambda s: ~hw.causal(),
}
RULES = {
    "no rule": lambda s: {},
    "scale": lambda s: {"scale": 0.7},
    "bias": lambda s: {"attn_bias": _bias(s)},
    "bias shared by samples": lambda s: {"attn_bias": _bias(s)[0, 0]},
    "softcap": lambda s: {"softcap": 1.5},
    "sink": lambda s: {"sink": _random(s.Hq)},
    "all of them": lambda s: {"attn_bias": _bias(s), "scale": 0.7, "softcap": 2.5, "sink": _random(s.Hq)},
}
SHAPES = {
    "all sizes differ": Shape(),
    "as many keys as queries": Shape(Lk=SIZES["Lq"]),
    "one query": Shape(Lq=1),
    "one key": Shape(Lk=1),
    "more queries than keys": Shape(Lq=SIZES["Lk"], Lk=SIZES["Lq"]),
    "one head": Shape(Hq=1, Hk=1),
    "one key/value head": Shape(Hk=1),
    "no groups": Shape(Hk=SIZES["Hq"]),
    "one feature": Shape(D=1, Dv=1),
    "values narrower": Shape(Dv=4),
    "no sample": Shape(B=0),
    "no query": Shape(Lq=0),
    "more keys than a vector": Shape(Lk=17, Lq=3),
}


def rules(mask: str, rule: str, shape: Shape) -> dict[str, Any]:
    """The keywords of one call."""
    return {"mask": MASKS[mask](shape), **RULES[rule](shape)}


def dense_mask(mask: "hw.Mask | Tensor | None", shape: Shape) -> Tensor | None:
    """What `mask` allows, bool, broadcastable to (B, Hq, Lq, Lk)."""
    if mask is None or isinstance(mask, Tensor):
        return mask
    return mask.allowed(shape.Lq, shape.Lk, batch=shape.B, heads=shape.Hq)
