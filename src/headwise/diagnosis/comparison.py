"""Comparison: whether the weights and the context of every attention follow the definition, or a named design."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from headwise.calls import Plan
from headwise.dataflow import LAYERS, AttentionOps, MarkedOp, Run, attentions, causal_argument, mask_argument
from headwise.diagnosis.checks.causal_intent import wants_causal
from headwise.diagnosis.checks.visible_padding import are_hidden
from headwise.diagnosis.coverage import Missed, Tried
from headwise.diagnosis.designs import OWN, TORCH_LAYER, TORCH_STEP, design_of
from headwise.diagnosis.distance import distance
from headwise.diagnosis.examination import Examination
from headwise.diagnosis.observation import changed, observed
from headwise.diagnosis.proof import near
from headwise.diagnosis.suspects import Suspect
from headwise.diagnosis.token_weights import NOTHING, hidden_share, is_in_order, weighed_sums
from headwise.ops.reference import attention as definition
from headwise.recording import tensors

__all__ = ["COMPARISON", "compare", "share", "uncompared"]

# the name under which it is told what the weights were compared with
COMPARISON = "comparison"
STEPS = frozenset({"scaled_dot_product_attention"})
# the value of what was missed that holds the places of weighted sums whose scores were not seen
UNSEEN = "_unseen"


def compare(exam: Examination) -> Examination:
    """The examination with the step that follows nothing known. It is noted what the weights of each attention follow,
    without the mask and with it; or why that is not known.
    """
    if any(suspect.severity == "fault" and suspect.proved for suspect in exam.suspects):
        exam.examined[COMPARISON] = Missed("doctor.missed.faults_first")
        return exam
    plans = [exam.free, exam.plan] if exam.plan.mask else [exam.plan]
    names: list[str] = []
    for plan in plans:
        # where one attention has a mask and the other has not, what is compared without it is the same
        missed, differing = exam.run(plan=plan).fact(_followed, exam, plan)
        exam = exam.with_suspects([*exam.suspects, *differing])
        if isinstance(missed, Missed):
            exam.examined[COMPARISON] = missed
            return exam
        names += missed
    exam.examined[COMPARISON] = "; ".join(dict.fromkeys(names))
    return exam


def uncompared(exams: list[Examination]) -> Missed | None:
    """Why the attentions of some examinations are not known to follow any formula; None: all of them do."""
    results: list[Tried] = [exam.examined[COMPARISON] for exam in exams if COMPARISON in exam.examined]
    missed = next((result for result in results if isinstance(result, Missed)), None)
    return missed or (None if results else Missed("doctor.missed.no_ideal"))


def share(exams: Sequence[Examination]) -> None:
    """Note of what could not be observed in a whole what it followed where its class was called by itself."""
    lines: dict[tuple[str, int], str] = {}
    for exam in exams:
        names = exam.examined.get(COMPARISON)
        if isinstance(names, str):
            lines |= {_place(each): names for each in attentions(exam.run(plan=exam.free))}
    for exam in exams:
        missed = exam.examined.get(COMPARISON)
        unseen = missed.values.get(UNSEEN) if isinstance(missed, Missed) else None
        if isinstance(unseen, set) and unseen <= lines.keys():
            exam.examined[COMPARISON] = "; ".join(dict.fromkeys(lines[place] for place in sorted(unseen)))


def _place(attention: AttentionOps) -> tuple[str, int]:
    span = attention.context.span
    return ("", 0) if span is None else (span.file, span.line)


def _followed(exam: Examination, plan: Plan) -> tuple[list[str] | Missed, list[Suspect]]:
    """What the weights of each attention of a plan follow, and the step that follows nothing known."""

    def rerun(stand_ins: Any = None, **options: Any) -> Run:
        return exam.run(stand_ins, plan=plan, **options)

    run = exam.run(plan=plan)
    all_attentions = attentions(run)
    if run.record.failure is None and not all_attentions:
        return _of_sums(run, rerun, exam, plan), []
    if run.record.failure is not None:
        return Missed("doctor.missed.not_followed"), []
    names = []
    places: set[tuple[object, ...]] = set()
    unseen: list[AttentionOps] = []
    for at, attention in enumerate(all_attentions):
        # what is written once and runs often, as in layers, is compared once
        spans = (attention.context.operation.span, *dict.fromkeys(entry.operation.span for entry in attention.path))
        if spans in places:
            continue
        places.add(spans)
        line = {"line": attention.context.operation.span.line}
        if not attention.fused and attention.context.joint is not None and not attention.context.joint.summed:
            return Missed("doctor.missed.no_weighted_sum", line), []
        observation = None if attention.fused else observed(run, rerun, at)
        design = None if observation is None else design_of(observation)
        name = _step(attention) if attention.fused else "" if design is None else str(design)
        if not name:
            if observation is None and not attention.fused:
                unseen.append(attention)
                continue
            step = attention.softmax or next(reversed(attention.path), attention.context)
            differing = Suspect("differs-from-every-formula", step.operation.span, proved=False)
            return Missed("doctor.missed.no_design", line), [differing]
        # hidden keys may leave nothing but NaN
        if plan is exam.free and not _is_read(run, attention.context, rerun):
            return Missed("doctor.missed.context_unread", line), []
        names.append(name)
    if unseen:
        line = {"line": unseen[0].context.operation.span.line}
        return Missed("doctor.missed.no_scores", {**line, UNSEEN: {*map(_place, unseen)}}), []
    return names, []


def _of_sums(run: Run, rerun: Callable[..., Run], exam: Examination, plan: Plan) -> list[str] | Missed:
    """What sums over tokens follow, where their weights come from no scores; or why that is not known."""
    names: list[str] = []
    for weighed in weighed_sums(run, rerun):
        line = {"line": weighed.context.span.line}
        design = design_of(weighed)
        if (weighed.total.is_running or wants_causal(run)) and not is_in_order(rerun, weighed):
            design = None
        if weighed.is_of_features and plan is not exam.free and not are_hidden(plan, exam.rerun):
            return Missed("doctor.missed.no_design", line)
        is_of_tokens = plan is not exam.free and not weighed.is_of_features
        shares = hidden_share(run, rerun, weighed) if is_of_tokens else None
        if design is None or (shares is not None and min(shares) > NOTHING):
            return Missed("doctor.missed.no_design", line)
        if plan is exam.free and not _is_read(run, weighed.context, rerun):
            return Missed("doctor.missed.context_unread", line)
        names.append(str(design))
    return names or Missed("doctor.missed.not_followed")


def _is_read(run: Run, context: MarkedOp, rerun: Callable[..., Run]) -> bool:
    """Whether the output follows from the weighted sum."""
    if context.last not in (*STEPS, *(() if context.joint is None else (context.last,))):
        # no mode sees torch's layer or headwise's own run, so that nothing stands in for them
        return True

    def moved(output: Any) -> Any:
        return output + torch.arange(output.numel(), dtype=output.dtype).cos().reshape(output.shape)

    repeated = rerun(changed(run, [(context, moved)]))
    pairs = zip(tensors(run.record.result), tensors(repeated.record.result), strict=False)
    return repeated.record.failure is None and any(distance(b, a) > near(a) for a, b in pairs if a.is_floating_point())


def _step(attention: AttentionOps) -> str:
    """What torch computes in one step, where that is the definition of what it takes; "": it is not."""
    entry = attention.context
    if entry.last in LAYERS:
        return TORCH_LAYER if _is_layer_right(entry) else ""
    if entry.last not in STEPS:
        return OWN
    q, k, v = (tensor.value for tensor in entry.operation.inputs[:3])
    output = entry.operation.outputs[0].value
    if q is None or k is None or v is None or output is None:
        return ""
    args, options = entry.rules
    mask, is_causal = mask_argument(args, options), causal_argument(args, options)
    wanted = _defined(q, k, v, mask, is_causal=is_causal, scale=options.get("scale"))
    return TORCH_STEP if wanted is not None and _is_near(output, wanted) else ""


def _defined(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *, is_causal: bool, scale: float | None
) -> Tensor | None:
    """softmax(q·kᵀ·scale)·v by headwise's definition, of tensors with any axes before (tokens, channels)."""
    while q.ndim < 4:
        q, k, v = (tensor.unsqueeze(0) for tensor in (q, k, v))
    if not q.ndim == k.ndim == v.ndim or q.shape[-3] % k.shape[-3]:
        return None
    # axes before the heads are batches alike, and one of size 1 serves all
    before = tuple(map(max, q.shape[:-3], k.shape[:-3], v.shape[:-3]))
    q, k, v = (tensor.double().expand(*before, *tensor.shape[-3:]) for tensor in (q, k, v))
    allowed, bias = None, None
    if is_causal:
        allowed = torch.ones(1, 1, q.shape[-2], k.shape[-2], dtype=torch.bool).tril()
    if mask is not None:
        while mask.ndim < q.ndim:
            mask = mask.unsqueeze(0)
        if q.ndim > 4:
            mask = mask.expand(*q.shape[:-3], *mask.shape[-3:]).flatten(0, -4)
        if mask.dtype == torch.bool:
            # where both are said, both are applied
            allowed = mask if allowed is None else mask & allowed
        else:
            bias = mask.double()
    shape = q.shape[:-1]
    q, k, v = (tensor.flatten(0, -4) for tensor in (q, k, v))
    return definition(q, k, v, mask=allowed, attn_bias=bias, scale=scale).reshape(*shape, v.shape[-1])


