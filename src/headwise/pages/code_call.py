"""Code call: one watched call of a class, a function or a module that is loaded, on random inputs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from headwise.calls import PRIMES, Plan, check_forward, evaluated, find, whole
from headwise.watching import Seen, watch
from headwise.watching.map_collector import ADVICE
from headwise.watching.sequences import layers_of
from headwise.wording import Refusal, refusal

__all__ = ["CodeCall", "watched_call"]

# how many tokens, and what symbols of such a length mean
TOKENS, LENGTHS = 11, ("queries", "keys")
NO_TOKENS = ("batch", "heads", "key_heads", "head_width", "value_width", "width")


@dataclass(frozen=True)
class CodeCall:
    """A call that was watched. plan: how the code was built and called; sizes: of its symbols."""

    plan: Plan
    sizes: Mapping[str, int]
    maps: Seen

    @property
    def unseen(self) -> dict[str, str]:
        """What could not be seen, and why, without what a model's owner could do about it."""
        return {name: why.removesuffix(ADVICE) for name, why in self.maps.unseen.items()}


def watched_call(
    target: Any,
    *,
    title: str,
    namespace: Mapping[str, Any],
    files: Collection[str],
    init: Mapping[str, Any] | None = None,
    call: Mapping[str, Any] | None = None,
) -> CodeCall:
    """One call of a target, whose output is that of an unwatched one.

    title: its name in user code. namespace: of its file; files: those of the user. init, call: how it
    is built and called; None: that is found out. What cannot be called, or whose maps are not of tokens, is a Refusal.
    """
    kind, init = whole(target, init, call)
    check_forward(kind)
    with torch.random.fork_rng(devices=()):
        plan = _plan(kind, title, namespace=namespace, files=tuple(files), init=init, call=call)
        sizes, maps = _run(plan, title)
        _check_axes(plan, sizes, maps, title)
    return CodeCall(plan, sizes, maps)


def _plan(
    kind: Any,
    title: str,
    *,
    namespace: Mapping[str, Any],
    files: tuple[str, ...],
    init: Mapping[str, Any] | None,
    call: Mapping[str, Any] | None,
) -> Plan:
    """How the target is built and called: with keys as long as queries, and without a mask, where it can be."""
    is_masked = "_mask" in (call or {})
    for cross in (False, None):
        usable = find(kind, namespace=namespace, init=init, call=call, cross=cross, user_files=files)
        plans = [plan for plan in usable.plans if ("_mask" in plan.call) is is_masked]
        if plans or (usable.plans and not is_masked):
            # one that needs a mask has none without
            return (plans or usable.plans)[0]
    for failure in usable.failures:
        if isinstance(failure.error, Refusal):
            raise failure.error
    error = usable.failures[0].error if usable.failures else "-"
    raise refusal("refuse.look_failed", target=title, error=_in_words(error))


def _run(plan: Plan, title: str) -> tuple[dict[str, int], Seen]:
    """A call of a plan with TOKENS tokens, or with other sizes where it does not run with that."""
    tokens = {symbol.name: TOKENS for symbol in plan.symbols if symbol.meaning in LENGTHS and not symbol.equals}
    fails: Refusal | None = None
    for start in (_apart(plan, plan.sizes(-1)) | tokens, plan.sizes(0), plan.sizes(-1)):
        sizes = {**start, **plan.real}
        for symbol in plan.symbols:
            if symbol.equals:
                sizes[symbol.name] = evaluated(symbol.equals, sizes)
        try:
            return sizes, _watched(plan, sizes, title)
        except Refusal as refused:
            fails = fails or refused
    raise fails or refusal("refuse.look_failed", target=title, error="-")


def _apart(plan: Plan, sizes: dict[str, int]) -> dict[str, int]:
    """The sizes, where none that may vary is as large as the number of tokens."""
    out = dict(sizes)
    for symbol in plan.symbols:
        if out[symbol.name] == TOKENS and not symbol.equals and symbol.fixed is None:
            out[symbol.name] = next(prime for prime in PRIMES if prime > TOKENS and prime not in out.values())
    return out


def _check_axes(plan: Plan, sizes: dict[str, int], maps: Seen, title: str) -> None:
    """Refuse a map of which the rows or columns are known to be something else than tokens."""
    lengths = {sizes[symbol.name] for symbol in plan.symbols if symbol.meaning in LENGTHS}
    others = {sizes[symbol.name] for symbol in plan.symbols if symbol.meaning in NO_TOKENS} - lengths
    for layer in layers_of(maps):
        shape = tuple(layer[1].shape)
        if others & set(shape[2:]):
            raise refusal("refuse.look_axes", target=title, axes=f"[{', '.join(_letters(plan, sizes, shape))}]")


def _letters(plan: Plan, sizes: dict[str, int], shape: tuple[int, ...]) -> Iterator[str]:
    """The symbols of a map's axes: the first of that size, of the batch for the first axis alone; else the number."""
    for axis, size in enumerate(shape):
        names = [symbol.name for symbol in plan.symbols if sizes[symbol.name] == size]
        names.sort(key=lambda name: (name == "B") is not (axis == 0))
        yield names[0] if names else str(size)


def _watched(plan: Plan, sizes: dict[str, int], title: str) -> Seen:
    """What one call of a plan has seen; Refusal where it fails, or where its output is not that of an unwatched run."""
    built = plan.build(sizes)
    module = built if isinstance(built, nn.Module) else _Function(built)
    outputs = []
    try:
        for is_watched in (False, True):
            args, options = plan.arguments(sizes)
            torch.default_generator.manual_seed(0)
            with torch.no_grad():
                if is_watched:
                    with watch(module) as maps:
                        outputs.append(module(*args, **options))
                else:
                    outputs.append(module(*args, **options))
    except Exception as error:  # user code may raise anything
        raise refusal("refuse.look_failed", target=title, error=_in_words(error)) from error
    first, second = (pytree.tree_leaves(out) for out in outputs)
    pairs = [(a, b) for a, b in zip(first, second, strict=True) if isinstance(a, torch.Tensor)]
    if not all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in pairs):
        raise refusal("refuse.look_random", target=title)
    return maps


class _Function(nn.Module):
    """A function as a module, so that it can be watched."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self._function = function

    def forward(self, *args: Any, **options: Any) -> Any:
        return self._function(*args, **options)


def _in_words(error: object) -> str:
    text = str(error).strip().splitlines()
    name = type(error).__name__ if isinstance(error, Exception) else ""
    return f"{name}: {text[0].rstrip('.')}" if name and text else name or (text[0] if text else "-")
