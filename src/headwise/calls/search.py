"""Search: tries the calls that a target's source suggests until one runs, and the masks and settings after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, product
from typing import Any

from headwise.calls import plan_variants
from headwise.calls.attempts import LEARNING, Bench
from headwise.calls.candidates import families
from headwise.calls.constructor_arguments import Draft
from headwise.calls.equations import loosened
from headwise.calls.error_search import learned
from headwise.calls.layer_layouts import are_swapped
from headwise.calls.layouts import (
    KEYS_SHARED,
    KEYS_SHARED_HEADS,
    KEYS_TRANSPOSED,
    KEYS_TRANSPOSED_MERGED,
    ONE_QUERY,
    ONE_STEP,
    ONE_STEP_TURNED,
    PACKED,
    TURNED,
    VECTOR,
    Family,
)
from headwise.calls.mask_forms import mask_arguments, masks
from headwise.calls.plan import Plan, masked_by
from headwise.calls.request import Found, Wish
from headwise.calls.roles import init_role
from headwise.calls.signature import parameters
from headwise.calls.source_hints import Reading
from headwise.calls.symbols import alike
from headwise.calls.trial import Attempt, Tried, furthest, tried
from headwise.recording import Budget

__all__ = ["Search"]

# LAST: layouts that are tried after all others; TRIANGLES: what hides later tokens is made with
# SPARE: masks that change nothing, of which one is looked for that runs in every probe; WANTING: a mask was missed
LAST = (ONE_STEP, VECTOR)
TRIANGLES = frozenset({"tril", "tril_", "triu", "triu_"})
SPARE = 6
MOST_AXES = 8
WANTING = ("None", "not bool", "got (bool", "'bool' object")
CHANNELS = ("channels", "in_channels", "in_chans", "num_channels")


class Search:
    """One search: in which order the plans of its bench are tried."""

    def __init__(
        self,
        target: Any,
        namespace: Mapping[str, Any],
        reading: Reading,
        wish: Wish,
        *,
        own: tuple[str, ...] = (),
        work: int,
    ) -> None:
        self.bench = Bench(target, namespace, reading, wish, work=work)
        self.what, self.wish, self.own = self.bench.what, wish, own

    def found(self) -> Found:
        """The plans and the failures."""
        bench = self.bench
        base, missed = self._placed(*self._base(self._layouts()))
        # what is wrong however it is called shall not run by chance
        if base is None and all(isinstance(bench.ran(each).error, TypeError) for each in bench.telling[:SPARE]):
            base, beyond = learned(bench.missed, self.wish, bench.reading, bench.ran, bench.learning, bench.renamed)
            bench.missed[:0] = [] if beyond is None else [beyond]
            bench.budget = Budget(LEARNING)
        if base is None:
            return Found((), self._failures(), bench.ran.has_nan)
        base = self._freed(loosened(base, bench.named, bench.runs) if self.wish.fixed else base)
        ways = ((self._masked(plan), plan) for plan in self._settings(base))
        plans = [each for pair in ways for each in pair if each is not None]
        masks = self.wish.masks(base)
        masked = next((plan.call["_mask"] for plan in plans if plan.mask and plan.mask == self.wish.masked), None)
        is_new = not any(
            missed and each.setting == missed.setting and plan_variants.has_queries(each) for each in plans
        )
        failed = tried(missed, self.own)[0] if missed is not None and is_new else None
        failures = () if failed is None else (failed,)
        if self.wish.masked and masked is None and masks:
            # with the mask that was declared it fails
            done = tried(bench.renamed(masked_by(base, self.wish.masked, masks[0])), self.own)[0]
            failures = failures if done is None else (done, *failures)
        return Found(tuple(plans), failures, bench.ran.has_nan, masked or next(iter(masks), None))

    def _placed(self, base: Plan | None, missed: Plan | None) -> tuple[Plan | None, Plan | None]:
        """The plan and the missed one; with the batch first, where torch's layers get their tokens from that alone, or
        where the output has an axis of samples with that alone.
        """
        layouts, what = self._layouts(), self.what
        is_guess = "_layout" not in self.wish.call and TURNED in layouts and PACKED in layouts
        names = (what.query, what.key, what.value)
        if base is None or not is_guess or any(self.bench.reading.is_sequence_first(name) for name in names):
            return base, missed
        layout = base.call.get("_layout")
        # a decoder's one query runs in an order that many queries do not
        is_one = layout == ONE_QUERY.layout and layouts.index(TURNED) < layouts.index(PACKED)
        is_lost = layout == TURNED.layout and not plan_variants.keeps_samples(base, self.bench.ran)
        if not is_one and not is_lost and (layout != TURNED.layout or not are_swapped(base)):
            return base, missed
        other, beside = self._base([PACKED])
        if other is None:
            return base, missed
        is_right = plan_variants.keeps_samples(other, self.bench.ran) if is_lost else not are_swapped(other)
        return (other, beside) if is_right else (base, missed)

    def _base(self, layouts: list[Family]) -> tuple[Plan | None, Plan | None]:
        """The first plan that runs; and the same with keys of their own, where that alone does not."""
        bench, what = self.bench, self.what
        settings = [each for each in (True, False) if self.wish.cross in (None, each) and (what.key or not each)]
        # without weights nothing tells one layout from another but whether keys may have a length of their own
        is_free = what.is_triple and not bench.weights
        rounds = [([each], settings) for each in layouts]
        if is_free:
            # one query that has no axis of its own runs in code that needs as many keys as queries
            apart = [[each for each in layouts if (each in LAST) is is_last] for is_last in (False, True)]
            rounds = [(own, [each]) for own in apart for each in settings]
        missed: list[Plan] = []
        ways = (list(product(own, bench.drafts, among)) for own, among in rounds)
        for family, draft, is_cross in chain.from_iterable(ways):
            is_masked_tried, is_asked, odd = True, False, None
            for plan in bench.candidates(draft, family, is_cross=is_cross):
                if plan.mask and not is_masked_tried:
                    continue
                ran = bench.worked(plan)
                if not plan.mask:
                    is_asked |= any(each in bench.why for each in WANTING)
                    is_masked_tried = is_asked
                if ran is not None and not plan_variants.keeps_tokens(ran, what.query, bench.ran):
                    odd = odd or ran
                    continue
                if ran is not None:
                    beside = plan_variants.crossed(ran, missed)
                    if beside is not None and ran.setting == "self" and what.key not in what.optional:
                        if (turned := self._turned(draft, family)) is not None:
                            return turned, None
                        # a triangle is of many queries, as many as keys
                        one = None if TRIANGLES & bench.reading.words else self._one_query(draft)
                        return (ran, beside) if one is None else (one, self._with_more(one) or beside)
                    return ran, beside
                bench.missed.append(bench.reached)
                if is_cross:
                    missed.append(bench.reached)
                if bench.budget.is_over:
                    return odd, None
            if odd is not None:
                return odd, plan_variants.crossed(odd, missed)
        found = next((one for one in map(self._one_query, bench.drafts) if one is not None), None)
        return found, None if found is None else self._with_more(found)

    def _with_more(self, one: Plan) -> Plan | None:
        """The plan with many queries that comes furthest: what runs with one query alone may be wrong with more."""
        names = {each.name for each in one.symbols} | {"L"}
        many = [plan for plan in self.bench.missed if names <= {each.name for each in plan.symbols}]
        return next((each.plan for each in furthest(many, self.own)), None)

    def _layouts(self) -> list[Family]:
        """How the arguments may be laid out, likely ways first."""
        bench, what = self.bench, self.what
        init = bench.drafts[0].init if bench.drafts else {}
        found = families(what, bench.reading, bench.built, _image_sizes(bench.target, init))
        if what.is_triple and (what.key in self.wish.ranks or what.key in bench.reading.transposed):
            # a product that lacks a transposition asks for such keys too: words have to say so
            found = [*found, KEYS_TRANSPOSED, KEYS_TRANSPOSED_MERGED]
        if self.wish.ranks.get(what.query, 0) > self.wish.ranks.get(what.key, MOST_AXES):
            found = [KEYS_SHARED, KEYS_SHARED_HEADS, *found]
        if "_layout" in self.wish.call:
            found = [each for each in found if each.layout == self.wish.call["_layout"]] or found
        for name, axes in ((what.query, "query"), (what.key, "key"), (what.value, "value")):
            if name in self.wish.ranks:
                # what the person said stands, whether a layout is known for it or not
                found = [each for each in found if len(getattr(each, axes)) == self.wish.ranks[name]] or found
            if isinstance(self.wish.call.get(name), list):
                order = _order(self.wish.call[name])
                found = [each for each in found if _order(getattr(each, axes)) == order] or found
        return found

    def _turned(self, draft: Draft, family: Family) -> Plan | None:
        """A plan with keys of their own that has the batch second; None: none runs, or the words say it is first."""
        what, reading = self.what, self.bench.reading
        is_said = reading.says_batch_first or any(map(reading.is_batch_first, (what.query, what.key, what.value)))
        if family is not PACKED or is_said or TURNED not in self._layouts():
            return None
        ways = map(self.bench.worked, self.bench.candidates(draft, TURNED, is_cross=True))
        return next((plan for plan in ways if plan is not None), None)

    def _one_query(self, draft: Draft) -> Plan | None:
        """A plan with one query for each sample, as a decoder that goes step by step has."""
        if not self.what.key:
            return None
        for family in (ONE_QUERY, ONE_STEP, ONE_STEP_TURNED):
            for plan in self.bench.candidates(draft, family, is_cross=True):
                ran = self.bench.worked(plan)
                if ran is not None:
                    return ran
        return None

    def _freed(self, plan: Plan) -> Plan:
        """The plan with a width of its own for the values, where nothing binds it."""
        bench, what = self.bench, self.what
        shape = plan.call.get(what.value)
        if not isinstance(shape, list) or what.value in self.wish.call or "dv" in [s.name for s in plan.symbols]:
            return plan
        freed = bench.renamed(replace(plan, call={**plan.call, what.value: [*shape[:-1], "dv"]}))
        return freed if bench.ran(freed).error is None and bench.runs(freed) else plan

    def _settings(self, base: Plan) -> list[Plan]:
        """The plan, and with keys as long as queries where it has its own."""
        if base.setting == "self" or self.wish.cross is True:
            return [base]
        call = {name: alike(value) for name, value in base.call.items()}
        short = self.bench.renamed(replace(base, setting="self", call=call))
        return [base, short] if "L" in str(base.call) and self.bench.ran(short).error is None else [base]

    def _masked(self, plan: Plan) -> Plan | None:
        """The plan with a mask that runs and leaves the shape of what comes out; None: there is none.

        A mask that changes what comes out is better than one that does not.
        """
        bench = self.bench
        if plan.mask:
            return None
        plain, spare = bench.ran(plan), list[Plan]()
        if self.wish.masked:
            return self._declared(plan, plain)
        names = mask_arguments(bench.called, keys=self.what.key if plan.setting == "cross" else "")
        # what the person says of an argument stands
        for name in (name for name in names if name not in self.wish.call):
            for mask in masks(name, bench.reading, keys="S" if plan.setting == "cross" else "L"):
                if bench.budget.is_over:
                    return next((each for each in spare[:SPARE] if bench.runs(each)), None)
                if "L" in mask["shape"] and not plan_variants.has_queries(plan):
                    continue
                each = bench.renamed(masked_by(plan, name, mask))
                done = bench.ran(each)
                if done.error is not None or done.shapes[:1] != plain.shapes[:1]:
                    continue
                if done.sum == plain.sum:
                    spare.append(each)
                elif bench.runs(each):
                    return each
        return next((each for each in spare[:SPARE] if bench.runs(each)), None)

    def _declared(self, plan: Plan, plain: Attempt) -> Plan | None:
        """The plan with the mask that was declared, in the first of its readings that runs; None: there is none."""
        bench, name = self.bench, self.wish.masked
        ways = [bench.renamed(masked_by(plan, name, each)) for each in self.wish.masks(plan)]
        running = [each for each in ways if bench.runs(each)]
        return next((each for each in running if bench.ran(each).sum != plain.sum), next(iter(running), None))

    def _failures(self) -> tuple[Tried, ...]:
        """What came furthest; before all what no other call lets pass."""
        bench = self.bench
        return furthest(bench.telling or [plan for plan in bench.missed if plan.call] or bench.missed, self.own)


def _order(shape: Sequence[Any]) -> list[str]:
    """Which axes of a shape are the batch and the tokens."""
    return ["L" if axis in ("L", "S") else str(axis) if axis == "B" else "" for axis in shape]


def _image_sizes(target: Any, init: Mapping[str, Any]) -> dict[str, str]:
    """The height and the width ("image"), as two expressions, and the number of "channels", where they are known."""
    out: dict[str, str] = {}
    for name, value in init.items():
        if init_role(name) == "image" and isinstance(value, str):
            out["image"] = f"{name} {name}"
        elif init_role(name) == "image" and isinstance(value, Mapping) and "_tuple" in value:
            out["image"] = " ".join(map(str, value["_tuple"]))
        elif init_role(name) == "patch" and isinstance(value, str):
            out.setdefault("image", f"n*{value} n*{value}")
    for each in parameters(target) if isinstance(target, type) else []:
        if each.name in CHANNELS:
            out["channels"] = str(init.get(each.name, each.default))
    return out
