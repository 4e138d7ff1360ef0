"""Search: tries the calls that a target's source suggests until one runs, and the masks and settings after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, product
from typing import Any

from headwise.calls import plan_variants
from headwise.calls.attempts import LEARNING, Bench
from headwise.calls.constructor_arguments import Draft
from headwise.calls.equations import loosened
from headwise.calls.error_search import learned
from headwise.calls.fixed_arguments import FIXED
from headwise.calls.layer_layouts import are_swapped
from headwise.calls.layout_order import families, image_sizes
from headwise.calls.layouts import (
    CONDITIONED,
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
from headwise.calls.roles import call_role
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
# work that is left for the masks of a call that was found late
MASKING = 12_500
MOST_AXES = 8
WANTING = ("None", "not bool", "got (bool", "'bool' object")


class Search:
    """One search: in which order the plans of its bench are tried."""

    def __init__(
        self,
        target: Any,
        namespace: Mapping[str, Any],
        reading: Reading,
        wish: Wish,
        *,
        user_files: tuple[str, ...] = (),
        work: int,
    ) -> None:
        self.bench = Bench(target, namespace, reading, wish, work=work)
        self.roles, self.wish, self.user_files = self.bench.roles, wish, user_files

    def run(self) -> Found:
        """The plans and the failures."""
        bench = self.bench
        base, missed = self._placed(*self._base(self._layouts()))
        # what is wrong however it is called shall not run by chance
        is_open = all(isinstance(bench.ran(each).error, TypeError) for each in bench.telling[:SPARE])
        if base is None and self.wish.learns and is_open:
            base, beyond = learned(bench.missed, self.wish, bench.reading, bench.ran, bench.learning, bench.renamed)
            bench.missed[:0] = [] if beyond is None else [beyond]
            bench.budget = Budget(LEARNING)
        elif base is not None and self._is_numbered(base):
            # with any number for a tensor it may run by chance
            tensors = learned(bench.missed, self.wish, bench.reading, bench.ran, bench.learning // 2, bench.renamed)[0]
            base, missed = (base, missed) if tensors is None else (tensors, None)
        base = base or bench.degenerate
        if base is None:
            return Found((), self._failures(), bench.ran.has_nan)
        bench.budget = Budget(max(bench.budget.left, MASKING))
        base = self._freed(loosened(base, bench.named, bench.runs) if self.wish.fixed else base)
        ways = ((self._masked(plan), plan) for plan in self._settings(base))
        plans = [each for pair in ways for each in pair if each is not None]
        masks = self.wish.masks(base)
        masked = next((plan.call["_mask"] for plan in plans if plan.mask and plan.mask == self.wish.masked), None)
        is_new = not any(
            missed and plan.setting == missed.setting and plan_variants.has_queries(plan) for plan in plans
        )
        failed = tried(missed, self.user_files)[0] if missed is not None and is_new else None
        failures = () if failed is None else (failed,)
        if self.wish.masked and masked is None and masks:
            # with the mask that was declared it fails
            masked_failure = tried(bench.renamed(masked_by(base, self.wish.masked, masks[0])), self.user_files)[0]
            failures = failures if masked_failure is None else (masked_failure, *failures)
        return Found(tuple(plans), failures, bench.ran.has_nan, masked or next(iter(masks), None))

    def _is_numbered(self, plan: Plan) -> bool:
        """Whether an argument is given a number that neither its name nor its type asks for."""
        return any(
            type(plan.call.get(parameter.name)) in (int, float)
            and self.roles.rest.get(parameter.name) == ""
            and not str(parameter.annotation).startswith(("int", "float", "<class 'int", "<class 'float"))
            and parameter.name not in self.wish.call
            for parameter in self.bench.called
        )

    def _placed(self, base: Plan | None, missed: Plan | None) -> tuple[Plan | None, Plan | None]:
        """The plan and the missed one; with the batch first, where torch's layers get their tokens from that alone, or
        where the output has an axis of samples with that alone.
        """
        layouts, roles = self._layouts(), self.roles
        is_guess = "_layout" not in self.wish.call and TURNED in layouts and PACKED in layouts
        names = (roles.query, roles.key, roles.value)
        if base is None or not is_guess or any(self.bench.reading.is_sequence_first(name) for name in names):
            return base, missed
        layout = base.call.get("_layout")
        # a decoder's one query runs in an order that many queries do not
        is_one = layout == ONE_QUERY.layout and layouts.index(TURNED) < layouts.index(PACKED)
        is_lost = layout == TURNED.layout and not plan_variants.keeps_samples(base, self.bench.ran)
        if not is_one and not is_lost and (layout != TURNED.layout or not are_swapped(base)):
            return base, missed
        batch_first, beside = self._base([PACKED])
        if batch_first is None:
            return base, missed
        is_right = plan_variants.keeps_samples(batch_first, self.bench.ran) if is_lost else not are_swapped(batch_first)
        return (batch_first, beside) if is_right else (base, missed)

    def _base(self, layouts: list[Family]) -> tuple[Plan | None, Plan | None]:
        """The first plan that runs; and the same with keys of their own, where that alone does not."""
        bench, roles = self.bench, self.roles
        settings = [each for each in (True, False) if self.wish.cross in (None, each) and (roles.key or not each)]
        # without weights nothing tells one layout from another but whether keys may have a length of their own
        is_free = roles.is_triple and not bench.weights
        # a vector of a sample is no key
        rounds = [([layout], [way for way in settings if layout is not CONDITIONED or not way]) for layout in layouts]
        if is_free:
            # one query that has no axis of its own runs in code that needs as many keys as queries
            apart = [[layout for layout in layouts if (layout in LAST) is is_last] for is_last in (False, True)]
            rounds = [(group, [setting]) for group in apart for setting in settings]
        missed: list[Plan] = []
        ways = (list(product(group, bench.drafts, among)) for group, among in rounds)
        for family, draft, is_cross in chain.from_iterable(ways):
            is_masked_tried, is_asked, odd = True, False, None
            for plan in bench.candidates(draft, family, is_cross=is_cross):
                if plan.mask and not is_masked_tried:
                    continue
                ran = bench.worked(plan)
                if not plan.mask:
                    is_asked |= any(each in bench.why for each in WANTING)
                    is_masked_tried = is_asked
                if ran is not None and not plan_variants.keeps_tokens(ran, roles.query, bench.ran):
                    odd = odd or ran
                    continue
                if ran is not None:
                    beside = None if bench.is_one_length else plan_variants.crossed(ran, missed)
                    if beside is not None and ran.setting == "self" and roles.key not in roles.optional:
                        turned = self._turned(draft, family)
                        if other := turned or plan_variants.with_more_keys(beside, bench.runs, bench.renamed):
                            return other, None
                        # a triangle is of many queries, as many as keys
                        one_query = None if TRIANGLES & bench.reading.words else self._one_query(draft)
                        return (ran, beside) if one_query is None else (one_query, self._with_more(one_query) or beside)
                    return ran, beside
                if not bench.ran.is_otherwise(bench.reached):
                    bench.missed.append(bench.reached)
                if is_cross:
                    missed.append(bench.reached)
                if bench.budget.is_over:
                    return odd, None
            if odd is not None:
                return odd, plan_variants.crossed(odd, missed)
        one_query = next((plan for plan in map(self._one_query, bench.drafts) if plan is not None), None)
        return one_query, None if one_query is None else self._with_more(one_query)

    def _with_more(self, one_query: Plan) -> Plan | None:
        """The plan with many queries that comes furthest: what runs with one query alone may be wrong with more."""
        names = {symbol.name for symbol in one_query.symbols} | {"L"}
        many = [plan for plan in self.bench.missed if names <= {symbol.name for symbol in plan.symbols}]
        return next((each.plan for each in furthest(many, self.user_files)), None)

    def _layouts(self) -> list[Family]:
        """How the arguments may be laid out, likely ways first."""
        bench, roles = self.bench, self.roles
        init = bench.drafts[0].init if bench.drafts else {}
        layouts = families(roles, bench.reading, bench.built, image_sizes(bench.target, init))
        if roles.is_triple and (roles.key in self.wish.ranks or roles.key in bench.reading.transposed):
            # a product that lacks a transposition asks for such keys too: words have to say so
            layouts = [*layouts, KEYS_TRANSPOSED, KEYS_TRANSPOSED_MERGED]
        if self.wish.ranks.get(roles.query, 0) > self.wish.ranks.get(roles.key, MOST_AXES):
            layouts = [KEYS_SHARED, KEYS_SHARED_HEADS, *layouts]
        if "_layout" in self.wish.call:
            layouts = [layout for layout in layouts if layout.layout == self.wish.call["_layout"]] or layouts
        for name, axes in ((roles.query, "query"), (roles.key, "key"), (roles.value, "value")):
            if name in self.wish.ranks:
                # what the person said stands, whether a layout is known for it or not
                layouts = [
                    layout for layout in layouts if len(getattr(layout, axes)) == self.wish.ranks[name]
                ] or layouts
            if isinstance(self.wish.call.get(name), list):
                order = _order(self.wish.call[name])
                layouts = [layout for layout in layouts if _order(getattr(layout, axes)) == order] or layouts
        return layouts

    def _turned(self, draft: Draft, family: Family) -> Plan | None:
        """A plan with keys of their own that has the batch second; None: none runs, or the words say it is first."""
        roles, reading = self.roles, self.bench.reading
        is_said = reading.says_batch_first or any(map(reading.is_batch_first, (roles.query, roles.key, roles.value)))
        if family is not PACKED or is_said or TURNED not in self._layouts():
            return None
        ways = map(self.bench.worked, self.bench.candidates(draft, TURNED, is_cross=True))
        return next((plan for plan in ways if plan is not None), None)

    def _one_query(self, draft: Draft) -> Plan | None:
        """A plan with one query for each sample, as a decoder that goes step by step has."""
        if not self.roles.key:
            return None
        for family in (ONE_QUERY, ONE_STEP, ONE_STEP_TURNED):
            for plan in self.bench.candidates(draft, family, is_cross=True):
                ran = self.bench.worked(plan)
                if ran is not None:
                    return ran
        return None

    def _freed(self, plan: Plan) -> Plan:
        """The plan with a width of its own for the values, where nothing binds it."""
        bench, roles = self.bench, self.roles
        shape = plan.call.get(roles.value)
        if not isinstance(shape, list) or roles.value in self.wish.call or "dv" in [s.name for s in plan.symbols]:
            return plan
        freed = bench.renamed(replace(plan, call={**plan.call, roles.value: [*shape[:-1], "dv"]}))
        return freed if bench.ran(freed).error is None and bench.runs(freed) else plan

    def _settings(self, base: Plan) -> list[Plan]:
        """The plan, and where it has keys of its own, without these, or if they are needed, with as many as queries."""
        if base.setting == "self" or self.wish.cross is True or "L" not in str(base.call):
            return [base]
        optional = {self.roles.key, self.roles.value} & set(self.roles.optional) - set(self.wish.call)
        own = {name: value for name, value in base.call.items() if name not in optional}
        calls = [own, base.call] if self.roles.key in optional else [base.call]
        for call in calls:
            call = {name: alike(value) for name, value in call.items()}
            short = self.bench.renamed(replace(base, setting="self", call=call))
            if self.bench.ran(short).error is None:
                return [base, short]
        return [base]

    def _masked(self, plan: Plan) -> Plan | None:
        """The plan with a mask that runs and leaves the shape of what comes out, and best changes it; None: none."""
        bench = self.bench
        if plan.mask:
            return None
        plain, spare, keys = bench.ran(plan), list[Plan](), "S" if plan.setting == "cross" else "L"
        if self.wish.masked:
            return self._declared(plan, plain)
        names = mask_arguments(bench.called, keys=self.roles.key if self.roles.key in plan.call else "")
        # what the person says stands; without an axis of tokens, what code counts by may be rows
        for name in (n for n in names if n not in self.wish.call and (call_role(n) or keys in plan.sizes(-1))):
            role, axes = self.roles.rest.get(name, ""), bench.mask_axes(plan, name)
            for mask in masks(name, bench.reading, keys=keys, role=role, axes=axes):
                if bench.budget.is_over:
                    return next((each for each in spare[:SPARE] if bench.runs(each)), None)
                # where the tokens are cut, nobody said which of them lengths count
                is_cut = mask["means"] == "lengths" and FIXED["count"][0] in plan.call.values()
                if is_cut or ("L" in mask["shape"] and not plan_variants.has_queries(plan)):
                    continue
                variant = bench.renamed(masked_by(plan, name, mask))
                attempt = bench.ran(variant)
                if attempt.error is not None or attempt.shapes[:1] != plain.shapes[:1]:
                    continue
                if attempt.sum == plain.sum:
                    spare.append(variant)
                elif bench.runs(variant):
                    return variant
        return next((each for each in spare[:SPARE] if bench.runs(each)), None)

    def _declared(self, plan: Plan, plain: Attempt) -> Plan | None:
        """The plan with the mask that was declared, in the first of its readings that runs; None: there is none."""
        bench, name = self.bench, self.wish.masked
        ways = [bench.renamed(masked_by(plan, name, mask)) for mask in self.wish.masks(plan)]
        running = [each for each in ways if bench.runs(each)]
        return next((each for each in running if bench.ran(each).sum != plain.sum), next(iter(running), None))

    def _failures(self) -> tuple[Tried, ...]:
        """What came furthest; before all what no other call lets pass."""
        bench = self.bench
        return furthest(bench.telling or [plan for plan in bench.missed if plan.call] or bench.missed, self.user_files)


def _order(shape: Sequence[Any]) -> list[str]:
    """Which axes of a shape are the batch and the tokens."""
    return ["L" if axis in ("L", "S") else str(axis) if axis == "B" else "" for axis in shape]
