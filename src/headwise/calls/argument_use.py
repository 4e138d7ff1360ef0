"""Argument use: the arguments that code uses as masks, whatever they are called."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any

from headwise.calls.argument_axes import last
from headwise.calls.function_trees import Written, written
from headwise.calls.mask_usage import is_used_as_mask, other_names, sign_of
from headwise.calls.records import placed_arguments
from headwise.calls.roles import call_role
from headwise.source import assigned_pairs

__all__ = ["Argument", "arguments_of", "role_of"]

# how deep an argument is followed into the functions that it is handed to
DEEPEST = 3


# the states that recurrent layers of torch take, one of each layer, or of two kinds; those of a cell have no layers
RECURRENT: Mapping[str, str] = {
    "GRU": "states", "RNN": "states", "LSTM": "state_pairs", "GRUCell": "state", "RNNCell": "state",
    "LSTMCell": "state_pair",
}  # fmt: skip

# what an argument is by a name that others use for something else
AMBIGUOUS = ("", "adjacency", "flag")
# what is a number by its name, and what is asked of a tensor
NUMBERS = frozenset({"heads", "rows", "columns"})
ASKED = frozenset({"shape", "size", "ndim"})
# what entries of a mask are compared with
TRUTHS = {"0", "1"}
# what gives a tensor a further axis
WIDENED = ("unsqueeze", "view", "reshape")
# and what leaves its entries as they are
MOVED = ("to", "long", "int", "float", "double", "type", "type_as", "cpu", "cuda", "expand", "contiguous")


class Argument(inspect.Parameter):
    """A parameter of a call whose name does not tell what it is for. use: what the code does with it: "mask",
    "lengths", "segments", "pair", "function", a state of a recurrent layer; "": it is handed to a layer.
    """

    __slots__ = ("use",)

    def __init__(self, parameter: inspect.Parameter, use: str) -> None:
        super().__init__(parameter.name, parameter.kind, default=parameter.default, annotation=parameter.annotation)
        self.use = use


def arguments_of(
    parameters: Iterable[inspect.Parameter], owner: Any, function: Callable[..., Any]
) -> list[inspect.Parameter]:
    """The parameters of a function or a method, with what they are used as. owner: the class of a method."""
    every = list(parameters)
    unknown = tuple(argument.name for argument in every if _may_be_other(argument))
    keys = tuple(argument.name for argument in every if call_role(argument.name) == "key")
    written_function = inspect.unwrap(getattr(function, "__func__", function))
    uses = {
        **_called_or_unpacked(owner, written_function, (*keys, *unknown)),
        **_uses(owner, written_function, unknown),
        **_tensors(owner, written_function, tuple(each.name for each in every if call_role(each.name) in NUMBERS)),
    }
    uses = {**uses, **{name: use for name, use in _states(owner) if any(each.name == name for each in every)}}
    if every and uses.get(every[0].name):
        # the first is what attends
        uses = {name: use for name, use in uses.items() if name != every[0].name}
    return [Argument(argument, uses[argument.name]) if argument.name in uses else argument for argument in every]


def _may_be_other(argument: inspect.Parameter) -> bool:
    """Whether what is done with an argument tells more than its name; a number or a flag by its type stays so."""
    role, kind = call_role(argument.name), argument.annotation
    is_flag = role == "flag" and (isinstance(argument.default, bool) or kind in (bool, "bool"))
    return (_is_ambiguous(argument.name) or role == "mask") and not is_flag and kind not in (int, "int")


def _is_ambiguous(name: str) -> bool:
    """Whether a name does not tell what an argument is for; that of an input stands in that of its length too."""
    role = call_role(name)
    return role in AMBIGUOUS or (role in ("query", "key", "value") and name.lower().endswith(("_len", "_length")))


def role_of(argument: inspect.Parameter) -> str:
    """What an argument is for: what the code does with it, or else what its name tells."""
    return argument.use if isinstance(argument, Argument) else call_role(argument.name)


def _tree_of(function: Callable[..., Any], trees: Iterable[tuple[Any, Written]]) -> Written | None:
    return next((tree for of, tree in trees if of is function), None)


@lru_cache(maxsize=256)
def _uses(owner: Any, function: Callable[..., Any], names: tuple[str, ...]) -> Mapping[str, str]:
    """What a function uses parameters as, by their names; those that are not told are left out."""
    trees = written(owner, {}) if names and inspect.isfunction(function) else []
    tree = _tree_of(function, trees)
    if tree is None:
        return {}
    by_name = {tree.name: tree for _, tree in reversed(trees)}
    tests = (_is_compared_with_itself, _has_kinds)
    numbered = {
        name: "segments" for name in names if any(_is_used(tree, name, by_name, DEEPEST, test) for test in tests)
    }
    flags = tuple(name for name in names if call_role(name) == "flag")
    names = tuple(name for name in names if _is_ambiguous(name) and name not in flags)
    numbered |= {name: "lengths" for name in names if _is_used(tree, name, by_name, DEEPEST, _ends_tokens)}
    names = tuple(name for name in names if name not in numbered)
    # of what is added up along the tokens, each tells how many came before
    counted = {name for name in names if _is_used(tree, name, by_name, DEEPEST, _adds_up)}
    unknown = (name for name in (*names, *flags) if call_role(name) in ("", "flag") and name not in counted)
    out = numbered | {name: "mask" for name in unknown if _is_used(tree, name, by_name, DEEPEST, is_used_as_mask)}
    return out | {name: "" for name in names if _is_in_layer(tree, name, by_name)}


@lru_cache(maxsize=256)
def _called_or_unpacked(owner: Any, function: Callable[..., Any], names: tuple[str, ...]) -> Mapping[str, str]:
    """Parameters that are no tensors: those that a call is given in parts, `attend(q, *memory)`, though a batch of two
    has as many, and those that are called themselves, `mask_mod(b, h, q, k)`.
    """
    tree = _tree_of(function, written(owner, {}) if names and inspect.isfunction(function) else [])
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)] if tree is not None else []
    starred = {node.value.id for call in calls for node in call.args
               if isinstance(node, ast.Starred) and isinstance(node.value, ast.Name)}  # fmt: skip
    called = {call.func.id for call in calls if isinstance(call.func, ast.Name)}
    return {name: "function" if name in called else "pair" for name in names if name in starred | called}


@lru_cache(maxsize=256)
def _tensors(owner: Any, function: Callable[..., Any], names: tuple[str, ...]) -> Mapping[str, str]:
    """Parameters that are tensors although they are called as numbers are, as the features `h` of the nodes of a graph:
    their shape is asked for.
    """
    tree = _tree_of(function, written(owner, {}) if names and inspect.isfunction(function) else [])
    asked, stored = set[str](), set[str]()
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Attribute) and node.attr in ASKED and isinstance(node.value, ast.Name):
            asked.add(node.value.id)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            # what has the name from then on is something else
            stored.add(node.id)
    return {name: "" for name in names if name in asked - stored}


@lru_cache(maxsize=256)
def _states(owner: Any) -> tuple[tuple[str, str], ...]:
    """The names of what recurrent layers of a class are handed as their states, and of which kind; those of helpers may
    mean something else by the same names.
    """
    if not isinstance(owner, type):
        return ()
    kinds = {base.__qualname__ for base in owner.__mro__}
    trees = [tree for function, tree in written(owner, {}) if function.__qualname__.rpartition(".")[0] in kinds]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    layers = {
        last(name): RECURRENT[last(value.func)]
        for node in nodes
        for name, value in (assigned_pairs(node) if isinstance(node, ast.Assign) else ())
        if isinstance(value, ast.Call) and last(value.func) in RECURRENT
    }
    calls = [node for node in nodes if isinstance(node, ast.Call) and _is_of_self(node.func) and len(node.args) > 1]
    return tuple(
        (call.args[1].id, layers[last(call.func)])
        for call in calls
        if last(call.func) in layers and isinstance(call.args[1], ast.Name)
    )


def _is_compared_with_itself(tree: ast.AST, name: str) -> bool:
    """Whether entries of a parameter are asked to be equal to others of it, as the numbers of segments are."""
    return any(
        isinstance(node, ast.Compare)
        and isinstance(node.ops[0], ast.Eq | ast.NotEq)
        and all(
            isinstance(side, ast.Subscript) and isinstance(side.value, ast.Name) and side.value.id == name
            for side in (node.left, *node.comparators)
        )
        for node in ast.walk(tree)
    )


def _has_kinds(tree: ast.AST, name: str) -> bool:
    """Whether entries of a parameter are asked for two whole numbers and more, of which one is neither 0 nor 1, or for
    names: of which kind a token is.
    """
    compared = [
        node.comparators[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.NotEq)
        and isinstance(node.left, ast.Name) and node.left.id == name
    ]  # fmt: skip
    kinds = {ast.unparse(each) for each in compared if _is_kind(each)}
    return len(kinds) > 1 and not kinds <= TRUTHS


def _is_kind(node: ast.expr) -> bool:
    """Whether what entries are compared with is a whole number or a name."""
    value = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(value, ast.Name | ast.Attribute) or type(getattr(value, "value", None)) is int


def _is_in_layer(tree: Written, name: str, trees: Mapping[str, Written]) -> bool:
    """Whether a layer is handed a parameter alone."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and len(node.args) == 1]
    calls = [node for node in calls if not node.keywords and getattr(node.args[0], "id", "") == name]
    return any(_is_of_self(call.func) and last(call.func) not in trees for call in calls)


