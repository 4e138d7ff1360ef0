"""Search: tries the calls that a target's source suggests until one runs, and the masks and settings after it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain, product
from typing import Any

from torch import nn

from headwise.recording.calls import kin
from headwise.recording.calls.asked import Found, Wish
from headwise.recording.calls.building import rebuilt
from headwise.recording.calls.callee import callee, starred
from headwise.recording.calls.candidates import calls, extras, families, is_narrow, wanted
from headwise.recording.calls.certain import is_of_code
from headwise.recording.calls.complaints import told_widths
from headwise.recording.calls.drafts import Draft, parameters
from headwise.recording.calls.images import image_sizes
from headwise.recording.calls.layouts import ONE_QUERY, ONE_STEP, ONE_STEP_TURNED, Family
from headwise.recording.calls.learning import learned
from headwise.recording.calls.masks import mask_arguments, masks
from headwise.recording.calls.opening import opening
from headwise.recording.calls.plan import Named, Plan
from headwise.recording.calls.reading import Reading
from headwise.recording.calls.symbols import LEGEND, alike, named, spoken
from headwise.recording.calls.tables import vocabularies
from headwise.recording.calls.trying import Attempts, Clock, Tried, furthest, mended, tried

__all__ = ["Search"]

# SPARE: masks that change nothing, of which one is looked for that runs in every probe
# NARROW: drafts tried again with widths that many numbers divide; LEARNING: seconds; WANTING: a mask was missed
DEEPEST, SPARE, NARROW, LEARNING = 4, 6, 4, 2.0
WANTING = ("None", "not bool", "got (bool", "'bool' object")


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
        self.clock, function = Clock(seconds), callee(target)
        self._learning = min(seconds, LEARNING)
        self._ran = Attempts(finite=wish.finite)
        self._runs = self._ran.all_run
        masked = wish.call["_mask"]["argument"] if "_mask" in wish.call else ""
        self.called = [each for each in parameters(function) or starred(function) if each.name != masked]
        self.what = wanted(self.called)
        self.missed, self.telling, self.why = list[Plan](), list[Plan](), ""
        self.reached: Plan
        found = opening(target, reading, namespace, wish, has_heads="heads" in self.what.rest.values())
        self.drafts = [each for each in found if self._is_built(each)]
        if not self.drafts and isinstance(target, type):
            self.drafts = rebuilt(found, parameters(target), self._unbuilt, Clock(self._learning))
        if isinstance(target, type) and is_narrow(self._built(), reading):
            self.drafts += [each for each in map(kin.divisible, found[:NARROW]) if self._is_built(each)]
        self.built = self._built()

    def found(self) -> Found:
        """The plans and the failures."""
        base, missed = self._base()
        # what is wrong however it is called shall not run by chance
        if base is None and all(isinstance(self._ran(each).error, TypeError) for each in self.telling[:SPARE]):
            base = learned(self.missed, self.wish, self.reading, self._ran, self._learning, self._renamed)
            self.clock = Clock(LEARNING)
        if base is None:
            return Found((), self._failures(), self._ran.has_nan)
        base = self._freed(base)
        ways = ((self._masked(plan), plan) for plan in self._settings(base))
        plans = [each for pair in ways for each in pair if each is not None]
        is_new = not any(missed and each.setting == missed.setting and kin.has_queries(each) for each in plans)
        failed = tried(missed, self.own)[0] if missed is not None and is_new else None
        return Found(tuple(plans), () if failed is None else (failed,))

    def _base(self) -> tuple[Plan | None, Plan | None]:
        """The first plan that runs; and the same with keys of their own, where that alone does not."""
        settings = [each for each in (True, False) if self.wish.cross in (None, each) and (self.what.key or not each)]
        layouts = self._layouts()
        # without weights nothing tells one layout from another but whether keys may have a length of their own
        is_free = self.what.is_triple and not isinstance(self.built, nn.Module)
        rounds = [(layouts, (each,)) for each in settings] if is_free else [([each], settings) for each in layouts]
        missed: list[Plan] = []
        ways = (list(product(own, self.drafts, among)) for own, among in rounds)
        for family, draft, is_cross in chain.from_iterable(ways):
            is_masked_tried, is_asked, odd = True, False, None
            for plan in self._candidates(draft, family, is_cross=is_cross):
                if plan.mask and not is_masked_tried:
                    continue
                ran = self._worked(plan)
                if not plan.mask:
                    is_asked |= any(each in self.why for each in WANTING)
                    is_masked_tried = is_asked
                if ran is not None and not kin.keeps_tokens(ran, self.what.query, self._ran):
                    odd = odd or ran
                    continue
                if ran is not None:
                    beside = kin.crossed(ran, missed)
                    if beside is not None and ran.setting == "self" and self.what.key not in self.what.optional:
                        one = self._one_query(draft)
                        return (ran, beside) if one is None else (one, self._with_more(one) or beside)
                    return ran, beside
                self.missed.append(self.reached)
                if is_cross:
                    missed.append(self.reached)
                if self.clock.is_over:
                    return odd, None
            if odd is not None:
                return odd, kin.crossed(odd, missed)
        found = next((one for one in map(self._one_query, self.drafts) if one is not None), None)
        return found, None if found is None else self._with_more(found)

    def _with_more(self, one: Plan) -> Plan | None:
        """The plan with many queries that comes furthest: what runs with one query alone may be wrong with more."""
        names = {each.name for each in one.symbols} | {"L"}
        many = [plan for plan in self.missed if names <= {each.name for each in plan.symbols}]
        return next((each.plan for each in furthest(many, self.own)), None)

    def _layouts(self) -> list[Family]:
        init = self.drafts[0].init if self.drafts else {}
        found = families(self.what, self.reading, self.built, image_sizes(self.target, init))
        for name, axes in ((self.what.query, "query"), (self.what.key, "key"), (self.what.value, "value")):
            if name in self.wish.ranks:
                # what the person said stands, whether a layout is known for it or not
                found = [each for each in found if len(getattr(each, axes)) == self.wish.ranks[name]] or found
        return found

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
        tables = sum(isinstance(each, nn.Embedding) for each in self._modules())
        if not what.is_ids and tables:
            is_ids = [True, False] if "vocabulary" in sizes else [False, True]
        else:
            # without a table, what is called tokens holds features
            is_ids = [False, True] if what.is_ids and self._modules() else [what.is_ids]
        ways = [replace(what, is_ids=each) for each in is_ids]
        if tables > 1 and what.key and what.key not in what.optional:
            ways.insert(0, replace(what, is_ids=True, keys_are_ids=True))
        for way in ways:
            for more in extras(what):
                for call in calls(
                    self.called, way, family, self.reading,
                    is_cross=is_cross, sizes=sizes, extras=more,
                ):  # fmt: skip
                    layout = {} if family.layout in ("BLD", "BHLd", "BLd") else {"_layout": family.layout}
                    yield self._plan(draft, {**call, **layout, **self.wish.call}, is_cross=is_cross)

    def _sizes(self, draft: Draft) -> dict[str, str]:
        """What the axes of a layout are called here."""
        sizes = self._plan(draft, {}, is_cross=False).sizes(-1)
        found = vocabularies(draft.known, self._modules(), sizes)
        out = {"vocabulary": found[0], "vocabularies": " ".join(found)} if found else {}
        out["packed"] = "3*H*d" if "H" in draft.known and "D" not in draft.known else "3*D"
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
        if {"rows", "grid"} & {self.what.rest.get(name) for name in call}:
            known.setdefault("L", replace(LEGEND["L"], equals="h*w"))
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
        waiting, self.reached = [(plan, 0)], plan
        while waiting and not self.clock.is_over:
            each, depth = waiting.pop(0)
            if each in seen:
                continue
            seen.append(each)
            done = self._ran(each)
            self.why = f"{self.why if depth else ''} {type(done.error).__name__}: {done.error}"
            if done.error is not None and is_of_code(done.error, each):
                self.telling.append(each)
            if done.error is None:
                if (lasting := kin.lasting(each, self._runs)) is not None:
                    return lasting
            elif depth < DEEPEST:
                more = mended(each, done.error)
                if not more and self.reached is plan and told_widths(str(done.error)) is None:
                    self.reached = each
                waiting[:0] = [(self._renamed(one), depth + 1) for one in more]
        return None

    def _freed(self, plan: Plan) -> Plan:
        """The plan with a width of its own for the values, where nothing binds it."""
        shape = plan.call.get(self.what.value)
        if not isinstance(shape, list) or self.what.value in self.wish.call or "dv" in [s.name for s in plan.symbols]:
            return plan
        freed = self._renamed(replace(plan, call={**plan.call, self.what.value: [*shape[:-1], "dv"]}))
        return freed if self._ran(freed).error is None and self._runs(freed) else plan

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
        call = {name: alike(value) for name, value in base.call.items()}
        short = self._renamed(replace(base, setting="self", call=call))
        return [base, short] if "L" in str(base.call) and self._ran(short).error is None else [base]

    def _masked(self, plan: Plan) -> Plan | None:
        """The plan with a mask that runs and leaves the shape of what comes out; None: there is none.

        A mask that changes what comes out is better than one that does not.
        """
        if plan.mask:
            return None
        plain, spare = self._ran(plan), list[Plan]()
        for name in mask_arguments(self.called, keys=self.what.key if plan.setting == "cross" else ""):
            for mask in masks(name, self.reading, keys="S" if plan.setting == "cross" else "L"):
                if self.clock.is_over:
                    return next((each for each in spare[:SPARE] if self._runs(each)), None)
                if "L" in mask["shape"] and not kin.has_queries(plan):
                    continue
                call = {**{k: v for k, v in plan.call.items() if k != name}, "_mask": mask}
                each = self._renamed(replace(plan, call=call, mask=name))
                done = self._ran(each)
                if done.error is not None or done.shapes[:1] != plain.shapes[:1]:
                    continue
                if done.sum == plain.sum:
                    spare.append(each)
                elif self._runs(each):
                    return each
        return next((each for each in spare[:SPARE] if self._runs(each)), None)

    def _unbuilt(self, draft: Draft) -> Exception | None:
        """The error with which a draft is not built."""
        done = self._ran(self._plan(draft, {}, is_cross=False))
        return None if done.is_built else done.error

    def _is_built(self, draft: Draft) -> bool:
        plan = self._plan(draft, {}, is_cross=False)
        is_built = not isinstance(self.target, type) or self._ran(plan).is_built
        self.missed += [] if is_built else [plan]
        return is_built

    def _built(self) -> Any:
        plan = self._plan(self.drafts[0], {}, is_cross=False) if self.drafts else None
        return None if plan is None else plan.build(plan.sizes(-1))

    def _failures(self) -> tuple[Tried, ...]:
        """What came furthest; before all what no other call lets pass."""
        return furthest(self.telling or [plan for plan in self.missed if plan.call] or self.missed, self.own)
