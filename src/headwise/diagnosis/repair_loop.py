"""Repair loop: run, find the first thing that is wrong, put it right, run again, until nothing is; then the laws."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from headwise.calls import Plan
from headwise.dataflow import Run, attentions
from headwise.diagnosis.check_runner import Held
from headwise.diagnosis.checks.causal import order_suspects
from headwise.diagnosis.checks.crashes import crash_suspect
from headwise.diagnosis.checks.dropout import drawn_suspects
from headwise.diagnosis.checks.extra_steps import value_suspects
from headwise.diagnosis.checks.grouped_heads import groups_suspects
from headwise.diagnosis.checks.head_split import unsplit_heads
from headwise.diagnosis.checks.layout_repair import layout_suspects
from headwise.diagnosis.checks.mask import masking_suspects
from headwise.diagnosis.checks.mask_path import is_counted
from headwise.diagnosis.checks.padding import padding_suspects
from headwise.diagnosis.checks.return_value import silent_suspects
from headwise.diagnosis.checks.scale import scales_suspects
from headwise.diagnosis.checks.softmax import normalisation_suspects
from headwise.diagnosis.checks.weight_sums import sharing_suspects
from headwise.diagnosis.examination import Examination
from headwise.diagnosis.plans.flags import is_option
from headwise.diagnosis.plans.further_masks import taken_otherwise
from headwise.diagnosis.plans.mask_variants import FinitePlan, FlippedPlan, looks_back
from headwise.diagnosis.suspects import Suspect

__all__ = ["broken", "examined"]

# more faults than this in one class are not looked for
MOST = 12
# what an option may ask for
TURNED = ("causal-inverted", "causal-offset")


def examined(
    plan: Plan,
    *,
    own: tuple[str, ...] = (),
    is_published: bool = False,
    is_mask_sure: bool = False,
    before: Examination | None = None,
    held: Held | None = None,
    sizes: Mapping[str, int] | None = None,
) -> Examination:
    """What is wrong with one plan. before: of another plan of the same target, whose repairs are taken over. sizes:
    None: small ones.

    is_published: what is unusual is so on purpose. is_mask_sure: the person said what the mask means. A check that
    raises is held: what it examines is told as not examined, and the others go on.
    """
    exam = Examination(plan, own, is_published, is_mask_sure=is_mask_sure, held=held or Held())
    if sizes is not None:
        exam.__dict__["sizes"] = dict(sizes)
    if before is not None:
        local = {site for each in before.suspects if each.is_local for site in each.stand_ins}
        exam.inherited = {site: each for site, each in before.stand_ins.items() if site not in local}
        exam.stand_ins = dict(exam.inherited)
        exam.change = exam.before = before.change
        exam.tried |= before.tried - {(each.kind, each.span) for each in before.suspects if each.is_local}
    for _ in range(MOST):
        right = exam.right
        suspects: list[Suspect] = exam.held.all("call", _suspects, exam)
        exam.last = right, suspects
        found = [each for each in suspects if (each.general, each.span) not in exam.tried]
        if not found:
            break
        for suspect in found:
            exam.found(suspect)
    return exam


def broken(exam: Examination) -> set[tuple[str, object]]:
    """What is still found wrong when all that was found is put right."""
    known = exam.last is not None and exam.last[0] == exam.right
    found = exam.last[1] if known and exam.last is not None else _suspects(exam)
    return {(each.general, each.span) for each in found}


def _suspects(exam: Examination) -> list[Suspect]:
    """The next things that are wrong."""
    done, held = exam.run(), exam.held
    projections = [each for each in done.seen if each.joint is not None]
    exam.is_understood = exam.is_understood or len(projections) > 1
    if done.record.failure is not None:
        suspect = held("call", None, crash_suspect, done, exam)
        if suspect is not None and suspect.kind == "mask-raises" and not exam.is_mask_sure:
            other = held("call", None, taken_otherwise, exam.plan, exam.own)
            # with what was put right so far it may fail as well
            if other is not None and exam.run(plan=other).record.failure is None:
                exam.plan = other
                return _suspects(exam)
        return [] if suspect is None else [suspect]
    found = held.all("call", silent_suspects, done) or held.all("heads", layout_suspects, done, exam.run)
    if found:
        return found
    exam.is_understood = bool(attentions(done))
    found = held.all("dropout", lambda: drawn_suspects(done, exam.run(luck=99)))
    if found:
        return found
    free = exam.run(plan=exam.free)
    if free.record.failure is None:
        found = held.all("weights", sharing_suspects, free) or held.all("weights", normalisation_suspects, free)
        found = found or held.all("heads", groups_suspects, free)
        found = found or held.all("causal", _ordered, exam, free)
        if not found and not exam.is_published:
            found = held.all("weights", value_suspects, free)
        found = found or held.all("scale", _wide_heads, exam, free)
        if not found and not exam.plan.mask and not exam.is_published:
            found = held.all("mask", padding_suspects, exam, free)
        if not found and exam.plan.mask:
            # what stands on the path with a mask only
            found = held.all("mask", _late_sharing, done, free)
        if not found and exam.plan.mask and all(kind != "softmax-missing" for kind, _ in exam.tried):
            found = held.all("mask", _masking, exam, done, free)
    return found


def _ordered(exam: Examination, free: Run) -> list[Suspect]:
    """What is wrong with the order in which tokens see each other; a note where an option says so."""
    found = order_suspects(free)
    is_meant = any(each.general in TURNED for each in found) and is_option(exam.free, exam.own, found[0].general)
    return [replace(each, severity="note") if is_meant else each for each in found]


def _late_sharing(done: Run, free: Run) -> list[Suspect]:
    """What is wrong with how weights are shared out on the path with a mask."""
    is_free = any(each.softmax is not None for each in attentions(free))
    return [each for each in sharing_suspects(done) if each.general == "softmax-axis" or is_free]


def _wide_heads(exam: Examination, free: Run) -> list[Suspect]:
    """Heads that were never split, or else what is wrong with the scale of those that are."""
    unsplit = unsplit_heads(free)
    if not unsplit:
        return scales_suspects(exam)
    # the scale of one wide head is not that of the heads that were meant
    return [each for each in unsplit if (each.general, each.span) not in exam.tried]


def _masking(exam: Examination, done: Run, free: Run) -> list[Suspect]:
    """What is wrong with the mask; where only earlier keys are seen, with one that closes some of these too."""
    found = _of_meaning(exam, done, free)
    said = exam.plan.call.get("_mask")
    # what puts a mask right is right for the one that it was made for
    is_mended = any(each.fault.family in ("mask", "padding") for each in exam.suspects)
    if found or is_mended or not isinstance(said, Mapping) or said["means"] == "lengths" or not looks_back(free):
        return found
    kept = exam.plan
    exam.plan = FlippedPlan(**kept.__dict__)
    flipped = exam.run()
    found = [] if flipped.record.failure is not None else _of_meaning(exam, flipped, free)
    if not found:
        exam.plan = kept
    return found


def _of_meaning(exam: Examination, done: Run, free: Run) -> list[Suspect]:
    """What is wrong with the mask in the meaning that it was given; nothing where it is right in another."""
    found = masking_suspects(done, free)
    said = exam.plan.call.get("_mask")
    if not found or exam.is_mask_sure or not isinstance(said, Mapping) or said["means"] == "lengths":
        return found
    if found[0].kind == "mask-nan" and said["means"] == "additive":
        # less than minus infinity is more than all
        finite = FinitePlan(**exam.plan.__dict__)
        named = masking_suspects(exam.run(plan=finite), free)
        if named and named[0].kind != "mask-nan":
            exam.plan = finite
            return named
    others: list[tuple[Plan, list[Suspect]]] = []
    for means in ("additive", "attend", "blocked"):
        if means == said["means"] or (means == "additive" and is_counted(done)):
            continue
        plan = replace(exam.plan, call={**exam.plan.call, "_mask": {**said, "means": means}})
        other = exam.run(plan=plan)
        if other.record.failure is not None and "dtype" not in said:
            plan = replace(plan, call={**plan.call, "_mask": {**plan.call["_mask"], "dtype": "float"}})
            other = exam.run(plan=plan)
        if other.record.failure is None and attentions(other):
            suspects = masking_suspects(other, free)
            if not suspects:
                exam.plan = plan
                return []
            others.append((plan, suspects))
    turned = next((each for each in others if [s.kind for s in each[1]] == ["mask-inverted"]), None)
    if found[0].kind == "mask-broadcast" and turned is not None:
        # keys that are always kept are hidden too: to turn the mask mends both
        exam.plan, found = turned
        return found
    late = next((each for each in others if [s.kind for s in each[1]] == ["mask-after-softmax"]), None)
    if any(each.kind == "mask-inverted" for each in found) and late is not None:
        # nothing says that it is the wrong way round, and the other way it is wrong as well
        exam.plan, found = late
    return found
