"""Calls of a whole sequence, what they give in one process, and the same call spread over ranks that are threads."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import headwise as hw
from headwise.distributed.attention import attention
from headwise.distributed.spread import spread
from headwise.ops import reference
from headwise.testing import assert_within_budget, exact_attention, plain_attention
from tests.distributed.ranks import on_ranks
from tests.sizes import SIZES

LENGTH = 29
LAYOUTS = ("contiguous", "zigzag", "striped")
NAMES = ("q", "k", "v", "attn_bias", "sink", "weight")
# of what every rank holds alike, it has a part of the gradient
SHARED = ("attn_bias", "sink", "weight")


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
    "additive": lambda L, H: {"weight": _random(H, SIZES["D"], seed=10).float()},
    "all of them": lambda L, H: {
        "attn_bias": _random(L, L, seed=9).float(), "sink": _random(H, seed=5).float(), "scale": 0.3, "softcap": 2.5,
    },
}  # fmt: skip


# of L queries and S keys
CROSS_MASKS: dict[str, Callable[[int, int, int], "hw.Mask | None"]] = {
    "no mask": lambda L, S, H: None,
    "causal": lambda L, S, H: hw.causal(),
    "padding": lambda L, S, H: hw.keys(torch.arange(S) < torch.tensor([[S], [S - 6]])),
    "documents": lambda L, S, H: hw.documents(_ids(L), _ids(S)),
    "dense, a head each": lambda L, S, H: hw.allowed(_random(1, H, L, S, seed=4) < 0.3),
    "a rule": lambda L, S, H: hw.window(before=9, after=2) & hw.rule(_rule),
}


class Attending(nn.Module):
    """A module that calls attention on what it is given."""

    def forward(self, *tensors: Tensor, **rules: Any) -> Tensor:
        return attention(*tensors, **rules)


class Case(NamedTuple):
    """A call of a whole sequence. source: how many keys another sequence has, None: those are its own tokens."""

    mask: str = "causal"
    rule: str = "no rule"
    length: int = LENGTH
    heads: tuple[int, int] = (SIZES["Hq"], SIZES["Hk"])
    dtype: torch.dtype = torch.float32
    batch: int = 2
    widths: tuple[int, int] = (SIZES["D"], SIZES["Dv"])
    source: int | None = None

    @property
    def lengths(self) -> tuple[int, int]:
        """Lq and Lk."""
        return self.length, self.length if self.source is None else self.source

    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """q, k, v and the gradient of the outputs."""
        (Hq, Hk), (D, Dv), (L, S) = self.heads, self.widths, self.lengths
        sizes = ((Hq, L, D), (Hk, S, D), (Hk, S, Dv), (Hq, L, Dv))
        made = [_random(self.batch, *size, seed=n).to(self.dtype) for n, size in enumerate(sizes)]
        return made[0], made[1], made[2], made[3]

    def rules(self) -> dict[str, Any]:
        Hq, rules = self.heads[0], RULES[self.rule](self.length, self.heads[0])
        if self.source is None:
            return {"mask": MASKS[self.mask](self.length, Hq), **rules}
        if "attn_bias" in rules:
            rules["attn_bias"] = _random(self.length, self.source, seed=9).float()
        return {"mask": CROSS_MASKS[self.mask](self.length, self.source, Hq), **rules}


def run(attend: Callable[..., Tensor], tensors: tuple[Tensor, ...], rules: dict[str, Any]) -> dict[str, Tensor]:
    """The outputs, and the gradient of each tensor given, by name. tensors: q, k, v and the gradient of the outputs."""
    given = {**dict(zip("qkv", tensors, strict=False)), **{n: rules[n] for n in NAMES if n in rules}}
    given = {name: t.detach().clone().requires_grad_() for name, t in given.items()}
    q, k, v, *_ = given.values()
    out = attend(q, k, v, **{**rules, **{n: t for n, t in given.items() if n not in "qkv"}})
    out.backward(tensors[3])
    return {"out": out.detach(), **{name: t.grad for name, t in given.items() if t.grad is not None}}


@cache
def in_one_process(case: Case, device: str = "cpu") -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """What a call gives in float64, and on a device as plain PyTorch in its own dtype.

    On a GPU torch's kernels are further off than that in gradients: there it is what is further off of plain PyTorch
    and hw.attention.
    """
    tensors, rules = case.tensors(), case.rules()
    mask = rules.pop("mask")
    allowed = None
    if mask is not None:
        allowed = mask.allowed(*case.lengths, batch=case.batch, heads=case.heads[0])
    wide = tuple(t.double() for t in tensors)
    definition, plain = exact_attention, plain_attention
    if "weight" in rules:
        definition, plain = reference.attention, _plain_additive
    exact = run(lambda q, k, v, **more: definition(q, k, v, mask=mask, **more), wide, _double(rules))
    there = None if allowed is None else allowed.to(device)
    tensors, rules = pytree.tree_map_only(Tensor, lambda t: t.to(device), (tensors, rules))
    made = {name: t.cpu() for name, t in run(partial(plain, allowed=there), tensors, rules).items()}
    if device != "cpu" and "weight" not in rules:
        ours = run(partial(hw.attention, mask=mask if mask is None else mask.to(device)), tensors, rules)
        made = {name: max((t, ours[name].cpu()), key=partial(_distance, exact[name])) for name, t in made.items()}
    return exact, made


def _distance(exact: Tensor, made: Tensor) -> float:
    return (made.double().nan_to_num() - exact.nan_to_num()).abs().max().item()


def _plain_additive(q: Tensor, k: Tensor, v: Tensor, *, weight: Tensor, allowed: Tensor | None) -> Tensor:
    """Additive attention as one writes it in PyTorch: sums in the dtype, softmax in float32, cast, matmul."""
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], dim=1) for t in (k, v))
    scores = (torch.tanh(q[:, :, :, None] + k[:, :, None]) @ weight.to(q.dtype)[:, None, :, None])[..., 0].float()
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -torch.inf)
    weights = scores.softmax(-1)
    return (weights if allowed is None else weights.masked_fill(~allowed, 0.0)).to(q.dtype) @ v


def on_rank(
    _rank: int, case: Case, layout: str, way: str, keys: str | None = None, device: str = "cpu"
) -> dict[str, Tensor]:
    """What one rank gives, and its tokens. keys: of a source, its layout, None: they are whole on each rank."""
    rules = {name: value.to(device) if hasattr(value, "to") else value for name, value in case.rules().items()}
    L, S = case.lengths
    queries = spread(L, dist.group.WORLD, mask=rules["mask"] if case.source is None else None, layout=layout)
    source = None if keys is None else spread(S, dist.group.WORLD, layout=keys)
    held = queries if case.source is None else queries.with_keys(source)
    q, k, v, go = (t.to(device) for t in case.tensors())
    of_keys = queries if case.source is None else source
    k, v = (t if of_keys is None else of_keys.local(t, dim=2) for t in (k, v))
    mine = (queries.local(q, dim=2), k, v, queries.local(go, dim=2))
    # a device has one thread for the gradients of all ranks, in which one would wait for another
    with torch.autograd.set_multithreading_enabled(device == "cpu"):
        made = run(lambda q, k, v, **more: attention(q, k, v, spread=held, way=way, **more), mine, rules)
    found = {name: t.cpu() for name, t in made.items()}
    return {**found, "tokens": queries.tokens, "key tokens": torch.arange(0) if of_keys is None else of_keys.tokens}


def spread_over(ranks: int, case: Case, layout: str, way: str) -> dict[str, Tensor]:
    """The outputs and gradients of the whole sequence, joined of all ranks."""
    return joined(on_ranks(ranks, on_rank, case, layout, way))


def joined(parts: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Those of the whole sequence; of what every rank holds alike, the sum of the gradients.

    "key tokens": of a part, those of its keys, none: it holds all of them; left out: they are its tokens.
    """
    order = torch.cat([part["tokens"] for part in parts]).argsort()
    whole = {name: torch.cat([part[name] for part in parts], 2)[:, :, order] for name in ("out", "q")}
    shared = {name: torch.stack([part[name] for part in parts]).sum(0) for name in SHARED if name in parts[0]}
    of_keys = torch.cat([part.get("key tokens", part["tokens"]) for part in parts]).argsort()
    if len(of_keys):
        return {**whole, **{n: torch.cat([part[n] for part in parts], 2)[:, :, of_keys] for n in ("k", "v")}, **shared}
    return {**whole, **{n: torch.stack([part[n] for part in parts]).sum(0) for n in ("k", "v")}, **shared}


def assert_one_set_of_numbers(
    ranks: int, case: Case, layout: str, way: str, keys: str | None = None, device: str = "cpu"
) -> None:
    """The law: outputs and gradients as near to float64 as plain PyTorch's in one process, times two."""
    found, (exact, plain) = (
        joined(on_ranks(ranks, on_rank, case, layout, way, keys, device)),
        in_one_process(case, device),
    )
    assert set(found) == set(exact)
    for name, t in found.items():
        try:
            assert_within_budget(t, exact[name], plain[name])
        except AssertionError as error:
            raise AssertionError(f"{name} of {way} on {ranks} ranks, {layout}, {case}: {error}") from error


def _double(rules: dict[str, Any]) -> dict[str, Any]:
    return {name: t.double() if isinstance(t, Tensor) else t for name, t in rules.items()}
