"""Layout repair: finds the movement that breaks the layout, by trying what would put it right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from headwise.calls import call_role
from headwise.dataflow import (
    AttentionOps,
    MarkedOp,
    Run,
    attentions,
    chain_of,
    is_laid_over,
    place_of,
    sample_of,
)
from headwise.diagnosis.checks.built_layers import untold_layer
from headwise.diagnosis.checks.confused_samples import takes_samples
from headwise.diagnosis.checks.head_axes import Rerun, handed, movements_of, taken_problems, untransposed_heads
from headwise.diagnosis.checks.head_layout import LayoutProblem, are_of_pairs
from headwise.diagnosis.checks.inputs import makings, redirected
from headwise.diagnosis.checks.output_layout import leaving
from headwise.diagnosis.checks.rearrangements import Rearrangement, rearrangements, sums_alone, turns, unmet_weights
from headwise.diagnosis.checks.untaken_branches import is_chosen
from headwise.diagnosis.checks.windows import windows_back
from headwise.diagnosis.patches.movements import Move, permuted, rearranged
from headwise.diagnosis.repair import Repair
from headwise.diagnosis.suspects import Suspect
from headwise.recording import Site
from headwise.source import Span

__all__ = ["layout_suspects"]

# trials of one examination: each is a run
MOST = 60
# what meets in the scores or in the weighted sum -> the kind, where no movement restores it
MET = {
    "mixed": "split-without-transpose", "features mixed": "split-without-transpose", "features": "attention-over-heads",
    "samples": "batch-length-confused", "samples mixed": "sample-leak", "unequal samples": "sample-leak",
    "unequal tokens": "key-value-misaligned",
}  # fmt: skip


def layout_suspects(run: Run, rerun: Rerun) -> list[Suspect]:
    """The first thing that is wrong with how heads are split, met and merged; [] where all is well."""
    for number, attention in enumerate(attentions(run)):
        if unmet := unmet_weights(attention):
            return [unmet]
        known_problems = taken_problems(attention)
        are_confused = bool(known_problems) and known_problems[0].what.startswith("samples")
        if are_confused and (built := _untold(run, attention.context)) is not None:
            return [Suspect("batch-length-confused", attention.context.span, home=built)]
        if known_problems:
            spread = _spread(run, attention)
            suspect = spread or _inward(run, rerun, attention, number, known_problems)
            return [suspect or _from_queries(run, attention) or _unknown(run, attention, known_problems[0])]
    # with as many keys as queries they meet all the same
    mixed = (_from_queries(run, each) for each in attentions(run) if run.plan.setting == "self")
    if (suspect := next(filter(None, mixed), None)) is not None:
        return [suspect]
    for attention in attentions(run)[-1:]:
        problem = leaving(run, attention)
        if problem:
            place = attention.context.span
            return [
                _outward(run, rerun, attention, problem) or Suspect("merge-without-transpose", place, guess="layout")
            ]
    return []


def _untold(run: Run, entry: MarkedOp) -> Span | None:
    """What builds the layer of torch to which samples come first, if nothing tells it so; None: it is told."""
    return untold_layer(run, entry) if takes_samples(entry) else None


def _spread(run: Run, attention: AttentionOps) -> Suspect | None:
    """That tokens were laid against numbers of more axes than they have: they were given with too few."""
    for side in handed(attention):
        for entry in chain_of(run, side.entry, side.operand):
            if is_laid_over(entry):
                return Suspect("split-without-transpose", entry.span, guess="axes")
    return None


def _from_queries(run: Run, attention: AttentionOps) -> Suspect | None:
    """Keys or values that are made from the queries' input, where the other is made from its own."""
    origins = makings(run, attention)
    sources = {name: each.source for name, each in origins.items()}
    # of queries that are learned, or made of several inputs, it is not known; an edge has a value of its own
    if set(origins) != set("qkv") or sources["q"] is None or are_of_pairs(attention):
        return None
    for name, partner in (("k", "v"), ("v", "k")):
        entry = origins[name].projection
        if (
            sources[name] == sources["q"] != sources[partner]
            and call_role(sources[partner] or "")
            and entry is not None
        ):
            return redirected(run, entry, sources[partner] or "", sources["q"])
    return None


