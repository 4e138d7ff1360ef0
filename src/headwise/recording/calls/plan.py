"""Plan: one way to build and to call a target, with symbols for its sizes; the language of `--init` and `--call`."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["Named", "Plan", "evaluated"]

# 2 and 3 are left to constants; small, so that scores stay small
PRIMES = (5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41)


@dataclass(frozen=True)
class Named:
    """A symbol. meaning: as in tracing.trace.Symbol; said: what the person's code calls it. equals: the expression
    that it is bound to be, "": it is free. least: no smaller. even: twice a prime. fixed: always this; None: it varies.
    """

    name: str
    meaning: str
    said: str = ""
    equals: str = ""
    least: int = 0
    even: bool = False
    fixed: int | None = None


@dataclass(frozen=True)
class Plan:
    """How a target is built and called.

    setting: "cross" where keys differ from queries in length, else "self". mask: the argument that gets a mask, "":
    none. init, call: as `--init` and `--call` take them, in the order of the parameters. symbols: free ones first.
    """

    target: Any
    setting: str
    init: Mapping[str, Any]
    call: Mapping[str, Any]
    symbols: tuple[Named, ...]
    mask: str = ""
    namespace: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def sizes(self, probe: int) -> dict[str, int]:
        """The size of each symbol in a probe run: distinct primes, in another order in each."""
        free = [each for each in self.symbols if not each.equals and each.fixed is None]
        out = {each.name: each.fixed for each in self.symbols if each.fixed is not None}
        # a step that shares no factor with their number goes round all of them, and both orders of any two come
        step, count = (1, 3, 5, 7, 2, 4)[probe % 6], len(PRIMES)
        primes = [PRIMES[(at * step + probe) % count] for at in range(count)]
        small = [prime for prime in primes if prime <= 23] if len(free) <= 7 else primes
        for at, each in enumerate(free):
            size = small[at % len(small)]
            size = size * 2 if each.even else size
            while size < each.least:
                size += PRIMES[-1] * (2 if each.even else 1)
            out[each.name] = size
        for each in self.symbols:
            if each.equals:
                out[each.name] = evaluated(each.equals, out)
        return out

    def build(self, sizes: Mapping[str, int]) -> Any:
        """The module in eval mode, built with the same random numbers each time; what is no class is itself."""
        if not isinstance(self.target, type):
            return self.target
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(0)
            built = self.target(**{name: self._value(value, sizes) for name, value in self.init.items()})
        return built.eval() if isinstance(built, nn.Module) else built

    def arguments(self, sizes: Mapping[str, int], *, seed: int = 0) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What the target is called with: normal numbers where a shape is asked for, masks by what they mean."""
        generator = torch.Generator().manual_seed(seed)
        options = {
            name: self._argument(value, sizes, generator)
            for name, value in self.call.items()
            if not name.startswith("_")
        }
        mask = self.call.get("_mask")
        if isinstance(mask, Mapping):
            options[str(mask["argument"])] = _mask(
                str(mask["means"]), [self._size(each, sizes) for each in mask["shape"]], sizes
            )
        return (), options

    def _argument(self, value: Any, sizes: Mapping[str, int], generator: torch.Generator) -> Any:
        if isinstance(value, list):
            return torch.randn([self._size(each, sizes) for each in value], generator=generator)
        if isinstance(value, Mapping) and "_tuple" in value:
            return tuple(self._argument(each, sizes, generator) for each in value["_tuple"])
        if isinstance(value, Mapping) and "_ids" in value:
            shape = [self._size(each, sizes) for each in value["_ids"]]
            return torch.randint(0, self._size(value["below"], sizes), shape, generator=generator)
        return self._value(value, sizes)

    def _value(self, value: Any, sizes: Mapping[str, int]) -> Any:
        if isinstance(value, str):
            return evaluated(value, sizes) if _is_size(value, sizes) else value
        if isinstance(value, Mapping) and "_tuple" in value:
            return tuple(self._value(each, sizes) for each in value["_tuple"])
        if isinstance(value, Mapping) and "_expr" in value:
            # the person's own words, in the person's own file
            return eval(value["_expr"], {"torch": torch, **self.namespace}, dict(sizes))  # noqa: S307
        return value

    def _size(self, value: Any, sizes: Mapping[str, int]) -> int:
        return evaluated(value, sizes) if isinstance(value, str) else int(value)


def evaluated(expression: str, sizes: Mapping[str, int]) -> int:
    """An expression in symbols and whole numbers, with + - * // and brackets."""
    return _evaluated(ast.parse(expression, mode="eval").body, sizes)


def _is_size(text: str, sizes: Mapping[str, int]) -> bool:
    try:
        evaluated(text, sizes)
    except (KeyError, SyntaxError, TypeError, ValueError):
        return False
    return True


def _evaluated(node: ast.AST, sizes: Mapping[str, int]) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name):
        return sizes[node.id]
    if isinstance(node, ast.BinOp):
        a, b = _evaluated(node.left, sizes), _evaluated(node.right, sizes)
        if isinstance(node.op, ast.Add):
            return a + b
        if isinstance(node.op, ast.Sub):
            return a - b
        if isinstance(node.op, ast.Mult):
            return a * b
        if isinstance(node.op, ast.FloorDiv):
            return a // b
    raise ValueError(f"a size is made of symbols, whole numbers, + - * and //; got {ast.dump(node)}")


def _mask(means: str, shape: list[int], sizes: Mapping[str, int]) -> Tensor:
    """A mask that leaves each row at least the first key: the last keys are closed, of each sample other ones."""
    if means == "lengths":
        most = sizes.get("S", sizes.get("L", 1))
        return torch.arange(1, 1 + torch.Size(shape).numel()).remainder(most).clamp(min=1).reshape(shape)
    keys = shape[-1]
    count = torch.arange(torch.Size(shape[:-1]).numel()).remainder(max(1, keys - 1)) + 1
    attend = (torch.arange(keys) < count[:, None]).reshape(shape)
    if means == "additive":
        return torch.zeros(shape).masked_fill(~attend, float("-inf"))
    return ~attend if means == "blocked" else attend
