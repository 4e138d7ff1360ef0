"""Watch: the attention of any running model, collected without changing one bit of its output."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from headwise.errors import ArgumentError
from headwise.maps import AttentionMap
from headwise.watching.block import watched_block
from headwise.watching.session import Session
from headwise.watching.watched_maps import Seen
from headwise.watching.watched_modules import Only, WatchedModules, chosen

__all__ = ["watch"]


@contextmanager
def watch(
    model: nn.Module,
    *,
    only: Only = None,
    keep: Callable[[AttentionMap], Any] | None = None,
    grad: bool = False,
    gradients: bool = False,
) -> Iterator[Seen]:
    """The maps of every attention call of `model` in a block, by module name; its output stays bit-equal.

    Seen are hw.attention, hw.additive_attention and headwise layers; F.scaled_dot_product_attention wherever it is
    called; nn.MultiheadAttention and nn.TransformerEncoderLayer, their fast path too; Hugging Face's attention
    functions, eager ones where a few rows of every sample of their own weights prove the map. Weights are before
    dropout. What was met and not seen is in `seen.unseen`, with the reason.
    Attention by hand is seen too: a softmax of scores in which queries and keys meet, summed with values by a product.
    Where sampled rows prove the q and k of its scores, its map is over these, else it holds the scores (O(L²) memory).
    A batch of heads is (B, H, Lq, Lk) where a view made it so. Masked pairs are -inf in `logits`, for -1e9 too.

    only: a name or glob, several of them, or a function of a name, None: everything. A name takes in all that is
    inside of the module, a function does not; what is not taken costs nothing. keep: called with each map as it is
    made, and its result kept in place of the map, so that q, k and v are let go; None: the maps are kept. grad: whether
    maps lead back to q and k; a call that ranks share is then not seen. Else its map is whole on all: see `Seen`.
    gradients: whether `m.gradient()` and `m.attribution()` are there after `backward()`: what a scalar owes to each
    weight. A backward pass may run after the block; where no gradient can be had, the map's `gradient()` says why.

    A call that the model's own forward makes is under "". A call from a function, outside of any module, is under
    "(no module)". Calls of other models and of copies are not recorded. What torch.compile has made, flex_attention
    too, runs as it does unwatched, and is listed as not seen.

    >>> import torch, headwise as hw
    >>> attn, x = hw.MultiHeadAttention(8, 2), torch.randn(3, 5, 8)
    >>> with watch(attn) as seen:
    ...     out = attn(x, mask=hw.causal())
    >>> seen[""].shape
    torch.Size([3, 2, 5, 5])
    >>> bool((seen[""][0, 1, 0] == torch.tensor([1.0, 0, 0, 0, 0])).all())
    True
    >>> torch.equal(out, attn(x, mask=hw.causal()))
    True
    """
    if not isinstance(model, nn.Module):
        raise ArgumentError(f"watch needs a torch.nn.Module, but {type(model).__name__} came: give the model itself")
    if keep is not None and not callable(keep):
        raise ArgumentError(
            f"keep must be a function of a map, but {type(keep).__name__} came: give such as lambda m: m.entropy()"
        )
    if gradients and keep is not None:
        raise ArgumentError("gradients come after the model has run, but keep= lets its maps go: give one of the two")
    names = {module: name for name, module in model.named_modules()}
    modules = WatchedModules(names, chosen(names, only), takes_functions=only is None)
    maps = Seen(keep)
    session = Session(modules, maps, grad=grad, gradients=gradients)
    with watched_block(model, session):
        yield maps