def _unknown(run: Run, attention: AttentionOps, problem: LayoutProblem) -> Suspect:
    entry = attention.context if problem.side == "v" or attention.scores is None else attention.scores
    kind = MET[problem.what]
    if kind not in ("batch-length-confused", "sample-leak") and entry is attention.context and sums_alone(entry):
        # no order of axes gives the values their weights
        return Suspect("contraction-extra-axis", entry.span)
    guess = "" if kind == "batch-length-confused" else "layout"
    home = untold_layer(run, entry) if kind == "batch-length-confused" else None
    return Suspect(kind, entry.span, values={"met": problem.what}, guess=guess, home=home)


def _inward(
    run: Run, rerun: Rerun, attention: AttentionOps, number: int, known_problems: list[LayoutProblem]
) -> Suspect | None:
    if all(each.what == "features" for each in known_problems) and len(known_problems) > 1:
        suspect = untransposed_heads(run, rerun, attention, number, known_problems)
        if suspect is not None:
            return suspect
    problem = known_problems[0]
    if problem.what == "unequal tokens" and (cut := _cut_otherwise(run, rerun, attention, number, problem)) is not None:
        return cut
    side = next(each for each in handed(attention) if each.name == problem.side)
    moves = movements_of(run, side)
    for entry in moves:
        for change in rearrangements(run, entry):
            stand_ins = {entry.site: change.instead(entry)}
            if _is_mended(rerun(stand_ins), number, problem):
                together = _same_span(run, rerun, number, entry)
                kind = _inward_kind(entry, problem, change)
                rewriting = partial(rearranged, move=_move(entry, change))
                repair = Repair({**together, **stand_ins}, rewriting=rewriting, is_local=True)
                return Suspect(kind, entry.span, repair)
    for entry in reversed(moves):
        for order in turns(entry):
            stand_ins = {entry.site: _then(entry, order)}
            if _is_mended(rerun(stand_ins), number, problem):
                kind = "key-not-transposed" if problem.side == "k" else _split_kind(problem)
                return Suspect(kind, entry.span, Repair(stand_ins, rewriting=partial(permuted, order=order)))
    return None


def _cut_otherwise(
    run: Run, rerun: Rerun, attention: AttentionOps, number: int, problem: LayoutProblem
) -> Suspect | None:
    """Weights from which columns were cut at the wrong end, as that of a sink that was put behind the keys; or keys, as
    of a convolution with padding on both sides.
    """
    keys = [
        entry for side in handed(attention) if side.name == "k" for entry in chain_of(run, side.entry, side.operand)
    ]
    for entry in (*attention.path, *keys):
        before, after = (entry.inputs[0].value if entry.inputs else None), entry.value
        if entry.name != "index" or before is None or after is None or before.ndim != after.ndim:
            continue
        cut = [axis for axis in range(before.ndim) if before.shape[axis] != after.shape[axis]]
        if len(cut) != 1:
            continue
        count = before.shape[cut[0]] - after.shape[cut[0]]
        for start in (0, count):
            stand_ins = {entry.site: _narrowing(cut[0] - before.ndim, start, count)}
            if _is_mended(rerun(stand_ins), number, problem):
                return Suspect("key-value-misaligned", entry.span, Repair(stand_ins))
    return None


def _narrowing(axis: int, start: int, count: int) -> Callable[..., Any]:
    return lambda t, *_: t.narrow(axis, start, t.shape[axis] - count)


def _split_kind(problem: LayoutProblem) -> str:
    """The kind of a movement that gives the wrong operand: rows that are heads of one token mix no tokens."""
    return MET[problem.what] if problem.what in ("features", "unequal tokens") else "split-without-transpose"


def _is_mended(run: Run, number: int, problem: LayoutProblem) -> bool:
    all_attentions = attentions(run)
    if run.failure is not None and not all_attentions:
        return False
    return len(all_attentions) > number and all(
        attention.side != problem.side for attention in taken_problems(all_attentions[number])
    )


def _then(entry: MarkedOp, order: tuple[int, ...]) -> Callable[..., Any]:
    function = entry.function
    return lambda *args, **options: function(*args, **options).permute(order)


def _same_span(run: Run, rerun: Rerun, number: int, entry: MarkedOp) -> dict[Site, Callable[..., Any]]:
    """What would put right the other calls of one line, as of a helper that splits queries, keys and values."""
    out: dict[Site, Callable[..., Any]] = {}
    for attention in attentions(run)[number : number + 1]:
        for problem in taken_problems(attention):
            side = next(each for each in handed(attention) if each.name == problem.side)
            for op in movements_of(run, side):
                if op.span != entry.span or op.at == entry.at:
                    continue
                for change in rearrangements(run, op):
                    stand_ins = {op.site: change.instead(op)}
                    if _is_mended(rerun(stand_ins), number, problem):
                        out |= stand_ins
                        break
    return out


