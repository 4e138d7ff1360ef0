"""Scale: whether scores are divided by the square root of the head width, once, and before the softmax."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import isclose, isfinite, prod, sqrt
from typing import Any

import torch
from torch import Tensor, nn

from headwise.dataflow import MarkedOp, Run
from headwise.diagnosis.checks.chosen_scale import as_chosen, beside_torch, inverts_norms, is_given
from headwise.diagnosis.checks.inputs import is_absorbed, makings
from headwise.diagnosis.checks.rounded_scale import as_rounded, erased, says_root
from headwise.diagnosis.checks.unscaled import attributes_of, cancels, is_bucketed, is_unscaled, keeps_scale
from headwise.diagnosis.examination import Examination
from headwise.diagnosis.head_parts import HeadParts, head_parts
from headwise.diagnosis.patches.scales import Rescaled
from headwise.diagnosis.repair import Change, Repair, Scaled, both
from headwise.diagnosis.scale_factors import Factor, Scale, scales
from headwise.diagnosis.score_path import ScorePath, terms_of, way_of
from headwise.diagnosis.suspects import Suspect
from headwise.source import Span, own_number, written_in
from headwise.wording import Sentence

__all__ = ["scales_suspects"]

NEAR = 1e-3
# what a factor is made of, as the words of the doctor call it
FACTORS = {"√D": "model", "√H": "heads", "√L": "queries", "√S": "keys", "D": "width", "mup": "head"}


def _of_one(run: Run, scale: Scale, *, is_learned: bool, is_published: bool) -> list[Suspect]:
    """What is wrong with the scale of one attention; a note where it is unusual on purpose."""
    if scale.floored is not None:
        return [_floored(scale.floored)]
    is_bent = scale.bent and not scale.is_related
    if is_bent or is_learned or not isfinite(scale.total):
        return []
    wanted, total = 1 / sqrt(scale.width), scale.total
    if scale.normed and not inverts_norms(scale):
        # what is normed may have any scale, and not one of its own beside torch's
        if is_published or (extra := beside_torch(run, scale, wanted)) is None:
            return []
        return [_wrong("scale-twice", extra, 1 / extra.value, total, wanted, written=_written(run, scale))]
    if not total:
        return erased(run, scale, wanted, _written(run, scale))
    path = scale.attention.path
    late = [
        factor
        for factor in scale.after
        if factor.entry in path and factor.value and not _is_of_mixture(factor.entry, path)
    ]
    if isclose(prod(factor.value for factor in late), 1, rel_tol=NEAR):
        # what one takes another gives back
        late = []
    # any other number is a gate, or what two maps are mixed by
    late = [factor for factor in late if _is_scale(factor.value, scale.width, run.sizes)]
    if isclose(total, wanted, rel_tol=NEAR):
        return [_after(factor, wanted) for factor in late[:1]]
    if any(isclose(total, wanted / sqrt(count), rel_tol=NEAR) for count in terms_of(run, scale.attention)):
        # each term has its share
        return []
    way = way_of(scale.attention) or ScorePath((), (), ())
    named, written = _named(total, scale.width, run.sizes), _written(run, scale)
    if scale.is_related and not is_published and (parts := head_parts(run, scale.attention)) is not None:
        return _of_parts(run, scale, parts)
    if is_published or is_given(run, total, wanted):
        return []
    if (twice := _twice(scale, wanted)) is not None:
        return [_wrong("scale-twice", twice, 1 / twice.value, total, wanted, written=written)]
    if scale.is_related and (named == "constant" or (named == "none" and way.mixtures)):
        # it may be a part of the weights that mix, or of what is added
        return []
    if named == "none":
        return _without(run, scale, wanted)
    if named == "mup" and not says_root(scale, [_home(run, factor, "", scale.width) for factor in scale.factors]):
        return []
    # the root of a latent is that of the heads whose keys it stands for
    is_foreign = named == "constant" and is_absorbed(run, scale.attention)
    if not scale.factors or is_foreign or (named == "√D" and _adds_queries(run, scale)):
        return []
    odd = [factor for factor in scale.factors if abs(factor.value - wanted) > NEAR] or list(scale.factors)
    most = next((factor for factor in odd if factor.entry in scale.attention.path), odd[0])
    kind = "scale-inverted" if named == "inverted" else "scale-wrong"
    cause = Sentence(f"doctor.factor.{FACTORS.get(named, 'constant')}")
    suspect = _wrong(kind, most, wanted / total, total, wanted, written=written, what=cause)
    return [as_rounded(replace(suspect, home=_home(run, most, kind, scale.width)), total, scale.width)]


def _of_parts(run: Run, scale: Scale, parts: HeadParts) -> list[Suspect]:
    """The scale of one part of a head, where the products of all its parts are added up."""
    wanted, total = 1 / sqrt(parts.width), scale.total
    late = [factor for factor in scale.factors if factor.entry in scale.attention.path]
    if (
        isclose(total, wanted, rel_tol=NEAR)
        or not any(isclose(total, part**-0.5, rel_tol=NEAR) for part in parts.parts)
        or not late
    ):
        return []
    written = replace(_written(run, replace(scale, width=parts.width)), scores=None)
    cause = Sentence("doctor.factor.constant")
    suspect = _wrong("scale-wrong", late[0], wanted / total, total, wanted, written=written, what=cause)
    return [replace(suspect, home=_home(run, late[0], "scale-wrong", parts.width))]


def _written(run: Run, scale: Scale) -> Rescaled:
    """How the source may say the scale: where the scores are made, and what the class calls the head width."""
    scores = scale.attention.scores
    kept = attributes_of(run, scores or scale.attention.context).items()
    widths = tuple(each for each, value in kept if type(value) is int and value == scale.width)
    return Rescaled(None if scores is None else scores.span, widths)


def _home(run: Run, factor: Factor, kind: str, width: int) -> Span | None:
    """Where the number was made by which an operation multiplies or divides; None: what it does with it is wrong."""
    entry = factor.entry

    def is_it(value: Any) -> bool:
        if isinstance(value, Tensor):
            if value.numel() != 1 or value.is_complex():
                return False
            value = value.item()
        if not isinstance(value, int | float) or isinstance(value, bool) or value == 0:
            return False
        if (kind == "scale-inverted" and value < 1) or (isinstance(value, int) and value == width):
            # the right number, by which it divides, or of which it takes no root
            return False
        return any(isclose(each, factor.value, rel_tol=NEAR) for each in (float(value), 1 / value))

    # where scores are multiplied in place of divided, the size is right
    size = None if kind == "scale-inverted" else own_number(entry.span)
    return written_in(run.target, entry.span, is_it, is_number=True) or size


def _twice(scale: Scale, wanted: float) -> Factor | None:
    """What scales what is scaled already: a factor without which the rest is right, the last that is written out."""
    if len(scale.factors) < 2 or not isclose(scale.total, wanted * wanted, rel_tol=NEAR):
        return None
    matching = [factor for factor in scale.factors if isclose(factor.value, wanted, rel_tol=NEAR)]
    return next((factor for factor in reversed(matching) if factor.entry is not scale.attention.context), None)


def _adds_queries(run: Run, scale: Scale) -> bool:
    """Whether queries are added to what they found, as in the Set Transformer, which divides by √D."""
    scores, context = scale.attention.scores, scale.attention.context.outputs[0].number
    if scores is None:
        return False
    queries = scores.taken
    return any(entry.name in ("+", "+=") and {context} < entry.taken <= {context, *queries} for entry in run.seen)


def _named(total: float, width: int, sizes: Mapping[str, int]) -> str:
    model = sizes.get("D", sizes.get("H", 1) * width)
    totals = {
        "none": 1.0, "mup": 1 / width, "inverted": sqrt(width), "√D": 1 / sqrt(model),
        "√H": 1 / sqrt(sizes.get("H", 1)), "√L": 1 / sqrt(sizes.get("L", 1)),
        "√S": 1 / sqrt(sizes.get("S", 1)), "D": 1 / model,
    }  # fmt: skip
    if isclose(total, float(width), rel_tol=NEAR) or isclose(total, sqrt(model), rel_tol=NEAR):
        return "inverted"
    return next((name for name, value in totals.items() if isclose(total, value, rel_tol=NEAR)), "constant")


def _is_of_mixture(entry: MarkedOp, path: Sequence[MarkedOp]) -> bool:
    """Whether weights are multiplied to be added to others, or taken from them."""
    takers = [op for op in path if op.at > entry.at and op.taken & entry.results]
    return any(len([m for m in op.given if m is not None and m.kind == "pair"]) > 1 for op in takers)


def _is_scale(value: float, width: int, sizes: Mapping[str, int]) -> bool:
    """Whether a number is one that scores are scaled by, rightly or not: a width, or the root of one or of a count."""
    widths = {width, sizes.get("D", sizes.get("H", 1) * width)}
    roots = {size**0.5 for size in {*widths, *(sizes.get(name, 1) for name in "HLS")}}
    return any(isclose(value, each**power, rel_tol=NEAR) for each in (widths | roots) - {1} for power in (-1, 1))


def _wrong(
    kind: str, factor: Factor, change: float, total: float, wanted: float, *, written: Rescaled, **values: object
) -> Suspect:
    return Suspect(
        kind,
        factor.entry.span,
        Repair({factor.entry.site: _scaled(factor.entry, change)}, rewriting=written),
        values={"factor": f"{total:.4g}", "wanted": f"{wanted:.4g}", **values},
    )


def _scaled(entry: MarkedOp, change: float) -> Callable[..., Any]:
    """What stands for an operation so that scores are multiplied by so much more."""
    function = entry.function
    if entry.last != "scaled_dot_product_attention":
        return Scaled(function, change)

    def right(*args: Any, **options: Any) -> Any:
        scale = args[0].shape[-1] ** -0.5 if options.get("scale") is None else options["scale"]
        return function(*args, **{**options, "scale": float(scale) * change})

    return right


def _after(factor: Factor, wanted: float) -> Suspect:
    """Weights that are scaled although the scores were."""
    stand_in = Scaled(factor.entry.function, 1 / factor.value)
    return Suspect(
        "weights-scaled",
        factor.entry.span,
        Repair({factor.entry.site: stand_in}),
        values={"factor": f"{factor.value:.4g}", "wanted": f"{wanted:.4g}"},
    )


def _without(run: Run, scale: Scale, wanted: float) -> list[Suspect]:
    """No factor before the softmax: it comes after, or not at all."""
    scores = scale.attention.context if _is_fused_here(run, scale) else scale.attention.scores
    late_factors = (
        factor for factor in scale.after if _is_scale(factor.value, scale.width, run.sizes) and not _learns(factor)
    )
    late = next(late_factors, None)
    if (
        scores is None
        or is_bucketed(run, scale)
        or (is_unscaled(run, scale) and late is None and not keeps_scale(run, scale, wanted))
    ):
        return []
    # terms that are added to the product are scaled with it
    way = way_of(scale.attention)
    whole = scores if way is None or not way.sums else way.sums[-1]
    stand_ins = {whole.site: _scaled(whole, wanted)}
    values, written = {"wanted": f"{wanted:.4g}", "factor": "1"}, _written(run, scale)
    if late is not None:
        stand_ins[late.entry.site] = Scaled(late.entry.function, 1 / late.value)
        return [Suspect("scale-after-softmax", late.entry.span, Repair(stand_ins, rewriting=written), values=values)]
    return [Suspect("scale-missing", whole.span, Repair(stand_ins, rewriting=written), values=values)]


def _is_fused_here(run: Run, scale: Scale) -> bool:
    """Whether torch's own function is told that the scale is 1, by code that makes the queries itself: who gets them
    may have got them scaled.
    """
    origins = makings(run, scale.attention) if scale.attention.fused and scale.factors else {}
    return "q" in origins and origins["q"].projection is not None


def _learns(factor: Factor) -> bool:
    """Whether what something is multiplied by is learned: it is a gate, and no scale."""
    return any(isinstance(tensor, nn.Parameter) and tensor.requires_grad for tensor in factor.entry.tensors)


def _floored(entry: MarkedOp) -> Suspect:
    def right(*args: Any, **options: Any) -> Any:
        values = [*args, *options.values()]
        if len(values) > 1 and entry.name in ("//", "//=", "div", "floor_divide"):
            return values[0] / values[1]
        return values[0]

    return Suspect("scale-floor-division", entry.span, Repair({entry.site: right}))


def scales_suspects(exam: Examination) -> list[Suspect]:
    """What is wrong with the scale of each attention of a plan with no mask. exam: its examination."""
    plan = exam.free
    first, second = exam.run(plan=plan), exam.run(plan=plan, seed=1)
    out = []
    for place, scale in enumerate(scales(first, second)):
        learned = False
        if abs(scale.total * scale.width**0.5 - 1) > 1e-6:
            changed = [exam.run(plan=plan, seed=seed, change=_with_small_parameters(exam.change)) for seed in (0, 1)]
            after = scales(*changed)
            learned = len(after) <= place or abs(after[place].total - scale.total) > 1e-6 * abs(scale.total)
        suspects = _of_one(first, scale, is_learned=learned, is_published=exam.is_published)
        suspects = [each for each in suspects if not cancels(exam, scale, each)]
        out += [as_chosen(exam, place, scale, suspect) for suspect in suspects]
        if out:
            return out
    return out


def _with_small_parameters(change: Change | None) -> Change:
    """A change that also alters the parameters that are one number, or a row of them, as one for each head."""

    def altered(target: Any, _: dict[str, Any]) -> None:
        if isinstance(target, nn.Module):
            with torch.no_grad():
                for parameter in target.parameters():
                    if parameter.requires_grad and (parameter.ndim == 0 or max(parameter.shape) == parameter.numel()):
                        parameter.mul_(1.37)

    return both(change, altered)
