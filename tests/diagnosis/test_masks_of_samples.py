"""Masks of samples: each sample and head has its own mask, padding in front is no wrong end, and segments end once."""

import pytest

from tests.diagnosis.written import HEAD, blamed_in, found_in, line_of

TILED = (
    HEAD
    + """
class Attend(nn.Module):
    def __init__(self, words, width=24, heads=3):
        super().__init__()
        self.heads = heads
        self.table = nn.Embedding(words, width, padding_idx=0)
        self.attn = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, ids):
        h = self.table(ids)
        long = ids.shape[1]
        closed = torch.ones(long, long, dtype=torch.bool, device=ids.device).triu(1) | (ids == 0)[:, None]
        closed = closed & ~torch.eye(long, dtype=torch.bool, device=ids.device)
        closed = {tiled}
        h, _ = self.attn(h, h, h, attn_mask=closed, need_weights=False)
        return h * (ids != 0)[..., None]
"""
)


def test_a_mask_of_token_numbers_is_repeated_in_the_order_of_samples_and_heads():
    source = TILED.replace("{tiled}", "closed.repeat(self.heads, 1, 1)")
    assert blamed_in(source) == [("mask-repeat-order", line_of(source, "closed.repeat"))]


def test_one_that_is_repeated_beside_itself_is_right():
    assert found_in(TILED.replace("{tiled}", "closed.repeat_interleave(self.heads, dim=0)")).verdict == "sound"


FRONT = (
    HEAD
    + """
class Attend(nn.Module):
    \"\"\"Forecasts from a history.

    hist: (batch, steps, width), {side} padded
    ahead: (batch, horizon, width)
    hist_len: (batch,) how many of the steps are there
    \"\"\"

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))

    def forward(self, hist, ahead, hist_len):
        x = torch.cat([hist, ahead], dim=1)
        q, k, v = (p(t).unflatten(-1, (self.heads, -1)).transpose(1, 2)
                   for p, t in ((self.q, ahead), (self.k, x), (self.v, x)))
        there = torch.arange(x.shape[1], device=x.device)
        absent = there < (hist.shape[1] - hist_len)[:, None]
        s = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(absent[:, None, None], float("-inf"))
        return self.o((s.softmax(-1) @ v).transpose(1, 2).flatten(2))
"""
)


def test_lengths_of_what_is_padded_in_front_hide_the_first():
    assert found_in(FRONT.replace("{side}", "left")).verdict == "sound"


def test_lengths_of_what_is_padded_behind_do_not():
    (fault, *_) = blamed_in(FRONT.replace("{side}", "right"))
    assert fault[0].startswith("mask-")


SEGMENTS = (
    HEAD
    + """
class Attend(nn.Module):
    \"\"\"obs (batch, steps, width); done (batch, steps) bool, {words}\"\"\"

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.o = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, obs, done):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(obs).chunk(3, dim=-1))
        episode = {count}
        open = (episode[:, :, None] == episode[:, None]).tril()
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=open[:, None])
        return self.o(y.transpose(1, 2).flatten(2))
"""
)
LAST = "true where a step was the last one of its episode"


@pytest.mark.parametrize(
    ("words", "count", "faults"),
    [
        (LAST, "done.long().cumsum(dim=1)", ["segment-end-moved"]),
        (LAST, "done.long().cumsum(dim=1) - done.long()", []),
        (LAST, "torch.cat([done[:, :1] & False, done[:, :-1]], dim=1).cumsum(dim=1)", []),
        ("true where a step is the first one of an episode", "done.long().cumsum(dim=1)", []),
        ("the flags of the environment", "done.long().cumsum(dim=1)", []),
    ],
    ids=["counted to the next", "taken away", "shifted", "at the first", "nothing said"],
)
def test_the_token_that_ends_a_segment_is_one_of_it(words, count, faults):
    source = SEGMENTS.replace("{words}", words).replace("{count}", count)
    assert blamed_in(source) == [(kind, line_of(source, "cumsum")) for kind in faults]