def _is_used(
    tree: Written, name: str, trees: Mapping[str, Written], depth: int, test: Callable[[ast.AST, str], bool]
) -> bool:
    """Whether a function uses a parameter as a test tells, itself or where it hands it on, and is no factor."""
    is_used, names = test(tree, name), {name, *other_names(tree, name)}
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            if any(isinstance(side, ast.Name) and side.id == name for side in (node.left, node.right)):
                return False
        elif isinstance(node, ast.Call) and (handed := _handed(node, names)):
            called = trees.get(last(node.func))
            if called is not None and depth:
                places = placed_arguments(called)
                taken = [places[at] if isinstance(at, int) and at < len(places) else str(at) for at in handed]
                is_used |= any(_is_used(called, name, trees, depth - 1, test) for name in taken)
    return is_used


def _ends_tokens(tree: ast.AST, name: str) -> bool:
    """Whether it is asked which numbers of places are below a parameter that has an axis of its own for each sample."""
    places = {target.id for node in ast.walk(tree) if isinstance(node, ast.Assign) and _are_places(node.value, ())
              for target in node.targets if isinstance(target, ast.Name)}  # fmt: skip
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            sides = (node.left, node.comparators[0])
            # those that are not below are asked for as well
            below, end = sides if isinstance(node.ops[0], ast.Lt | ast.GtE) else sides[::-1]
            is_asked = isinstance(node.ops[0], ast.Lt | ast.Gt | ast.GtE | ast.LtE) and _are_places(below, places)
            if is_asked and _laid_out(end) == name:
                return True
    return False


