"""Examined parts: what the examinations of a target looked at, part by part, and why they left the others out."""

from __future__ import annotations

from typing import Any

from headwise.calls import Plan
from headwise.diagnosis.comparison import COMPARISON, uncompared
from headwise.diagnosis.coverage import Missed, as_plain
from headwise.diagnosis.examination import Examination
from headwise.diagnosis.plans.input_layouts import TURNED
from headwise.diagnosis.plans.user_arguments import no_mask
from headwise.diagnosis.submodules import Whole

__all__ = ["UNREAD", "examined_parts"]

# why the order of tokens was not examined, where a flag asks for it in a branch that was not run
UNREAD = "doctor.missed.flag_unread"


def examined_parts(exams: list[Examination], whole: Whole, lang: str) -> dict[str, Any]:
    """Each part of the examination: what was examined of it in one of several ways to call a target, or why not."""
    plans: list[Plan] = [exam.plan for exam in exams]
    idle = [why for exam in exams if isinstance(why := exam.examined.get("mask"), Missed)]
    masks = [exam.plan for exam in exams if exam.plan.mask and not isinstance(exam.examined.get("mask"), Missed)]
    means = dict.fromkeys(f"{plan.mask}: {declared['means']}" for plan in masks if (declared := plan.call.get("_mask")))
    settings_seen = {plan.setting for plan in plans}
    ideals = [exam.examined.get("ideal", Missed("doctor.missed.no_ideal")) for exam in exams]
    tried: dict[str, Any] = {
        "self": "self" in settings_seen or Missed("doctor.missed.no_self"),
        "cross": "cross" in settings_seen or Missed("doctor.missed.no_cross"),
        "mask": "",
        # what was tried in one of them was tried
        **{name: value for exam in exams for name, value in exam.examined.items() if isinstance(value, Missed)},
        **{name: value for exam in exams for name, value in exam.examined.items() if not isinstance(value, Missed)},
        "ideal": next((met for met in ideals if met is not True), True),
    }
    # in its place, and whatever one of them says of it
    tried["mask"] = "; ".join(means) or next(iter(idle), None) or no_mask(plans)
    orders = [exam.examined.get("causal") for exam in exams]
    if isinstance(tried.get("causal"), Missed):
        unread = (why for why in orders if isinstance(why, Missed) and why.reason == UNREAD)
        tried["causal"] = next(unread, tried["causal"])
    followed = [result for exam in exams if (result := exam.examined.get(COMPARISON)) is not None]
    if followed:
        names = [name for text in followed if isinstance(text, str) for name in text.split("; ")]
        tried[COMPARISON] = uncompared(exams) or "; ".join(dict.fromkeys(names))
    layouts = dict.fromkeys(str(plan.call["_layout"]) for plan in plans if plan.call.get("_layout") == TURNED)
    if layouts:
        tried["layout"] = ", ".join(f"[{', '.join(layout)}]" for layout in layouts)
    options = dict.fromkeys(name for plan in plans for name in plan.switched if "causal" not in name)
    tried |= {"options": ", ".join(options)} if options else {}
    tried |= {"classes": ", ".join(kind.__name__ for kind in whole.classes)} if whole.classes else {}
    return {name: as_plain(value, lang=lang) for name, value in {**tried, **whole.missed}.items()}
