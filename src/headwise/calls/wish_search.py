"""Wish search: the calls of a target that run, by one wish for a call after another, the likeliest first."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from torch import nn

from headwise.calls.argument_use import role_of
from headwise.calls.built_modules import copied, fixed_sizes, own_lengths
from headwise.calls.code_errors import is_of_code
from headwise.calls.documented_axes import documented_calls
from headwise.calls.file_usage import at_defaults, is_small, spelled, used, usual
from headwise.calls.plan import Named, Plan
from headwise.calls.request import Found, Wish
from headwise.calls.roles import init_role
from headwise.calls.search import Search
from headwise.calls.signature import callee, parameters, starred
from headwise.calls.size_bindings import Numbers, is_number
from headwise.calls.source_hints import Reading, read
from headwise.calls.symbols import LEGEND, LETTERS, MORE, spoken
from headwise.calls.trial import Tried
from headwise.calls.user_values import Given, bound_in, checked_call, checked_init, symbols_of
from headwise.errors import InputError
from headwise.recording import Budget
from headwise.wording import refusal

__all__ = ["ALL", "searched"]

# so many arguments are as long as keys where words tell of these
FEWEST = 2
# work of one search, of one that follows errors, of one that is a last resort, and of all searches
LONGEST, LEARNING, SHORT, ALL = 62_500, 50_000, 17_500, 125_000


def searched(
    target: Any,
    *,
    namespace: Mapping[str, Any],
    init: Mapping[str, Any] | None,
    call: Mapping[str, Any] | None,
    cross: bool | None,
    user_files: Collection[str],
    finite: bool,
    work: int,
) -> Found:
    """How a target is built and called; all as in `headwise.calls.find`. finite: whether NaN is a failure."""
    _refuse_uncallable(target)
    called = parameters(callee(target)) or starred(callee(target))
    built = parameters(target) if isinstance(target, type) else []
    declared, reading = (checked_init(init, built), checked_call(call, called)), read(target, namespace)
    tried_on, failures, has_nan, budget = copied(target), tuple[Tried, ...](), False, Budget(work)
    ways = _first_ways(list(_wishes(*declared, cross)), any(documented_calls(target, called, built, reading)))
    second, unfit, is_owed = None, None, False
    for wish, longest in chain(ways, _resorts(target, namespace, reading, (built, called), cross, declared[0])):
        is_last = longest < LONGEST
        # what words say never comes too late, nor do they leave nothing to what comes after them
        is_owed, is_after = is_last and bool(wish.call), is_owed and not wish.call
        budget = Budget(max(budget.left, min(work, LEARNING))) if is_after else budget
        if is_last and (call or not _may_run(failures)):
            break
        if (is_last and budget.is_over and not is_owed) or _is_idle(wish, failures, unfit):
            continue
        granted = longest if second is not None or is_owed else min(longest, budget.left)
        full = _whole(wish, target, built, reading, finite)
        search = Search(tried_on, namespace, reading, full, user_files=tuple(user_files), work=granted)
        result = search.run()
        second = search if not result.plans and search.bench.ran.is_contrary else second
        has_nan |= result.has_nan
        plans, missed = _of_target(result, target, wish.numbers, built)
        if wish.is_bare:
            unfit = next(iter(plans), None)
            continue
        if plans and (unfit is None or any(plan.mask for plan in plans)):
            result = Found(plans, (*(failures if is_last else ()), *missed), has_nan, result.mask)
            return result if init or call else _as_told(result, tried_on, target, namespace, reading, user_files)
        failures = _telling(failures, missed, is_last=is_last, is_whole=bool(declared[1].freed))
    if second is not None and (found := _against_words(second, target, built)).plans:
        return replace(found, has_nan=has_nan or found.has_nan)
    if unfit is not None:
        raise _unfit(declared[1].freed["_mask"], unfit)
    return Found((), _any_of(failures, target), has_nan)


def _as_told(
    result: Found,
    tried_on: Any,
    target: Any,
    namespace: Mapping[str, Any],
    reading: Reading,
    files: Collection[str],
) -> Found:
    """What was found, or where it fails with keys of a length of their own, what runs as words say of several."""
    called = parameters(callee(target)) or starred(callee(target))
    built = parameters(target) if isinstance(target, type) else []
    is_missed = any(failure.plan.setting == "cross" for failure in result.failures)
    told_calls = documented_calls(target, called, built, reading) if is_missed else ()
    for told in (call for call in told_calls if sum("S" in spoken([value]) for value in call.values()) >= FEWEST):
        # words may name an axis that no input has
        with contextlib.suppress(InputError):
            wish = next(_wishes(checked_init(None, built), checked_call(told, called), True))
            search = Search(tried_on, namespace, reading, wish, user_files=tuple(files), work=SHORT)
            found = search.run()
            plans, _ = _of_target(found, target, Numbers(), built)
            if plans:
                others = tuple(failure for failure in result.failures if failure.plan.setting != "cross")
                return Found(plans, others, result.has_nan or found.has_nan, result.mask)
    return result


def _any_of(failures: tuple[Tried, ...], target: Any) -> tuple[Tried, ...]:
    """The failures, of which there must be one."""
    if not failures:
        raise refusal("refuse.calls.none", target=getattr(target, "__name__", type(target).__name__))
    return failures


def _first_ways(wishes: Sequence[Wish], is_documented: bool) -> Iterator[tuple[Wish, int]]:
    """What is searched first. is_documented: what words say of shapes comes before what errors tell."""
    for wish in wishes:
        is_free = not wish.call and not wish.numbers.call
        yield replace(wish, learns=not is_documented or not is_free), LONGEST


def _whole(wish: Wish, target: Any, built: Sequence[inspect.Parameter], reading: Reading, finite: bool) -> Wish:
    """A wish with what the target and its file say of sizes."""
    file_sizes = _file_sizes(reading) if isinstance(target, type) and not built else {}
    symbols = {**fixed_sizes(target), **file_sizes, **wish.symbols}
    return replace(wish, symbols=symbols, lengths=own_lengths(target), finite=finite)


def _against_words(search: Search, target: Any, built: list[inspect.Parameter]) -> Found:
    """What a search finds with other numbers of axes than docstrings give."""
    search.bench.ran.ranks, search.bench.failing, search.bench.budget = {}, {}, Budget(SHORT)
    result = search.run()
    plans, missed = _of_target(result, target, Numbers(), built)
    return replace(result, plans=plans, failures=missed)


def _of_target(
    found: Found, target: Any, bound: Numbers, built: list[inspect.Parameter]
) -> tuple[tuple[Plan, ...], tuple[Tried, ...]]:
    """The plans and the failures of a search, of the target itself and not of the copy that was tried."""
    plans = tuple(_real(replace(plan, target=target), bound, built) for plan in found.plans)
    return plans, tuple(replace(failure, plan=replace(failure.plan, target=target)) for failure in found.failures)


def _is_idle(wish: Wish, failures: Sequence[Tried], unfit: Plan | None) -> bool:
    """Whether what was searched before leaves nothing to a search: a call was reached, or no size lets it pass."""
    is_reached = bool(failures) and bool(failures[0].plan.call)
    return (wish.is_bare and is_reached) or (bool(wish.fixed) and (unfit is not None or not _may_run(failures)))


def _telling(
    before: tuple[Tried, ...], after: tuple[Tried, ...], *, is_last: bool, is_whole: bool
) -> tuple[Tried, ...]:
    """Of the failures of two searches, those that tell more: of what was called and not only built, in symbols before
    numbers. is_last: after is of a last resort. is_whole: the call was declared in numbers, and may fail by these.
    """
    was_called, is_called = (bool(each) and bool(each[0].plan.call) for each in (before, after))
    if was_called and is_called:
        return before if is_last or not is_whole or after[0].span == before[0].span else after
    if is_last:
        return after if is_called else before
    return after or before


def _unfit(mask: Mapping[str, Any], plan: Plan) -> Exception:
    """That the sizes of a mask are none of the call that it is declared for."""
    sizes = ", ".join(f"{name}={plan.real[name]}" for name in ("B", "H", "L", "S") if name in plan.real)
    return refusal("refuse.calls.mask_sizes", name=mask["argument"], given=mask["shape"], sizes=sizes)


def _may_run(failures: Sequence[Tried]) -> bool:
    """Whether what failed may run with other sizes."""
    return not any(is_of_code(failure.error, failure.plan) for failure in failures)


def _resorts(
    target: Any,
    namespace: Mapping[str, Any],
    reading: Reading,
    signatures: tuple[list[inspect.Parameter], list[inspect.Parameter]],
    cross: bool | None,
    init: Given,
) -> Iterator[tuple[Wish, int]]:
    """What is searched where nothing else runs: what words say, what the file itself does, and usual sizes. init: what
    the person says of the constructor, beside which words alone are read, as they are of a module that is at hand.
    """
    is_built = isinstance(target, nn.Module)
    documented = list(documented_calls(target, signatures[1], signatures[0], reading))
    if init.freed or init.kept or is_built:
        for call in documented:
            with contextlib.suppress(InputError):
                yield from ((wish, SHORT) for wish in _wishes(init, checked_call(call, signatures[1]), cross))
        return
    masks = {each.name for each in signatures[1] if role_of(each) == "mask"}
    for usage in used(target, namespace, *signatures):
        if documented and any(isinstance(value, list) for name, value in usage[1].freed.items() if name in masks):
            # what an example gives a mask has a shape, and words tell what it means
            continue
        wishes = list(_wishes(*usage, cross))
        # with sizes of headwise's own it may run all the same
        more = [*wishes[1:2], replace(spelled(*usage), cross=cross), *wishes[2:]] if is_small(*usage) else []
        for wish in [*wishes[:1], *more]:
            yield wish, SHORT
    sized, is_told = at_defaults(signatures[0], cross), False
    for call in documented:
        given, is_told = (checked_init(None, signatures[0]), checked_call(call, signatures[1])), True
        # words may name an axis that no input has
        with contextlib.suppress(InputError):
            for wish in _wishes(*given, cross):
                # the sides of an image may be made of the windows that it is cut into
                free = {name: symbol for name, symbol in wish.symbols.items() if name not in MORE}
                yield replace(wish, symbols=free), SHORT
        yield from [] if sized is None else [(replace(sized, call=given[1].kept), SHORT)]
    if sized is not None:
        yield sized, SHORT
    if isinstance(target, type):
        for wish in usual(signatures[0], reading):
            yield replace(wish, cross=cross), SHORT
    if is_told:
        yield Wish(cross=cross), LEARNING


def _refuse_uncallable(target: Any) -> None:
    """Refuse a class whose instances cannot be called."""
    if not isinstance(target, type) or callable(getattr(target, "forward", None)):
        return
    if not any("__call__" in vars(kind) for kind in target.__mro__):
        raise refusal("refuse.calls.not_callable", target=target.__name__)


def _wishes(init: Given, call: Given, cross: bool | None) -> Iterator[Wish]:
    """What is searched: with the person's numbers bound to sizes that vary, some to fixed ones, then as they are."""
    symbols = symbols_of(init.kept)
    kept = {name: value for name, value in call.kept.items() if name != "_mask"}
    symbols |= bound_in(call.kept, symbols)
    shapes = {name: value for name, value in {**call.freed, **kept}.items() if isinstance(value, list)}
    ranks = {name: len(value) for name, value in shapes.items()}
    numbers = {name: value for name, value in call.freed.items() if name != "_mask"}
    bound = Numbers(init.freed, numbers, call.freed.get("_mask"))
    free = Wish(init.kept, kept, bound, call.kept.get("_mask"), symbols, ranks, cross)
    yield free
    if bound.mask:
        yield replace(free, numbers=replace(bound, mask=None), is_bare=True)
    if bound:
        yield from (replace(free, fixed=part) for part in ("call", "init", "all"))
        mask = call.freed.get("_mask", free.mask)
        yield Wish({**init.kept, **init.freed}, {**kept, **numbers}, Numbers(), mask, symbols, ranks, cross)


def _file_sizes(reading: Reading) -> dict[str, Named]:
    """The sizes of a class that takes none, by the names that its file gives to numbers."""
    letters = {LETTERS.get(init_role(name), ""): (name, size) for name, size in reversed([*reading.numbers.items()])}
    out = {letter: replace(LEGEND[letter], said=name, fixed=size) for letter, (name, size) in letters.items() if letter}
    most = min((size for name, size in reading.numbers.items() if init_role(name) == "batch"), default=0)
    if most > 1:
        # a table for the largest batch has room for less
        out["B"] = replace(LEGEND["B"], fixed=most - 1)
    return out


def _real(plan: Plan, bound: Numbers, built: list[Any]) -> Plan:
    """A plan with the sizes that the person gave, or that the constructor has by default."""
    real = bound.sizes(plan) if bound else None
    defaults = {
        parameter.name: parameter.default
        for parameter in built
        if is_number(parameter.default) and isinstance(plan.init.get(parameter.name), str)
    }
    return replace(plan, real=real or Numbers(defaults).sizes(plan) or {})
