"""Readings of a long map hold tiles of it, never the whole; of everything that torch makes, the largest is seen."""

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

import headwise as hw
from headwise.maps import attention_map

LENGTH = 4096
# a dense mask of this length, one byte a pair
DENSE = LENGTH * LENGTH
LONG = {
    "no mask": lambda: None,
    "causal": hw.causal,
    "a window": lambda: hw.window(keys=128),
    "documents": lambda: hw.documents(torch.arange(LENGTH)[None] // 512),
    "padding": lambda: hw.keys(torch.arange(LENGTH)[None] > 99),
    "a rule": lambda: hw.rule(lambda b, h, i, j: (i - j).abs() < 9),
}


class Largest(TorchDispatchMode):
    """The most bytes that one tensor made in the block has in memory."""

    most = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        for leaf in pytree.tree_leaves(made):
            if isinstance(leaf, Tensor):
                self.most = max(self.most, leaf.untyped_storage().nbytes())
        return made


def long_map(mask, *, with_grad):
    q, k = (torch.randn(1, 2, LENGTH, 4, generator=torch.Generator().manual_seed(n)) for n in range(2))
    return attention_map(q.requires_grad_(with_grad), k, mask=LONG[mask]())


PARTS = {
    "a column": lambda m: m[0, 0, :, 5],
    "two columns of some rows": lambda m: m[:, 1, 100:4000:3, torch.tensor([5, 4000])],
    "a column of rows in any order": lambda m: m[0, 1, torch.arange(LENGTH).flip(0), 7],
    "pairs": lambda m: m[0, 0, torch.arange(LENGTH), torch.arange(LENGTH)],
    "a column of the mean": lambda m: m.mean_heads()[0, 0, :, 5],
}


@pytest.mark.parametrize("with_grad", [False, True])
@pytest.mark.parametrize("mask", LONG)
@pytest.mark.parametrize("part", PARTS)
def test_a_part_of_a_long_map_takes_no_more_than_tiles(part, mask, with_grad):
    m = long_map(mask, with_grad=with_grad)
    with Largest() as seen:
        found = PARTS[part](m)
        if with_grad:
            found.sum().backward()
    assert 0 < seen.most < DENSE / 2
    assert torch.equal(found.detach(), PARTS[part](m.detach()))
