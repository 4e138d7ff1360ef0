"""Key blocks: a softmax over blocks of keys gives the same for blocks of any size."""

import pytest

from tests.diagnosis.written import HEAD, blamed_in, line_of

BLOCKS = (
    HEAD
    + """
class Attend(nn.Module):
    def __init__(self, width, heads, tile=32):
        super().__init__()
        self.heads, self.tile = heads, tile
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
        q = q * q.shape[-1] ** -0.5
{loop}
        return self.out(y.transpose(1, 2).flatten(2))
"""
)
SUMS = """
        top = torch.full_like(q[..., :1], -1e9)
        total, y = torch.zeros_like(top), torch.zeros_like(q)
        for ks, vs in zip(k.split(self.tile, dim=2), v.split(self.tile, dim=2)):
            s = q @ ks.mT
            new = torch.maximum(top, s.amax(-1, keepdim=True))
            e, rest = (s - new).exp(), (top - new).exp()
            total = total * rest + e.sum(-1, keepdim=True)
            y = y * rest + e @ vs
            top = new
        y = y / total"""
IN_PLACE = """
        top = torch.full_like(q[..., :1], -1e9)
        total, y = torch.zeros_like(top), torch.zeros_like(q)
        for ks, vs in zip(k.split(self.tile, dim=2), v.split(self.tile, dim=2)):
            s = q @ ks.mT
            new = torch.maximum(top, s.amax(-1, keepdim=True))
            e, rest = (s - new).exp(), (top - new).exp()
            total.mul_(rest)
            total += e.sum(-1, keepdim=True)
            y.mul_(rest)
            y += e @ vs
            top = new
        y = y / total"""
# each block by itself, and the logarithms of their sums
MERGED = """
        y, lse = torch.zeros_like(q), torch.full_like(q[..., :1], float("-inf"))
        for ks, vs in zip(k.split(self.tile, dim=2), v.split(self.tile, dim=2)):
            s = q @ ks.mT
            own = s.exp().sum(-1, keepdim=True).log()
            new = torch.logaddexp(lse, own)
            y = y * (lse - new).exp() + (s - new).exp() @ vs
            lse = new"""
# tokens attend within their block, which is no softmax over all keys
LOCAL = """
        y = torch.cat([(a @ b.mT).softmax(-1) @ c
                       for a, b, c in zip(*(t.split(self.tile, dim=2) for t in (q, k, v)))], dim=2)"""


@pytest.mark.parametrize("loop", [SUMS, IN_PLACE, MERGED, LOCAL], ids=["sums", "in place", "merged", "local"])
def test_blocks_that_are_put_together_as_one_are_right(loop) -> None:
    assert blamed_in(BLOCKS.format(loop=loop)) == []


@pytest.mark.parametrize(
    ("loop", "old", "new", "part"),
    [
        (SUMS, "y = y * rest", "y = y", "y = y + e"),
        (SUMS, "total = total * rest", "total = total", "total = total + e"),
        (IN_PLACE, "            y.mul_(rest)\n", "", "y += e"),
        (MERGED, "y = y * (lse - new).exp()", "y = y", "y = y + (s - new)"),
    ],
    ids=["values", "weights", "in place", "merged"],
)
def test_a_sum_that_is_not_rescaled_is_told(loop, old, new, part) -> None:
    source = BLOCKS.format(loop=loop.replace(old, new))
    assert blamed_in(source) == [("softmax-blocks", line_of(source, part))]
