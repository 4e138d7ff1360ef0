"""Attempts: what is built for a search, the plans by which it may be called, and which of them run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain, product
from typing import Any

from torch import nn

from headwise.calls import plan_variants
from headwise.calls.candidates import calls, extras, wanted
from headwise.calls.code_errors import is_of_code
from headwise.calls.constructor_arguments import Draft
from headwise.calls.constructor_errors import halved, rebuilt
from headwise.calls.documented_axes import docstring_axes
from headwise.calls.documented_ranks import documented_ranks, is_degenerate
from headwise.calls.embedded_arguments import vocabularies_of
from headwise.calls.equations import fixed_at
from headwise.calls.layout_order import is_narrow
from headwise.calls.layouts import Family
from headwise.calls.module_arguments import opening
from headwise.calls.plan import Named, Plan
from headwise.calls.request import Wish
from headwise.calls.signature import EMPTY, callee, parameters, starred
from headwise.calls.size_bindings import Mismatch
from headwise.calls.source_hints import Reading
from headwise.calls.symbols import LEGEND, MORE, bases, is_closed, layout_of, named, spoken
from headwise.calls.trial import Attempts
from headwise.calls.width_repairs import mended, told_widths
from headwise.recording import Budget

__all__ = ["Bench", "LEARNING"]

# NARROW: drafts tried again with widths that many numbers divide; LEARNING: work of
# following errors
DEEPEST, NARROW, LEARNING = 4, 4, 37_500


class Bench:
    """What one search builds and runs. drafts: ways to build the target; built: what the first of them gives. missed:
    plans that did not run; telling: those whose errors are the code's own; reached, why: how far the last one came.
    """

    def __init__(
        self,
        target: Any,
        namespace: Mapping[str, Any],
        reading: Reading,
        wish: Wish,
        *,
        work: int,
    ) -> None:
        self.target, self.namespace, self.reading, self.wish = target, namespace, reading, wish
        self.budget, function = Budget(work), callee(target)
        self.learning = min(work, LEARNING)
        every = parameters(function) or starred(function)
        is_free = not wish.call and not wish.init and not wish.numbers
        ranks = documented_ranks(target, [each.name for each in every]) if is_free else {}
        self.ran = Attempts(finite=wish.finite, ranks=ranks)
        self.runs = self.ran.all_run
        # a plan that gives one entry to an axis with a name is taken where no other runs
        self.degenerate: Plan | None = None
        self.documented = {} if wish.call else docstring_axes(target, [each.name for each in every])
        self.called = [each for each in every if each.name != wish.masked]
        # a mask that must be there is there from the beginning
        self.is_masked = any(parameter.name == wish.masked and parameter.default is EMPTY for parameter in every)
        self.roles = wanted(self.called)
        self.missed, self.telling, self.why = list[Plan](), list[Plan](), ""
        # of several layouts that are one for these arguments, one is tried
        self.failing: dict[str, tuple[str, Plan, list[Plan]]] = {}
        self.reached: Plan
        drafts = opening(target, reading, namespace, wish, has_heads="heads" in self.roles.rest.values())
        even = [
            half for draft in drafts[:1] if isinstance(target, type) for half in halved(draft, self._unbuilt(draft))
        ]
        self.drafts = [each for each in [*even, *drafts] if self._is_built(each)]
        if not self.drafts and isinstance(target, type):
            self.drafts = rebuilt(drafts, target, self._unbuilt, Budget(self.learning))
        if isinstance(target, type) and is_narrow(self._built(), reading):
            self.drafts += [each for each in map(plan_variants.divisible, drafts[:NARROW]) if self._is_built(each)]
        self.built = self._built()

    def candidates(self, draft: Draft, family: Family, *, is_cross: bool) -> Iterator[Plan]:
        """The plans with arguments laid out as a family, likely ones first."""
        roles, sizes = self.roles, self._sizes(draft)
        tables = sum(isinstance(module, nn.Embedding) for module in self._modules())
        if not roles.is_ids and tables:
            is_ids = [True, False] if "vocabulary" in sizes else [False, True]
        else:
            # without a table, what is called tokens holds features
            is_ids = [False, True] if roles.is_ids and self._modules() else [roles.is_ids]
        ways = [replace(roles, is_ids=each) for each in is_ids]
        if tables and roles.key and roles.key not in roles.optional:
            # of two tables, one is that of the keys
            ways.insert(0 if tables > 1 else len(ways), replace(roles, is_ids=True, keys_are_ids=True))
            # and an image beside words has none
            ways += [replace(roles, is_ids=False, keys_are_ids=True)] if "h" in family.layout else []
        # an input whose size is declared is given, in self-attention too
        declared = tuple(name for name in (roles.key, roles.value) if name in self.wish.numbers.call)
        for way, more in product(ways, extras(roles)):
            for call in calls(
                self.called, way, family, self.reading,
                is_cross=is_cross, sizes=sizes, extras=(*more, *declared), said=self.documented.keys(),
            ):  # fmt: skip
                said = self.wish.call.get(roles.query)
                layout = layout_of(said if isinstance(said, list) else list(family.layout))
                yield from self._declared(draft, {**call, **layout, **self.wish.call}, is_cross=is_cross)

    def _declared(self, draft: Draft, call: Mapping[str, Any], *, is_cross: bool) -> Iterator[Plan]:
        """The plans of a draft and a call that can be what was declared."""
        wish, roles = self.wish, self.roles
        plan = self.plan(draft, call, is_cross=is_cross)
        if wish.numbers:
            inputs = (roles.query, roles.key, roles.value)
            ways = chain(
                [call],
                [{**call, roles.value: [*call.get(roles.value, ())[:-1], "dv"]}] if roles.is_triple else [],
                _with_widths(call, draft, inputs),
            )
            bound = (self._numbered(draft, plan, each, inputs, is_cross=is_cross) for each in ways)
            numbered = next((each for each in bound if each is not None), None)
            if numbered is None:
                return
            plan = numbered
        if is_cross and (wish.call or wish.numbers) and self._are_alike(call):
            # what is declared has keys as many as queries
            return
        if not self.is_masked:
            yield plan
        # code may need a mask although it has a default
        for mask in wish.masks(plan):
            yield self.renamed(replace(plan, call={**plan.call, "_mask": mask}, mask=wish.masked))

    def _are_alike(self, call: Mapping[str, Any]) -> bool:
        """Whether the keys of a call lie along axes of the queries alone; a size is none."""
        queries, keys = call.get(self.roles.query), call.get(self.roles.key)
        if self.roles.key in self.wish.call and isinstance(queries, list) and isinstance(keys, list):
            return {*keys[:-1]} <= {*queries[:-1]}
        return isinstance(keys, str) or bool(keys == queries)

    def _numbered(
        self, draft: Draft, plan: Plan, call: Mapping[str, Any], inputs: tuple[str, ...], *, is_cross: bool
    ) -> Plan | None:
        """A plan with the numbers that were declared in it; None: it cannot have them. plan: without a call."""
        numbers = self.wish.numbers
        try:
            there = self.plan(draft, numbers.called(call, plan, inputs), is_cross=is_cross)
        except Mismatch:
            return None
        sizes = numbers.sizes(there)
        if sizes is None:
            return None
        return fixed_at(there, sizes, self.wish.fixed) if self.wish.fixed else there

    def _sizes(self, draft: Draft) -> dict[str, str]:
        """What the axes of a layout are called here."""
        sizes = self.plan(draft, {}, is_cross=False).sizes(-1)
        vocabularies = vocabularies_of(draft.symbols, self._modules(), sizes)
        out = {"vocabulary": vocabularies[0], "vocabularies": " ".join(vocabularies)} if vocabularies else {}
        out["packed"] = "3*H*d" if "H" in draft.symbols and "D" not in draft.symbols else "3*D"
        has_weights = bool(self.weights)
        is_said = "D" in spoken(list(self.wish.call.values()))
        if (
            "D" not in draft.symbols
            and not has_weights
            and not is_said
            and (self.roles.is_triple or "d" in draft.symbols)
        ):
            out["D"] = "d"
        return out

    @property
    def is_one_length(self) -> bool:
        """Whether words give what comes first and what looks like its keys the same axes."""
        axes = self.documented
        return self.roles.key in axes and axes[self.roles.key] == axes.get(self.roles.query)

    def mask_axes(self, plan: Plan, name: str) -> list[str]:
        """The shape that words give to a mask by the sides of an image or the frames of a video."""
        said, queries, shape = (*map(self.documented.get, (name, self.roles.query)), plan.call.get(self.roles.query))
        if not said or not queries or not isinstance(shape, list) or len(queries) != len(shape):
            return []
        axes = [str(shape[queries.index(axis)]) for axis in said if axis in queries]
        return axes if len(axes) == len(said) and {"h", "w", "N"} & set(axes) else []

    @property
    def weights(self) -> list[nn.Parameter]:
        """The parameters of what was built."""
        return [parameter for module in self._modules() for parameter in module.parameters(recurse=False)]

    def _modules(self) -> list[nn.Module]:
        return list(self.built.modules()) if isinstance(self.built, nn.Module) else []

    def plan(self, draft: Draft, call: Mapping[str, Any], *, is_cross: bool) -> Plan:
        """The plan of a draft and a call."""
        mask = call.get("_mask")
        sized = {name: Named(name, "parameter", name) for name, value in call.items() if value == name}
        # an argument that is called as a symbol is no size of that name
        symbols = {**{name: each for name, each in sized.items() if name not in LEGEND}, **draft.symbols}
        # a size that is declared by the name of what the constructor takes is that
        for name in set(spoken(list(self.wish.call.values()))) & set(draft.init):
            value = draft.init[name]
            if isinstance(value, str) and name not in (*bases(value, symbols), *LEGEND, *MORE):
                symbols[name] = Named(name, "parameter", name, equals=value)
        if {"rows", "grid"} & {self.roles.rest.get(name) for name in call}:
            symbols.setdefault("L", replace(LEGEND["L"], equals="h*w"))
        return Plan(
            self.target,
            "cross" if is_cross else "self",
            draft.init,
            call,
            named(draft.init, call, symbols),
            str(mask["argument"]) if isinstance(mask, Mapping) else "",
            self.namespace,
        )

    def worked(self, plan: Plan) -> Plan | None:
        """The plan, or what its errors make of it, if that runs in every probe."""
        visited: list[Plan] = []
        waiting, self.reached = [(plan, 0)], plan
        way = f"{plan.setting} {plan.init} {plan.call} {plan.symbols}"
        if self.ran.is_otherwise(plan):
            return None
        if way in self.failing:
            self.why, self.reached, telling = self.failing[way]
            self.telling += telling
            return None
        before = len(self.telling)
        while waiting and not self.budget.is_over:
            candidate, depth = waiting.pop(0)
            if candidate in visited or (self.wish.numbers and self.wish.numbers.sizes(candidate) is None):
                continue
            visited.append(candidate)
            attempt = self.ran(candidate)
            self.why = f"{self.why if depth else ''} {type(attempt.error).__name__}: {attempt.error}"
            if attempt.error is not None and is_of_code(attempt.error, candidate):
                self.telling.append(candidate)
            if attempt.error is None:
                lasting = plan_variants.lasting(candidate, self.runs)
                if lasting is not None and is_degenerate(candidate, self.documented):
                    self.degenerate = self.degenerate or lasting
                elif lasting is not None:
                    return lasting
            elif depth < DEEPEST:
                more = mended(candidate, attempt.error)
                if not more and self.reached is plan and told_widths(str(attempt.error)) is None:
                    self.reached = candidate
                waiting[:0] = [(self.renamed(variant), depth + 1) for variant in more]
        if not self.budget.is_over:
            self.failing[way] = self.why, self.reached, self.telling[before:]
        return None

    def renamed(self, plan: Plan) -> Plan:
        """A plan with the symbols that its call uses now; a number of the file's own is a symbol too."""
        symbols = {symbol.name: symbol for symbol in plan.symbols}
        draft = next((each for each in self.drafts if each.init == plan.init), Draft({}))
        call = dict(plan.call)
        numbers = {str(size): name for name, size in self.reading.numbers.items()}
        for name, value in call.items():
            last = str(value[-1]) if isinstance(value, list) and value else ""
            if (
                last.isdigit()
                and int(last) > 1
                and "D" not in draft.symbols
                and name not in {*self.wish.call, *self.wish.numbers.call}
            ):
                symbols["D"] = Named("D", "width", numbers.get(last, ""), fixed=int(last))
                call[name] = [*value[:-1], "D"]
        return replace(plan, call=call, symbols=named(plan.init, call, {**draft.symbols, **symbols}))

    def named(self, plan: Plan) -> Plan:
        """The plan with its symbols as its draft has them."""
        draft = next((each for each in self.drafts if each.init == plan.init), Draft({}))
        return replace(plan, symbols=self.plan(draft, plan.call, is_cross=plan.setting == "cross").symbols)

    def _unbuilt(self, draft: Draft) -> Exception | None:
        """The error with which a draft is not built."""
        attempt = self.ran(self.plan(draft, {}, is_cross=False))
        return None if attempt.is_built else attempt.error

    def _is_built(self, draft: Draft) -> bool:
        plan = self.plan(draft, {}, is_cross=False)
        is_built = not isinstance(self.target, type) or self.ran(plan).is_built
        self.missed += [] if is_built or not is_closed(plan.symbols) else [plan]
        return is_built

    def _built(self) -> Any:
        plan = self.plan(self.drafts[0], {}, is_cross=False) if self.drafts else None
        return None if plan is None else plan.build(plan.sizes(-1))


def _with_widths(call: Mapping[str, Any], draft: Draft, names: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """The calls whose inputs have, in place of the width, another one of the constructor."""
    inputs = {name: call[name] for name in names if isinstance(call.get(name), list) and call[name][-1] == "D"}
    for width in dict.fromkeys(
        value for value in draft.init.values() if isinstance(value, str) and value.isidentifier()
    ):
        yield {**call, **{name: [*shape[:-1], width] for name, shape in inputs.items()}}
