"""Equality: expressions in symbols, compared by evaluating them with distinct primes."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import islice, product

from headwise.tracing.shape_text import names_in, tree_of
from headwise.tracing.size_words import may_mean
from headwise.tracing.steps import Symbol

__all__ = ["SymbolScale"]

NUMBERS = (1009, 1013, 1019, 1021, 1031, 1033, 1039, 1049, 1051, 1061, 1063, 1069, 1087, 1091, 1093, 1097, 1103, 1109)
MOST_READINGS = 400


class SymbolScale:
    """A number for each symbol, by which expressions are compared.

    named: expressions in symbols that words stand for, and nothing else.
    """

    def __init__(self, symbols: Sequence[Symbol], named: Mapping[str, str] | None = None) -> None:
        self.symbols = symbols
        self._named = dict(named or {})
        free = [symbol for symbol in symbols if not symbol.equals]
        self._numbers = {symbol.name: Fraction(n) for symbol, n in zip(free, NUMBERS, strict=False)}
        for symbol in symbols:
            if symbol.equals and (value := self.value(symbol.equals)) is not None:
                self._numbers[symbol.name] = value

    def value(self, expression: str) -> Fraction | None:
        """The value of an expression in symbols; None: it has none."""
        return _computed(tree_of(expression), self._numbers)

    def fits(self, element: str, axis: str) -> bool:
        """Whether a written element may describe an axis; any element fits an unknown axis."""
        wanted = self.value(axis)
        if wanted is None:
            return True
        words = sorted(names_in(element) or ())
        choices = [self._choices(word) for word in words]
        if any(choice is None for choice in choices):
            return True
        tree = tree_of(element)
        readings = islice(product(*[choice or () for choice in choices]), MOST_READINGS)
        return any(_computed(tree, dict(zip(words, reading, strict=True))) == wanted for reading in readings)

    def meanings_in(self, element: str) -> frozenset[str]:
        """The meanings of the symbols that the words of an element may be; empty: any."""
        names = {name for word in names_in(element) or () for name in may_mean(word, self.symbols) or ()}
        return frozenset(symbol.meaning for symbol in self.symbols if symbol.name in names)

    def knows(self, word: str) -> bool:
        """Whether a word has a meaning among the symbols."""
        return self._choices(word) is not None

    def _choices(self, word: str) -> list[Fraction] | None:
        named = self.value(self._named[word]) if word in self._named else None
        if named is not None:
            return [named]
        names = may_mean(word, self.symbols)
        if names is None:
            return None
        return sorted({self._numbers[name] for name in names if name in self._numbers})


def _computed(node: ast.expr | None, numbers: Mapping[str, Fraction]) -> Fraction | None:
    """The value of an expression; None: it is no sum, product or quotient of known names."""
    if isinstance(node, ast.Constant):
        return Fraction(node.value) if isinstance(node.value, int) else None
    if isinstance(node, ast.Name):
        return numbers.get(node.id)
    if not isinstance(node, ast.BinOp):
        return None
    a, b = _computed(node.left, numbers), _computed(node.right, numbers)
    if a is None or b is None:
        return None
    match node.op:
        case ast.Add():
            return a + b
        case ast.Sub():
            return a - b
        case ast.Mult():
            return a * b
        case ast.Div() | ast.FloorDiv() if b:
            return a / b
    return None
