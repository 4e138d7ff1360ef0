"""Steps: a computation as the page shows it, operation by operation, and the worked example that it has of its own."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from headwise.pages.document import asset

__all__ = ["tensor", "worked_example"]

# q_0 and q_1 of the fourth note: 2 heads, 3 tokens, d_k = 2; it gives no keys and values, so these are ours
QUERIES = (((1.45, -0.79), (0.62, -0.64), (0.97, -0.21)), ((0.40, 0.53), (0.40, 0.29), (0.48, 0.80)))
KEYS = (((1.10, -0.30), (0.20, 0.90), (-0.60, 0.40)), ((0.70, 0.60), (-0.40, 1.20), (0.90, -0.50)))
VALUES = (((1.00, 0.00), (0.00, 1.00), (0.50, -0.50)), ((0.20, 0.80), (-0.60, 0.40), (1.00, 1.00)))
TOKENS = ("t0", "t1", "t2")


def tensor(
    values: Tensor | None,
    letters: str,
    sizes: tuple[int, ...] | None = None,
    *,
    heads: tuple[int, int] | None = None,
    names: Mapping[int, tuple[str, ...]] | None = None,
) -> dict[str, Any]:
    """A tensor as the page draws it; values: None where only its sizes are to be shown.

    letters: the name of each axis. heads: the axis along which heads lie, and how many entries are one head's. names:
    axis -> what its entries are called.

    >>> tensor(torch.tensor([[0.5, -math.inf]]), "L L")["values"]
    [0.5, '-inf']
    """
    shape = tuple(values.shape) if values is not None else (sizes or ())
    return {
        "letters": letters.split(),
        "sizes": list(shape),
        "values": None if values is None else [_number(value) for value in values.flatten().tolist()],
        "heads": heads and {"axis": heads[0], "each": heads[1]},
        "axes": {str(axis): list(each) for axis, each in (names or {}).items()},
    }


def worked_example() -> dict[str, Any]:
    """The fourth note's example: 2 heads, 3 tokens, d_k = 2, from the projections to the output, with a causal mask.

    Its q_0 and q_1 are the note's own numbers; keys and values are ours, and everything after them is computed.
    """
    q, k, v = (torch.tensor([each]) for each in (QUERIES, KEYS, VALUES))
    allowed = torch.ones(3, 3).tril()
    products = q @ k.mT
    scaled = products / math.sqrt(2)
    masked = scaled.masked_fill(allowed == 0, -math.inf)
    weights = masked.softmax(-1)
    context = weights @ v
    rows, both = {2: TOKENS}, {2: TOKENS, 3: TOKENS}
    merged = {"heads": (2, 2), "names": {1: TOKENS}}
    tensors = {
        "input": tensor(None, "B L D", (1, 3, 4)),
        "query": tensor(_merged(q), "B L D", **merged),  # type: ignore[arg-type]  # both of their kinds
        "key": tensor(_merged(k), "B L D", **merged),  # type: ignore[arg-type]
        "value": tensor(_merged(v), "B L D", **merged),  # type: ignore[arg-type]
        "query by head": tensor(q, "B H L d", heads=(1, 1), names=rows),
        "key by head": tensor(k, "B H L d", heads=(1, 1), names=rows),
        "value by head": tensor(v, "B H L d", heads=(1, 1), names=rows),
        "products": tensor(products, "B H L L", heads=(1, 1), names=both),
        "scores": tensor(scaled, "B H L L", heads=(1, 1), names=both),
        "mask": tensor(allowed, "L L", names={0: TOKENS, 1: TOKENS}),
        "masked scores": tensor(masked, "B H L L", heads=(1, 1), names=both),
        "weights": tensor(weights, "B H L L", heads=(1, 1), names=both),
        "context by head": tensor(context, "B H L d", heads=(1, 1), names=rows),
        "context": tensor(_merged(context), "B L D", **merged),  # type: ignore[arg-type]
        "output": tensor(None, "B L D", (1, 3, 4)),
    }
    example: dict[str, Any] = json.loads(asset("worked.json"))
    return example | {"tensors": tensors}


def _merged(heads: Tensor) -> Tensor:
    """(B, H, L, d) -> (B, L, H·d)."""
    return heads.transpose(1, 2).flatten(2)


def _number(value: float) -> float | str:
    """A number as JSON can hold it: what is not finite as text."""
    return value if math.isfinite(value) else str(value)
