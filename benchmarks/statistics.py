"""What a person reads of long maps, beside the attention of one forward, SDPA alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import headwise as hw
from benchmarks.harness import TIMES, Case, Cases, Tensors, WrongNumbersError, compare
from benchmarks.kernels import Shape, inputs
from benchmarks.maps import by_head
from headwise.analysis import rollout
from headwise.maps import AttentionMap, attention_map
from headwise.watching import Seen, watch

# layers of a model, and the pixels and weights of a row that are asked for
LAYERS, PIXELS, K = 4, 256, 8


def statistics() -> Cases:
    """Maps of 8192 tokens and 8 heads: one, and those of a model of four layers."""
    at = Shape(8192)
    yield of_one(at, "statistics and picture", _statistics, target=2.5)
    yield of_one(at, f"topk({K})", _largest, target=3)
    yield again(at)
    yield of_all(at, "rollout", _rolled, target=4)
    yield of_all(at, "look", _looked, target=6)


def of_one(
    at: Shape, name: str, read: Callable[[AttentionMap], Tensors], *, target: float,
    dense: Callable[[AttentionMap], Tensors] | None = None,
) -> Case:  # fmt: skip
    """A reading of a map that has computed nothing yet, beside one forward of SDPA.

    dense: the reading whose definition it is held against; None: its own.
    """
    q, k, v, _ = inputs(at, torch.float32)

    def ours() -> Tensors:
        with torch.no_grad():
            return read(attention_map(q, k))

    def check() -> None:
        compare(
            "ours",
            ours(),
            *(by_head(DENSE[dense or read], q, k, dtype=dtype) for dtype in (torch.float64, torch.float32)),
        )

    return Case(name, "SDPA forward", str(at), "float32", ours, _sdpa(q, k, v), check, TIMES, target, is_long=True)


def again(at: Shape) -> Case:
    """A second look at a map, beside one forward of SDPA."""
    q, k, v, _ = inputs(at, torch.float32)
    m = attention_map(q, k)
    first = _statistics(m)

    def ours() -> Tensors:
        return _statistics(m)

    def check() -> None:
        if not all(map(torch.equal, ours(), first)):
            raise WrongNumbersError("ours gives other numbers the second time")

    return Case(
        "statistics again", "SDPA forward", str(at), "float32", ours, _sdpa(q, k, v), check, TIMES, 0.02, is_long=True
    )


def of_all(at: Shape, name: str, read: Callable[[Seen], object], *, target: float) -> Case:
    """A reading of all layers of a model that has just been watched, beside one forward of SDPA for each layer."""
    torch.manual_seed(0)
    model = nn.Sequential(*(hw.MultiHeadAttention(at.H * at.D, at.H) for _ in range(LAYERS)))
    q, k, v, _ = inputs(at, torch.float32)
    x = torch.randn(1, at.L, at.H * at.D)
    with torch.no_grad(), watch(model) as first:
        model(x)

    def ours() -> object:
        return read(fresh(first))

    def theirs() -> None:
        for _ in range(LAYERS):
            _sdpa(q, k, v)()

    return Case(
        name, f"SDPA x {LAYERS}", f"{LAYERS} layers, {at}", "float32", ours, theirs, lambda: None, TIMES, target,
        is_long=True,
    )  # fmt: skip


def fresh(seen: Seen) -> Seen:
    """The same calls, of which nothing has been read."""
    again = Seen()
    for call in seen._calls:
        if call.record is not None:
            again._add(call.name, call.record, call.record.map())
    return again


def _sdpa(q: Tensor, k: Tensor, v: Tensor) -> Callable[[], Tensors]:
    def run() -> Tensors:
        with torch.no_grad():
            return (F.scaled_dot_product_attention(q, k, v),)

    return run


def _statistics(m: AttentionMap) -> Tensors:
    found = m.statistics(pooled=(PIXELS, PIXELS))
    return found.entropy, found.received, found.max_logit, found.pooled if found.pooled is not None else found.entropy


def _largest(m: AttentionMap) -> Tensors:
    return (m.topk(K)[0],)


def _rolled(seen: Seen) -> Tensor:
    return rollout(seen, token=-1)


def _looked(seen: Seen) -> None:
    with TemporaryDirectory() as folder:
        hw.look(seen, output=Path(folder) / "page.html")


DENSE: dict[Callable[[AttentionMap], Tensors], Callable[[Tensor, Tensor], Tensors]] = {
    _statistics: lambda p, s: (
        torch.special.entr(p).sum(-1), p.sum(-2), s.amax((-2, -1)), F.adaptive_avg_pool2d(p, (PIXELS, PIXELS)),
    ),
    _largest: lambda p, s: (p.topk(K).values,),
}  # fmt: skip
