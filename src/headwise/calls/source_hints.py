"""Source hints: what a target's source tells of its sizes and arguments before it is tried."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from headwise.calls import argument_axes, width_divisors
from headwise.calls.argument_axes import last
from headwise.calls.argument_use import role_of
from headwise.calls.config_reads import config_reads
from headwise.calls.forward_method import assigned_forward
from headwise.calls.function_trees import written
from headwise.calls.mask_usage import Meaning, meanings, said_meaning
from headwise.calls.roles import init_role
from headwise.calls.signature import callee, parameters
from headwise.calls.submodules import Asked, asked_modules
from headwise.calls.symbols import SIDES
from headwise.source import assigned_pairs, nodes_of

__all__ = ["Reading", "compared_words", "read"]

BATCH = frozenset({
    "b", "bs", "bsz", "batch", "batch_size", "nbatches", "n_batch", "nb", "n_b", "batchsize", "bz", "num_batch",
    "num_batches",
})  # fmt: skip
LENGTH = frozenset({
    "l", "t", "s", "seq", "seq_len", "sequence_length", "src_len", "tgt_len", "len_q", "lq", "q_len", "time",
    "n_tokens", "length", "len_", "seqlen", "n_seq", "tgt_length", "qlen", "sl", "tl", "seq_length", "num_steps",
    "steps", "timesteps",
})  # fmt: skip
CALLED = {"forward", "__call__"}
KERNELS = ("kernel_size", "padding", "stride", "dilation")
ALONG = ("dim", "axis")
TURNED = re.compile(r"rot|rope|freqs|^cos$|^sin$|sinus|half", re.IGNORECASE)


@dataclass(frozen=True)
class Reading:
    """What is read from the source.

    bound: parameters or attributes of a config that are divided by the heads. attributes: what is read of each
    parameter, as of a config. orders: the names of the axes into which an argument is unpacked. words: every
    identifier. means: of each mask, by its name. numbers: whole numbers of the file that the code reads. counts:
    as how many sizes a parameter or an attribute is read. multiplied: what is multiplied by the heads. part: what the
    code calls a width divided by the heads. choices: the words with which something is compared. kernels: what windows
    of convolutions are made of. places: what single axes of an argument are called. asked: names that stand alone as a
    question. says_batch_first, says_batch_second: its words do. parted: widths that are divided by a head width. step:
    what must divide every width. repeated: how often something is made that is the same each time. along: what
    functions are told of the axis that they go along. transposed: arguments whose features come before their tokens.
    widened: how many axes a tensor has that is given more. shares: lengths that are shares of the longest. letters:
    parameters of one letter that divide a width. patched: sizes that a patch divides. norm_groups: into
    so many groups norms divide channels.
    """

    bound: tuple[str, ...] = ()
    attributes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    orders: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    words: frozenset[str] = frozenset()
    means: Mapping[str, Meaning] = field(default_factory=dict)
    numbers: Mapping[str, int] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    multiplied: frozenset[str] = frozenset()
    part: str = ""
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    kernels: frozenset[str] = frozenset()
    places: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    asked: frozenset[str] = frozenset()
    says_batch_first: bool = False
    says_batch_second: bool = False
    parted: frozenset[str] = frozenset()
    step: int = 1
    modules: Mapping[str, Asked] = field(default_factory=dict)
    repeated: frozenset[str] = frozenset()
    along: frozenset[str] = frozenset()
    transposed: frozenset[str] = frozenset()
    widened: Mapping[str, int] = field(default_factory=dict)
    shares: frozenset[str] = frozenset()
    letters: frozenset[str] = frozenset()
    patched: frozenset[str] = frozenset()
    norm_groups: frozenset[str] = frozenset()

    @property
    def is_turned(self) -> bool:
        """Whether something is rotated in pairs, or made of sines and cosines: widths are then even."""
        return any(TURNED.search(word) for word in self.words)

    def is_sequence_first(self, name: str) -> bool:
        """Whether the code unpacks an argument with its length before its batch."""
        order = self._order(name)
        if len(order) < 2 or order[0] in BATCH:
            return False
        return order[1] in BATCH or (order[0] in ("l", "t", "s") and order[1] == "n")

    def is_batch_first(self, name: str) -> bool:
        """Whether the code unpacks an argument with its batch before its length."""
        order = self._order(name)
        return len(order) > 1 and (order[0] in BATCH or (order[1] in LENGTH and order[0] not in LENGTH))

    def batch_axis(self, name: str) -> int:
        """The axis of an argument that the code calls its batch; -1: it calls none so, or more than one."""
        axes = [at for at, each in enumerate(self.orders.get(name, ())) if each.lower() in BATCH]
        return axes[0] if len(axes) == 1 else -1

    def _order(self, name: str) -> list[str]:
        """What the first axes of an argument are called, in lower case."""
        places = self.places.get(name, {})
        order = self.orders.get(name) or ([places.get(0, ""), places.get(1, "")] if places else [])
        return [each.lower() for each in order]

    def rank(self, name: str) -> int:
        """Into how many axes an argument is unpacked; 0: that is not known."""
        return len(self.orders.get(name, ()))


def read(target: Any, namespace: Mapping[str, Any]) -> Reading:
    """What the source of a target tells; nothing where there is none."""
    trees = written(target, namespace)
    words = frozenset(word for _, tree in trees for word in _words(tree))
    attributes: dict[str, tuple[str, ...]] = {}
    orders: dict[str, tuple[str, ...]] = {}
    places: dict[str, dict[int, str]] = {}
    bound: list[str] = []
    for function, tree in trees:
        for name, names in config_reads(tree).items():
            attributes[name] = tuple(dict.fromkeys([*attributes.get(name, ()), *names]))
        # the same name may mean another thing in a helper
        for name, order in argument_axes.orders(tree) if _is_called(function, target) else ():
            orders.setdefault(name, order)
        for name, at, axis in argument_axes.places(tree) if _is_called(function, target) else ():
            places.setdefault(name, {}).setdefault(at, axis)
        bound.extend(_bound(tree))
    aliases = dict(pair for _, tree in trees for pair in argument_axes.aliases(tree))
    bound += [aliases[name] for name in bound if name in aliases]
    multiplied = {name for _, tree in trees for name in _multiplied(tree)}
    multiplied |= {aliases[name] for name in multiplied if name in aliases}
    # what is called knows better what its mask means than a helper that is given one by the same name
    own_arguments = parameters(callee(target))
    used = [argument.name for argument in own_arguments if role_of(argument) == "mask"]
    means = meanings([tree for _, tree in sorted(trees, key=lambda each: not _is_called(each[0], target))], used)
    means |= {name: Meaning(said) for name in used if name not in means and (said := said_meaning(target, name))}
    if str(getattr(target if isinstance(target, type) else type(target), "__module__", "")).startswith("torch.nn"):
        means = {"": Meaning("blocked")}
    counts = dict(sorted(pair for _, tree in trees for pair in _counts(tree)))
    counts = {aliases[name]: count for name, count in counts.items() if name in aliases} | counts
    numbers = {
        name: value
        for name, value in namespace.items()
        if name in words and isinstance(value, int) and not isinstance(value, bool)
    }
    return Reading(
        tuple(dict.fromkeys(bound)), attributes, orders, words, means, numbers,
        counts | width_divisors.counts_told(target),
        frozenset(multiplied),
        next((name for _, tree in trees for name in _parts(tree)), ""),
        dict(sorted((pair for _, tree in trees for pair in compared_words(tree)), key=lambda choice: len(choice[1]))),
        frozenset(name for _, tree in trees for name in _kernels(tree)),
        places,
        frozenset(name for _, tree in trees for name in argument_axes.asked(tree)),
        argument_axes.says_batch_first(target),
        argument_axes.says_batch_second(target),
        frozenset(name for _, tree in trees for name in _bound(tree, by="head_width")),
        width_divisors.step_of([tree for _, tree in trees]),
        asked_modules([tree for function, tree in trees if _is_own(function, target)]),
        frozenset(name for _, tree in trees if tree.name == "__init__" for name in argument_axes.repeated(tree)),
        frozenset(name for _, tree in trees for name in _along(tree)),
        frozenset(argument.name for argument in own_arguments
                  if argument_axes.says_transposed(target, argument.name, orders.get(argument.name, ()))),
        dict(pair for function, tree in trees if _is_called(function, target) for pair in argument_axes.widened(tree)),
        frozenset(argument.name for argument in own_arguments if argument_axes.says_share(target, argument.name))
        | {name for function, tree in trees if _is_called(function, target) for name in argument_axes.times_size(tree)},
        frozenset(name for function, tree in trees if _is_own(function, target) for name in _letters(tree)),
        frozenset(name for _, tree in trees if tree.name == "__init__" for name in _bound(tree, by="patch")),
        frozenset(name for _, tree in trees for name in width_divisors.norm_groups(tree)),
    )  # fmt: skip


def _is_own(function: Callable[..., Any], target: Any) -> bool:
    """Whether a function is a method of a target."""
    kind = target if isinstance(target, type) else type(target)
    every = (attribute for base in kind.__mro__ for attribute in vars(base).values() if callable(attribute))
    return any(function is inspect.unwrap(each) for each in every)


def _is_called(function: Callable[..., Any], target: Any) -> bool:
    """Whether a function is what a target runs when it is called, and not a helper of it."""
    kind = target if isinstance(target, type) or not isinstance(target, nn.Module) else type(target)
    if not isinstance(kind, type):
        return function is inspect.unwrap(kind) if callable(kind) else False
    assigned = assigned_forward(kind) if issubclass(kind, nn.Module) else None
    return (assigned is not None and function is inspect.unwrap(assigned)) or any(
        function is inspect.unwrap(vars(base)[name]) for base in kind.__mro__ for name in CALLED & vars(base).keys()
    )


def _words(tree: ast.AST) -> Iterator[str]:
    for node in nodes_of(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.arg):
            yield node.arg


def _bound(tree: ast.AST, by: str = "heads") -> Iterator[str]:
    for node in nodes_of(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod | ast.FloorDiv | ast.Div):
            left, right = last(node.left), last(node.right)
            is_letter = by == "heads" and _is_letter(node)
            if left and (init_role(right) == by or is_letter) and init_role(left) != by:
                yield left
        elif by == "heads" and isinstance(node, ast.Call) and last(node.func) in ("divmod", "MultiheadAttention"):
            # torch's own layer asks for the same
            yield from [last(argument) for argument in node.args[:1] if len(node.args) >= len(("width", "heads"))]


def _letters(tree: ast.AST) -> Iterator[str]:
    """Single letters by which a width is divided, as in `d // n`."""
    return (last(node.right) for node in nodes_of(tree) if isinstance(node, ast.BinOp) and _is_letter(node))


def _is_letter(node: ast.BinOp) -> bool:
    """Whether what divides a width is called by one letter that says no more."""
    letter = last(node.right) if isinstance(node.op, ast.Mod | ast.FloorDiv) else ""
    return len(letter) == 1 and init_role(letter) in ("", "length") and init_role(last(node.left)) == "width"


def _counts(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """As how many sizes something is read: as `window_size[0]`, two or more, or unpacked."""
    for node in nodes_of(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            if isinstance(node.slice.value, int):
                yield last(node.value), max(node.slice.value + 1, min(SIDES))
        elif isinstance(node, ast.Assign) and len(parts := getattr(node.targets[0], "elts", ())) in SIDES:
            yield last(node.value), len(parts)


def _multiplied(tree: ast.AST) -> Iterator[str]:
    for node in nodes_of(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            names = [last(node.left), last(node.right)]
            yield from (a for a, b in (names, names[::-1]) if a and init_role(b) == "heads")


def _parts(tree: ast.AST) -> Iterator[str]:
    """What a width divided by the heads is assigned to."""
    for node in nodes_of(tree):
        if isinstance(node, ast.Assign) and any(True for _ in _bound(node.value)):
            for name, value in assigned_pairs(node):
                if last(name) and _is_share(value):
                    yield last(name)


def _is_share(node: ast.AST) -> bool:
    """Whether a value is a width divided by the heads itself, and not something made of it."""
    while isinstance(node, ast.Call) and last(node.func) == "int" and node.args:
        node = node.args[0]
    if isinstance(node, ast.Call):
        return last(node.func) == "divmod"
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv | ast.Div)


def compared_words(tree: ast.AST) -> Iterator[tuple[str, tuple[str, ...]]]:
    """What is compared with words: `method == "dot"`, `method in ["dot", "general"]`."""
    for node in nodes_of(tree):
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and last(node.left):
            comparator = node.comparators[0]
            words = [getattr(each, "value", None) for each in getattr(comparator, "elts", [comparator])]
            if all(isinstance(word, str) for word in words):
                yield last(node.left), tuple(map(str, words))


def _kernels(tree: ast.AST) -> Iterator[str]:
    """What a convolution or a pooling is told of its window: `kernel_size=k`, `padding=k // 2`."""
    for node in nodes_of(tree):
        if isinstance(node, ast.keyword) and node.arg in KERNELS:
            yield from (each.id for each in ast.walk(node.value) if isinstance(each, ast.Name))


def _along(tree: ast.AST) -> Iterator[str]:
    """What a function, and no class that is built, is told of an axis: `softmax(x, dim=self.axis)`."""
    for node in nodes_of(tree):
        if isinstance(node, ast.Call) and last(node.func)[:1].islower():
            yield from (
                last(keyword.value) for keyword in node.keywords if keyword.arg in ALONG and last(keyword.value)
            )
