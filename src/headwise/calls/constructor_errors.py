"""Constructor errors: what the error of a constructor says to change, one argument at a time."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from torch import Tensor

from headwise.calls.argument_origins import Origins
from headwise.calls.constructor_arguments import LEAST, Draft
from headwise.calls.error_repairs import HALVES, TYPE
from headwise.calls.failed_statement import FailedStatement, place
from headwise.calls.plan import Named
from headwise.calls.roles import init_role
from headwise.calls.signature import EMPTY, parameters
from headwise.calls.source_hints import compared_words
from headwise.calls.symbols import LEGEND, LETTERS
from headwise.recording import Budget, is_out_of_memory

__all__ = ["halved", "rebuilt"]

# how many drafts are begun with, how many things are changed of one, and how many that are built are enough
FIRST, DEEPEST, ENOUGH, WIDEST = 4, 6, 2, 6
# an image has as many axes
AXES = 2
# what is None by default and required gets a value only where its name says what turns it off
RATE = re.compile(r"drop(?!ped|s$)|丢弃")
SWITCH = re.compile(r"(?:(?:use|add|with|has)_)?(?:(?:qkv|qk|kv|attention|in|out|proj|in_proj|out_proj)_)?bias")
KEYWORDS = re.compile(r"^(?:SimpleNamespace|dict)\(")
# one number came where several are counted, walked or picked from; and what is given then
LISTED = re.compile(r"'int' (?:has no len\(\)|object is not (?:iterable|subscriptable))")
SEVERAL = (7, 5, 6)
# the rows and the columns of a table that is learned before
TABLE = (19, 24)


def rebuilt(
    unbuilt: Sequence[Draft], target: Any, ran: Callable[[Draft], Exception | None], budget: Budget
) -> list[Draft]:
    """Drafts that are built, made of some that are not by what their errors tell.

    target: the class. ran: the error of building a draft; None: it is built.
    """
    params = parameters(target)
    waiting = [(draft, 0) for draft in unbuilt[:FIRST]]
    visited: list[Draft] = []
    out: list[Draft] = []
    while waiting and len(out) < ENOUGH and not budget.is_over:
        draft, depth = waiting.pop(0)
        if draft in visited:
            continue
        visited.append(draft)
        error = ran(draft)
        if error is None:
            out.append(draft)
        elif depth < DEEPEST:
            more = [each for _, each in zip(range(WIDEST), _lessons(draft, error, params, target), strict=False)]
            # what is learned is followed first
            waiting[:0] = [(each, depth + 1) for each in more]
    return out


def _lessons(draft: Draft, error: Exception, params: Sequence[inspect.Parameter], target: Any) -> Iterator[Draft]:
    """The drafts that an error of a constructor suggests, the likeliest first."""
    at = place(error, {}, Origins())
    if isinstance(error, AttributeError) and isinstance(error.obj, SimpleNamespace) and error.name:
        yield from _with_attribute(draft, error.name)
    elif isinstance(error, KeyError) and error.args and isinstance(error.args[0], str):
        yield from _with_attribute(draft, error.args[0])
    if TYPE.search(str(error)):
        yield from _sized(draft, at, params)
    if isinstance(error, AttributeError) and type(error.obj) is int and hasattr(Tensor, str(error.name)):
        yield from _tabled(draft, at)
    if LISTED.search(str(error)):
        yield from _listed(draft, at)
    yield from halved(draft, error)
    if is_out_of_memory(error):
        yield from _lessened(draft)
    if isinstance(error, AssertionError | ValueError | NotImplementedError | TypeError | AttributeError):
        yield from _worded(draft, at)
        yield from _switched(draft, at, params)
        yield from _filled(draft, at, params, target)


def halved(draft: Draft, error: Exception | None) -> list[Draft]:
    """A draft all of whose sizes are even, where its constructor asked for that; none where it did not."""
    if not isinstance(error, AssertionError | ValueError) or not _asks_for_even(place(error, {}, Origins()).statement):
        return []
    return [Draft(draft.init, {name: replace(each, even=not each.equals) for name, each in draft.symbols.items()})]


def _asks_for_even(statement: ast.AST) -> bool:
    """Whether a statement asks what is left of a size that is halved."""
    return any(
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Mod)
        and isinstance(node.right, ast.Constant)
        and node.right.value in HALVES
        for node in ast.walk(statement)
    )


def _lessened(draft: Draft) -> Iterator[Draft]:
    """The drafts with one size that may be a number of dimensions: what has as many axes grows out of bounds."""
    for name, symbol in draft.symbols.items():
        if symbol.meaning == "parameter" and not symbol.equals and symbol.fixed is None:
            yield Draft(draft.init, {**draft.symbols, name: replace(symbol, fixed=AXES)})


def _sized(draft: Draft, at: FailedStatement, params: Sequence[inspect.Parameter]) -> Iterator[Draft]:
    """Sizes that are None unless something else is said, given: those the statement names, or all of them."""
    names = _named(at)
    free = [
        parameter.name
        for parameter in params
        if parameter.default is None and parameter.name not in draft.init and _is_size(parameter)
    ]
    for chosen in ([name for name in free if name in names], free):
        if chosen:
            init, symbols = dict(draft.init), dict(draft.symbols)
            for name in chosen:
                init[name] = _symbol(name, symbols)
            yield Draft(init, symbols)


def _listed(draft: Draft, at: FailedStatement) -> Iterator[Draft]:
    """Several sizes in the place of one that the failing statement names: the categories of each column of a table."""
    names = _named(at)
    for parameter, value in draft.init.items():
        if parameter in names and isinstance(value, str) and value in draft.symbols:
            left = {name: symbol for name, symbol in draft.symbols.items() if name != value}
            yield Draft({**draft.init, parameter: {"_tuple": [*SEVERAL]}}, left)


def _tabled(draft: Draft, at: FailedStatement) -> Iterator[Draft]:
    """A table of learned vectors in the place of a size that the failing statement takes for a tensor."""
    for parameter, value in draft.init.items():
        if parameter in _named(at) and isinstance(value, str) and value in draft.symbols:
            left = {name: symbol for name, symbol in draft.symbols.items() if name != value}
            yield Draft({**draft.init, parameter: {"_expr": f"torch.randn{TABLE}"}}, left)


def _is_size(param: inspect.Parameter) -> bool:
    role, annotation = init_role(param.name), str(param.annotation)
    return "int" in annotation or (
        param.annotation is EMPTY and role in (*LETTERS, "feed_forward", "length", "window", "")
    )


def _symbol(name: str, symbols: dict[str, Named]) -> str:
    """What a size is called; it is among the symbols from then on."""
    letter = LETTERS.get(init_role(name), "")
    symbol = letter if letter and letter not in symbols and letter != "D" else name
    symbols.setdefault(
        symbol,
        replace(LEGEND[symbol], said=name)
        if symbol in LEGEND
        else Named(symbol, "parameter", name, least=LEAST if init_role(name) == "length" else 0),
    )
    return symbol


def _worded(draft: Draft, at: FailedStatement) -> Iterator[Draft]:
    """A word for what was a size of its own, where the constructor compares something with words before it fails."""
    compared = [pair for test in at.tests for pair in compared_words(test)]
    sizes = [name for name, value in draft.init.items() if isinstance(value, str) and value == name]
    for left, words in compared:
        # a constructor may hand it on under another name
        for name in [left] if left in sizes else sizes:
            symbols = {symbol: named for symbol, named in draft.symbols.items() if symbol != name}
            yield Draft({**draft.init, name: words[0]}, symbols)


def _switched(draft: Draft, at: FailedStatement, params: Sequence[inspect.Parameter]) -> Iterator[Draft]:
    """What is true or false, the other way, where the statement or what was asked before it names it."""
    names = _named(at)
    defaults = {param.name: param.default for param in params if isinstance(param.default, bool)}
    flags = {name: value for name, value in draft.init.items() if isinstance(value, bool)}
    for name, value in {**defaults, **flags}.items():
        if name in names:
            yield Draft({**draft.init, name: not value}, draft.symbols)
    for name, value in draft.init.items():
        if isinstance(value, Mapping) and KEYWORDS.match(str(value.get("_expr", ""))):
            call = _call_of(str(value["_expr"]))
            for keyword in call.keywords:
                if keyword.arg in names and keyword.arg is not None and _is_plain(keyword.value):
                    turned = not (isinstance(keyword.value, ast.Constant) and keyword.value.value)
                    yield _reworded(draft, name, call, keyword.arg, ast.Constant(turned))


def _filled(draft: Draft, at: FailedStatement, params: Sequence[inspect.Parameter], target: Any) -> Iterator[Draft]:
    """Drafts that turn off one switch or dropout rate that is None by default and named by the failing statement.

    No other argument gets a value that nobody gave: what is computed with a wrong scale or window says nothing.
    """
    names = _named(at)
    for name in [param.name for param in params if param.default is None and param.name in names - draft.init.keys()]:
        if RATE.search(name):
            yield Draft({**draft.init, name: 0.0}, draft.symbols)
        elif SWITCH.fullmatch(name) and not _is_calculated(target, name):
            yield Draft({**draft.init, name: False}, draft.symbols)


def _is_calculated(target: Any, name: str) -> bool:
    """Whether a class calculates with an argument of its constructor, or its code cannot be read."""
    try:
        classes = [each for each in target.__mro__ if each.__module__.partition(".")[0] not in ("builtins", "torch")]
        tree = ast.Module(
            [statement for kind in classes for statement in ast.parse(textwrap.dedent(inspect.getsource(kind))).body],
            [],
        )
    except (OSError, TypeError, SyntaxError, AttributeError):
        return True
    kept = {
        ast.unparse(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and node.value.id == name
        for part in node.targets
    }
    operands = [
        operand
        for node in ast.walk(tree)
        for operand in (
            (node.left, node.right) if isinstance(node, ast.BinOp)
            else (node.operand,) if isinstance(node, ast.UnaryOp) and not isinstance(node.op, ast.Not)
            else (node.left, *node.comparators) if isinstance(node, ast.Compare) and _compares_numbers(node)
            else ()
        )
    ]  # fmt: skip
    return any(ast.unparse(operand) in {name, *kept} for operand in operands)


def _compares_numbers(node: ast.Compare) -> bool:
    """Whether a comparison is of sizes, or with a number."""
    is_order = any(isinstance(each, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for each in node.ops)
    constants = [each.value for each in (node.left, *node.comparators) if isinstance(each, ast.Constant)]
    return is_order or any(type(constant) in (int, float) for constant in constants)


def _is_plain(node: ast.AST) -> bool:
    """Whether what a config holds may be a switch: a constant, or a size of no attention."""
    if isinstance(node, ast.Constant):
        return not isinstance(node.value, str)
    return isinstance(node, ast.Name) and node.id not in LEGEND


def _with_attribute(draft: Draft, name: str) -> Iterator[Draft]:
    """A config that has one thing more, which is read somewhere inside."""
    role = init_role(name)
    for parameter, value in draft.init.items():
        if isinstance(value, Mapping) and KEYWORDS.match(str(value.get("_expr", ""))):
            call = _call_of(str(value["_expr"]))
            if any(keyword.arg == name for keyword in call.keywords):
                continue
            letter = LETTERS.get(role, "")
            symbols = dict(draft.symbols)
            if role == "width":
                words = ["D"]
                symbols.setdefault("D", replace(LEGEND["D"], said=name))
            elif letter:
                words = [letter if letter in symbols or letter == "H" else _symbol(name, symbols)]
                symbols.setdefault(words[0], replace(LEGEND.get(letter, LEGEND["H"]), said=name))
            else:
                words = {"layers": ["2"], "dropout": ["0.0"], "number": ["0.5"], "factor": ["2"]}.get(role, ["False"])
                if role in ("length", "vocabulary", "feed_forward", "window"):
                    words = [_symbol(name, symbols)]
            for word in words:
                more = _reworded(draft, parameter, call, name, ast.parse(word, mode="eval").body)
                yield Draft(more.init, symbols)


def _call_of(expression: str) -> ast.Call:
    node = ast.parse(expression, mode="eval").body
    return node if isinstance(node, ast.Call) else ast.Call(node, [], [])


def _reworded(draft: Draft, parameter: str, call: ast.Call, name: str, value: ast.expr) -> Draft:
    """A draft whose config has one keyword more, or another one."""
    keywords = [keyword for keyword in call.keywords if keyword.arg != name]
    written = ast.Call(call.func, call.args, [*keywords, ast.keyword(name, value)])
    return Draft({**draft.init, parameter: {"_expr": ast.unparse(written)}}, draft.symbols)


def _named(at: FailedStatement) -> set[str]:
    """The words of the statement that failed and of what was asked before it; an attribute by what it is called."""
    every = [each for node in (at.statement, *at.tests) for each in ast.walk(node)]
    return {node.id for node in every if isinstance(node, ast.Name)} | {
        node.attr for node in every if isinstance(node, ast.Attribute)
    } | {
        node.value for node in every if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }  # fmt: skip
