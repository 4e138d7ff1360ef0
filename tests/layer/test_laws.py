"""The laws of attention for the layer: in one call, with a memory, and with each cache."""

from typing import Any, ClassVar

import torch
from torch import Tensor

import headwise as hw
from tests.contract import AttentionLaws, TransformLaws
from tests.layer.wired import joined_tokens, merged, split, wired

# a layer that gives every key the same weight learns no queries and keys
REFUSED = frozenset({"a scale of zero"})


class TestLayer(TransformLaws):
    refused = REFUSED

    def attend(self, q: Tensor, k: Tensor, v: Tensor, **given: Any) -> Tensor:
        layer = wired(q, k, v, joined=False, **given)
        call = {name: given[name] for name in ("mask", "attn_bias") if name in given}
        return split(layer(merged(q), merged(k), merged(v), **call), q.shape[1])


class TestMemory(TransformLaws):
    refused = REFUSED

    def attend(self, q: Tensor, k: Tensor, v: Tensor, **given: Any) -> Tensor:
        layer = wired(q, k, v, joined=False, **given)
        memory = layer.memory(merged(k), merged(v), mask=given.get("mask"))
        bias = {name: given[name] for name in ("attn_bias",) if name in given}
        return split(layer(merged(q), memory, **bias), q.shape[1])


class CachedLaws(AttentionLaws):
    refused = REFUSED
    # queries come last, so there are at least as many keys
    refused_shapes: ClassVar[frozenset[str]] = frozenset({"more queries than keys", "no query", "one key"})
    dtypes: ClassVar[tuple[torch.dtype, ...]] = (torch.float32, torch.bfloat16)

    def cache(self, layer: hw.MultiHeadAttention, B: int, Lk: int) -> hw.KVCache:
        raise NotImplementedError

    def chunks(self, before: int) -> list[int]:
        """In what steps the keys before the queries are appended."""
        return [before]

    def attend(self, q: Tensor, k: Tensor, v: Tensor, **given: Any) -> Tensor:
        layer, tokens = wired(q, k, v, joined=True, **given), joined_tokens(q, k, v)
        before = k.shape[2] - q.shape[2]
        cache = self.cache(layer, q.shape[0], k.shape[2])
        call = {name: given[name] for name in ("mask", "attn_bias") if name in given}
        start = 0
        with torch.no_grad():
            for steps in self.chunks(before):
                layer(tokens[:, start : start + steps], cache=cache)
                start += steps
            return split(layer(tokens[:, before:], cache=cache, **call), q.shape[1])


class TestGrowingCache(CachedLaws):
    def cache(self, layer: hw.MultiHeadAttention, B: int, Lk: int) -> hw.KVCache:
        return layer.cache()

    def chunks(self, before: int) -> list[int]:
        return [1] * before


class TestStaticCache(CachedLaws):
    def cache(self, layer: hw.MultiHeadAttention, B: int, Lk: int) -> hw.KVCache:
        return layer.cache(length=Lk + 4, batch=B)


class TestWindowCache(CachedLaws):
    # a ring that is larger than the sequence never drops a key; what dropping does is in test_cache.py
    def cache(self, layer: hw.MultiHeadAttention, B: int, Lk: int) -> hw.KVCache:
        return layer.cache(window=Lk + 2, sinks=1)

    def chunks(self, before: int) -> list[int]:
        return [2] * (before // 2) + [1] * (before % 2)
