"""What looking at a map costs beside computing the attention, and a watched model beside the same one unwatched."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.harness import OUR_MILLISECONDS, TIMES, Absent, Case, Cases, Tensors, WrongNumbersError, compare
from benchmarks.kernels import Shape, inputs
from benchmarks.minilm import of_minilm
from headwise.maps import attention_map
from headwise.watching import watch


def maps() -> Cases:
    """The maps of one call with 4096 tokens, and of a real model with 512."""
    yield reductions(Shape(4096), is_lse_known=True, target=1.2)
    yield reductions(Shape(4096), is_lse_known=False, target=2.2)
    yield one_row(Shape(4096), target=0.5)
    yield watched(tokens=512, target=1.05)
    yield watched(tokens=512, make=holding_case)


def reductions(at: Shape, *, is_lse_known: bool, target: float | None = None) -> Case:
    """Entropy, column sums and largest score of a map that has computed nothing yet, beside one forward of SDPA."""
    q, k, v, _ = inputs(at, torch.float32)
    lse = lse_of_kernel(q, k, v) if is_lse_known else None

    def ours() -> Tensors:
        with torch.no_grad():
            m = attention_map(q, k, lse=lse)
            return m.entropy(), m.received(), m.max_logit()

    def theirs() -> Tensors:
        with torch.no_grad():
            return (F.scaled_dot_product_attention(q, k, v),)

    def check() -> None:
        exact, plain = (by_head(reduced, q, k, dtype=dtype) for dtype in (torch.float64, torch.float32))
        compare("ours", ours(), exact, plain)

    name = f"map, lse {'known' if is_lse_known else 'unknown'}"
    return Case(name, "SDPA forward", str(at), "float32", ours, theirs, check, TIMES, target)


def one_row(at: Shape, *, target: float | None = None) -> Case:
    """One exact row of the map of a new call whose lse is known, beside that row by hand."""
    q, k, v, _ = inputs(at, torch.float32)
    head, i, lse = at.H // 2, at.L // 3, lse_of_kernel(q, k, v)

    def ours() -> Tensors:
        with torch.no_grad():
            return (attention_map(q, k, lse=lse)[0, head, i],)

    def theirs() -> Tensors:
        with torch.no_grad():
            return (torch.softmax(k[0, head] @ q[0, head, i] * at.D**-0.5, dim=-1),)

    def check() -> None:
        exact = torch.softmax(k[0, head].double() @ q[0, head, i].double() * at.D**-0.5, dim=-1)
        compare("ours", ours(), (exact,), theirs())

    return Case(
        "one row, lse known", "softmax by hand", str(at), "float32", ours, theirs, check, OUR_MILLISECONDS, target
    )


def watched(*, tokens: int, target: float | None = None, make: Callable[..., Case] | None = None) -> Case | Absent:
    """A forward of the embedded MiniLM under watch, its maps unread, beside the same forward alone.

    make: what makes the case of the model, None: `watched_case`.
    """

    def made(model: nn.Module, ids: Tensor, shape: str) -> Case:
        config: Any = model.config
        return (watched_case if make is None else make)(
            model, ids, config.num_hidden_layers, shape=shape, target=target
        )

    return of_minilm(made, "watched forward", "unwatched", tokens=tokens)


def watched_case(model: nn.Module, ids: Tensor, layers: int, *, shape: str, target: float | None = None) -> Case:
    """The case of a model with that many layers of attention, whose output must be the same to the bit."""

    def theirs() -> Tensors:
        with torch.no_grad():
            return (model(ids).last_hidden_state,)

    def ours() -> Tensors:
        with watch(model):
            return theirs()

    def check() -> None:
        with watch(model) as seen:
            out = theirs()[0]
        if not torch.equal(out, theirs()[0]):
            raise WrongNumbersError("ours changes the output of the model")
        if len(seen) != layers:
            raise WrongNumbersError(f"ours sees {len(seen)} maps, but the model has {layers} layers")

    return Case("watched forward", "unwatched", shape, "float32", ours, theirs, check, TIMES, target)


def holding_case(model: nn.Module, ids: Tensor, layers: int, *, shape: str, target: float | None = None) -> Case:
    """What a watch cannot do without: the same forward while hooks hold the queries and keys, and nothing else."""
    held: list[Tensor] = []

    def theirs() -> Tensors:
        with torch.no_grad():
            return (model(ids).last_hidden_state,)

    def ours() -> Tensors:
        with ExitStack() as hooks:
            for name, part in model.named_modules():
                if name.endswith((".query", ".key")):
                    hooks.enter_context(part.register_forward_hook(lambda _, __, out: held.append(out)))
            hooks.callback(held.clear)
            return theirs()

    def check() -> None:
        count = sum(name.endswith((".query", ".key")) for name, _ in model.named_modules())
        if count != 2 * layers:
            raise WrongNumbersError(f"ours holds {count} tensors, but {layers} layers have {2 * layers}")

    return Case("holding q and k", "unwatched", shape, "float32", ours, theirs, check, TIMES, target)


def lse_of_kernel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The lse (B, H, L) that torch's fused kernel gives beside its output."""
    lse: Tensor = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v)[1]
    return lse


def reduced(weights: Tensor, scores: Tensor) -> Tensors:
    """Entropy of each row, sum of each column, and the largest score, of a dense map (B, H, L, L)."""
    return torch.special.entr(weights).sum(-1), weights.sum(-2), scores.amax((-2, -1))


def by_head(reduce: Callable[[Tensor, Tensor], Tensors], q: Tensor, k: Tensor, *, dtype: torch.dtype) -> Tensors:
    """What reduce(weights, scores) gives of the dense map in dtype, one head at a time."""
    parts = []
    for h in range(q.shape[1]):
        scores = q[:, h : h + 1].to(dtype) @ k[:, h : h + 1].to(dtype).mT * q.shape[-1] ** -0.5
        parts.append(reduce(torch.softmax(scores, dim=-1), scores))
    return tuple(torch.cat(each, dim=1) for each in zip(*parts, strict=True))
