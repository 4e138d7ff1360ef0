"""A step of decoding beside bare SDPA, and what appending to a growing cache costs as it gets longer."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

import headwise as hw
from benchmarks.harness import Case, Cases, Numbers, same_numbers
from headwise.layer.cache import Stretch
from headwise.testing import plain_attention


def decode() -> Cases:
    """One token after 4095 others, and caches filled token by token."""
    yield step(S=4096, H=32, Hk=8, D=64, target=0.9)
    # copying what is there at each append would give 1/2, 1/4 and 1/8; page faults of fresh memory cost some
    for times in (2, 4, 8):
        yield appends(tokens=1024 * times, times=times, Hk=8, D=64, target=0.8)


def step(*, S: int, H: int, Hk: int, D: int, target: float | None = None) -> Case:
    """Append the last of S tokens to a static cache and attend, beside SDPA alone on the same views.

    Taking the token back, so that the next round can append it again, is counted as ours too.
    """
    torch.manual_seed(0)
    cache = hw.MultiHeadAttention(H * D, H, num_kv_heads=Hk, head_dim=D).cache(length=S, batch=1)
    q, k, v = torch.randn(1, H, 1, D), torch.randn(1, Hk, S, D), torch.randn(1, Hk, S, D)
    last_k, last_v, at = k[:, :, -1:], v[:, :, -1:], torch.tensor([S - 1])
    with torch.no_grad():
        append(cache, k[:, :, :-1], v[:, :, :-1], torch.arange(S - 1), H)
        views = append(cache, last_k, last_v, at, H)

    def ours() -> tuple[Tensor]:
        with torch.no_grad():
            cache.crop(S - 1)
            seen = append(cache, last_k, last_v, at, H, mask=hw.causal())
            return (hw.attention(q, seen.k, seen.v, mask=seen.mask),)

    def theirs() -> tuple[Tensor]:
        with torch.no_grad():
            return (F.scaled_dot_product_attention(q, views.k, views.v, enable_gqa=True),)

    def definition(dtype: torch.dtype) -> tuple[Tensor]:
        return (plain_attention(q.to(dtype), k.to(dtype), v.to(dtype)),)

    check = same_numbers(ours, theirs, definition, q.dtype)
    shape = f"B=1 Hq={H} Hk={Hk} D={D} S={S}"
    return Case("decode step", "SDPA on the same views", shape, "float32", ours, theirs, check, target=target)


def append(
    cache: hw.KVCache, k: Tensor, v: Tensor, positions: Tensor, heads: int, *, mask: hw.Mask | None = None
) -> Stretch:
    """What the queries of new tokens look at, as the layer asks the cache for it."""
    return cache.extend(k, v, mask, None, positions, placed=False, heads=heads)


def appends(*, tokens: int, times: int, Hk: int, D: int, target: float | None = None) -> Case:
    """One cache filled token by token, beside `times` caches that share the same number of appends."""
    torch.manual_seed(0)
    layer, short = hw.MultiHeadAttention(Hk * D, Hk), tokens // times
    k, v, at = torch.randn(1, Hk, tokens, D), torch.randn(1, Hk, tokens, D), torch.arange(tokens)
    rows = list(zip(k.split(1, dim=2), v.split(1, dim=2), at.split(1), strict=True))

    def filled(count: int) -> tuple[Tensor, ...]:
        cache = layer.cache()
        for new_k, new_v, position in rows[:count]:
            found = append(cache, new_k, new_v, position, Hk)
        return found.k, found.v

    def ours() -> tuple[Tensor, ...]:
        with torch.no_grad():
            return filled(tokens)

    def theirs() -> tuple[Tensor, ...]:
        with torch.no_grad():
            return [filled(short) for _ in range(times)][-1]

    def whole(run: Numbers) -> Numbers:
        # only the first tokens are in both
        return lambda: tuple(t[:, :, :short] for t in run())

    def definition(dtype: torch.dtype) -> tuple[Tensor, ...]:
        return k[:, :, :short].to(dtype), v[:, :, :short].to(dtype)

    check = same_numbers(whole(ours), whole(theirs), definition, k.dtype)
    beside = f"{times} caches of {short} tokens"
    shape = f"B=1 Hk={Hk} D={D} tokens={tokens}"
    return Case("append one by one", beside, shape, "float32", ours, theirs, check, target=target)
