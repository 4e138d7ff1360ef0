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

from headwise.errors import ArgumentError
from headwise.intervening.edit_types import HeadReplacement
from headwise.intervening.edits import AttentionEdits
from headwise.intervening.effects_table import Effects, load_effects, save_effects
from headwise.intervening.entry_point import intervene
from headwise.intervening.head_outputs import HeadsOfRun
from headwise.intervening.positions import position_set
from headwise.maps import AttentionMap
from headwise.watching import Seen, watch
from headwise.wording.progress_bar import progress_bar

__all__ = ["head_effects"]

WAYS = ("zero", "mean", "patch")
# told the key and the values of each slow step
Progress = Callable[[str, Mapping[str, object]], None]
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
    then give a tensor. file: where each effect is written as it is measured, and from which a run that was interrupted
    goes on; None: nowhere. progress: is told of each head, None: a bar on stderr, where that is a terminal.

    Call model.eval() first, as dropout would be an effect of its own. Raises ArgumentError where the metric gives no
    number, no attention is seen, or a file is of another run.

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
    if by not in WAYS:
        raise ArgumentError(f'by must be "zero", "mean" or "patch", but {by!r} came')
    if not (measure or estimate):
        raise ArgumentError("head_effects measures or estimates, but measure=False and estimate=False came")
    if by == "patch" and reference is None:
        raise ArgumentError('by="patch" needs reference=, what hw.watch gave of the run to patch from')
    run = partial(_run, model, inputs)
    with torch.no_grad(), watch(model, keep=None if by == "mean" and reference is None else _heads_of) as seen:
        base = _number(metric(run()))
    source = seen if reference is None else reference
    counts = {name: _heads_of(call) if isinstance(call := seen.calls(name)[0], AttentionMap) else call for name in seen}
    if not counts:
        reasons = "; ".join(f'"{name}" {why}' for name, why in seen.unseen.items())
        raise ArgumentError(f"the model must run attention that can be seen, but none was: {reasons or 'it has none'}")
    change = partial(_changed, by=by, source=source)
    estimated = _estimated(model, run, metric, counts, change) if estimate else None
    effects = Effects.of(counts, base, by, estimated)
    if not measure:
        return effects
    path = None if file is None else Path(file)
    with progress_bar("en") if progress is None else nullcontext(progress) as tell:
        return _measured(model, lambda: _number(metric(run())), effects, change, path, source, tell)


def _measured(
    model: nn.Module,
    number: Callable[[], float],
    effects: Effects,
    change: Change,
    path: Path | None,
    source: Seen,
    tell: Progress,
) -> Effects:
    """The table with what each head does, measured by a run each; those that a file has are not run again."""
    # by which a file is known to be of the same reference run
    is_marked = path is not None and effects.by != "zero"
    mark = float(source.outputs(effects.names[0])[0].double().sum()) if is_marked else None
    measured = load_effects(path, effects, mark) if path is not None and path.exists() else {}
    asked: dict[str, HeadReplacement] = {}
    with torch.no_grad(), intervene(model) as edits:
        for n, (name, head) in enumerate(effects.places()):
            tell("step.heads", {"done": n, "total": sum(effects.heads)})
            if (name, head) in measured:
                continue
            if name not in asked:
                # what it is to give instead is computed once for all heads of a layer
                asked = {name: _edit_of(change, edits[name], effects.heads[effects.names.index(name)])}
            target = edits[name].add(replace(asked[name], heads=position_set("heads", head)))
            measured[name, head] = number() - effects.base
            if not target.counts:
                raise ArgumentError(f'"{name}" ran when it was watched, but not when head {head} was to be changed')
            edits.clear()
            make: object = asked[name].make
            if isinstance(make, HeadsOfRun):
                make.restart()
            if path is not None:
                save_effects(path, effects, measured, mark)
    return effects.with_measured(measured)


def _heads_of(seen_map: AttentionMap) -> int:
    return seen_map.shape[1]


def _run(model: nn.Module, inputs: Any) -> Any:
    if isinstance(inputs, Mapping):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, tuple) else model(inputs)


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


def _number(value: Any) -> float:
    if isinstance(value, Tensor) and value.numel() == 1:
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float):
        shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise ArgumentError(f"metric must give one number, but gave {shape}: take such as logits[0, -1, token]")
    return float(value)


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


def _estimated(
    model: nn.Module,
    run: Callable[[], Any],
    metric: Callable[[Any], Any],
    counts: Mapping[str, int],
    change: Change,
) -> dict[tuple[str, int], float]:
    """The effect of every head to first order, from one backward pass."""
    probes: dict[str, Probe] = {}
    with torch.enable_grad(), torch.inference_mode(False), intervene(model) as edits:
        for name, count in counts.items():
            asked = _edit_of(change, edits[name], count)
            probes[name] = Probe(asked.make, [])
            edits[name].add(replace(asked, make=probes[name]))
        value = metric(run())
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
