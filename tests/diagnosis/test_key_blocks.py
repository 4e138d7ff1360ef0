"""Key blocks: a softmax over blocks of keys gives the same for blocks of any size."""

import pytest

from tests.diagnosis.written import HEAD, blamed_in, found_in, line_of

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
# tokens attend to their own block of tokens and those before it, which is no softmax over all keys
EARLIER = """
        qs, kk, vv = (t.split(self.tile, dim=2) for t in (q, k, v))
        out = []
        for at, block in enumerate(qs):
            top = torch.full_like(block[..., :1], -1e9)
            total, part = torch.zeros_like(top), torch.zeros_like(block)
            for ks, vs in zip(kk[: at + 1], vv[: at + 1]):
                s = block @ ks.mT
                new = torch.maximum(top, s.amax(-1, keepdim=True))
                e, rest = (s - new).exp(), (top - new).exp()
                total = total * rest + e.sum(-1, keepdim=True)
                part = part * rest + e @ vs
                top = new
            out.append(part / total)
        y = torch.cat(out, dim=2)"""
# means of as many tokens, and the softmax over them one at a time (arXiv:1801.10198)
MEANS = """
        k, v = (F.avg_pool1d(t.flatten(0, 1).mT, self.tile, ceil_mode=True).mT for t in (k, v))
        k, v = (t.unflatten(0, q.shape[:2]) for t in (k, v))
        top = torch.full_like(q[..., :1], -1e9)
        total, y = torch.zeros_like(top), torch.zeros_like(q)
        for ks, vs in zip(k.split(1, dim=2), v.split(1, dim=2)):
            s = q @ ks.mT
            new = torch.maximum(top, s)
            e, rest = (s - new).exp(), (top - new).exp()
            total, y, top = total * rest + e, y * rest + e @ vs, new
        y = y / total"""


@pytest.mark.parametrize(
    "loop", [SUMS, IN_PLACE, MERGED, EARLIER, MEANS], ids=["sums", "in place", "merged", "earlier", "means"]
)
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


def test_blocks_of_queries_do_not_stand_before_those_of_keys() -> None:
    loop = EARLIER.replace("kk[: at + 1], vv[: at + 1]", "k.split(self.keys, dim=2), v.split(self.keys, dim=2)")
    loop = loop.replace("qs, kk, vv = (t.split(self.tile, dim=2) for t in (q, k, v))", "qs = q.split(self.tile, dim=2)")
    source = BLOCKS.replace("tile=32):", "tile=32, keys=32):")
    source = source.replace(
        "self.heads, self.tile = heads, tile", "self.heads, self.tile, self.keys = heads, tile, keys"
    )
    assert blamed_in(source.format(loop=loop)) == []
    wrong = source.format(loop=loop.replace("part = part * rest", "part = part"))
    assert blamed_in(wrong) == [("softmax-blocks", line_of(wrong, "part = part + e"))]


def test_small_blocks_are_examined_as_one() -> None:
    # a number of this name is given small sizes
    source = BLOCKS.format(loop=SUMS).replace("tile", "block")
    found = found_in(source)
    assert (found.verdict, found.faults) == ("sound", ())
    assert found.examined["comparison"].startswith("softmax")
    unscaled = source.replace("q = q * q.shape[-1] ** -0.5", "q = q * 1.0")
    assert [kind for kind, _ in blamed_in(unscaled)] == ["scale-missing"]