def _inward_kind(entry: MarkedOp, problem: LayoutProblem, change: Rearrangement) -> str:
    if problem.what in ("samples mixed", "unequal samples"):
        passed = _passed(entry, change)
        if passed == {("sample", "place")}:
            return "batch-length-confused"
        return "heads-batch-swapped" if ("sample", "feature") in passed or not passed else _split_kind(problem)
    before, after = len(entry.inputs[0].shape), len(entry.outputs[0].shape)
    if problem.side == "k" and before == after:
        return "key-not-transposed"
    return _split_kind(problem)


def _passed(entry: MarkedOp, change: Rearrangement) -> set[tuple[str, str]]:
    """What has to pass what on the way that is right: samples, places and features (heads are such), by pairs."""
    marks, roles = entry.given[0], list[str]()
    if marks is None:
        return set()
    for axis, size in enumerate(change.parts):
        t, f = (marks.arrays[name].reshape(change.parts).movedim(axis, 0) for name in "tf")
        numbers = {"sample": sample_of(t), "place": place_of(t), "feature": f}
        roles.append(next((name for name, each in numbers.items() if size > 1 and bool((each != each[:1]).any())), ""))
    order_of_roles = ("sample", "place", "feature")
    out: set[tuple[str, str]] = set()
    for at, a in enumerate(change.order):
        for b in change.order[at + 1 :]:
            pair = sorted((roles[a], roles[b]), key=lambda role: order_of_roles.index(role) if role else -1)
            if b < a and pair[0] and pair[0] != pair[1]:
                out.add((pair[0], pair[1]))
    return out


def _outward(run: Run, rerun: Rerun, attention: AttentionOps, text: str) -> Suspect | None:
    after = [op for op in run.seen if op.at > attention.context.at and op.is_movement]
    if (misplaced := windows_back(after, lambda stand_ins: _is_led_back(run, rerun(stand_ins)))) is not None:
        return misplaced
    # what is rolled keeps its axes
    after = [op for op in after if op.last != "roll"]
    for entry, change in _changes(run, after):
        stand_ins = {entry.site: change.instead(entry)}
        if _is_led_back(run, rerun(stand_ins)):
            # what an option asks for is no accident
            is_note = any(is_chosen(run, each) for each in after if each.at <= entry.at)
            return Suspect(
                _outward_kind(run, entry, text),
                entry.span,
                Repair(stand_ins, rewriting=partial(rearranged, move=_move(entry, change)), is_local=True),
                severity="note" if is_note else "fault",
            )
    for entry in after:
        for order in turns(entry):
            stand_ins = {entry.site: _then(entry, order)}
            if _is_led_back(run, rerun(stand_ins)):
                repair = Repair(stand_ins, rewriting=partial(permuted, order=order))
                return Suspect("merge-without-transpose", entry.span, repair)
    return None


def _is_led_back(run: Run, result: Run) -> bool:
    """Whether a changed run leads its tokens to an output of the same shape, each to its own place."""
    all_attentions = attentions(result)
    if not all_attentions or result.failure is not None or result.output is None or run.output is None:
        return False
    return result.output.shape == run.output.shape and not leaving(result, all_attentions[-1])


def _changes(run: Run, entries: list[MarkedOp]) -> Iterator[tuple[MarkedOp, Any]]:
    tried = 0
    for entry in entries:
        for change in rearrangements(run, entry):
            tried += 1
            if tried > MOST:
                return
            yield entry, change


def _outward_kind(run: Run, entry: MarkedOp, text: str) -> str:
    if text == "samples mixed":
        return "heads-batch-swapped"
    batch = next((size for size in run.sizes.values()), 0)
    if len(entry.inputs[0].shape) == 3 and len(entry.outputs[0].shape) >= 4 and batch:
        return "heads-batch-swapped"
    return "merge-without-transpose"


def _move(entry: MarkedOp, change: Rearrangement) -> Move:
    """How a movement should go, for those who write it."""
    before = tuple(entry.inputs[0].shape)
    return Move(before, change.parts, change.order, change.shape, change.cuts)
