"""Repair loop: run, find the first thing that is wrong, put it right, run again, until nothing is; then the laws."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from headwise.calls import Plan
from headwise.dataflow import Run, attentions
from headwise.diagnosis.check_runner import CheckRunner
from headwise.diagnosis.checks.causal import order_suspects
from headwise.diagnosis.checks.crashes import crash_suspect
from headwise.diagnosis.checks.dropout import drawn_suspects
from headwise.diagnosis.checks.edge_softmax import wrong_ends
from headwise.diagnosis.checks.extra_steps import value_suspects
from headwise.diagnosis.checks.forward_method import silent_suspects
from headwise.diagnosis.checks.grouped_heads import groups_suspects
from headwise.diagnosis.checks.head_split import unsplit_heads
from headwise.diagnosis.checks.key_blocks import block_size_suspects, in_one_block
from headwise.diagnosis.checks.layout_repair import layout_suspects
from headwise.diagnosis.checks.lost_triangles import lost_triangles
from headwise.diagnosis.checks.mask import masking_suspects
from headwise.diagnosis.checks.mask_path import has_keys_first, is_counted
from headwise.diagnosis.checks.padding import padding_suspects
from headwise.diagnosis.checks.pooled_samples import pooled_over_samples
from headwise.diagnosis.checks.scale import scales_suspects
from headwise.diagnosis.checks.softmax import normalisation_suspects
from headwise.diagnosis.checks.token_sums import normaliser_suspects, unhidden_pads, unhidden_tokens
from headwise.diagnosis.checks.token_tables import table_suspects
from headwise.diagnosis.checks.transposed_scores import crossed_suspects
from headwise.diagnosis.checks.weight_sums import sharing_suspects
from headwise.diagnosis.coverage import Missed
from headwise.diagnosis.distance import distance
from headwise.diagnosis.examination import Examination
from headwise.diagnosis.plans.flags import is_option
from headwise.diagnosis.plans.further_masks import taken_otherwise
from headwise.diagnosis.plans.mask_variants import FinitePlan, FlippedPlan, has_other_axes, looks_back, said_lines
from headwise.diagnosis.repair import both
from headwise.diagnosis.suspects import Suspect
from headwise.diagnosis.token_weights import weighed_sums
from headwise.diagnosis.window_runs import hides_further, order_of_windows, wrapped
from headwise.recording import tensors

__all__ = ["broken", "examined"]

Found = tuple[Examination, list[Suspect]]
# more faults than this in one class are not looked for
MOST = 12
# words that name queries before keys
QUERY_FIRST = re.compile(r"quer\w*\b[^.;]*\bkeys?\b", re.IGNORECASE)
# what an option may ask for
TURNED = ("causal-inverted", "causal-offset")


def examined(
    plan: Plan,
    *,
    user_files: tuple[str, ...] = (),
    is_published: bool = False,
    is_mask_sure: bool = False,
    before: Examination | None = None,
    checks: CheckRunner | None = None,
    sizes: Mapping[str, int] | None = None,
) -> Examination:
    """What is wrong with one plan. before: of another plan of the same target, whose repairs are taken over. sizes:
    None: small ones.

    is_published: what is unusual is so on purpose. is_mask_sure: the person said what the mask means. A check that
    raises is held: what it examines is told as not examined, and the others go on.
    """
    exam = Examination(plan, user_files, is_published, is_mask_sure=is_mask_sure, checks=checks or CheckRunner())
    if sizes is not None:
        exam.__dict__["sizes"] = dict(sizes)
    if before is not None:
        exam = exam.changed(**_taken_over(before))
    for _ in range(MOST):
        right = exam.right
        exam, suspects = exam.checks("call", (exam, list[Suspect]()), _suspects, exam)
        exam = exam.changed(last=(right, suspects))
        findings = [each for each in suspects if (each.general, each.span) not in exam.tried]
        if not findings:
            break
        exam = exam.repaired(*findings)
    return exam


def _taken_over(before: Examination) -> dict[str, Any]:
    """What another examination of the target has put right, but for what is right for the shapes of its plan only."""
    local = [each for each in before.suspects if each.repair.is_local]
    sites = {site for each in local for site in each.repair.stand_ins}
    stand_ins = {site: each for site, each in before.stand_ins.items() if site not in sites}
    tried = before.tried - {(each.kind, each.span) for each in local}
    changes = {"change": before.change, "before": before.change}
    return {"inherited": stand_ins, "stand_ins": stand_ins, "tried": tried, **changes}


def broken(exam: Examination) -> set[tuple[str, object]]:
    """What is still found wrong when all that was found is put right."""
    is_current = exam.last is not None and exam.last[0] == exam.right
    suspects = exam.last[1] if is_current and exam.last is not None else _suspects(exam)[1]
    return {(suspect.general, suspect.span) for suspect in suspects}


def _suspects(exam: Examination) -> Found:
    """The next things that are wrong, and the examination of the plan that shows them."""
    run, checks = exam.run(), exam.checks
    projections = [entry for entry in run.seen if entry.joint is not None]
    exam = exam.changed(is_understood=exam.is_understood or len(projections) > 1)
    if run.failure is not None:
        suspect = checks("call", None, crash_suspect, run, exam)
        if suspect is not None and suspect.kind == "mask-raises":
            is_sure = exam.is_mask_sure
            variant = checks("call", None, taken_otherwise, exam.plan, exam.user_files, is_sure=is_sure)
            # with what was put right so far it may fail as well
            if variant is not None and exam.run(plan=variant).failure is None:
                return _suspects(exam.changed(plan=variant))
            if not is_sure and has_other_axes(exam.plan):
                # it was given another one than is asked for
                return exam, []
        return exam, ([] if suspect is None else [suspect])
    suspects = checks.all("call", silent_suspects, run) or checks.all("heads", layout_suspects, run, exam.run)
    if suspects:
        return exam, suspects
    exam = exam.changed(is_understood=bool(attentions(run)))
    return checks("call", (exam, suspects), _of_weights, exam, run)


def _of_weights(exam: Examination, run: Run) -> Found:
    """What is wrong with the weights of a run whose queries and keys meet, with its order and with its mask."""
    checks = exam.checks
    suspects = checks.all("dropout", lambda: drawn_suspects(run, exam.run(luck=99)))
    if suspects:
        return exam, suspects
    free = exam.run(plan=exam.free)
    suspects = checks.all("weights", block_size_suspects, free, partial(exam.rerun, plan=exam.free))
    one_block = checks("weights", None, in_one_block, free, partial(exam.rerun, plan=exam.free))
    if not suspects and one_block is not None:
        change = one_block if exam.change is None else both(one_block, exam.change)
        exam = exam.changed(change=change, before=change)
        run, free = exam.run(), exam.run(plan=exam.free)
    if free.failure is None and not suspects and not attentions(free) and not attentions(run):
        exam, suspects = _of_sums(exam, run, free)
    if free.failure is None and not suspects:
        suspects = checks.all("weights", sharing_suspects, free) or checks.all("weights", crossed_suspects, free)
        suspects = suspects or checks.all("weights", normalisation_suspects, free)
        suspects = suspects or checks.all("heads", groups_suspects, free)
        suspects = suspects or checks.all("causal", _ordered, exam, free)
        if not suspects and not exam.is_published:
            suspects = checks.all("weights", value_suspects, free)
        suspects = suspects or checks.all("scale", _wide_heads, exam, free)
        suspects = suspects or checks.all("mask", wrapped, exam, free)
        if not suspects and not exam.plan.mask and not exam.is_published:
            suspects = checks.all("mask", padding_suspects, exam, free)
            suspects = suspects or checks.all("mask", table_suspects, exam, free)
        if not suspects and exam.plan.mask:
            # what stands on the path with a mask only
            suspects = checks.all("mask", _late_sharing, run, free)
        if not suspects and exam.plan.mask and all(kind != "softmax-missing" for kind, _ in exam.tried):
            exam, suspects = checks("mask", (exam, suspects), _masking, exam, run, free)
            if not suspects and not exam.suspects and _is_without_effect(exam.run(), free):
                exam.examined["mask"] = Missed("doctor.missed.mask_without_effect", {"name": exam.plan.mask})
    return exam, suspects


def _is_without_effect(run: Run, free: Run) -> bool:
    """Whether a mask leaves all that comes out as it is without one."""
    pair = [list(tensors(each.record.result)) for each in (run, free)]
    return bool(pair[0]) and len(pair[0]) == len(pair[1]) and not any(map(distance, *pair))


def _of_sums(exam: Examination, run: Run, free: Run) -> Found:
    """What is wrong with the weights of sums over tokens, where no tokens attend to others by scores."""
    freely = partial(exam.run, plan=exam.free)
    suspects = exam.checks.all("weights", pooled_over_samples, free)
    suspects = suspects or exam.checks.all("weights", normaliser_suspects, free, freely)
    suspects = suspects or exam.checks.all("weights", wrong_ends, free, freely)
    is_understood = bool(weighed_sums(free, freely))
    if not suspects and exam.plan.mask:
        suspects = exam.checks.all("mask", normaliser_suspects, run, exam.run, is_masked=is_understood)
        suspects = suspects or exam.checks.all("mask", unhidden_tokens, run, exam.run)
    elif not suspects and not exam.is_published:
        suspects = exam.checks.all("mask", unhidden_pads, exam, free)
    return exam.changed(is_understood=is_understood), suspects


def _ordered(exam: Examination, free: Run) -> list[Suspect]:
    """What is wrong with the order in which tokens see each other; a note where an option says so."""
    suspects = [] if exam.is_published else exam.checks.all("mask", lost_triangles, exam, free)
    suspects = suspects or order_suspects(free) or order_of_windows(exam, free)
    if any(suspect.kind == "causal-missing" for suspect in suspects) and hides_further(exam, free):
        return []
    is_meant = any(suspect.general in TURNED for suspect in suspects) and is_option(
        exam.free, exam.user_files, suspects[0].general
    )
    return [replace(suspect, severity="note") if is_meant else suspect for suspect in suspects]


def _late_sharing(run: Run, free: Run) -> list[Suspect]:
    """What is wrong with how weights are shared out on the path with a mask."""
    is_free = any(attention.softmax is not None for attention in attentions(free))
    return [suspect for suspect in sharing_suspects(run) if suspect.general == "softmax-axis" or is_free]


def _wide_heads(exam: Examination, free: Run) -> list[Suspect]:
    """Heads that were never split, or else what is wrong with the scale of those that are."""
    unsplit = unsplit_heads(free)
    if not unsplit:
        return scales_suspects(exam)
    # the scale of one wide head is not that of the heads that were meant
    return [suspect for suspect in unsplit if (suspect.general, suspect.span) not in exam.tried]


def _masking(exam: Examination, run: Run, free: Run) -> Found:
    """What is wrong with the mask; where only earlier keys are seen, with one that closes some of these too."""
    exam, suspects = _of_meaning(exam, run, free)
    declared = exam.plan.call.get("_mask")
    # what puts a mask right is right for the one that it was made for
    is_mended = any(suspect.fault.family in ("mask", "padding") for suspect in exam.suspects)
    if (
        suspects
        or is_mended
        or not isinstance(declared, Mapping)
        or declared["means"] == "lengths"
        or not looks_back(free)
    ):
        return exam, suspects
    flipped = exam.changed(plan=FlippedPlan(**exam.plan.__dict__))
    run = flipped.run()
    flipped, suspects = (flipped, []) if run.failure is not None else _of_meaning(flipped, run, free)
    return (flipped if suspects else exam), suspects


def _of_meaning(exam: Examination, run: Run, free: Run) -> Found:
    """What is wrong with the mask in the meaning that it was given; nothing where it is right in another."""
    mask_suspects = masking_suspects(run, free)
    declared = exam.plan.call.get("_mask")
    if not mask_suspects or not isinstance(declared, Mapping) or declared["means"] == "lengths":
        return exam, mask_suspects
    is_of_pairs = sum(axis != "B" for axis in declared["shape"]) > 1
    if mask_suspects[0].kind == "mask-axis" and is_of_pairs and has_keys_first(run):
        # a mask of queries and keys has their axes as the scores have, where no words say otherwise
        words = " ".join(said_lines(exam.plan.target, exam.plan.mask))
        if not QUERY_FIRST.search(words):
            return exam, []
    if exam.is_mask_sure:
        return exam, mask_suspects
    if mask_suspects[0].kind == "mask-nan" and declared["means"] == "additive":
        # less than minus infinity is more than all
        finite = FinitePlan(**exam.plan.__dict__)
        named = masking_suspects(exam.run(plan=finite), free)
        if named and named[0].kind != "mask-nan":
            return exam.changed(plan=finite), named
    others: list[tuple[Plan, list[Suspect]]] = []
    for means in ("additive", "attend", "blocked"):
        if means == declared["means"] or (means == "additive" and is_counted(run)):
            continue
        plan = replace(exam.plan, call={**exam.plan.call, "_mask": {**declared, "means": means}})
        second = exam.run(plan=plan)
        if second.failure is not None and "dtype" not in declared:
            plan = replace(plan, call={**plan.call, "_mask": {**plan.call["_mask"], "dtype": "float"}})
            second = exam.run(plan=plan)
        if second.failure is None and attentions(second):
            suspects = masking_suspects(second, free)
            if not suspects:
                return exam.changed(plan=plan), []
            others.append((plan, suspects))
    turned = next((each for each in others if [s.kind for s in each[1]] == ["mask-inverted"]), None)
    if mask_suspects[0].kind == "mask-broadcast" and turned is not None:
        # keys that are always kept are hidden too: to turn the mask mends both
        return exam.changed(plan=turned[0]), turned[1]
    late = next((each for each in others if [s.kind for s in each[1]] == ["mask-after-softmax"]), None)
    if any(suspect.kind == "mask-inverted" for suspect in mask_suspects) and late is not None:
        # nothing says that it is the wrong way round, and the other way it is wrong as well
        return exam.changed(plan=late[0]), late[1]
    return exam, mask_suspects
