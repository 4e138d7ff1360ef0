"""Search: tries the calls that a target's source suggests until one runs, and the masks and settings after it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import nn

from headwise.recording.calls.callee import callee, starred
from headwise.recording.calls.candidates import (
    ONE_QUERY,
    ONE_STEP,
    ONE_STEP_TURNED,
    Family,
    calls,
    extras,
    families,
    wanted,
)
from headwise.recording.calls.configs import config_drafts, config_parameter
from headwise.recording.calls.drafts import Draft, drafts, parameters
from headwise.recording.calls.masks import mask_arguments, masks
from headwise.recording.calls.plan import Named, Plan
from headwise.recording.calls.reading import Reading
from headwise.recording.calls.roles import init_role
from headwise.recording.calls.symbols import LEGEND, named, spoken
from headwise.recording.calls.trying import Clock, Tried, attempted, mended, tried

__all__ = ["Found", "Search", "Wish"]

PROBES = 4
DEEPEST = 4
CHANNELS = ("channels", "in_channels", "in_chans", "num_channels")
# how many of the plans that failed are looked at again, to tell which came furthest
LOOKED_AT = 8


@dataclass(frozen=True)
class Found:
    """plans: the settings that ran, the richest first. failures: settings that raised."""

    plans: tuple[Plan, ...]
    failures: tuple[Tried, ...]


@dataclass(frozen=True)
class Wish:
    """What the person said. init, call: what stands; known: what its symbols mean; ranks: how many axes an input has;
    cross: whether keys may, must or must not have a length of their own. lengths: that a built module may insist on."""

    init: Mapping[str, Any] = field(default_factory=dict)
    call: Mapping[str, Any] = field(default_factory=dict)
    known: Mapping[str, Named] = field(default_factory=dict)
    ranks: Mapping[str, int] = field(default_factory=dict)
    cross: bool | None = None
    lengths: tuple[int, ...] = ()


class Search:
    """One search: what was read, and what was tried."""

    def __init__(
        self,
        target: Any,
        namespace: Mapping[str, Any],
        reading: Reading,
        wish: Wish,
        *,
        own: tuple[str, ...] = (),
        seconds: float,
    ) -> None:
        self.target, self.namespace, self.reading, self.wish, self.own = target, namespace, reading, wish, own
        self.clock = Clock(seconds)
        function = callee(target)
        masked = wish.call["_mask"]["argument"] if "_mask" in wish.call else ""
        self.called = [each for each in parameters(function) or starred(function) if each.name != masked]
        self.what = wanted(self.called)
        self.missed: list[Plan] = []
        self.why = ""
        self.drafts = [each for each in self._drafts() if self._is_built(each)]
        self.built = self._built()

    def found(self) -> Found:
        """The plans and the failures."""
        base, missed = self._base()
        if base is None:
            return Found((), self._failures())
        base = self._freed(base)
        plans = []
        for plan in self._settings(base):
            masked = self._masked(plan)
            plans += [each for each in (masked, plan) if each is not None]
        failures = []
        if missed is not None and not any(each.setting == missed.setting for each in plans):
            failures = [each for each in (tried(missed, self.own)[0],) if each is not None]
        return Found(tuple(plans), tuple(failures))

    def _drafts(self) -> list[Draft]:
        given = self.wish.known
        if not isinstance(self.target, type):
            known = {"D": replace(LEGEND["D"], equals="H*d")} if "heads" in self.what.rest.values() else {}
            known |= given
            even = {name: replace(known.get(name, LEGEND[name]), even=True) for name in ("d", "D")}
            even = {name: each for name, each in even.items() if not each.equals and each.fixed is None}
            lengths = [{"L": replace(LEGEND["L"], fixed=each)} for each in self.wish.lengths]
            return [Draft({}, known), Draft({}, {**known, **even}), *(Draft({}, {**known, **each}) for each in lengths)]
        own = parameters(self.target)
        config = config_parameter(own, self.reading)
        if config is None or config.name in self.wish.init:
            found = drafts(own, self.reading, self.wish.init)
        else:
            others = [each for each in own if each is not config]
            found = config_drafts(config, others, self.target, self.reading, self.namespace, self.wish.init)
        return [Draft(each.init, {**each.known, **given}) for each in found]

    def _base(self) -> tuple[Plan | None, Plan | None]:
        """The first plan that runs; and the same with keys of their own, where that alone does not."""
        settings = [each for each in (True, False) if self.wish.cross in (None, each) and (self.what.key or not each)]
        layouts = self._layouts()
        # without weights nothing tells one layout from another but whether keys may have a length of their own
        is_free = self.what.is_triple and not isinstance(self.built, nn.Module)
        rounds = [(layouts, (each,)) for each in settings] if is_free else [([each], settings) for each in layouts]
        missed: Plan | None = None
        for family, draft, is_cross in (
            (family, draft, is_cross)
            for own, among in rounds
            for family in own
            for draft in self.drafts
            for is_cross in among
        ):
            is_masked_tried = True
            for plan in self._candidates(draft, family, is_cross=is_cross):
                if plan.mask and not is_masked_tried:
                    continue
                ran = self._worked(plan)
                if not plan.mask:
                    # a mask helps only where its absence is what fails
                    is_masked_tried = "None" in self.why
                if ran is not None:
                    if missed is not None and ran.setting == "self":
                        return self._one_query(draft) or ran, missed
                    return ran, missed
                self.missed.append(plan)
                if is_cross and (missed is None or (missed.init, missed.call.keys()) != (plan.init, plan.call.keys())):
                    missed = plan
                if self.clock.is_over:
                    return None, None
        found = next((one for one in map(self._one_query, self.drafts) if one is not None), None)
        return found, None

    def _layouts(self) -> list[Family]:
        sizes = {}
        init = self.drafts[0].init if self.drafts else {}
        for name, value in init.items():
            if init_role(name) in ("image", "vocabulary") and not isinstance(value, float | None):
                pair = value["_tuple"] if isinstance(value, Mapping) and "_tuple" in value else [value, value]
                said = [name, name] if pair[0] == pair[1] else pair
                sizes[init_role(name)] = " ".join(map(str, said))
        sizes.update(self._channels(init))
        found = families(self.what, self.reading, self.built, sizes)
        for name, axes in ((self.what.query, "query"), (self.what.key, "key"), (self.what.value, "value")):
            if name in self.wish.ranks:
                found = [each for each in found if len(getattr(each, axes)) == self.wish.ranks[name]]
        return found

    def _channels(self, init: Mapping[str, Any]) -> dict[str, str]:
        """How many channels an image has that comes in, as the constructor says."""
        for each in parameters(self.target) if isinstance(self.target, type) else []:
            if each.name in CHANNELS:
                return {"channels": str(init.get(each.name, each.default))}
        return {}

    def _one_query(self, draft: Draft) -> Plan | None:
        """A plan with one query for each sample, as a decoder that goes step by step has."""
        if not self.what.key:
            return None
        for family in (ONE_QUERY, ONE_STEP, ONE_STEP_TURNED):
            for plan in self._candidates(draft, family, is_cross=True):
                ran = self._worked(plan)
                if ran is not None:
                    return ran
        return None

    def _candidates(self, draft: Draft, family: Family, *, is_cross: bool) -> Iterator[Plan]:
        what, sizes = self.what, self._sizes(draft)
        if not what.is_ids and any(isinstance(each, nn.Embedding) for each in self._modules()):
            is_ids = [True, False] if "vocabulary" in sizes else [False, True]
        else:
            is_ids = [what.is_ids]
        for ids in is_ids:
            for more in extras(what):
                for call in calls(
                    self.called, replace(what, is_ids=ids), family, self.reading,
                    is_cross=is_cross, sizes=sizes, extras=more,
                ):  # fmt: skip
                    layout = {} if family.layout in ("BLD", "BHLd", "BLd") else {"_layout": family.layout}
                    yield self._plan(draft, {**call, **layout, **self.wish.call}, is_cross=is_cross)

    def _sizes(self, draft: Draft) -> dict[str, str]:
        """What the axes of a layout are called here."""
        out = {}
        for name in draft.known:
            if init_role(name) == "vocabulary":
                out["vocabulary"] = name
        has_weights = any(True for each in self._modules() for _ in each.parameters(recurse=False))
        is_said = "D" in spoken(list(self.wish.call.values()))
        if "D" not in draft.known and not has_weights and not is_said and (self.what.is_triple or "d" in draft.known):
            out["D"] = "d"
        return out

    def _modules(self) -> list[nn.Module]:
        return list(self.built.modules()) if isinstance(self.built, nn.Module) else []

    def _plan(self, draft: Draft, call: Mapping[str, Any], *, is_cross: bool) -> Plan:
        mask = call.get("_mask")
        sized = {name: Named(name, "parameter", name) for name, value in call.items() if value == name}
        # an argument that is called as a symbol is no size of that name
        known = {**{name: each for name, each in sized.items() if name not in LEGEND}, **draft.known}
        return Plan(
            self.target,
            "cross" if is_cross else "self",
            draft.init,
            call,
            named(draft.init, call, known),
            str(mask["argument"]) if isinstance(mask, Mapping) else "",
            self.namespace,
        )

    def _worked(self, plan: Plan) -> Plan | None:
        """The plan, or what its errors make of it, if that runs in every probe."""
        seen: list[Plan] = []
        waiting = [(plan, 0)]
        while waiting and not self.clock.is_over:
            each, depth = waiting.pop(0)
            if each in seen:
                continue
            seen.append(each)
            done = attempted(each)
            if depth == 0:
                self.why = f"{type(done.error).__name__}: {done.error}"
            if done.error is None:
                if _runs(each):
                    return each
            elif depth < DEEPEST:
                waiting[:0] = [(self._renamed(one), depth + 1) for one in mended(each, done.error)]
        return None

    def _freed(self, plan: Plan) -> Plan:
        """The plan with a width of its own for the values, where nothing binds it."""
        shape = plan.call.get(self.what.value)
        if not isinstance(shape, list) or self.what.value in self.wish.call or "dv" in [s.name for s in plan.symbols]:
            return plan
        freed = self._renamed(replace(plan, call={**plan.call, self.what.value: [*shape[:-1], "dv"]}))
        return freed if attempted(freed).error is None and _runs(freed) else plan

    def _renamed(self, plan: Plan) -> Plan:
        """A plan with the symbols that its call uses now; a number of the file's own is a symbol too."""
        known = {each.name: each for each in plan.symbols}
        draft = next((each for each in self.drafts if each.init == plan.init), Draft({}))
        call = dict(plan.call)
        numbers = {str(size): name for name, size in self.reading.numbers.items()}
        for name, value in call.items():
            last = str(value[-1]) if isinstance(value, list) and value else ""
            if last.isdigit() and int(last) > 1 and "D" not in draft.known and name not in self.wish.call:
                known["D"] = Named("D", "width", numbers.get(last, ""), fixed=int(last))
                call[name] = [*value[:-1], "D"]
        return replace(plan, call=call, symbols=named(plan.init, call, {**draft.known, **known}))

    def _settings(self, base: Plan) -> list[Plan]:
        """The plan, and with keys as long as queries where it has its own."""
        if base.setting == "self" or self.wish.cross is True:
            return [base]
        call = {name: _same(value) for name, value in base.call.items()}
        alike = self._renamed(replace(base, setting="self", call=call))
        return [base, alike] if "L" in str(base.call) and attempted(alike).error is None else [base]

    def _masked(self, plan: Plan) -> Plan | None:
        """The plan with a mask that runs and leaves the shape of what comes out; None: there is none.

        A mask that changes what comes out is better than one that does not.
        """
        if plan.mask:
            return None
        plain, spare = attempted(plan), None
        for name in mask_arguments(self.called):
            for mask in masks(name, self.reading, keys="S" if plan.setting == "cross" else "L"):
                if self.clock.is_over:
                    return None
                call = {**{k: v for k, v in plan.call.items() if k != name}, "_mask": mask}
                each = self._renamed(replace(plan, call=call, mask=name))
                done = attempted(each)
                if done.error is not None or done.shapes[:1] != plain.shapes[:1]:
                    continue
                if done.sum == plain.sum:
                    spare = spare or each
                elif _runs(each):
                    return each
        return spare if spare is not None and _runs(spare) else None

    def _is_built(self, draft: Draft) -> bool:
        if not isinstance(self.target, type):
            return True
        plan = self._plan(draft, {}, is_cross=False)
        done = attempted(plan)
        if not done.is_built:
            self.missed.append(plan)
        return done.is_built

    def _built(self) -> Any:
        if not self.drafts:
            return None
        plan = self._plan(self.drafts[0], {}, is_cross=False)
        return plan.build(plan.sizes(-1))

    def _failures(self) -> tuple[Tried, ...]:
        """Of what was tried first, what came furthest."""
        built = [plan for plan in self.missed if plan.call] or self.missed
        first = [tried(plan, self.own) for plan in built[:LOOKED_AT]]
        own = [(one, count) for one, count in first if one is not None]
        return tuple(one for one, _ in sorted(own, key=lambda each: -each[1])[:1])


def _same(value: Any) -> Any:
    if isinstance(value, list):
        return [_same(each) for each in value]
    if isinstance(value, Mapping):
        return {name: _same(each) for name, each in value.items()}
    return "L" if value == "S" else value


def _runs(plan: Plan) -> bool:
    """Whether a plan runs with the sizes of every probe."""
    return all(attempted(plan, probe).error is None for probe in range(PROBES))
