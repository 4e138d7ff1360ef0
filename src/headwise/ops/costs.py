"""Costs: how long each backend takes for a call on this machine, estimated from rates that were measured."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from functools import lru_cache
from importlib import resources

import torch

from headwise.masks.leaves import Causal
from headwise.ops import grouped_queries
from headwise.ops.call import Call
from headwise.ops.causal_cost import causal_pairs
from headwise.ops.strips import Total
from headwise.ops.workspace import fits_torch, multiplies_bfloat16, product_dtype

# what the time of a call is made of: its one-time part, what a mask adds to it, and these many of each, shared among
# threads from numbers on
FEATURES = ("calls", "masks", "strips", "numbers", "rows", "products", "pairs", "masked pairs", "ragged pairs")
# scores of so many keys fill whole vectors; those of other numbers of keys are ragged
VECTOR = 16
# few queries have rates of their own, and up to so many keys
FEW_QUERIES = "of few queries"
MOST_SHORT, SHORT = 128, "of short sequences"
# torch's operations number by number take another thread for each so many
GRAIN = 1 << 15
# the dtypes that have rates, by their names in the table
DTYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}
# the backends that have rates
MEASURED = ("blockwise", "sdpa", "reference")
# up to so many weights, 16 MiB in float32, the definition may be the fastest
MOST_WEIGHTS = 1 << 22

Work = tuple[float, float, float, float, float, float, float, float, float]
# seconds of one of each feature, by way
Rates = dict[str, Sequence[float]]


@lru_cache(maxsize=1)
def level() -> str:
    """The vectors that torch's kernels use here, and whether it multiplies bfloat16 as such: a key of the table."""
    family = platform.machine().lower().replace("amd64", "x86_64")
    words = [family, torch.backends.cpu.get_cpu_capability().lower()]
    if multiplies_bfloat16():
        words.append("amx" if torch.cpu._is_amx_tile_supported() else "bf16")
    return " ".join(words)


@lru_cache(maxsize=1)
def table() -> dict[str, dict[str, Rates]]:
    """Rates by level and dtype, as `python -m benchmarks.rates` has written them."""
    text = resources.files("headwise.ops").joinpath("rates.json").read_text(encoding="utf-8")
    levels: dict[str, dict[str, Rates]] = json.loads(text)["levels"]
    return levels


@lru_cache(maxsize=1)
def nearest() -> str:
    """The level of the table whose rates are read here: this machine's, or the one that does most of what it does."""
    measured, here = table(), level()
    others = ("x86_64 avx512 bf16", "x86_64 avx2") if here.endswith((" bf16", " amx")) else ("x86_64 avx2",)
    names: tuple[str, ...] = (here, *others, *measured)
    return next(name for name in names if name in measured)


@lru_cache(maxsize=64)
def rates(dtype: torch.dtype, way: str) -> Sequence[float]:
    """Seconds of one of each feature here; of any length, where short sequences were not measured by themselves."""
    # float64 was not measured; every part of it takes twice as long
    if dtype is torch.float64:
        return [2.0 * rate for rate in rates(torch.float32, way)]
    found = table()[nearest()][DTYPES[dtype]]
    return found.get(way) or found[way.removesuffix(f" {SHORT}")]


def rules_of(call: Call) -> str:
    """The rules of a call that torch's kernel does not have, so that strips are computed by other means; "": none."""
    if call.dropout:
        return "dropout"
    rules = (call.weight, call.attn_bias, call.softcap, call.sink)
    return "scores" if any(rule is not None for rule in rules) else ""


def way_of(backend: str, call: Call) -> str:
    """Which rates a backend has for a call: those of its kernel and rules, with the derivative or without."""
    rules = "" if backend == "sdpa" else rules_of(call)
    return way(backend, rules, is_differentiated=is_differentiated(call), lengths=lengths_of(call))


def is_differentiated(call: Call) -> bool:
    """Whether a call is priced with its backward pass."""
    # a checkpoint runs a call without a graph and again with one: both must take the backend whose drops are the same
    return call.dropout > 0 or call.is_differentiated


def way(backend: str, rules: str, *, is_differentiated: bool, lengths: str = "") -> str:
    """The name under which the table has rates."""
    direction = "forward and backward" if is_differentiated else "forward"
    return " ".join(filter(None, (backend, rules, direction, lengths)))


def lengths_of(call: Call) -> str:
    """The lengths that have rates of their own: few queries beside the keys, as in decoding, where reading these takes
    the time; short sequences, where torch's kernels split the work in other ways; "": all others.
    """
    if grouped_queries.are_few(call):
        return FEW_QUERIES
    return SHORT if call.sizes.Lk <= MOST_SHORT else ""


def work_of(backend: str, call: Call, strips: Total | None = None) -> Work:
    """How many of each feature a backend computes for a call. strips: what those of blockwise hold, for it alone."""
    B, Hq, Lq, Lk = call.sizes
    pairs, masked, count = float(B * Hq * Lq * Lk), 0.0, 0.0
    threads = torch.get_num_threads()
    # others copy keys for each head that shares them
    is_read_once = strips is not None or (backend == "sdpa" and grouped_queries.are_joined(call))
    numbers = float(call.q.numel() + (1 if is_read_once else call.groups) * (call.k.numel() + call.v.numel()))
    if strips is not None:
        # torch's kernel adds the mask of a strip to all of its scores
        is_fused = fits_torch(call, is_dropped=call.dropout > 0)
        count, pairs, masked = strips.strips, strips.pairs, strips.masked if is_fused else strips.asked
    elif backend == "sdpa" and type(call.mask) is Causal and Lq in (1, Lk) and call.attn_bias is None:
        pairs = B * Hq * float(Lk if Lq == 1 else causal_pairs(Lq))
    elif call.mask is not None or call.attn_bias is not None:
        masked = pairs
    products = pairs * (call.q.shape[-1] + call.v.shape[-1]) / threads
    if backend == "reference":
        if call.mask is not None:
            # what it hides from all is set to 0 in a copy
            numbers += call.k.numel() + call.v.numel()
        threads = max(1, min(threads, int(pairs) // GRAIN))
    shared = (numbers, B * Hq * float(Lq), pairs, masked, pairs if Lk % VECTOR else 0.0)
    numbers, rows, pairs, masked, ragged = (amount / threads for amount in shared)
    return 1.0, 1.0 if masked else 0.0, count, numbers, rows, products, pairs, masked, ragged


def seconds_of(rates_of: Sequence[float], work: Work) -> float:
    """What so much work takes by these rates."""
    return sum(rate * count for rate, count in zip(rates_of, work, strict=True))


def is_of_torch(call: Call, strips: Total) -> bool:
    """Whether strips are calls of torch's own kernel without a mask, of the dtype of the call: halves that strips
    multiply in float32 take another time than torch's kernel of halves.
    """
    is_same = product_dtype(call) is call.q.dtype
    return is_same and strips.pairs > 0 and strips.masked == 0 and fits_torch(call, is_dropped=call.dropout > 0)


def estimate(backend: str, call: Call, strips: Total | None = None) -> float:
    """Seconds that a backend takes for a call, by the table."""
    rates_of, work = rates(call.q.dtype, way_of(backend, call)), work_of(backend, call, strips)
    if strips is not None and is_of_torch(call, strips):
        # what all strips take by the call, and torch's kernel by the number
        rates_of = (*rates_of[:3], *rates(call.q.dtype, way_of("sdpa", call))[3:])
    return seconds_of(rates_of, work)
