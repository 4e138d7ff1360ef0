"""Fused steps: a call of torch that does several things at once, as the functions that do one each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

__all__ = ["steps_of"]

# runs a function on arguments
Step = Callable[..., Any]
PAIR = 2


def _added_product(run: Step, *args: Tensor, beta: float = 1, alpha: float = 1, **named: Tensor) -> Any:
    tensors = dict(zip(("input", "batch1", "batch2"), args, strict=False)) | named
    product = run(torch.bmm, tensors["batch1"], tensors["batch2"])
    if alpha != 1:
        product = run(torch.mul, product, alpha)
    if beta == 0:
        return product
    added = tensors["input"] if beta == 1 else run(torch.mul, tensors["input"], beta)
    return run(torch.add, product, added)


def _product_of_many(run: Step, equation: str, *operands: Any) -> Any:
    """An einsum of many operands as einsums of two, each of the pair that sums most and leaves fewest axes."""
    left, arrow, out = equation.replace(" ", "").partition("->")
    terms, tensors = left.split(","), list(_listed(operands))
    if not arrow:
        out = ("..." if "." in left else "") + "".join(sorted(x for x in set(left) - set(".,") if left.count(x) == 1))
    while len(terms) > PAIR:
        pairs = combinations(range(len(terms)), PAIR)
        first, second = min(pairs, key=lambda pair: _cost(terms, pair, out))
        kept = _kept(terms, (first, second), out)
        product = run(torch.einsum, f"{terms[first]},{terms[second]}->{kept}", tensors[first], tensors[second])
        del terms[second], tensors[second]
        terms[first], tensors[first] = kept, product
    return run(torch.einsum, f"{terms[0]},{terms[1]}->{out}", *tensors)


def _listed(operands: Sequence[Any]) -> Sequence[Any]:
    return operands[0] if len(operands) == 1 and isinstance(operands[0], list | tuple) else operands


def _cost(terms: Sequence[str], pair: Sequence[int], out: str) -> tuple[int, int, int]:
    """What a product of two terms sums and leaves. Of equal ones that of terms with more letters in common is cheaper,
    or where none is summed, that with the smaller operand.
    """
    kept, (first, second) = _kept(terms, pair, out), (set(terms[at]) for at in pair)
    summed = len(first | second) - len(set(kept))
    return -summed, len(kept), -len(first & second) if summed else min(len(first), len(second))


def _kept(terms: Sequence[str], pair: Sequence[int], out: str) -> str:
    """The letters that are left of two terms: those of the result and of the other terms."""
    later = out + "".join(term for at, term in enumerate(terms) if at not in pair)
    letters = "".join(dict.fromkeys("".join(terms[at] for at in pair)))
    dots = "..." if "." in letters else ""
    return dots + "".join(letter for letter in letters if letter != "." and letter in later)


STEPS: dict[Any, Callable[..., Any]] = {torch.baddbmm: _added_product, Tensor.baddbmm: _added_product}


def steps_of(function: Any, args: Sequence[Any], options: dict[str, Any]) -> Callable[..., Any] | None:
    """What takes `run(function, *arguments)` for one step, and then the arguments of a call of `function`, and does it
    step by step; None: it is one step, or writes into a tensor that it is given.
    """
    if "out" in options:
        return None
    is_written = function is torch.einsum and not options and bool(args) and isinstance(args[0], str)
    # what torch refuses is refused by torch
    if is_written and args[0].count(",") >= PAIR and len(_listed(args[1:])) == args[0].count(",") + 1:
        return _product_of_many
    return STEPS.get(function)
