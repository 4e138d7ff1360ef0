"""Editing session: one block in which calls of attention are changed as they run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import FrameType
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from headwise.intervening.edit_types import AttentionEdit, EditError, OutputEdit, PartLocation, PatternEdit
from headwise.intervening.edits import AttentionEdits, Edits
from headwise.intervening.part_of_call import part_of, runs
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

CHECKPOINT = "torch/utils/checkpoint.py"


@dataclass(frozen=True, eq=False)
class SequenceStep:
    """The last call of a module, on so many keys. start, key: the positions of its first query and of its first key.

    first: the first key of each head.
    """

    q: Tensor
    keys: int
    start: int
    key: int
    first: Tensor


class EditedPart(NamedTuple):
    """The heads [first, past) and rows of a call whose weights change, and the call that has the changed ones."""

    first: int
    past: int
    rows: Tensor | slice
    call: CallRecord


class Refusals:
    """In place of what takes maps in: raises where a call that is to be changed cannot be."""

    def __init__(self, session: EditingSession) -> None:
        self._session, self._counts = session, dict[str, int]()
        # why a module has no call that could be changed, to be told where an edit met none
        self.reasons: dict[str, str] = {}

    def note_run(self) -> None:
        """Something runs."""

    def count(self, name: str) -> int:
        """How many calls of a module came."""
        return self._counts.get(name, 0)

    def add(self, name: str, record: CallRecord) -> None:
        """A call came."""
        self._counts[name] = self.count(name) + 1

    def read(self, name: str, make: Callable[[], CallRecord]) -> None:
        """A call came, of a kernel that is not changed."""
        self.miss(name, "runs in a fused kernel that is called by itself")

    def miss(self, name: str, reason: str) -> None:
        """A call cannot be changed; ArgumentError where it is to be."""
        self._counts[name] = self.count(name) + 1
        self.reasons.setdefault(name, reason)
        error = sys.exc_info()[1]
        if isinstance(error, EditError):
            raise error
        if self._session.edits(name):
            raise EditError(f'the attention of "{name}" cannot be changed: it {reason}')

    def miss_softmaxes(self, reasons: dict[str, str]) -> None:
        """Softmaxes that are no attention."""
        for name, reason in reasons.items():
            self.reasons.setdefault(name, reason)


class EditingSession(Session):
    """A session that changes calls of attention by `edits`, in the words of a watched one."""

    def __init__(self, modules: WatchedModules, edits: Edits) -> None:
        super().__init__(modules, Maps(), grad=True)
        self.refusals = Refusals(self)
        self.collector = cast(MapCollector, self.refusals)
        self._edits = edits
        self._steps: dict[str, SequenceStep] = {}
        self._round = 0

    def edits(self, name: str | None) -> bool:
        """Whether calls under a name are changed."""
        return name is not None and bool(self._edits.of(name))

    def add(self, name: str, record: CallRecord, context: Tensor, layout: ProductLayout | None = None) -> Tensor:
        """What a call is to give, by the edits of its module."""
        self.collector.add(name, record)
        targets = self._edits.of(name)
        if not targets:
            return context
        _check(name, record)
        self._check_alone(name, record, targets)
        with torch._C.DisableTorchFunction():
            four = (
                context.reshape(*record.q.shape[:3], context.shape[-1]) if layout is None else layout.context(context)
            )
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
            for first, past, rows, part in self._parts(name, record, changes):
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
            for first, past, rows, part in self._parts(name, record, changes):
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
            _check_weights(name, record, weights)
            for first, past, rows, part in self._parts(name, record, weights, met):
                out = context.clone() if out is context else out
                out[:, first:past, rows] = part.context().to(out.dtype)
        B, Hq, Lq, _ = context.shape
        for change in of:
            if not isinstance(change, OutputEdit):
                continue
            heads = torch.tensor(range(Hq) if change.heads is None else change.heads.of(Hq), device=context.device)
            rows = torch.arange(Lq, device=context.device)
            if change.positions is not None:
                rows = change.positions.within(step.start, Lq, context.device)
            if rows.numel() == 0 or B == 0:
                continue
            of[change].meet(name)
            out = context.clone() if out is context else out
            at = (slice(None), heads[:, None], rows)
            out[at] = change.of(out[at], heads, rows, step.start).to(out.dtype)
            met.add(change)
        for change in met:
            of[change].meet(name)
            of[change].counts[change] = of[change].count(change) + 1
        self._steps[name] = step
        return out

    def _parts(
        self, name: str, record: CallRecord, changes: list[PatternEdit], met: set[AttentionEdit] | None = None
    ) -> list[EditedPart]:
        """The heads and rows whose weights change. met: takes in the changes that are of some."""
        step, Hq, Lq = self._step(name, record), *record.q.shape[1:3]
        of_head = [
            tuple(change for change in changes if change.heads is None or head in change.heads.of(Hq))
            for head in range(Hq)
        ]
        parts: list[EditedPart] = []
        for own in dict.fromkeys(of_head):
            heads = [head for head in range(Hq) if of_head[head] == own]
            for rows, done in _rows(own, step.start, Lq, record.q.device):
                if met is not None:
                    met.update(done)
                for first, past in runs(heads):
                    part = part_of(record, first, past, rows)
                    for change in done:
                        part = change.of(part, PartLocation(first, rows, Lq, step.key))
                    parts.append(EditedPart(first, past, slice(None) if rows is None else rows, part))
        return parts

    def _step(self, name: str, record: CallRecord) -> SequenceStep:
        """Where in its sequence a call lies: it goes on where the one before ended, or begins a new one.

        It goes on where the keys have grown by its queries, or to the size of a cache; or where it is one query on no
        more keys than before, as in such a cache and in the cross-attention of a decoder. Where the first key is
        another than before, the oldest have been dropped.
        """
        if self._round != self._edits.round:
            self._steps.clear()
            self._round = self._edits.round
        last, Lq, Lk = self._steps.get(name), record.q.shape[2], record.k.shape[2]
        if last is not None and last.q.data_ptr() == record.q.data_ptr() and last.q.shape == record.q.shape:
            return last
        first = record.k.detach()[:, :, :1].clone()
        start = key = 0
        is_same = last is not None and first.equal(last.first)
        if last is not None and Lq < Lk:
            has_grown = last.keys + Lq == Lk or (is_same and Lk > last.keys)
            if has_grown or (Lq == 1 and Lk <= last.keys):
                start = last.start + last.q.shape[2]
                key = last.key if is_same else start + Lq - Lk
        return SequenceStep(record.q, Lk, start, key, first)


def _rows(
    changes: tuple[PatternEdit, ...], start: int, Lq: int, device: torch.device
) -> Iterator[tuple[Tensor | None, tuple[PatternEdit, ...]]]:
    """The rows of a call that have the same changes, None: all, and these changes; rows without any are left out."""
    some = [change for change in changes if change.queries is not None]
    labels = torch.zeros(Lq, dtype=torch.long, device=device)
    for n, change in enumerate(some):
        if change.queries is not None:
            labels[change.queries.within(start, Lq, device)] += 1 << n
    kinds = labels.unique().tolist()
    for kind in kinds:
        left_out = [change for n, change in enumerate(some) if not kind >> n & 1]
        done = tuple(change for change in changes if change not in left_out)
        if done:
            yield None if len(kinds) == 1 else (labels == kind).nonzero().flatten(), done


def _check(name: str, record: CallRecord) -> None:
    """Refuse calls whose changes would be undone, or are of a part only."""
    if record.spread is not None or record.heads is not None:
        raise EditError(f'the attention of "{name}" is shared by ranks, and cannot be changed: run it in one process')
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.endswith(CHECKPOINT):
            raise EditError(
                f'the attention of "{name}" runs in an activation checkpoint, which computes it again without the '
                "edits once the block has ended: turn checkpointing off"
            )
        frame = frame.f_back


def _check_weights(name: str, record: CallRecord, changes: list[PatternEdit]) -> None:
    """Refuse changes of weights that dropout has been at, or whose values are not known."""
    if record.dropout:
        raise EditError(
            f'{changes[0].text} changes weights, of which "{name}" drops some at random: call model.eval() first'
        )
    if record.v is None:
        raise EditError(f'{changes[0].text} needs the values of "{name}", which could not be followed')
