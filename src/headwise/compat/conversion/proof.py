"""Proof: source and layer answer the same questions in float64, and so do their gradients."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from headwise.compat.conversion.convention import Convention
from headwise.compat.conversion.keras_layers import is_keras, widened_keras
from headwise.compat.conversion.module_call import CannotAskError, Question, in_float64, twin_of
from headwise.compat.conversion.report import Check
from headwise.compat.conversion.source import ConversionSource, LayerPlan
from headwise.layer import MultiHeadAttention
from headwise.wording import Sentence

__all__ = ["prove"]

B, LONG, SHORT = 2, 23, 9
_EPS = torch.finfo(torch.float64).eps
# the gradient of a saturated softmax is a difference of nearly equal numbers, so it may be further off than an output
_SLACK = (1, 64, 64)
# what a module that is called otherwise than it expects may raise
_FAILURES = (CannotAskError, RuntimeError, TypeError, ValueError, AttributeError, IndexError, KeyError, AssertionError)

Answerer = Callable[[Question], Tensor]
# an output, gradients of the inputs, gradients of the weights
Answer = tuple[Tensor, list[Tensor], dict[str, Tensor]]


class _Side:
    """One of the two: what answers, the weights whose gradients are asked for, and how these get our names."""

    def __init__(
        self, answer: Answerer, weights: Mapping[str, Tensor], read: Callable[[Any], dict[str, Tensor]]
    ) -> None:
        self.answer, self.weights, self.read = answer, weights, read

    def __call__(self, question: Question) -> Answer:
        """The answer, the gradients of the inputs, and those of the weights."""
        leaves = list(dict.fromkeys(question[1:4]))
        fresh = {leaf: leaf.detach().clone().requires_grad_() for leaf in leaves}
        query, keys, values = (fresh[t] for t in question[1:4])
        asked = question._replace(query=query, keys=keys, values=values)
        with torch.enable_grad(), in_float64():
            out = self.answer(asked)
            direction = torch.linspace(-1, 1, out.numel(), dtype=out.dtype, device=out.device).cos().reshape(out.shape)
            wanted = [*fresh.values(), *self.weights.values()]
            gradients = torch.autograd.grad(out, wanted, direction, allow_unused=True)
        filled = [torch.zeros_like(t) if g is None else g for t, g in zip(wanted, gradients, strict=True)]
        named = dict(zip(self.weights, filled[len(leaves) :], strict=True))
        return out.detach(), filled[: len(leaves)], self.read(named)

    def alone(self, question: Question) -> Answer:
        """The answer without gradients."""
        with torch.no_grad(), in_float64():
            return self.answer(question), [], {}


def prove(
    source: ConversionSource, convention: Convention, plan: LayerPlan, layer: MultiHeadAttention
) -> tuple[str, tuple[Check, ...], tuple[str, ...]]:
    """What the layer was compared with, each comparison, and sentences on what could not be asked.

    A module is asked itself; where it cannot be, and for bare weights, the convention's formula answers.
    """
    with torch.inference_mode(False):
        return _proved(source, convention, plan, layer)


def _proved(
    source: ConversionSource, convention: Convention, plan: LayerPlan, layer: MultiHeadAttention
) -> tuple[str, tuple[Check, ...], tuple[str, ...]]:
    device = layer.out_proj.weight.device
    ours = copy.deepcopy(layer).double().eval().requires_grad_()
    # a weight to which a constant was added has been rounded since; the proof is of the conversion, not of that
    exact = convention.table.to_headwise({name: t.double() for name, t in source.weights.items()}, plan.layout)
    ours.load_state_dict({**ours.state_dict(), **exact})
    parameters = dict(ours.named_parameters())
    us = _Side(lambda question: _ours(ours, question), parameters, dict)
    notes: list[str] = []
    questions = list(_questions(plan, device))
    if source.module is not None:
        try:
            them = _module_side(source, convention, plan)
        except _FAILURES as error:
            notes.append(Sentence("convert.note.not_asked", reason=_described(error)))
        else:
            checks, failures = _checked(them, us, questions)
            if checks:
                ungraded = any(check.inputs is None for check in checks)
                notes = [Sentence("convert.note.no_gradients", reason=failures[0])] if ungraded else []
                hiding = {question.name for question in questions if question.allowed is not None}
                if not hiding & {check.question for check in checks}:
                    notes.append(Sentence("convert.note.unmasked"))
                return Sentence("convert.report.module"), checks, tuple(notes)
            notes.append(Sentence("convert.note.not_asked", reason=failures[0]))
    checks, failures = _checked(_formula_side(source, convention, plan), us, questions)
    return (
        (Sentence("convert.report.formula") if checks else ""),
        checks,
        (*notes, *(failures[:1] if not checks else ())),
    )


def _questions(plan: LayerPlan, device: torch.device) -> Iterator[Question]:
    """All kinds of call that the layer takes; no query is left without a key."""
    one_width = plan.embed_dim == plan.kdim == plan.vdim
    generator = torch.Generator().manual_seed(5)

    def tokens(length: int, width: int) -> Tensor:
        return torch.randn(B, length, width, generator=generator, dtype=torch.float64).to(device)

    def padded(queries: int, keys: int) -> Tensor:
        real = torch.arange(keys, device=device) < torch.tensor([[keys], [keys - 3]], device=device)
        return real[:, None, None].expand(B, 1, queries, keys)

    causal = torch.ones(LONG, LONG, dtype=torch.bool, device=device).tril().expand(B, 1, LONG, LONG)
    if one_width:
        x = tokens(LONG, plan.embed_dim)
        padding = padded(LONG, LONG)
        yield Question(Sentence("convert.ask.plain"), x, x, x, None, True)
        yield Question(Sentence("convert.ask.causal"), x, x, x, causal, True)
        yield Question(Sentence("convert.ask.padding"), x, x, x, padding, True)
        yield Question(Sentence("convert.ask.both"), x, x, x, causal & padding, True)
    if plan.position is None:
        query, keys = tokens(LONG, plan.embed_dim), tokens(SHORT, plan.kdim)
        values = keys if plan.vdim == plan.kdim else tokens(SHORT, plan.vdim)
        yield Question(Sentence("convert.ask.cross"), query, keys, values, None, False)
        yield Question(Sentence("convert.ask.cross_padding"), query, keys, values, padded(LONG, SHORT), False)


def _ours(layer: MultiHeadAttention, question: Question) -> Tensor:
    if question.is_self:
        return layer(question.query, mask=question.allowed)  # type: ignore[no-any-return]
    return layer(question.query, question.keys, question.values, mask=question.allowed)  # type: ignore[no-any-return]


def _module_side(source: ConversionSource, convention: Convention, plan: LayerPlan) -> _Side:
    def read(gradients: Mapping[str, Tensor]) -> dict[str, Tensor]:
        used = {name: gradients[name] for name in source.weights if name in gradients}
        return convention.table.to_headwise(used, plan.layout, gradients=True)

    if is_keras(source.module):
        twin, weights = widened_keras(source.module, (plan.embed_dim, plan.kdim, plan.vdim))
        return _Side(lambda question: convention.ask(twin, plan, question), weights, read)
    twin = twin_of(source.module).double().eval().requires_grad_()
    for module in twin.modules():
        config: Any = getattr(module, "config", None)
        if hasattr(config, "_attn_implementation"):
            # the one that takes any mask as it is
            config._attn_implementation = "eager"
    # under the names of the table, which lack what all keys began with
    named = {name.removeprefix(source.prefix): weight for name, weight in twin.named_parameters()}
    return _Side(lambda question: convention.ask(twin, plan, question), named, read)


def _formula_side(source: ConversionSource, convention: Convention, plan: LayerPlan) -> _Side:
    used = {row.theirs for row in convention.table.account(source.weights).used}
    weights = {name: t.detach().double().clone().requires_grad_() for name, t in source.weights.items() if name in used}
    return _Side(
        lambda question: convention.formula(weights, plan, question),
        weights,
        lambda gradients: convention.table.to_headwise(gradients, plan.layout, gradients=True),
    )


def _checked(them: _Side, us: _Side, questions: list[Question]) -> tuple[tuple[Check, ...], tuple[str, ...]]:
    checks, failures = [], []
    for question in questions:
        # some compute an answer, but no gradient of it
        for way in (_Side.__call__, _Side.alone):
            try:
                answer = way(them, question)
            except _FAILURES as error:
                failures.append(_described(error))
                if isinstance(error, CannotAskError):
                    break
            else:
                checks.append(_compared(answer, way(us, question), partial(way, them, _nudged(question)), question))
                break
    return tuple(checks), tuple(failures)


def _described(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200] if lines else ''}"


def _nudged(question: Question) -> Question:
    """The question with inputs moved by a few roundings: how far its answer moves is what rounding does to it."""
    generator = torch.Generator().manual_seed(7)
    moved: dict[Tensor, Tensor] = {}
    for t in question[1:4]:
        if t not in moved:
            noise = torch.randn(t.shape, generator=generator, dtype=t.dtype).to(t.device)
            moved[t] = t * (1 + 4 * _EPS * noise)
    return question._replace(query=moved[question.query], keys=moved[question.keys], values=moved[question.values])


def _compared(source: Answer, ours: Answer, nudged: Callable[[], Answer], question: Question) -> Check:
    """The differences of two answers and their limits, for which the nudged answer is asked only where it matters."""
    shared = sorted(source[2])

    def parts(answer: Answer) -> tuple[list[Tensor], ...]:
        return [answer[0]], answer[1], [answer[2][name] for name in shared]

    differences = [_furthest(them, us) for them, us in zip(parts(source), parts(ours), strict=True)]
    terms = 64 + question.query.shape[-1] + question.keys.shape[1]
    largest = [max((t.abs().max().item() for t in part), default=0.0) for part in parts(source)]
    limits = [_EPS * terms * slack * each for slack, each in zip(_SLACK, largest, strict=True)]
    if not all(difference <= limit for difference, limit in zip(differences, limits, strict=True)):
        moves = [_furthest(them, moved) for them, moved in zip(parts(source), parts(nudged()), strict=True)]
        limits = [limit + 16 * move for limit, move in zip(limits, moves, strict=True)]
    inputs, weights = (differences[1], differences[2]) if source[1] else (None, None)
    return Check(question.name, differences[0], inputs, weights, (limits[0], limits[1], limits[2]))


def _furthest(left: list[Tensor], right: list[Tensor]) -> float:
    differences = [(a - b).abs().max() for a, b in zip(left, right, strict=True)]
    return torch.stack(differences).max().item() if differences else 0.0
