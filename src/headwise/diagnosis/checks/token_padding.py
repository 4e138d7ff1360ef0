"""Token padding: whether padding, of whose token numbers a model makes its own mask, changes what has none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from headwise.calls import Plan, call_role
from headwise.dataflow import MarkedOp, Run, attentions, axes_of, find_pattern
from headwise.diagnosis.checks.other_samples import changed_leaks
from headwise.diagnosis.checks.padding import changed_tokens
from headwise.diagnosis.checks.padding_places import padding_suspects, shown_later
from headwise.diagnosis.checks.visible_padding import PADS, are_apart
from headwise.diagnosis.divergence import of_shorter
from headwise.diagnosis.examination import Examination
from headwise.diagnosis.padding_tokens import Padding, meets_scores, paddings
from headwise.diagnosis.repair import Change, both
from headwise.diagnosis.suspects import Suspect

__all__ = ["visible_pads"]

PRODUCTS = frozenset({"*", "*=", "mul", "mul_"})


def visible_pads(exam: Examination, free: Run) -> list[Suspect]:
    """The first operation that brings padding into what has none: proved by a run without it."""
    for padding in paddings(free):
        shape = padding.laid(free.named[padding.name]).shape
        if not meets_scores(free, padding.entry) or shape[1] <= PADS:
            continue
        shorter = _with_lengths(shape[1] - PADS)
        padded = exam.run(change=both(changed_tokens(exam, padding, _padded(padding.number)), shorter))
        cut = changed_tokens(exam, padding, lambda tokens: tokens[:, :-PADS].contiguous())
        alone = exam.run(change=both(cut, shorter))
        if alone.failure is not None:
            # what stands beside each token goes with it
            unpadded = changed_tokens(exam, padding, lambda tokens: tokens)
            alone = exam.run(
                change=both(
                    both(unpadded, shorter), _trimmed(free.plan, axes_of(free.plan.call[padding.name])[padding.axis])
                )
            )
        hidden = torch.zeros(shape, dtype=torch.bool)
        hidden[:, -PADS:] = True
        suspects = [] if padded.failure is not None else shown_later(padded, padding.name, hidden)

        def is_seen(padding: Padding = padding, padded: Run = padded) -> bool:
            row = both(changed_tokens(exam, padding, _padded(padding.number)), _with_other_row(padding.number))
            moved: Run = exam.run(change=row)
            return are_apart(padded, moved, lambda a, b: (a, b) if a.shape == b.shape else None)

        if suspects := suspects or padding_suspects(
            padded, alone, padding.name, of_shorter(PADS), "trimmed", shape[1], is_seen
        ):
            return [_at_product(each, padded, padding) for each in suspects]
        before = changed_tokens(exam, padding, lambda tokens: tokens)
        after = changed_tokens(exam, padding, _padded_elsewhere(padding.number))
        if suspects := changed_leaks(free, partial(exam.run, plan=exam.free), before, after):
            return suspects
    return []


def _at_product(suspect: Suspect, run: Run, padding: Padding) -> Suspect:
    """What sees padding, at the product of scores with a mask of that padding, where there is one: it hides none."""
    masks = {each for entry in run.seen if entry.site == padding.entry.site for each in entry.results}
    for entry in run.seen:
        is_score = any(marks is not None and marks.kind == "pair" for marks in entry.given)
        if masks & entry.taken and is_score:
            if entry.name not in PRODUCTS or suspect.kind != "padding-attended":
                return suspect
            values = {**suspect.values, "leak": f"{_leak(run, entry):.0%}"}
            return replace(suspect, kind="mask-multiplied", span=entry.span, values=values)
        masks |= entry.results if masks & entry.taken else set()
    return suspect


def _with_lengths(most: int) -> Change:
    """Lengths that count no padding: each of so many tokens at most."""

    def change(_: Any, options: dict[str, Any]) -> None:
        for name, value in options.items():
            if call_role(name) == "lengths" and isinstance(value, Tensor) and not value.is_floating_point():
                options[name] = value.clamp(max=most)

    return change


def _trimmed(plan: Plan, letter: str) -> Change:
    """Every argument without its last tokens along an axis."""

    def change(_: Any, options: dict[str, Any]) -> None:
        for name, value in options.items():
            axes = axes_of(plan.call.get(name))
            if isinstance(value, Tensor) and letter in axes:
                axis = axes.index(letter)
                options[name] = value.narrow(axis, 0, value.shape[axis] - PADS).contiguous()

    return change


def _leak(run: Run, entry: MarkedOp) -> float:
    """The largest weight of a token of padding in the attentions whose scores an operation gives."""
    shares = [0.0]
    for attention in attentions(run):
        sight = find_pattern(attention) if entry in attention.path else None
        if sight is not None:
            is_pad = sight.column >= int(sight.column.max()) + 1 - PADS
            shares.append(float(sight.weights.nan_to_num()[is_pad].max()))
    return max(shares)


def _padded_elsewhere(number: int) -> Callable[[Tensor], Tensor]:
    """The first tokens, which every other token sees, are padding in all samples but the first."""

    def padded(tokens: Tensor) -> Tensor:
        tokens[1:, :PADS] = number
        return tokens

    return padded


def _padded(number: int) -> Callable[[Tensor], Tensor]:
    """The last tokens are padding."""

    def padded(tokens: Tensor) -> Tensor:
        tokens[:, -PADS:] = number
        return tokens

    return padded


def _with_other_row(number: int) -> Change:
    """A change of the row that a table of embeddings has for a token number."""

    def change(target: Any, _: dict[str, Any]) -> None:
        for module in target.modules() if isinstance(target, nn.Module) else ():
            if isinstance(module, nn.Embedding) and number < module.num_embeddings:
                # a norm takes away what all features have alike
                wave = torch.arange(module.embedding_dim, dtype=module.weight.dtype).cos()
                with torch.no_grad():
                    module.weight[number] += wave

    return change