def _adds_up(tree: ast.AST, name: str) -> bool:
    """Whether sums of a parameter are made from its first entry to each."""
    sums = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and last(node.func) == "cumsum"]
    for call in sums:
        node: ast.expr | None = call.func.value if isinstance(call.func, ast.Attribute) else None
        node = call.args[0] if isinstance(node, ast.Name) and node.id == "torch" and call.args else node
        while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _method(node) in MOVED:
            node = node.func.value
        if isinstance(node, ast.Name) and node.id == name:
            return True
    return False


def _are_places(node: ast.expr, names: Collection[str]) -> bool:
    """Whether an expression is `arange`, or one of some names, with further axes at most."""
    while isinstance(node, ast.Subscript) or (isinstance(node, ast.Call) and _method(node) in WIDENED):
        node = node.value if isinstance(node, ast.Subscript) else node.func.value  # type: ignore[attr-defined]
    if isinstance(node, ast.Name):
        return node.id in names
    return isinstance(node, ast.Call) and last(node.func) == "arange"


def _method(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else ""


def _laid_out(node: ast.expr) -> str:
    """The name that is given a further axis, as by `[:, None]`, moved or turned into another kind besides; "": none."""
    is_wide = False
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Subscript):
            is_wide |= any(isinstance(at, ast.Constant) and at.value is None for at in ast.walk(node.slice))
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if _method(node) not in (*WIDENED, *MOVED):
                return ""
            is_wide |= _method(node) in WIDENED
            node = node.func.value
        else:
            return ""
    return node.id if is_wide else ""


def _handed(node: ast.Call, names: Collection[str]) -> dict[int | str, str]:
    """The names among some that a call is given, as they are, inverted, or in another shape or kind, by place or
    keyword.
    """
    pairs: list[tuple[int | str, ast.expr]] = [*enumerate(node.args)]
    pairs += [(keyword.arg or "", keyword.value) for keyword in node.keywords]
    return {at: name for at, value in pairs for name in names if sign_of(value, name)}


def _is_of_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
