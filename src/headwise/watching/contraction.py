"""Contraction: which axes of its two factors a matrix product shares, sums over and leaves."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

__all__ = ["OTHERS", "PRODUCTS", "Contraction", "contraction"]

aten = torch.ops.aten

MATMULS: frozenset[Any] = frozenset(
    {
        torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.mm, Tensor.mm, torch.bmm, Tensor.bmm, torch.linalg.matmul,
        aten.matmul.default, aten.mm.default, aten.bmm.default,
    }
)  # fmt: skip
# addend + left @ right
ADDED: frozenset[Any] = frozenset(
    {
        torch.baddbmm, Tensor.baddbmm, torch.addmm, Tensor.addmm, aten.baddbmm.default, aten.addmm.default,
    }
)  # fmt: skip
EINSUMS: frozenset[Any] = frozenset({torch.einsum, aten.einsum.default})
# whose axes are not read
OTHERS: frozenset[Any] = frozenset(
    {
        torch.mv, Tensor.mv, torch.tensordot, torch.addbmm, Tensor.addbmm, torch.addmv, Tensor.addmv,
        torch.linalg.multi_dot, torch.chain_matmul, torch.nn.functional.linear, aten.linear.default,
    }
)  # fmt: skip
PRODUCTS = MATMULS | ADDED | EINSUMS | OTHERS | {Tensor.__rmatmul__}


@dataclass(frozen=True, slots=True)
class Contraction:
    """A product of two tensors: a letter for every axis of the factors and of the result; of equal letters, 1 meets n.

    rows: the letters of the result that only the left and only the right factor has; of batches that one factor lacks
    they say nothing. addend: what was added, None: nothing. multiplier: of the product; `of_addend`: of the addend.
    """

    factors: tuple[Tensor, Tensor]
    letters: tuple[str, str]
    result: str
    rows: tuple[str, str]
    addend: Tensor | None = None
    multiplier: float = 1.0
    of_addend: float = 1.0

    @property
    def summed(self) -> str:
        """The letters that both factors have and the result has not."""
        return "".join(c for c in self.letters[0] if c in self.letters[1] and c not in self.result)


def contraction(function: Any, args: Sequence[Any], options: Mapping[str, Any]) -> Contraction | None:
    """What a call of a product contracts; None: it is no product of two tensors with plain axes."""
    if function in MATMULS:
        factors = [*args, *(options[name] for name in ("other", "mat2") if name in options)]
        return _of_matmul(*factors[:2]) if len(factors) == 2 else None
    if function is Tensor.__rmatmul__:
        return _of_matmul(args[1], args[0])
    if function in ADDED and len(args) == 3:
        product = _of_matmul(args[1], args[2])
        if product is None or set(options) - {"beta", "alpha"}:
            return None
        beta, alpha = float(options.get("beta", 1)), float(options.get("alpha", 1))
        return replace(product, addend=args[0] if beta else None, multiplier=alpha, of_addend=beta)
    if function in EINSUMS and not options:
        return _of_einsum(args)
    return None


def _of_matmul(left: Any, right: Any) -> Contraction | None:
    if not isinstance(left, Tensor) or not isinstance(right, Tensor) or min(left.ndim, right.ndim) < 2:
        return None
    lead = string.ascii_lowercase[: max(left.ndim, right.ndim) - 2]
    if max(left.ndim, right.ndim) > len(string.ascii_lowercase):
        return None
    left_batch, right_batch = lead[len(lead) - left.ndim + 2 :], lead[len(lead) - right.ndim + 2 :]
    return Contraction((left, right), (f"{left_batch}QD", f"{right_batch}DK"), f"{lead}QK", ("Q", "K"))


def _of_einsum(args: Sequence[Any]) -> Contraction | None:
    """The contraction of torch.einsum("...", left, right)."""
    tensors: Any = args[1:]
    if len(tensors) == 1 and isinstance(tensors[0], tuple | list):
        tensors = tensors[0]
    if not args or not isinstance(args[0], str) or len(tensors) != 2:
        return None
    left, right = tensors
    if not isinstance(left, Tensor) or not isinstance(right, Tensor):
        return None
    inputs, arrow, out = args[0].replace(" ", "").partition("->")
    terms = inputs.split(",")
    if not arrow or len(terms) != 2:
        return None
    unused = iter(c for c in string.ascii_letters if c not in args[0])
    rest = max(t.ndim - len(term.replace("...", "")) if "..." in term else 0
               for t, term in zip(tensors, terms, strict=True))  # fmt: skip
    dots = "".join(next(unused) for _ in range(rest))
    spelled = []
    for tensor, term in ((left, terms[0]), (right, terms[1]), (None, out)):
        count = rest if tensor is None else tensor.ndim - len(term.replace("...", ""))
        spelled.append(term.replace("...", dots[len(dots) - count :]) if "..." in term else term)
        # a letter twice is a diagonal
        if len(set(spelled[-1])) != len(spelled[-1]) or (tensor is not None and len(spelled[-1]) != tensor.ndim):
            return None
    left_axes, right_axes, out_axes = spelled
    if not set(out_axes) <= set(left_axes + right_axes):
        return None
    rows = ("".join(c for c in out_axes if c not in right_axes), "".join(c for c in out_axes if c not in left_axes))
    return Contraction((left, right), (left_axes, right_axes), out_axes, rows)
