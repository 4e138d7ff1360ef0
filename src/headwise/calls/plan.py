"""Plan: one way to build and to call a target, with symbols for its sizes; the language of `--init` and `--call`."""

from __future__ import annotations

import ast
import contextlib
import copy
import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from headwise.calls.probe_sizes import least_sizes, probe_sizes
from headwise.calls.roles import init_role
from headwise.calls.signature import callee, parameters
from headwise.recording import seeded

__all__ = ["Named", "Plan", "evaluated", "masked_by"]

# fewer are kinds, and no tokens
FEW = 4

DTYPES = {"bool": torch.bool, "int": torch.long, "float": torch.float32}


@dataclass(frozen=True)
class Named:
    """A symbol. meaning: as in tracing.Symbol; said: what the person's code calls it. equals: the expression
    that it is bound to be, "": it is free. least: no smaller. even: twice a prime. fixed: always this; None: it varies.
    is_small: it is squared, or the side of an image, and gets the smallest sizes. times: what divides it.
    """

    name: str
    meaning: str
    said: str = ""
    equals: str = ""
    least: int = 0
    even: bool = False
    fixed: int | None = None
    is_small: bool = False
    times: int = 1


@dataclass(frozen=True)
class Plan:
    """How a target is built and called.

    setting: "cross" where keys differ from queries in length, else "self". mask: the argument that gets a mask, "":
    none. init, call: as `--init` and `--call` take them, in the order of the parameters. symbols: free ones first.
    real: the person's own sizes, or the constructor's defaults, of those symbols where they are known. switched: the
    flags that headwise turned, which neither the user nor a default did.
    """

    target: Any
    setting: str
    init: Mapping[str, Any]
    call: Mapping[str, Any]
    symbols: tuple[Named, ...]
    mask: str = ""
    namespace: Mapping[str, Any] = field(default_factory=dict, repr=False)
    real: Mapping[str, int] = field(default_factory=dict)
    switched: tuple[str, ...] = ()

    @property
    def keys(self) -> str:
        """The symbol of the number of keys."""
        return "S" if any(symbol.name == "S" for symbol in self.symbols) else "L"

    @property
    def windows(self) -> set[str]:
        """The symbols of how far tokens see each other, of which no other size is made."""
        used = f"{[symbol.equals for symbol in self.symbols]} {list(self.call.values())}"
        bound = set(re.findall(r"\w+", used))
        free = [each for each in self.symbols if not each.equals and each.times == 1 and each.name not in bound]
        return {each.name for each in free if each.said != "windows" and init_role(each.said or each.name) == "window"}

    def sizes(self, probe: int) -> dict[str, int]:
        """The size of each symbol in a probe run: another prime for each, in another order in each run.

        Probe -1 is for trying whether a plan runs at all: its sizes are the smallest.
        """
        free = [each for each in self.symbols if not each.equals and each.fixed is None]
        derived = [each for each in self.symbols if each.equals]
        out = {each.name: each.fixed for each in self.symbols if each.fixed is not None}
        out.update(least_sizes(free, derived) if probe < 0 else probe_sizes(free, derived, probe))
        return self.bound(out)

    def bound(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """The sizes, with those of symbols that are bound to others computed from them."""
        out = dict(sizes)
        for symbol in self.symbols:
            if symbol.equals:
                out[symbol.name] = evaluated(symbol.equals, out)
        return out

    def build(self, sizes: Mapping[str, int], *, seed: int = 0, training: bool = False) -> Any:
        """The module in eval mode or in that of training, built with the same random numbers for one seed; what is no
        class is itself.
        """
        if not isinstance(self.target, type):
            return self.target
        with seeded(seed):
            # a module that stands by default would be the same one in every module that is built
            shared = {
                parameter.name: parameter.default
                for parameter in parameters(self.target)
                if isinstance(parameter.default, nn.Module)
            }
            copies = {}
            for name in shared.keys() - self.init.keys():
                with contextlib.suppress(RuntimeError, TypeError):
                    copies[name] = copy.deepcopy(shared[name])
            built = self.target(**copies, **self.initial(sizes))
        if isinstance(built, nn.Module):
            # a train of its own may return nothing
            built.train() if training else built.eval()
        return built

    def initial(self, sizes: Mapping[str, int]) -> dict[str, Any]:
        """What the target is built with."""
        return {name: self._value(value, sizes) for name, value in self.init.items()}

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
            shape = [self._size(each, sizes) for each in mask["shape"]]
            tensor = _mask(str(mask["means"]), shape, sizes, keys=_key_axis(mask["shape"]))
            tensor = tensor / longest(sizes) if mask.get("share") else tensor
            options[str(mask["argument"])] = tensor.to(DTYPES[mask["dtype"]]) if "dtype" in mask else tensor
        return self._placed(options)

    def _placed(self, options: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments apart that can only be given by their place."""
        function = callee(self.target)
        try:
            every = list(inspect.signature(function, follow_wrapped=False).parameters.values())
        except (TypeError, ValueError):
            return (), options
        if any(parameter.kind is parameter.VAR_KEYWORD for parameter in every):
            return (), options
        names = [parameter.name for parameter in every if parameter.kind is parameter.POSITIONAL_ONLY]
        if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in every):
            declared = {parameter.name for parameter in every if parameter.kind is not parameter.VAR_POSITIONAL}
            names += [name for name in options if name not in declared]
            if len(names) > sum(parameter.kind is parameter.POSITIONAL_ONLY for parameter in every):
                names = [name for name in options if name in names or _is_placed(name, every)]
        first = [name for name in names if name in options]
        return tuple(options[name] for name in first), {k: v for k, v in options.items() if k not in first}

    def _argument(self, value: Any, sizes: Mapping[str, int], generator: torch.Generator) -> Any:
        if isinstance(value, list):
            return torch.randn([self._size(each, sizes) for each in value], generator=generator)
        if isinstance(value, Mapping) and "_tuple" in value:
            return tuple(self._argument(each, sizes, generator) for each in value["_tuple"])
        if isinstance(value, Mapping) and "_ids" in value:
            shape = [self._size(each, sizes) for each in value["_ids"]]
            below = self._size(value["below"], sizes)
            # the first number is most often that of padding
            numbers = torch.randint(1 if below > FEW else 0, below, shape, generator=generator)
            return numbers.to(DTYPES[value.get("dtype", "int")])
        return self._value(value, sizes)

    def _value(self, value: Any, sizes: Mapping[str, int]) -> Any:
        if isinstance(value, str):
            return evaluated(value, sizes) if _is_size(value, sizes) else value
        if isinstance(value, Mapping) and "_tuple" in value:
            return tuple(self._value(each, sizes) for each in value["_tuple"])
        if isinstance(value, Mapping) and "_expr" in value:
            # the person's own words, in the person's own file
            scope = {"torch": torch, "SimpleNamespace": SimpleNamespace, **self.namespace, **sizes}
            return eval(value["_expr"], scope)
        return value

    def _size(self, value: Any, sizes: Mapping[str, int]) -> int:
        return evaluated(value, sizes) if isinstance(value, str) else int(value)


def masked_by(plan: Plan, name: str, mask: Mapping[str, Any]) -> Plan:
    """A plan that is called with a mask. name: the argument that gets it."""
    call = {**{key: value for key, value in plan.call.items() if key != name}, "_mask": mask}
    return replace(plan, call=call, mask=name)


def _is_placed(name: str, every: list[inspect.Parameter]) -> bool:
    return any(each.name == name and each.kind is each.POSITIONAL_OR_KEYWORD for each in every)


def evaluated(expression: str, sizes: Mapping[str, int]) -> int:
    """An expression in symbols and whole numbers, with + - * // and brackets."""
    return _evaluated(_parsed(expression), sizes)


# the same few expressions are evaluated in every run
@lru_cache(maxsize=512)
def _parsed(expression: str) -> ast.AST:
    return ast.parse(expression, mode="eval").body


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


def _key_axis(shape: Sequence[Any]) -> int:
    """Which axis of a mask is of the keys: the last one, but where samples come behind tokens, what is before them."""
    end = len(shape) - 1
    while end > 0 and str(shape[end]) == "1":
        end -= 1
    return end - 1 if end > 0 and shape[end] == "B" else len(shape) - 1


def longest(sizes: Mapping[str, int]) -> int:
    """How many keys lengths may count."""
    return sizes.get("S", sizes.get("L", 1))


def _mask(means: str, shape: list[int], sizes: Mapping[str, int], *, keys: int) -> Tensor:
    """A mask that leaves each row at least the first key: the last keys are closed, of each sample other ones.

    keys: the axis of the keys.
    """
    if means == "lengths":
        most = longest(sizes)
        # the first sample is as long as can be, no other shorter than half of it
        return most - torch.arange(torch.Size(shape).numel()).remainder(most // 2 + 1).clamp(max=most - 1).reshape(
            shape
        )
    rows = [*shape[:keys], *shape[keys + 1 :]]
    count = torch.arange(torch.Size(rows).numel()).remainder(max(1, shape[keys] - 1)) + 1
    attend = (torch.arange(shape[keys]) < count[:, None]).reshape(*rows, shape[keys]).movedim(-1, keys)
    if means == "additive":
        return torch.zeros(shape).masked_fill(~attend, float("-inf"))
    return ~attend if means == "blocked" else attend
