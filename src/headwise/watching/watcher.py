"""Watch: the attention of any running model, collected without changing one bit of its output."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import nn

from headwise.errors import ArgumentError
from headwise.maps import AttentionMap
from headwise.watching.chosen import Only, chosen
from headwise.watching.ears import Ears
from headwise.watching.hooks import attached
from headwise.watching.listening import Listening
from headwise.watching.patches import Patches
from headwise.watching.seen import Seen

__all__ = ["watch"]


@contextmanager
def watch(
    model: nn.Module,
    *,
    only: Only = None,
    keep: Callable[[AttentionMap], Any] | None = None,
    grad: bool = False,
) -> Iterator[Seen]:
    """The maps of every attention call of `model` in a block, by module name; its output stays bit-equal.

    Seen are hw.attention and headwise layers; F.scaled_dot_product_attention wherever it is called;
    nn.MultiheadAttention and nn.TransformerEncoderLayer, their fast path too; Hugging Face's attention functions,
    eager ones where a few rows of their own weights prove the map. What was met and not seen is in `seen.unseen`, with
    the reason. Weights are before dropout.

    only: a name or glob, several of them, or a function of a name, None: everything. A name takes in all that is
    inside of the module; what is not taken costs nothing. keep: called with each map as it is made, and its result kept
    in place of the map, so that q and k are let go; None: the maps are kept. grad: whether maps lead back to q and k.

    A call that the model's own forward makes is under "". A call from a function, outside of any module, is under
    "(no module)". Calls of other models are not recorded. A function compiled by torch.compile, other than a module,
    runs as it is; only the calls it leaves to torch's fused kernels are seen.

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
    names = {module: name for name, module in model.named_modules()}
    taken = chosen(names, only)
    seen = Seen(keep)
    ears = Ears(names, taken, seen, hears_all=only is None, grad=grad)
    patches, around = Patches(ears), ExitStack()
    with around:
        around.callback(patches.remove)
        patches.install()
        around.enter_context(attached(model, ears, patches))
        around.enter_context(ears.open(Listening(ears)))
        yield seen