def _is_near(output: Tensor, wanted: Tensor) -> bool:
    """Whether a result is what is wanted; rows that may see nothing are not compared."""
    a, b = output.detach().double().flatten(), wanted.detach().flatten()
    if a.numel() != b.numel():
        return False
    is_known = ~a.isnan() & (b != 0)
    return distance(a.where(is_known, b), b) <= near(output.detach())


def _is_layer_right(entry: MarkedOp) -> bool:
    """Whether torch's layer, called without a mask, gives what its weights make of its inputs by the definition."""
    module = entry.args[0] if entry.args else None
    values = [tensor.value for tensor in entry.operation.inputs[:3] if tensor.value is not None]
    output = entry.operation.outputs[0].value
    if not isinstance(module, nn.MultiheadAttention) or len(entry.tensors) > 3 or module.bias_k is not None:
        # with a mask, or as a function of weights that a library holds, torch's word is taken
        return True
    if output is None or len(values) < 3 or module.add_zero_attn:
        return output is not None
    sides = [value if module.batch_first or value.ndim < 3 else value.transpose(0, 1) for value in values]
    apart = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
    weights = apart if module.in_proj_weight is None else module.in_proj_weight.chunk(3)
    biases = [None] * 3 if module.in_proj_bias is None else module.in_proj_bias.chunk(3)
    with torch.no_grad():
        q, k, v = (
            nn.functional.linear(side, weight, bias).unflatten(-1, (module.num_heads, -1)).transpose(-3, -2)
            for side, weight, bias in zip(sides, weights, biases, strict=True)
        )
        wanted = _defined(q, k, v, None, is_causal=False, scale=None)
        if wanted is None:
            return False
        merged = wanted.reshape(q.shape).transpose(-3, -2).flatten(-2).to(output.dtype)
        projected = module.out_proj(merged)
    return _is_near(output, projected if module.batch_first or projected.ndim < 3 else projected.transpose(0, 1))
