"""AttentionMap: the exact weights of one call of attention, computed where they are indexed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from headwise.errors import ArgumentError, InputError
from headwise.maps import blocks
from headwise.maps.archive import Archive
from headwise.maps.blocks import wants_gradient
from headwise.maps.heads import HeadMean
from headwise.maps.indices import Taken, count, run, whole
from headwise.maps.logits import Logits
from headwise.maps.logsum import LogSum
from headwise.maps.lse import check_lse, deviation, differentiable_sums, normalized
from headwise.maps.map_mask import shown, tiles_of
from headwise.maps.recomputation import Recomputable, differentiable, of_rows
from headwise.maps.reductions import Reductions
from headwise.maps.result_cache import ResultCache
from headwise.maps.scan import log_sums
from headwise.maps.score_calls import scores_held
from headwise.maps.score_tiles import Region, wide_type
from headwise.maps.shared_file import write_once
from headwise.maps.strips import MapStrip, exact, strips
from headwise.maps.transforms import refuse_in_torch_func
from headwise.maps.versions import Versions, lasting
from headwise.maps.weight_gradients import NOT_ASKED, Attribution, Backward, WeightGradient, gradient_call
from headwise.ops.call import Call, transformed

# where the lse of some rows is not known, they are computed whole if they have at most so many entries
ENTRIES = 1 << 20


class AttentionMap(Reductions):
    """The weights (B, Hq, Lq, Lk) of one call of attention, before dropout; made by `attention_map` and `watch`.

    Made from the scores that a model computed by hand, where q and k are not known, it holds those, in O(L²) memory.

    It holds q and k, and computes what is looked at from them: `m[0, 1, 10]` is one row, `m.entropy()` one pass in
    O(L) memory. float32, or float64 where q is. Everything but the given lse is differentiable with respect to q, k,
    attn_bias, sink and weight, by computing again on the way back; a second derivative holds the whole map. A given
    lse is taken as a number that q and k have, so gradients are those of the softmax; so is every number within
    torch.func and where dual numbers carry a forward derivative, which take more memory.

    q and k are held by reference, not copied: a reading raises StaleMapError once one has been changed in place.

    >>> import torch, headwise as hw
    >>> m = hw.attention_map(torch.zeros(1, 2, 3, 8), torch.zeros(1, 2, 3, 8), mask=hw.causal())
    >>> m
    AttentionMap((1, 2, 3, 3), float32, cpu, mask=causal())
    >>> m[0, 1, 1]
    tensor([0.5000, 0.5000, 0.0000])
    >>> m.entropy()[0, 1].exp().round(decimals=3)
    tensor([1., 2., 3.])
    """

    # what a backward pass brings, of a map that `watch` makes with gradients=True
    _backward: Backward | None = None

    def __init__(self, call: Call, lse: Tensor | None = None) -> None:
        """A checked call, and its lse (B, Hq, Lq) as a kernel gave it, None: not known."""
        if lse is not None:
            check_lse(lse, call)
        self._call, self._passed_lse = lasting(call, lse)
        self._versions = Versions(self._call, self._passed_lse)
        self._kept: dict[str, Any] = {}
        self._answers = ResultCache.beside(self._call)

    @property
    def shape(self) -> torch.Size:
        return torch.Size(self._call.sizes)

    @property
    def dtype(self) -> torch.dtype:
        return wide_type(self._call)

    @property
    def device(self) -> torch.device:
        return self._call.q.device

    @property
    def logits(self) -> Logits:
        """The scores, -inf where a pair may not attend: lazy, and indexed as the map is."""
        return Logits(self)

    @property
    def lse(self) -> Tensor:
        """Natural log of each row's sum of exponentials, (B, Hq, Lq); the sink counts.

        -inf on a row that may attend to nothing; with a sink, the sink's logit.
        """
        self._ready()
        return self._log_sums().lse

    @property
    def local(self) -> AttentionMap:
        """The rows and heads that this process computes: of a map that ranks share those of this rank, else itself."""
        return self

    def max_logit(self) -> Tensor:
        """The largest score of each head that a query may see, (B, Hq); -inf where there is none.

        After softcap and bias; the sink is no key's score, and does not count. What QK-clip watches (Kimi K2, 2025).
        """
        self._ready()
        reading = Recomputable(
            values=lambda: (self._summary().peak.clone(),),
            shapes=(self.shape[:3],),
            strips=lambda call: strips(call),
            of=lambda part, strip: (blocks.logits(part).amax(-1),),
            cut=of_rows,
        )
        if 0 in self.shape:
            return self._call.q.new_full(self.shape[:2], float("-inf"), dtype=self.dtype)
        return differentiable(self._call, reading)[0].amax(-1)

    def needs_gradient(self) -> bool:
        """Whether what is read of the map now carries a derivative, backwards or forwards."""
        return wants_gradient(self._call) or transformed(self._call)

    def gradient(self) -> WeightGradient:
        """The derivative of a scalar by each weight after the softmax, (B, Hq, Lq, Lk), lazy as the map is.

        dO·vᵀ, where dO is the gradient of the call's output: of `hw.watch(model, gradients=True)`, after `backward()`
        of the scalar; those of several backward passes add up. 0 where a pair may not attend. ArgumentError where no
        gradient has come.
        """
        return WeightGradient(self, self._gradient_call())

    def attribution(self) -> Attribution:
        """Each weight times the derivative by it, (B, Hq, Lq, Lk), lazy; see `gradient`."""
        return Attribution(self, self._gradient_call())

    def mean_heads(self) -> HeadMean:
        """The mean of all heads, (B, 1, Lq, Lk), lazy again."""
        self._ready()
        return HeadMean(self)

    def tiles(self, *, block: tuple[int, int] = (128, 128)) -> Tensor:
        """What the mask makes of each tile: 0 empty, 1 mixed, 2 full; int8 (B|1, H|1, rows, columns)."""
        if not isinstance(block, Sequence) or len(block) != 2:
            raise ArgumentError(f"block counts the queries and keys of a tile, so it has two numbers; got {block!r}")
        queries, keys = (whole("a number of block", n) for n in block)
        if min(queries, keys) < 1:
            raise ArgumentError(f"block counts the queries and keys of a tile, so both must be 1 or more; got {block}")
        return self._tiles((queries, keys))

    def check(self) -> float:
        """How far the sum of a row, the sink's share in it, is from 1 at most, over rows sampled from every head.

        About 1e-6 where the lse fits q and k; large where it is one of base 2, lacks the sink, or belongs to another
        call. Some rows of every sample and head are computed; the lse comes from the kernel, or from this map.
        """
        self._ready()
        refuse_in_torch_func("check()")
        with exact(self._call):
            return deviation(self._call, self._known_sums())

    def detach(self) -> AttentionMap:
        """The same map without a way back to q and k."""
        return self._with(lambda t: t.detach())

    def to(self, device: torch.device | str) -> AttentionMap:
        """The same map with all its tensors on `device`."""
        return self._with(lambda t: t.to(device))

    def cpu(self) -> AttentionMap:
        """The same map on the CPU."""
        return self.to("cpu")

    def save(self, path: str | PathLike[str]) -> None:
        """Write what the map is computed from, as safetensors; see `save_maps` for several maps in one file.

        A map that ranks share is written whole: every rank calls it, and the first of them writes.
        """
        archive = Archive({"map": self.stored()}, None)
        write_once([self], lambda: archive.write(path), str(path))

    @staticmethod
    def load(path: str | PathLike[str]) -> AttentionMap:
        """The map that `save` wrote, on the CPU; InputError where the file is not sound, or holds several maps."""
        archive = Archive.read(path)
        if len(archive) != 1:
            raise InputError(f"{path} must hold one map, but holds {len(archive)}: read it with load_maps")
        return AttentionMap(*next(iter(archive.values())))

    def stored(self) -> tuple[Call, Tensor | None]:
        """What a file keeps of it: its call, and its lse where it is known."""
        self._versions.check()
        refuse_in_torch_func("a file of maps")
        return self._call, self._known_sums().lse if self._is_lse_known() else None

    def __repr__(self) -> str:
        call = self._call
        terms = [str(tuple(self.shape)), str(self.dtype).removeprefix("torch."), str(self.device)]
        if call.mask is not None:
            terms.append(shown(call.mask))
        if (scores := scores_held(call)) is not None:
            size = scores.numel() * scores.element_size()
            return f"AttentionMap({', '.join([*terms, f'scores held: {size / 2**20:.1f} MiB'])})"
        terms += [name for name in ("attn_bias", "sink", "weight") if getattr(call, name) is not None]
        terms += [f"{name}={x}" for name in ("scale", "softcap") if (x := getattr(call, name)) is not None]
        return f"AttentionMap({', '.join([*terms, *(['lse known'] if self._is_lse_known() else [])])})"

    def __reduce__(self) -> tuple[type[AttentionMap], tuple[Call, Tensor | None]]:
        # copies count their versions from 0
        self._versions.check()
        return AttentionMap, (self._call, self._passed_lse)

    def _with(self, change: Callable[[Tensor], Tensor]) -> AttentionMap:
        """The same map with every tensor changed."""
        self._versions.check()
        names = ("q", "k", "attn_bias", "sink", "weight")
        tensors = {name: None if t is None else change(t) for name in names for t in (getattr(self._call, name),)}
        mask = None if self._call.mask is None else pytree.tree_map_only(Tensor, change, self._call.mask)
        call = replace(self._call, **tensors, v=tensors["k"], mask=mask, prepared={})  # type: ignore[arg-type]  # q, k
        again = AttentionMap(call, None if self._passed_lse is None else change(self._passed_lse))
        again._kept = pytree.tree_map_only(Tensor, change, self._kept)
        again._answers, again._backward = self._answers.changed(change), self._backward
        return again

    def _gradient_call(self) -> Call:
        """The call whose scores are dO·vᵀ."""
        self._ready()
        if self._backward is None:
            raise ArgumentError(NOT_ASKED)
        return gradient_call(self._call, self._backward)

    def _tiles(self, block: tuple[int, int]) -> Tensor:
        return tiles_of(self._call.mask, self.shape, block, self.device)

    def _is_lse_known(self) -> bool:
        return self._passed_lse is not None or "sums" in self._kept

    def _known_sums(self) -> LogSum:
        """The log-sums without gradients, computed once."""
        if "sums" not in self._kept:
            if self._passed_lse is None:
                self._summary()
            else:
                with exact(self._call):
                    self._kept["sums"] = normalized(self._call, self._passed_lse)
        sums: LogSum = self._kept["sums"]
        return sums

    def _log_sums(self) -> LogSum:
        """The same with their derivatives where they are wanted; never the kept tensors themselves."""
        return differentiable_sums(self._call, self._known_sums)

    def _ready(self) -> None:
        self._versions.check()
        if self.device.type == "meta":
            raise ArgumentError(f"a map {tuple(self.shape)} on the meta device has no numbers: move q and k elsewhere")

    def _block(self, taken: tuple[Taken, ...]) -> Tensor:
        counts = [count(t, size) for t, size in zip(taken, self.shape, strict=True)]
        if counts[3] == self.shape[3] and isinstance(taken[3], slice):
            # a whole row needs no lse, and its softmax is free of the rounding of one
            return blocks.softmax(blocks.block(self._call, taken))
        rows = (*taken[:3], slice(None))
        is_small = math.prod(counts[:3]) * self.shape[3] <= ENTRIES
        if is_small and (wants_gradient(self._call) or transformed(self._call) or not self._is_lse_known()):
            return blocks.softmax(blocks.block(self._call, rows)).index_select(3, self._columns(taken[3]))
        return blocks.weights(blocks.block(self._call, taken), self._sums_of(taken))

    def _columns(self, taken: Taken) -> Tensor:
        columns = torch.arange(self.shape[3], device=self.device)
        return taken.to(self.device) if isinstance(taken, Tensor) else columns[taken]

    def _points(self, at: tuple[Tensor, ...]) -> Tensor:
        return blocks.pair_weights(self._call, at, self._log_sums().of(*at[:3]))

    def _sums_of(self, taken: tuple[Taken, ...]) -> LogSum:
        """The log-sums of some rows; where nothing is known yet, from the tiles of these rows only."""
        region = Region(*(run(t, size) for t, size in zip(taken[:3], self.shape[:3], strict=True)))
        is_whole = region == Region.whole(self._call)

        def values() -> LogSum:
            if is_whole or self._is_lse_known():
                return self._known_sums()
            with exact(self._call):
                return log_sums(self._call, region).sums

        sums = differentiable_sums(self._call, values, None if is_whole else region)
        return LogSum(*(blocks.picked(t, taken[:3]) for t in sums))

    def _mixed(self, weights: Tensor) -> Tensor:
        return weights

    def _strips(self, call: Call, rows: list[slice] | None = None) -> list[MapStrip]:
        return strips(call, rows=rows)
