"""One function mode leaves the stack and comes back, and the others stay in their order."""

import pytest
import torch
from torch.overrides import TorchFunctionMode

from headwise.watching import mode_stack


class Named(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def modes():
    return [torch._C._get_function_stack_at(n) for n in range(torch._C._len_torch_function_stack())]


@pytest.mark.parametrize("depth", range(4))
def test_a_mode_leaves_and_comes_back_at_its_depth(depth):
    others, ours = [Named() for _ in range(3)], Named()
    with others[0], others[1], others[2]:
        mode_stack.insert(ours, depth)
        assert modes() == [*others[:depth], ours, *others[depth:]]
        assert mode_stack.depth_of(ours) == depth
        mode_stack.remove(ours)
        assert modes() == others
        mode_stack.remove(ours)
        assert modes() == others
        assert mode_stack.depth_of(ours) is None
    assert modes() == []


def test_a_depth_beyond_the_stack_is_its_top():
    other, ours = Named(), Named()
    with other:
        mode_stack.insert(ours, 5)
        assert modes() == [other, ours]
        mode_stack.remove(ours)
