"""Laws: what holds of any attention, whatever its numbers: its inputs, its parameters, its training, its dropout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import nn

from headwise.calls import Plan
from headwise.dataflow import Run, attentions
from headwise.diagnosis.checks.batch_leak import sample_leaks, tells_samples
from headwise.diagnosis.checks.causal_intent import wants_causal
from headwise.diagnosis.checks.dropout import dropping_suspects, has_dropout
from headwise.diagnosis.checks.edge_cases import edge_suspects, half_suspects
from headwise.diagnosis.checks.head_divisibility import dividing_suspects
from headwise.diagnosis.checks.head_split import missing_projection
from headwise.diagnosis.checks.inputs import ignored_inputs, shared_projections
from headwise.diagnosis.checks.key_permutation import permuting_suspects
from headwise.diagnosis.checks.mask_arguments import default_suspects, doubled_masks
from headwise.diagnosis.checks.notes import unusual_notes
from headwise.diagnosis.checks.parameters import (
    broken_backward,
    cut_gradients,
    cut_paths,
    unregistered,
    unused_parameters,
    unused_suspects,
    without_gradient,
)
from headwise.diagnosis.checks.rotary import rotating_suspects
from headwise.diagnosis.checks.side_effects import changed_arguments, left_over
from headwise.diagnosis.checks.state_dict import saving_suspects
from headwise.diagnosis.checks.training_step import step_suspects
from headwise.diagnosis.checks.unused_projections import discarded
from headwise.diagnosis.coverage import Missed, Tried
from headwise.diagnosis.examination import Examination
from headwise.diagnosis.plans.mask_variants import looks_back
from headwise.diagnosis.suspects import Suspect
from headwise.recording import Site

__all__ = ["law_suspects"]

# as they are told where none could be tried
LAWS = ("training", "gradients", "dropout", "samples", "arguments kept", "second call", "state_dict")


def law_suspects(exam: Examination) -> list[Suspect]:
    """What the laws find in a plan whose values are right, or have been put right."""
    rerun = exam.rerun

    def free(*args: Any, **options: Any) -> Run:
        options.setdefault("plan", exam.free)
        return rerun(*args, **options)

    done, held = free(), exam.held
    if done.record.failure is not None or not attentions(done):
        why = "faults_first" if exam.suspects else "not_followed"
        exam.examined |= dict.fromkeys(LAWS, Missed(f"doctor.missed.{why}"))
        return []
    exam.examined["causal"] = wants_causal(done) or looks_back(done) or Missed("doctor.missed.not_causal")
    # what is put right where there is a mask leaves the runs without one as they are
    fact = done.fact
    out = [*held.all("inputs", fact, ignored_inputs, done, free)]
    out += held.all("dropout", fact, dropping_suspects, exam.free, rerun)
    out += held.all("parameters", unregistered, done)
    out += held.all("rotation", fact, rotating_suspects, free)
    out += held.all("gradients", fact, _training, exam.free, exam, rerun)
    if exam.plan.mask and not out:
        out += held.all("gradients", _training, exam.plan, exam, rerun)
        out += held.all("dropout", dropping_suspects, exam.plan, rerun)
    exam.examined["samples"] = Missed("doctor.missed.faults_first")
    if not out:
        exam.examined["samples"] = fact(tells_samples, done, free) or Missed("doctor.missed.samples_unknown")
        out += held.all("samples", fact, sample_leaks, done, free)
    if exam.plan.mask and not exam.is_published:
        out += held.all("mask", lambda: doubled_masks(rerun(plan=exam.plan)))
        out += held.all("mask", default_suspects, exam.plan, rerun)
        out += held.all(
            "empty rows", edge_suspects, exam.plan, rerun, replace(exam, stand_ins={}, inherited={}, change=None).rerun
        )
        exam.examined |= {"empty rows": True}
    exam.examined |= {"training": True, "gradients": True}
    if fact(has_dropout, exam.free, rerun):
        exam.examined["dropout"] = True
    return out + _of_calls(exam, done, free, rerun, out)


def _of_calls(
    exam: Examination, done: Run, free: Callable[..., Run], rerun: Callable[..., Run], before: list[Suspect]
) -> list[Suspect]:
    """What shows in the arguments after a call, in a second call, in another instance, in a step of training."""
    kinds, held, fact = {each.general for each in before}, exam.held, done.fact
    failed: tuple[list[Suspect], Tried] = [], True
    masked = rerun(plan=exam.plan) if exam.plan.mask else done
    out = held.all("arguments kept", lambda: changed_arguments(done) or changed_arguments(masked))
    tried: dict[str, Tried] = {"arguments kept": True}
    found, tried["second call"] = held("second call", failed, fact, left_over, done, free)
    if all(each.fault.family != "dropout" for each in before) and not out:
        out += found
    found, tried["state_dict"] = held("state_dict", failed, fact, saving_suspects, exam.free, done, rerun)
    # what was registered to put it right is no part of another instance
    is_registered = any(each.general == "parameters-unregistered" for each in (*before, *exam.suspects))
    if not is_registered and not any(each.kind == "stateful-forward" for each in out):
        out += found
    found, tried["order of keys"] = held("order of keys", failed, fact, permuting_suspects, done, free)
    if isinstance(tried["order of keys"], str) and (kinds or exam.suspects):
        # the output may differ by what is wrong, and not by positions
        tried["order of keys"] = Missed("doctor.missed.faults_first")
    out += [] if kinds else found
    kinds |= {each.general for each in out}
    is_stopped = any(each.fault.stops_training for each in (*before, *out))
    tried["step of training"] = Missed(f"doctor.missed.{'faults_first' if is_stopped else 'no_parameters'}")
    if not is_stopped and isinstance(done.target, nn.Module):
        found, tried["step of training"] = held("step of training", failed, fact, step_suspects, exam.free, exam, rerun)
        out += found
    tried["half"], tried["divisibility"] = Missed("doctor.missed.published"), Missed("doctor.missed.published")
    if not exam.is_published:
        found, tried["half"] = held("half", failed, fact, half_suspects, exam.free, done, rerun)
        out += found
        found, tried["divisibility"] = held("divisibility", failed, fact, dividing_suspects, exam)
        out += found
        if not kinds & {"projection-unused"}:
            out += held.all("parameters", missing_projection, done)
        out += held.all("notes", unusual_notes, exam, done)
    exam.examined |= tried
    return out


def _training(plan: Plan, exam: Examination, rerun: Callable[..., Run]) -> list[Suspect]:
    """What a backward through one plan shows."""
    done = rerun(plan=plan, gradients=True)
    if done.record.failure is not None:
        return []

    def again(stand_ins: dict[Site, Callable[..., Any]]) -> Run:
        return rerun(stand_ins, plan=plan, gradients=True)

    lacking, error = without_gradient(done)
    if error:
        return broken_backward(done, error, again)
    if not lacking:
        return shared_projections(done, []) or cut_paths(done, again)
    unused = unused_parameters(done, lacking)
    out = shared_projections(done, unused)
    cut = [name for name in lacking if name not in unused]
    if cut:
        out += discarded(done, cut) or cut_gradients(done, cut, again)
    if unused and not out and not exam.is_published:
        out += unused_suspects(done, unused)
    return out
