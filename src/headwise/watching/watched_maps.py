"""Watched maps: the maps of a watched model, by the name of the module that computed each."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from headwise.errors import ArgumentError
from headwise.maps import AttentionMap, save_maps
from headwise.maps.display import page_of, picture_of
from headwise.maps.name_lookup import NoMapError, ambiguous, holding, holds, listed
from headwise.watching.joined_steps import joined
from headwise.watching.record import CallRecord
from headwise.wording.counts import counted

__all__ = ["Seen", "UnseenError"]

# lines of a `repr`
MOST_LINES = 12
NOTHING_RAN = "no attention has run: call the model inside of the block"


class UnseenError(NoMapError):
    """There is no map under a name."""


@dataclass(frozen=True, eq=False)
class _Call:
    """One call: its result, and what it was given where that is kept."""

    name: str
    result: Any
    record: CallRecord | None


class Seen(Mapping[str, Any]):
    """The maps of a watched block: full name of the module that computed it -> AttentionMap, in running order.

    With `keep=`, what that function made of each map. The model itself is "". Made by `watch`.

    Where ranks share sequences (`hw.distributed.spread`) or heads (`hw.distributed.plan`) each map is of the whole,
    on every rank, a `SharedMap`: all ranks watch, and make the same readings in the same order, those of keep= too.

    What other libraries write to a softmax's scores is in its map, if they got the memory after the scores were made.
    """

    def __init__(self, keep: Callable[[AttentionMap], Any] | None = None) -> None:
        self._keep = keep
        self._calls: list[_Call] = []
        # the same by name
        self._named: dict[str, list[_Call]] = {}
        self._unseen: dict[str, str] = {}
        # how many calls each name had, with a map or without
        self._count: Counter[str] = Counter()
        # the calls of a module as one map, and how many there were
        self._joined: dict[str, tuple[int, AttentionMap]] = {}
        # whether anything that is watched has run
        self._has_run = False

    @property
    def unseen(self) -> Mapping[str, str]:
        """What could not be watched: name -> the reason."""
        return MappingProxyType(self._unseen)

    def calls(self, name: str) -> list[Any]:
        """The maps of a module, one a call, in running order: several in generation and where weights are shared.

        name: as `find` takes it.
        """
        return [call.result for call in self._named[self._full_name(name)]]

    def __getitem__(self, name: str) -> Any:
        if name not in self._named:
            raise UnseenError(self._nothing(name))
        maps = self.calls(name)
        if len(maps) > 1:
            raise ArgumentError(
                f'seen["{name}"] must be one map, but {len(maps)} calls were seen: take seen.calls("{name}"), or '
                f'seen.joined("{name}") if they are the steps of one sequence'
            )
        return maps[0]

    def find(self, part: str) -> Any:
        """The map of the one module whose name holds `part`, by whole dotted parts: "layer.3" is not in "layer.31".

        >>> import torch, headwise as hw
        >>> from headwise.watching import watch
        >>> model = torch.nn.Sequential(hw.MultiHeadAttention(8, 2), hw.MultiHeadAttention(8, 4))
        >>> with watch(model) as seen:
        ...     _ = model(torch.randn(3, 5, 8))
        >>> seen.find("1").shape
        torch.Size([3, 4, 5, 5])
        """
        names = holding(self, part)
        if len(names) > 1:
            raise ambiguous(part, names)
        return self[names[0] if names else part]

    def in_order(self) -> list[tuple[str, AttentionMap]]:
        """Name and map of every call, as the model ran them."""
        return [(call.name, self._map(call)) for call in self._calls]

    def joined(self, name: str) -> AttentionMap:
        """The calls of one module on one growing sequence as one map: that of the whole sequence at once.

        The rows of all steps stand below each other, over the keys of the last step, of a static cache those that
        are filled; a key that came after a step is masked for it. name: as `find` takes it.
        """
        name = self._full_name(name)
        if self._keep is not None:
            raise ArgumentError(f'seen.joined("{name}") needs q and k, which keep= has let go: watch without keep=')
        calls = self._named[name]
        count, whole = self._joined.get(name, (0, None))
        if whole is None or count != len(calls):
            # kept for all who ask, also for one who wants gradients after one who did not
            with torch.inference_mode(False), torch.enable_grad():
                whole = joined(name, [call.record for call in calls if call.record is not None]).map()
            self._joined[name] = len(calls), whole
        return whole

    def outputs(self, name: str) -> list[Tensor]:
        """What each head of a module gave before the output projection, (B, H, Lq, Dv), one tensor a call.

        Computed from what is kept of each call, without dropout; of maps that ranks share, whole on each of them, all
        of which must ask. name: as `find` takes it. ArgumentError where the values are not known, or keep= has let
        them go.

        >>> import torch, headwise as hw
        >>> attn, x = hw.MultiHeadAttention(8, 2), torch.randn(3, 5, 8)
        >>> with hw.watch(attn) as seen:
        ...     out = attn(x)
        >>> (heads,) = seen.outputs("")
        >>> torch.allclose(attn.out_proj(heads.transpose(1, 2).flatten(2)), out, atol=1e-6)
        True
        """
        name = self._full_name(name)
        records = [call.record for call in self._named[name]]
        if any(record is None for record in records):
            raise ArgumentError(f'seen.outputs("{name}") needs q, k and v, which keep= has let go: watch without keep=')
        if any(record.v is None for record in records if record is not None):
            raise ArgumentError(f'the values of "{name}" could not be followed, so that its head outputs are not known')
        for call in self._named[name]:
            # also queries and keys must be those of the run
            call.result._ready()
        return [record.context() for record in records if record is not None]

    def zero_grad(self) -> None:
        """Forget the gradients that backward passes have brought to the calls, as before another one."""
        for call in self._calls:
            if call.record is not None and call.record.backward is not None:
                call.record.backward.clear()

    def to_attentions(self, *, max_bytes: int = 1 << 30) -> tuple[Tensor, ...]:
        """Hugging Face's form: a dense (B, H, Lq, Lk) of each call, in running order.

        max_bytes: what all of them together may take.
        """
        self._needs_a_run()
        maps = [call_map for _, call_map in self.in_order()]
        needed = sum(m.shape.numel() * m.dtype.itemsize for m in maps)
        if needed > max_bytes:
            raise ArgumentError(
                f"to_attentions would take {needed / 2**20:.0f} MiB for {len(maps)} maps, and max_bytes allows "
                f"{max_bytes / 2**20:.0f} MiB: watch fewer layers with only=, or read the maps by index"
            )
        return tuple(m.dense(max_bytes=max_bytes) for m in maps)

    def save(self, path: str | os.PathLike[str], *, tokens: Any = None) -> None:
        """Write every map to a file, read back by `load_maps`; of several calls, under name[0], name[1], ...

        tokens: kept beside the maps, see `load_maps`. Of maps that ranks share every rank calls it: the file holds the
        whole maps, for which queries and keys are gathered, and the first of the ranks that share them writes.
        """
        self._needs_a_run()
        named: dict[str, AttentionMap] = {}
        count: Counter[str] = Counter()
        for call in self._calls:
            several = len(self._named[call.name]) > 1
            named[f"{call.name}[{count[call.name]}]" if several else call.name] = self._map(call)
            count[call.name] += 1
        save_maps(path, named, tokens=tokens, unseen=self._unseen)

    def plot(self, *, view: str = "overview", sample: int = 0, scale: str = "log") -> Any:
        """Every head of every call as a small map: a matplotlib Figure. scale: "log" or "linear".

        view: "overview", or "statistics": the mean entropy and distance of each head. One map has more views.
        """
        return page_of(self).of_sample(sample).plot_all(view=view, scale=scale)

    def _repr_html_(self) -> str:
        return picture_of(self)

    def clear(self) -> None:
        """Forget every map, and every reason why there is none."""
        self._calls.clear()
        self._named.clear()
        self._joined.clear()
        self._unseen.clear()

    def __contains__(self, name: object) -> bool:
        return name in self._named

    def __iter__(self) -> Iterator[str]:
        return iter(self._named)

    def __len__(self) -> int:
        return len(self._named)

    def __repr__(self) -> str:
        lines = str(self).split("\n")
        more = len(lines) - MOST_LINES
        return "\n".join([*lines[:MOST_LINES], f"  … and {more} more: print lists all"] if more > 1 else lines)

    def __str__(self) -> str:
        lines = [
            f"Seen: {counted(len(self), 'module')}, {counted(len(self._calls), 'call')}"
            + ("" if self._ran else f"; {NOTHING_RAN}")
        ]
        for name in self:
            calls = self.calls(name)
            shape = getattr(calls[0], "shape", None)
            description = type(calls[0]).__name__ if shape is None else str(tuple(shape))
            lines.append(f'  "{name}"  {description}' + (f" and {len(calls) - 1} more" if len(calls) > 1 else ""))
        return "\n".join([*lines, *(f'  "{name}"  unseen: {reason}' for name, reason in self._unseen.items())])

    def _full_name(self, part: str) -> str:
        """The one name that is `part`, or else holds it."""
        names = [part] if part in self._named else holding(self, part)
        if not names:
            raise UnseenError(self._nothing(part))
        if len(names) > 1:
            raise ambiguous(part, names)
        return names[0]

    def _needs_a_run(self) -> None:
        if not self._ran:
            raise UnseenError(f"maps are made while a model runs, but {NOTHING_RAN}")

    @property
    def _ran(self) -> bool:
        return self._has_run or bool(self._count)

    def _add(self, name: str, record: CallRecord, call_map: AttentionMap) -> None:
        """Take one call in."""
        call = _Call(name, call_map, record) if self._keep is None else _Call(name, self._keep(call_map), None)
        self._calls.append(call)
        self._named.setdefault(name, []).append(call)
        self._count[name] += 1

    def _heard(self, name: str) -> int:
        """How many calls of a module ran, with a map or without."""
        return self._count[name]

    def _miss(self, name: str, reason: str) -> None:
        """Record why a call has no map; the first reason stays."""
        self._unseen.setdefault(name, reason)
        self._count[name] += 1

    def _map(self, call: _Call) -> AttentionMap:
        if call.record is None:
            raise ArgumentError(f'the map of "{call.name}" is needed, but keep= has let it go: watch without keep=')
        result: AttentionMap = call.result
        return result

    def _nothing(self, name: str) -> str:
        reasons = [f'"{each}": {reason}' for each, reason in self._unseen.items() if each == name or holds(each, name)]
        why = f"; unseen: {'; '.join(reasons)}" if reasons else ""
        names = listed(self) or ("nothing" if self._ran else f"nothing, since {NOTHING_RAN}")
        return f'no map was seen under "{name}"{why}; seen: {names}'
