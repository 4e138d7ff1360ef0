"""Laws: what holds of any attention, whatever its numbers: its inputs, its parameters, its training, its dropout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from torch import nn

from headwise.calls import Plan
from headwise.dataflow import Run, attentions, mixing_of
from headwise.diagnosis.checks.alike_samples import unlike_samples
from headwise.diagnosis.checks.backward import backward_error, broken_backward
from headwise.diagnosis.checks.batch_leak import sample_leaks, tells_samples
from headwise.diagnosis.checks.causal_intent import wants_causal
from headwise.diagnosis.checks.crossed_positions import crossed_positions
from headwise.diagnosis.checks.cut_inputs import cut_inputs
from headwise.diagnosis.checks.dropout import dropping_suspects, has_dropout
from headwise.diagnosis.checks.edge_cases import edge_suspects, half_suspects
from headwise.diagnosis.checks.generation_window import window_suspects
from headwise.diagnosis.checks.gradients import is_for_inference, without_place
from headwise.diagnosis.checks.grouped_heads import raising_groups
from headwise.diagnosis.checks.head_divisibility import dividing_suspects
from headwise.diagnosis.checks.head_split import missing_projection
from headwise.diagnosis.checks.idle_masks import unmet_conditions
from headwise.diagnosis.checks.inputs import ignored_inputs, shared_projections
from headwise.diagnosis.checks.key_permutation import permuting_suspects
from headwise.diagnosis.checks.later_tokens import later_tokens
from headwise.diagnosis.checks.mask_arguments import default_suspects, doubled_masks
from headwise.diagnosis.checks.notes import unusual_notes
from headwise.diagnosis.checks.packed_documents import packed_documents
from headwise.diagnosis.checks.parameters import (
    cut_gradients,
    cut_paths,
    unused_parameters,
    unused_suspects,
    without_gradient,
)
from headwise.diagnosis.checks.plain_tensors import plain_tensors
from headwise.diagnosis.checks.position_terms import position_suspects
from headwise.diagnosis.checks.relative_tables import tables_from_start
from headwise.diagnosis.checks.rotary import rotating_suspects
from headwise.diagnosis.checks.second_generation import generation_suspects
from headwise.diagnosis.checks.segment_ends import segment_ends
from headwise.diagnosis.checks.shifted_losses import shown_targets
from headwise.diagnosis.checks.side_effects import BEFORE, changed_arguments, left_over
from headwise.diagnosis.checks.single_sample import single_sample_suspects
from headwise.diagnosis.checks.state_dict import saving_suspects
from headwise.diagnosis.checks.step_methods import step_methods
from headwise.diagnosis.checks.table_columns import mixed_columns
from headwise.diagnosis.checks.token_padding import visible_pads
from headwise.diagnosis.checks.training_step import step_suspects
from headwise.diagnosis.checks.unread_parts import unread_parts
from headwise.diagnosis.checks.unused_projections import discarded
from headwise.diagnosis.checks.visible_padding import visible_padding
from headwise.diagnosis.coverage import Missed, Tried
from headwise.diagnosis.examination import Examination
from headwise.diagnosis.one_run import ANY, MASKED, WHOLE
from headwise.diagnosis.plans.mask_variants import ChangedPlan, looks_back
from headwise.diagnosis.suspects import Suspect
from headwise.diagnosis.token_weights import weighed_sums
from headwise.recording import Site

__all__ = ["found_by_laws", "law_suspects", "shown_suspects"]

# as they are told where none could be tried
LAWS = ("training", "gradients", "dropout", "samples", "arguments kept", "second call", "state_dict")


def law_suspects(exam: Examination) -> list[Suspect]:
    """What the laws find in a plan whose values are right, or have been put right."""
    rerun, free = exam.rerun, exam.rerun_free
    run, checks = free(), exam.checks
    if run.record.failure is not None or not (attentions(run) or weighed_sums(run, free)):
        why = "faults_first" if exam.suspects else "not_followed"
        exam.examined.update(dict.fromkeys(LAWS, Missed(f"doctor.missed.{why}")))
        out = whole_suspects(exam)
        out = out or ([] if exam.suspects else checks.all("dropout", dropping_suspects, exam.free, rerun))
        return out or _of_backward(exam, run) or _of_pooling(exam, run, free)
    exam.examined["causal"] = wants_causal(run) or looks_back(run) or Missed("doctor.missed.not_causal")
    # what is put right where there is a mask leaves the runs without one as they are
    fact = run.fact
    out = [*checks.all("inputs", fact, ignored_inputs, run, free)]
    out += checks.all("dropout", fact, dropping_suspects, exam.free, rerun)
    out += whole_suspects(exam)
    out += checks.all("gradients", fact, _training, exam.free, exam, rerun)
    if exam.plan.mask and not out:
        out += checks.all("gradients", _training, exam.plan, exam, rerun)
        out += checks.all("dropout", dropping_suspects, exam.plan, rerun)
    exam.examined["samples"] = Missed("doctor.missed.faults_first")
    if not out:
        exam.examined["samples"] = fact(tells_samples, run, free) or Missed("doctor.missed.samples_unknown")
        out += checks.all("samples", fact, sample_leaks, run, free)
        out += checks.all("samples", single_sample_suspects, run, free)
        out += [] if out or exam.suspects else checks.all("samples", fact, unlike_samples, run, free)
        out += [] if out or exam.suspects else checks.all("causal", fact, later_tokens, run, free)
    if exam.plan.mask and not exam.is_published:
        out += checks.all("mask", lambda: doubled_masks(rerun(plan=exam.plan)))
        out += checks.all("mask", default_suspects, exam.plan, rerun)
        out += checks.all(
            "empty rows", edge_suspects, exam.plan, rerun, replace(exam, stand_ins={}, inherited={}, change=None).rerun
        )
        exam.examined.update({"empty rows": True})
    exam.examined.update({"training": True, "gradients": True})
    if is_for_inference(type(run.target)):
        exam.examined["gradients"] = Missed("doctor.missed.not_trained")
    if fact(has_dropout, exam.free, rerun):
        exam.examined["dropout"] = True
    return out + _of_calls(exam, run, free, rerun, out)


def _of_backward(exam: Examination, run: Run) -> list[Suspect]:
    """A backward that raises, or ends before what reads the inputs, of whatever runs."""
    again = partial(exam.rerun, plan=exam.free, gradients=True)
    if run.record.failure is not None or exam.suspects or is_for_inference(type(run.target)):
        return []
    trained = again()
    if trained.failure is None and (error := backward_error(trained)):
        return exam.checks.all("gradients", broken_backward, trained, error, again)
    return exam.checks.all("gradients", cut_inputs, trained, again)


def _of_pooling(exam: Examination, run: Run, free: Callable[..., Run]) -> list[Suspect]:
    """What the laws find where tokens are pooled: samples kept apart, parameters registered, arguments left alone."""
    if run.record.failure is not None or exam.suspects or (mixing_of(run) or ("",))[0] != "pooling":
        return []
    checks, fact = exam.checks, run.fact
    exam.examined["samples"] = fact(tells_samples, run, free) or Missed("doctor.missed.samples_unknown")
    out = checks.all("samples", fact, sample_leaks, run, free)
    return out + _of_repeated_calls(exam, run, free)


def _of_repeated_calls(exam: Examination, run: Run, free: Callable[..., Run]) -> list[Suspect]:
    """Arguments that a call changes, what it leaves over for the next one, and what another instance lacks."""
    masked, checks = exam.rerun(plan=exam.plan) if exam.plan.mask else run, exam.checks
    out = checks.all("arguments kept", lambda: changed_arguments(run) or changed_arguments(masked))
    exam.examined["arguments kept"] = True
    suspects = _second_calls(exam, run, free)
    return out or suspects or _noted(exam, "state_dict", run.fact, saving_suspects, exam.free, run, exam.rerun)


def _second_calls(exam: Examination, run: Run, free: Callable[..., Run]) -> list[Suspect]:
    """What is left over from a call with other inputs, or one whose mask of the same shape hid other keys."""
    suspects = _noted(exam, "second call", run.fact, left_over, run, free)
    if suspects or not exam.plan.mask or isinstance(exam.examined["second call"], Missed):
        return suspects
    changed = partial(exam.rerun, plan=ChangedPlan(**exam.plan.__dict__))
    return exam.checks.all("second call", lambda: left_over(changed(), changed, (BEFORE,))[0])


def _noted(
    exam: Examination, name: str, check: Callable[..., tuple[list[Suspect], Tried]], *args: Any
) -> list[Suspect]:
    """What a check finds. What it tried is noted under its name."""
    suspects, exam.examined[name] = exam.checks(name, ([], True), check, *args)
    return suspects


def model_suspects(exam: Examination) -> list[Suspect]:
    """What the laws find in a whole model, the classes in which hold its attentions and are examined by themselves."""
    out = whole_suspects(exam)
    if out:
        return out
    free = exam.rerun_free
    run = free()
    if run.record.failure is not None or not attentions(run):
        return out
    exam.examined["samples"] = run.fact(tells_samples, run, free) or Missed("doctor.missed.samples_unknown")
    out = exam.checks.all("samples", run.fact, sample_leaks, run, free)
    out += exam.checks.all("samples", single_sample_suspects, run, free)
    out += [] if out or exam.suspects else exam.checks.all("samples", run.fact, unlike_samples, run, free)
    out = out or exam.checks.all("inputs", run.fact, ignored_inputs, run, free)
    out = out or ([] if exam.suspects else _of_repeated_calls(exam, run, free))
    return out or _of_backward(exam, run)


def found_by_laws(exam: Examination, shown: Sequence[Suspect], *, is_shown: bool) -> tuple[Examination, list[Suspect]]:
    """What laws find beside what one run shows, and the examination of it mended. is_shown: classes show the rest."""
    suspects = exam.checks.all("laws", model_suspects if is_shown else law_suspects, exam)
    known = {(suspect.general, suspect.span) for suspect in suspects}
    suspects += [suspect for suspect in shown if (suspect.general, suspect.span) not in known]
    laws = [suspect for suspect in suspects if (suspect.general, suspect.span) not in exam.tried]
    return exam.repaired(*laws), laws


def shown_suspects(exam: Examination) -> list[Suspect]:
    """What a single run without a mask shows, on lines of which nothing is found yet."""
    run = exam.rerun_free()
    if run.record.failure is not None:
        return []
    kinds = {suspect.general for suspect in exam.suspects}
    out = [suspect for name, check in ANY for suspect in exam.checks.all(name, run.fact, check, run)]
    for name, check in WHOLE if attentions(run) else ():
        out += [each for each in exam.checks.all(name, run.fact, check, run) if each.general not in kinds]
    reported = {(suspect.span.file, suspect.span.line) for suspect in exam.suspects if suspect.span is not None}
    return [each for each in out if each.span is None or (each.span.file, each.span.line) not in reported]


def whole_suspects(exam: Examination) -> list[Suspect]:
    """What the laws find that a whole model may show, and the classes that hold its attentions do not by themselves."""
    free = exam.rerun_free
    run = free()
    if run.record.failure is not None:
        return []
    out = shown_suspects(exam)
    if not exam.suspects:
        out += exam.checks.all("cache", run.fact, step_methods, run)
    # a mask that is wrong shows in what it hides too
    is_clear = not (exam.suspects or _are_of_masks(out))
    is_masked = is_clear and bool(exam.plan.mask)
    padded = partial(visible_padding, exam.plan, exam.rerun, is_sure=exam.is_mask_sure)
    if not attentions(run):
        return out + (exam.checks.all("mask", padded) if is_masked and weighed_sums(run, free) else [])
    out += exam.checks.all("mask", run.fact, unmet_conditions, run, free)
    # what regroups the tokens of several samples brings the mask of one to the others too
    is_mixed = any(suspect.kind == "tokens-regrouped" for suspect in out)
    for name, check in MASKED if is_masked else ():
        out += [] if is_mixed and name == "samples" else exam.checks.all(name, check, exam.plan, exam.rerun)
    if is_masked and not _are_of_masks(out):
        out += exam.checks.all("mask", padded)
    elif is_clear and not exam.plan.mask:
        out += exam.checks.all("mask", visible_pads, exam, run)
    if not exam.suspects:
        out += exam.checks.all("samples", run.fact, packed_documents, run, free)
        out += exam.checks.all("mask", run.fact, segment_ends, run, free)
        out += exam.checks.all("second call", run.fact, generation_suspects, run)
        out += exam.checks.all("causal", run.fact, window_suspects, run)
        out += exam.checks.all("inputs", run.fact, shown_targets, run, free)
    for of_positions in (rotating_suspects, position_suspects, tables_from_start, mixed_columns, crossed_positions):
        out += exam.checks.all("rotation", run.fact, of_positions, run, free)
    return out


def _are_of_masks(suspects: Sequence[Suspect]) -> bool:
    return any(each.severity == "fault" and each.fault.family in ("mask", "padding") for each in suspects)


def _of_calls(
    exam: Examination, run: Run, free: Callable[..., Run], rerun: Callable[..., Run], before: list[Suspect]
) -> list[Suspect]:
    """What shows in the arguments after a call, in a second call, in another instance, in a step of training."""
    kinds, checks, fact = {suspect.general for suspect in before}, exam.checks, run.fact
    masked = rerun(plan=exam.plan) if exam.plan.mask else run
    out = checks.all("arguments kept", lambda: changed_arguments(run) or changed_arguments(masked))
    exam.examined["arguments kept"] = True
    suspects = _second_calls(exam, run, free)
    if all(suspect.fault.family != "dropout" for suspect in before) and not out:
        out += suspects
    suspects = _noted(exam, "state_dict", fact, saving_suspects, exam.free, run, rerun)
    # what was registered to put it right is no part of another instance
    is_registered = any(suspect.general == "parameters-unregistered" for suspect in (*before, *exam.suspects))
    if not is_registered and not any(each.kind == "stateful-forward" for each in out):
        out += suspects
    suspects = _noted(exam, "order of keys", fact, permuting_suspects, run, free)
    if isinstance(exam.examined["order of keys"], str) and (kinds or exam.suspects):
        # the output may differ by what is wrong, and not by positions
        exam.examined["order of keys"] = Missed("doctor.missed.faults_first")
    out += [] if kinds else suspects
    kinds |= {suspect.general for suspect in out}
    is_stopped = any(suspect.fault.stops_training for suspect in (*before, *out))
    exam.examined["step of training"] = Missed(f"doctor.missed.{'faults_first' if is_stopped else 'no_parameters'}")
    if not is_stopped and isinstance(run.target, nn.Module):
        out += _noted(exam, "step of training", fact, step_suspects, exam.free, exam, rerun)
    exam.examined.update(dict.fromkeys(("half", "divisibility"), Missed("doctor.missed.published")))
    if not exam.is_published:
        out += _noted(exam, "half", fact, half_suspects, exam.free, run, rerun)
        out += checks.all("heads", raising_groups, exam.free)
        out += _noted(exam, "divisibility", fact, dividing_suspects, exam)
        if not kinds & {"projection-unused"}:
            out += checks.all("parameters", missing_projection, run)
        out += [*checks.all("notes", unusual_notes, exam, run), *checks.all("parameters", plain_tensors, run)]
    return out


def _training(plan: Plan, exam: Examination, rerun: Callable[..., Run]) -> list[Suspect]:
    """What a backward through one plan shows."""
    plan = without_place(plan, rerun)
    run = rerun(plan=plan, gradients=True)
    if run.record.failure is not None or is_for_inference(type(run.target)):
        return []

    def again(stand_ins: dict[Site, Callable[..., Any]]) -> Run:
        return rerun(stand_ins, plan=plan, gradients=True)

    lacking, error = without_gradient(run)
    if error:
        return broken_backward(run, error, again)
    if not lacking:
        out = shared_projections(run, []) or cut_paths(run, again)
        return out or ([] if exam.is_published else unread_parts(run))
    unused = unused_parameters(run, lacking)
    out = shared_projections(run, unused)
    cut = [name for name in lacking if name not in unused]
    if cut:
        out += discarded(run, cut) or cut_gradients(run, cut, again)
    if unused and not out and not exam.is_published:
        out += unused_suspects(run, unused)
    return out
