"""Head effects: how much a metric of the output changes when each head is ablated or patched."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from headwise.errors import ArgumentError
from headwise.intervening.edit_types import HeadReplacement
from headwise.intervening.edits import AttentionEdits, Edits
from headwise.intervening.effect_passes import EffectPasses, MeasuredRun, Progress, number_of
from headwise.intervening.effects_table import Effects, KeptEffects
from headwise.intervening.entry_point import intervene
from headwise.maps import AttentionMap
from headwise.watching import Seen, watch
from headwise.wording import say
from headwise.wording.progress_bar import progress_bar

__all__ = ["head_effects"]

WAYS = ("zero", "mean", "patch")
# asks for an edit of some heads
Change = Callable[[AttentionEdits, list[int]], AttentionEdits]


def head_effects(
    model: nn.Module,
    inputs: Any,
    metric: Callable[[Any], Any],
    *,
    by: str = "zero",
    reference: Seen | None = None,
    estimate: bool = True,
    measure: bool = True,
    file: str | Path | None = None,
    batch: int | None = None,
    lang: str = "en",
    progress: Progress | None = None,
) -> Effects:
    """The change of a metric when each head of a model is ablated, one after the other: a table of layers by heads.

    inputs: what the model takes: a mapping of keywords, a tuple of arguments, or the one argument. metric: gives a
    number, or a tensor of one, from the output. by: "zero", the head gives 0; "mean", its mean output over `reference`;
    "patch", its output there at the same positions (activation patching). reference: what `hw.watch` gave of another
    run, None: of this one, for "mean" only.

    measure: whether each head is changed, one forward pass a head. estimate: whether all effects are estimated too by
    gradients, from one forward and one backward pass (attribution patching: Nanda 2023; Syed et al. 2023,
    arXiv:2310.10348): the gradient of the metric by the head's output times the change of that output; the metric must
    then give a tensor. file: where each effect is written as it is measured, from which an interrupted run goes on;
    None: nowhere. batch: how many heads one pass measures, each on a copy of the input along axis 0, between two
    unchanged copies whose output must be that of the input alone, as one changed copy of the first pass must be that of
    its head alone (a model that mixes only other copies passes); None: as many as fit into 1,024 tokens, 1 where that
    is less than 8 or copies cannot be told apart, and `alone` of the result says why. The metric is called with the
    output of one copy. lang: "en" or "zh", of the bar. progress: told of each pass, None: a bar on a terminal.

    Call model.eval() first, as dropout would be an effect of its own. Raises ArgumentError where the metric gives no
    number, no attention is seen, a file is of another run, or a batch that was asked for cannot be told apart: inputs
    or outputs without a batch axis, training mode, forward hooks, half precision, a model that mixes its batch, a
    metric that writes into the output.

    >>> import torch, headwise as hw
    >>> torch.manual_seed(0)  # doctest: +ELLIPSIS
    <torch...>
    >>> model = torch.nn.Sequential(hw.MultiHeadAttention(8, 2), hw.MultiHeadAttention(8, 4))
    >>> effects = hw.head_effects(model, torch.randn(3, 5, 8), lambda out: out.square().sum())
    >>> effects.names, effects.heads
    (('0', '1'), (2, 4))
    >>> len(effects.top(3)), effects.measured.shape, effects.estimated.shape
    (3, torch.Size([2, 4]), torch.Size([2, 4]))
    """
    _check(by, reference, batch, is_asked=measure or estimate, lang=lang)
    run = MeasuredRun(model, dict(inputs) if isinstance(inputs, Mapping) else inputs, metric)
    output, base, is_written, seen = _watched(run, keep=None if by == "mean" and reference is None else _shape_of)
    source = seen if reference is None else reference
    shapes = {name: [c if isinstance(c, tuple) else _shape_of(c) for c in seen.calls(name)] for name in seen}
    counts = {name: calls[0][1] for name, calls in shapes.items()}
    change = partial(_changed, by=by, source=source)
    effects = Effects.of(counts, base, by, _estimated(run, counts, change) if estimate else None)
    if not measure:
        return effects
    kept = KeptEffects(None if file is None else Path(file), effects, source)
    passes = EffectPasses(run, effects, output, is_written, shapes, _LayerEdits(change, counts), kept.save)
    with progress_bar(lang) if progress is None else nullcontext(progress) as tell:
        return passes.measure(kept.load(), batch, tell)


def _check(by: str, reference: Seen | None, batch: int | None, *, is_asked: bool, lang: str) -> None:
    """Refuse options that cannot be."""
    if by not in WAYS:
        raise ArgumentError(f'by must be "zero", "mean" or "patch", but {by!r} came')
    if not is_asked:
        raise ArgumentError("head_effects measures or estimates, but measure=False and estimate=False came")
    if by == "patch" and reference is None:
        raise ArgumentError('by="patch" needs reference=, what hw.watch gave of the run to patch from')
    if batch is not None and (isinstance(batch, bool) or not isinstance(batch, int) or batch < 1):
        raise ArgumentError(f"batch must be an integer >= 1, how many heads one pass measures, but {batch!r} came")
    # a language that is not there is refused before anything slow begins
    say("step.heads", lang=lang)


def _watched(run: MeasuredRun, keep: Callable[[AttentionMap], Any] | None) -> tuple[Any, float, bool, Seen]:
    """The output of the unchanged model, its metric, whether that wrote into it, and the maps as `keep` gives them."""
    with torch.no_grad(), watch(run.model, keep=keep) as seen:
        output = run.output(run.inputs)
        before = _versions(output)
        base = number_of(run.metric(output))
    if not seen:
        reasons = "; ".join(f'"{name}" {why}' for name, why in seen.unseen.items())
        raise ArgumentError(f"the model must run attention that can be seen, but none was: {reasons or 'it has none'}")
    return output, base, _versions(output) != before, seen


def _versions(output: Any) -> list[int]:
    """How often each tensor of an output was written into; tensors of inference mode do not count it."""
    return [leaf._version for leaf in tree_leaves(output) if isinstance(leaf, Tensor) and not leaf.is_inference()]


class _LayerEdits:
    """Gives the edit of all heads of a module, whose numbers are computed once as long as no other is asked for."""

    def __init__(self, change: Change, counts: Mapping[str, int]) -> None:
        self._change, self._counts = change, counts
        self._name: str | None = None
        self._edit: HeadReplacement | None = None

    def __call__(self, edits: Edits, name: str) -> HeadReplacement:
        if self._edit is None or name != self._name:
            self._name, self._edit = name, _edit_of(self._change, edits[name], self._counts[name])
        return self._edit


def _shape_of(seen_map: AttentionMap) -> tuple[int, ...]:
    return tuple(seen_map.shape)


def _changed(target: AttentionEdits, heads: list[int], *, by: str, source: Seen) -> AttentionEdits:
    if by == "zero":
        return target.zero(heads)
    return target.mean(heads, over=source) if by == "mean" else target.output(source, heads)


def _edit_of(change: Change, target: AttentionEdits, count: int) -> HeadReplacement:
    """The edit of all heads that `change` asks for, taken back."""
    edit = change(target, list(range(count))).edits.pop()
    if not isinstance(edit, HeadReplacement):
        raise TypeError(f"an effect is of what heads give, not of {type(edit).__name__}")
    return edit


@dataclass(eq=False)
class Probe:
    """Adds zeros to the outputs of heads, whose gradient is that of the outputs, and keeps what was changed."""

    then: Callable[[Tensor, Tensor, Tensor, int], Tensor]
    pairs: list[tuple[Tensor, Tensor]]

    def __call__(self, context: Tensor, heads: Tensor, rows: Tensor, start: int) -> Tensor:
        zeros = torch.zeros_like(context).requires_grad_()
        with torch.no_grad():
            self.pairs.append((zeros, self.then(context, heads, rows, start) - context))
        return context + zeros


def _estimated(run: MeasuredRun, counts: Mapping[str, int], change: Change) -> dict[tuple[str, int], float]:
    """The effect of every head to first order, from one backward pass."""
    probes: dict[str, Probe] = {}
    with torch.enable_grad(), torch.inference_mode(False), intervene(run.model) as edits:
        for name, count in counts.items():
            asked = _edit_of(change, edits[name], count)
            probes[name] = Probe(asked.make, [])
            edits[name].add(replace(asked, make=probes[name]))
        value = run.metric(run.output(run.inputs))
    if not isinstance(value, Tensor) or not value.requires_grad:
        raise ArgumentError(
            "metric must give a tensor with a gradient for an estimate, but gave "
            f"{type(value).__name__}: leave .item() and .detach() out, or pass estimate=False"
        )
    added = [(name, zeros, moved) for name, probe in probes.items() for zeros, moved in probe.pairs]
    slopes = torch.autograd.grad(value.reshape(()), [zeros for _, zeros, _ in added], allow_unused=True)
    out: dict[tuple[str, int], float] = {}
    for (name, _, moved), slope in zip(added, slopes, strict=True):
        effects = [0.0] * counts[name] if slope is None else (slope * moved).double().sum(dim=(0, 2, 3)).tolist()
        for head, effect in enumerate(effects):
            out[name, head] = out.get((name, head), 0.0) + effect
    return out
