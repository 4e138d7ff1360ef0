"""Calls of a whole sequence, what they give in one process, and the same call spread over ranks that are threads."""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

import headwise as hw
from headwise.distributed.attention import attention
from headwise.distributed.spread import spread
from headwise.testing import assert_within_budget, exact_attention, plain_attention
from tests.distributed.ranks import on_ranks
from tests.sizes import SIZES

LENGTH = 29
LAYOUTS = ("contiguous", "zigzag", "striped")
NAMES = ("q", "k", "v", "attn_bias", "sink")


def _random(*sizes: int, seed: int) -> Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _ids(L: int) -> Tensor:
    return (torch.arange(L) // torch.tensor([[5], [7]])).clamp(max=3)


def _rule(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return ((i * 7 + j * 3 + h + b) % 5 != 0) & (j <= i)


MASKS: dict[str, Callable[[int, int], "hw.Mask | None"]] = {
    "no mask": lambda L, H: None,
    "causal": lambda L, H: hw.causal(),
    "window": lambda L, H: hw.window(before=4),
    "two-sided window": lambda L, H: hw.window(before=2, after=3),
    "padding": lambda L, H: hw.causal() & hw.keys(torch.arange(L) >= torch.tensor([[0], [min(6, L - 1)]])),
    "documents": lambda L, H: hw.causal() & hw.documents(_ids(L)),
    "lengths, one of them 0": lambda L, H: hw.lengths(torch.tensor([0, L - L // 3])),
    "a length to each query": lambda L, H: hw.lengths((torch.arange(2 * L).view(2, L) * 5) % (L + 1)),
    "prefix": lambda L, H: hw.causal() | hw.prefix(L // 4),
    "a rule": lambda L, H: hw.rule(_rule),
    "dense, a head each": lambda L, H: hw.allowed(_random(1, H, L, L, seed=4) < 0.3),
    "not the nearest": lambda L, H: hw.causal() & ~hw.window(before=3),
    "placed": lambda L, H: hw.causal().at(torch.arange(L) % 9, torch.arange(L) % 9),
    "nothing": lambda L, H: hw.causal() & hw.window(before=2) & hw.keys(torch.arange(L)[None] < 3),
}
RULES: dict[str, Callable[[int, int], dict[str, Any]]] = {
    "no rule": lambda L, H: {},
    "scale and softcap": lambda L, H: {"scale": 0.3, "softcap": 2.5},
    "sink": lambda L, H: {"sink": _random(H, seed=5).float()},
    "bias": lambda L, H: {"attn_bias": _random(2, H, L, L, seed=6).float()},
    "bias of rows": lambda L, H: {"attn_bias": _random(L, 1, seed=7).float()},
    "bias of columns": lambda L, H: {"attn_bias": _random(1, H, 1, L, seed=8).float()},
    "all of them": lambda L, H: {
        "attn_bias": _random(L, L, seed=9).float(), "sink": _random(H, seed=5).float(), "scale": 0.3, "softcap": 2.5,
    },
}  # fmt: skip


class Case(NamedTuple):
    mask: str = "causal"
    rule: str = "no rule"
    length: int = LENGTH
    heads: tuple[int, int] = (SIZES["Hq"], SIZES["Hk"])
    dtype: torch.dtype = torch.float32
    batch: int = 2
    widths: tuple[int, int] = (SIZES["D"], SIZES["Dv"])

    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """q, k, v and the gradient of the outputs."""
        (Hq, Hk), (D, Dv) = self.heads, self.widths
        sizes = ((Hq, D), (Hk, D), (Hk, Dv), (Hq, Dv))
        made = [_random(self.batch, H, self.length, d, seed=n).to(self.dtype) for n, (H, d) in enumerate(sizes)]
        return made[0], made[1], made[2], made[3]

    def rules(self) -> dict[str, Any]:
        Hq = self.heads[0]
        return {"mask": MASKS[self.mask](self.length, Hq), **RULES[self.rule](self.length, Hq)}


def run(attend: Callable[..., Tensor], tensors: tuple[Tensor, ...], rules: dict[str, Any]) -> dict[str, Tensor]:
    """The outputs, and the gradient of each tensor given, by name. tensors: q, k, v and the gradient of the outputs."""
    given = {**dict(zip("qkv", tensors, strict=False)), **{n: rules[n] for n in NAMES if n in rules}}
    given = {name: t.detach().clone().requires_grad_() for name, t in given.items()}
    q, k, v, *_ = given.values()
    out = attend(q, k, v, **{**rules, **{n: t for n, t in given.items() if n not in "qkv"}})
    out.backward(tensors[3])
    return {"out": out.detach(), **{name: t.grad for name, t in given.items() if t.grad is not None}}


@cache
def in_one_process(case: Case) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """What a call gives in float64, and as plain PyTorch in its own dtype."""
    tensors, rules = case.tensors(), case.rules()
    mask = rules.pop("mask")
    allowed = None
    if mask is not None:
        allowed = mask.allowed(case.length, case.length, batch=case.batch, heads=case.heads[0])
    wide = tuple(t.double() for t in tensors)
    exact = run(lambda q, k, v, **more: exact_attention(q, k, v, mask=mask, **more), wide, _double(rules))
    return exact, run(lambda q, k, v, **more: plain_attention(q, k, v, allowed=allowed, **more), tensors, rules)


def on_rank(_rank: int, case: Case, layout: str, way: str) -> dict[str, Tensor]:
    """What one rank gives, and its tokens."""
    rules = case.rules()
    held = spread(case.length, dist.group.WORLD, mask=rules["mask"], layout=layout)
    mine = tuple(held.local(t, dim=2) for t in case.tensors())
    found = run(lambda q, k, v, **more: attention(q, k, v, spread=held, way=way, **more), mine, rules)
    return {**found, "tokens": held.tokens}


def spread_over(ranks: int, case: Case, layout: str, way: str) -> dict[str, Tensor]:
    """The outputs and gradients of the whole sequence, joined of all ranks."""
    return joined(on_ranks(ranks, on_rank, case, layout, way))


def joined(parts: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Those of the whole sequence; of what every rank holds alike, the sum of the gradients."""
    order = torch.cat([part["tokens"] for part in parts]).argsort()
    whole = {name: torch.cat([part[name] for part in parts], 2)[:, :, order] for name in ("out", "q", "k", "v")}
    shared = {
        name: torch.stack([part[name] for part in parts]).sum(0) for name in ("attn_bias", "sink") if name in parts[0]
    }
    return {**whole, **shared}


def assert_one_set_of_numbers(ranks: int, case: Case, layout: str, way: str) -> None:
    """The law: outputs and gradients as near to float64 as plain PyTorch's in one process, times two."""
    found, (exact, plain) = spread_over(ranks, case, layout, way), in_one_process(case)
    assert set(found) == set(exact)
    for name, t in found.items():
        try:
            assert_within_budget(t, exact[name], plain[name])
        except AssertionError as error:
            raise AssertionError(f"{name} of {way} on {ranks} ranks, {layout}, {case}: {error}") from error


def _double(rules: dict[str, Any]) -> dict[str, Any]:
    return {name: t.double() if isinstance(t, Tensor) else t for name, t in rules.items()}
