"""Editing session: one block in which calls of attention are changed as they run."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn

from headwise.intervening.call_sequence import CallSequences, SequenceStep
from headwise.intervening.edit_types import AttentionEdit, EditError, OutputEdit, PatternEdit
from headwise.intervening.edited_parts import edited_parts
from headwise.intervening.edits import AttentionEdits, Edits
from headwise.intervening.refusals import Refusals, check_call, check_weights
from headwise.maps.score_calls import terms_of
from headwise.watching import (
    CallRecord,
    MapCollector,
    ProductLayout,
    Projected,
    Session,
    WatchedModules,
    other_editors,
)
from headwise.watching import Seen as Maps

__all__ = ["EditingSession"]


class EditingSession(Session):
    """A session that changes calls of attention by `edits`, in the words of a watched one."""

    def __init__(self, modules: WatchedModules, edits: Edits) -> None:
        super().__init__(modules, Maps(), grad=True)
        self.refusals = Refusals(lambda name: bool(edits.of(name)))
        self.collector = cast(MapCollector, self.refusals)
        self._edits = edits
        self._sequences = CallSequences()
        self._round = 0

    def edits(self, name: str | None) -> bool:
        """Whether calls under a name are changed."""
        return name is not None and bool(self._edits.of(name))

    def reads(self, name: str) -> bool:
        """Whether the arguments of kernels under a name are read: those of calls that are changed."""
        return self.edits(name)

    def miss_elsewhere(self, name: str) -> None:
        """Refuse what a run of this block's thread leaves to another thread; a run that began there is not changed."""
        if not self.running.is_any or self.running.is_called_here():
            return
        for inner in self.modules.names.values():
            if self.edits(inner) and (inner == name or inner.startswith(f"{name}.") or not name):
                super().miss_elsewhere(inner)

    def add(self, name: str, record: CallRecord, context: Tensor, layout: ProductLayout | None = None) -> Tensor:
        """What a call is to give, by the edits of its module."""
        self.collector.add(name, record)
        targets = self._edits.of(name)
        if not targets:
            return context
        check_call(name, record)
        self._check_alone(name, record, targets)
        with torch._C.DisableTorchFunction():
            four = record.rows_of(context) if layout is None else layout.context(context)
            if four is None:
                raise EditError(f'the heads of "{name}" could not be followed to what they give')
            changed = self._changed(name, record, four, targets)
            if changed is four:
                return context
            return changed.reshape(context.shape) if layout is None else layout.laid_back(changed, context)

    def edits_module(self, module: nn.Module) -> bool:
        """Whether calls of a module are changed."""
        return self.edits(self.modules.name(module))

    def miss_compiled(self, name: str, reason: str) -> None:
        """Refuse compiled code in which a call may lie that is to be changed."""
        inside = (each for each in self.modules.names.values() if name in ("", each) or each.startswith(f"{name}."))
        lost = next((each for each in inside if self.edits(each)), None)
        if lost is not None:
            raise EditError(f'the attention of "{lost}" cannot be changed: "{name}" {reason}')
        super().miss_compiled(name, reason)

    def add_weights(self, name: str, record: CallRecord, weights: Tensor) -> Tensor:
        """The weights that a call gives beside its context, as they are once changed."""
        changes = [c for target in self._edits.of(name) for c in target.edits if isinstance(c, PatternEdit)]
        if not changes or not isinstance(weights, Tensor):
            return weights
        with torch._C.DisableTorchFunction():
            out = weights.clone()
            for first, past, rows, part in edited_parts(record, self._step(name, record), changes):
                out[:, first:past, rows] = part.map().dense().to(out.dtype)
            return out

    def weights_of(self, module: nn.Module, record: CallRecord) -> CallRecord:
        """A call with the weights that it has once changed, by its scores in O(L²) memory; itself where it is not."""
        name = self.modules.name(module)
        changes = [] if name is None else [
            c for target in self._edits.of(name) for c in target.edits if isinstance(c, PatternEdit)
        ]  # fmt: skip
        if name is None or not changes:
            return record
        with torch._C.DisableTorchFunction():
            whole = record.map()
            logits = whole.logits[:].clone()
            for first, past, rows, part in edited_parts(record, self._step(name, record), changes):
                logits[:, first:past, rows] = part.map().logits[:].to(logits.dtype)
            if record.sink is not None:
                raise EditError("the edited weights of a call with a sink have no map")
            return replace(CallRecord(**terms_of(logits)), v=record.v, dropout=record.dropout)

    def _check_alone(self, name: str, record: CallRecord, targets: list[AttentionEdits]) -> None:
        """Refuse edits that would undo those of another block: of weights, and of what torch's own layer gives."""
        module = self._modules_by_name[name]
        has_patterns = any(isinstance(edit, PatternEdit) for target in targets for edit in target.edits)
        if (has_patterns or isinstance(record.v, Projected)) and other_editors(self, module):
            raise EditError(f'the attention of "{name}" is changed by two blocks: ask for all of its edits in one')

    def _changed(self, name: str, record: CallRecord, context: Tensor, targets: list[AttentionEdits]) -> Tensor:
        """The context (B, Hq, Lq, Dv) of a call after all edits."""
        step = self._step(name, record)
        out = context
        of = {change: target for target in targets for change in target.edits}
        weights = [change for change in of if isinstance(change, PatternEdit)]
        met: set[AttentionEdit] = set()
        if weights:
            check_weights(name, record, weights)
            for first, past, rows, part in edited_parts(record, step, weights, met):
                out = context.clone() if out is context else out
                out[:, first:past, rows] = part.context().to(out.dtype)
        B, Hq, Lq, _ = context.shape
        for change in of:
            if not isinstance(change, OutputEdit):
                continue
            numbers = range(Hq) if change.heads is None else change.heads.of(Hq)
            if not numbers:
                raise EditError(f'{change.text} names no head of "{name}", which has {Hq}: give some of 0..{Hq - 1}')
            heads = torch.tensor(numbers, device=context.device)
            rows = torch.arange(Lq, device=context.device)
            if change.positions is not None:
                rows = change.positions.within(step.start, Lq, context.device)
            if rows.numel() == 0 or B == 0:
                continue
            of[change].meet(name)
            out = context.clone() if out is context else out
            is_run = change.positions is None and numbers[-1] - numbers[0] == len(numbers) - 1
            # neighbours are a view, which need not be gathered and scattered
            place = (slice(numbers[0], numbers[-1] + 1),) if is_run else (heads[:, None], rows)
            at = (change.samples(B), *place)
            out[at] = change.of(out[at], heads, rows, step.start).to(out.dtype)
            met.add(change)
        for change in met:
            of[change].meet(name)
            of[change].counts[change] = of[change].count(change) + 1
        self._sequences.note(name, step)
        return out

    def _step(self, name: str, record: CallRecord) -> SequenceStep:
        if self._round != self._edits.round:
            self._sequences.clear()
            self._round = self._edits.round
        return self._sequences.step(name, record)
