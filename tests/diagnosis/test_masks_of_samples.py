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
    source = FRONT.replace("{side}", "right")
    assert blamed_in(source) == [("mask-broadcast", line_of(source, "masked_fill(absent"))]


CONVOLVED = (
    HEAD
    + """
class Attend(nn.Module):
    \"\"\"x (batch, tokens, width); lengths (batch,) how many tokens there are\"\"\"

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.near = nn.Conv1d(width, width, 3)
        self.qkv, self.o = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, lengths):
        there = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
        # pad on the left only, so that a token reads none after it
        x = self.near(F.pad(x.transpose(1, 2), (2, 0))).transpose(1, 2)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=there[:, None, None])
        return self.o(y.transpose(1, 2).flatten(2))
"""
)


def test_a_convolution_that_is_padded_in_front_says_nothing_of_lengths():
    assert blamed_in(CONVOLVED) == []


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
        (LAST, "done.cumsum(dim=1)", ["segment-end-moved"]),
        (LAST, "done.long().cumsum(dim=1) - done.long()", []),
        (LAST, "torch.cat([done[:, :1] & False, done[:, :-1]], dim=1).cumsum(dim=1)", []),
        ("true where a step is the first one of an episode", "done.long().cumsum(dim=1)", []),
        (
            "true where an episode ended at the previous step, so that this one begins anew",
            "done.long().cumsum(dim=1)",
            [],
        ),
        ("the flags of the environment", "done.long().cumsum(dim=1)", []),
    ],
    ids=[
        "counted to the next",
        "of truths",
        "taken away",
        "shifted",
        "at the first",
        "before the first",
        "nothing said",
    ],
)
def test_the_token_that_ends_a_segment_is_one_of_it(words, count, faults):
    source = SEGMENTS.replace("{words}", words).replace("{count}", count)
    assert blamed_in(source) == [(kind, line_of(source, "cumsum")) for kind in faults]


STEPS_FIRST = (
    ("obs (batch, steps, width); done (batch, steps)", "obs (steps, batch, width); done (steps, batch)"),
    ("self.qkv(obs)", "self.qkv(obs.transpose(0, 1))"),
    ("return self.o(y.transpose(1, 2).flatten(2))", "return self.o(y.transpose(1, 2).flatten(2)).transpose(0, 1)"),
    ("{words}", LAST),
)


@pytest.mark.parametrize(
    ("count", "faults"),
    [
        ("done.long().cumsum(dim=0).T", ["segment-end-moved"]),
        ("(done.long().cumsum(dim=0) - done.long()).T", []),
    ],
)
def test_steps_may_stand_before_samples(count, faults):
    source = SEGMENTS
    for old, new in STEPS_FIRST:
        assert old in source
        source = source.replace(old, new)
    source = source.replace("{count}", count)
    assert blamed_in(source) == [(kind, line_of(source, "cumsum")) for kind in faults]


TOKEN = (
    HEAD
    + """
class Attend(nn.Module):
    def __init__(self, words, width=24, heads=3, classes=2):
        super().__init__()
        self.table = nn.Embedding(words, width, padding_idx=0)
        self.first = nn.Parameter(torch.randn(1, 1, width))
        self.even = nn.LayerNorm(width)
        self.attn = nn.MultiheadAttention(width, heads, batch_first=True)
        self.head = nn.Linear(width, classes)

    def forward(self, ids):
        pad = ids == 0
        x = torch.cat([self.first.expand(ids.shape[0], -1, -1), self.table(ids)], dim=1)
        pad = F.pad(pad, {sides}, value=False)
        h = self.even(x)
        return self.head((x + self.attn(h, h, h, key_padding_mask=pad, need_weights=False)[0])[:, 0])
"""
)


@pytest.mark.parametrize(("sides", "kinds"), [("(0, 1)", ["mask-shifted"]), ("(1, 0)", [])])
def test_the_mask_of_a_token_in_front_is_laid_in_front(sides, kinds):
    source = TOKEN.replace("{sides}", sides)
    assert blamed_in(source) == [(kind, line_of(source, "F.pad")) for kind in kinds]


TOUR = (
    HEAD
    + """
class Attend(nn.Module):
    \"\"\"nodes (batch, n, width); visited (batch, n) bool, True for what may not be chosen again\"\"\"

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o, self.point = (nn.Linear(width, width, bias=False) for _ in range(5))

    def cut(self, t):
        return t.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, nodes, visited):
        q, k, v = self.cut(self.q(nodes.mean(1, keepdim=True))), self.cut(self.k(nodes)), self.cut(self.v(nodes))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=~visited[:, None, None])
        seen = self.o(y.transpose(1, 2).flatten(2))
        far = (seen @ self.point(nodes).mT).squeeze(1) / math.sqrt(nodes.shape[-1])
        {far}
        return far.log_softmax(-1)
"""
)
MASK, CAP = "far = far.masked_fill(visited, -torch.inf)", "far = 10 * far.tanh()"


@pytest.mark.parametrize(
    ("steps", "kinds"), [((MASK, CAP), ["mask-bounded"]), ((CAP, MASK), [])], ids=["after the mask", "before it"]
)
def test_a_pointer_is_capped_before_it_is_masked_and_what_was_visited_is_pooled(steps, kinds):
    source = TOUR.replace("{far}", "\n        ".join(steps))
    assert blamed_in(source) == [(kind, line_of(source, "tanh()")) for kind in kinds]


KEPT = (
    HEAD
    + """
class Attend(nn.Module):
    def __init__(self, n_state, heads):
        super().__init__()
        self.heads, self.n_state, self._kv = heads, n_state, None
        self.q, self.k, self.v, self.o = (nn.Linear(n_state, n_state) for _ in range(4))

    def cut(self, t):
        return t.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def project(self, frames):
        return self.cut(self.k(frames)), self.cut(self.v(frames))

    def forward(self, x, frames):
        if {again}:
            self._kv = self.project(frames)
        y = F.scaled_dot_product_attention(self.cut(self.q(x)), *self._kv)
        return self.o(y.transpose(1, 2).flatten(2))
"""
)


@pytest.mark.parametrize(
    ("again", "kinds"),
    [("self._kv is None or self._kv[0].shape[0] != frames.shape[0]", ["stateful-forward"]), ("True", [])],
    ids=["of another size", "of each call"],
)
def test_the_width_of_a_state_excuses_nothing_that_is_kept(again, kinds):
    source = KEPT.replace("{again}", again)
    assert blamed_in(source) == [(kind, line_of(source, "self._kv = self.project")) for kind in kinds]


PAST = (
    HEAD
    + """
class Attend(nn.Module):
    \"\"\"The steps ahead attend to the past, which is padded in front, and to those before them.

    x [batch, steps, width]; encoder_lengths [batch], how many steps of the past there are
    \"\"\"

    def __init__(self, width, heads, n_encoder):
        super().__init__()
        self.heads, self.past = heads, n_encoder
        self.q, self.kv, self.o = nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(width, width)

    def forward(self, x, encoder_lengths):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                   for t in (self.q(x[:, self.past:]), *self.kv(x).chunk(2, dim=-1)))
        step = torch.arange(x.shape[1], device=x.device)
        hidden = (step > step[self.past:, None]) | (step < (self.past - encoder_lengths)[:, None, None])
        s = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(hidden[:, None], float("-inf"))
        return self.o((s.softmax(-1) @ v).transpose(1, 2).flatten(2))
"""
)


def test_lengths_of_some_of_the_tokens_are_not_taken_for_those_of_all():
    found = found_in(PAST)
    assert (found.verdict, found.faults) == ("sound", ())
    assert found.examined["mask"].startswith("no: in the calls that were made encoder_lengths does not")


ENDS = (
    HEAD
    + """
class Attend(nn.Module):
    \"\"\"x (batch, tokens, width); lengths (batch,) how many tokens there are\"\"\"

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.o = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, lengths):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
        s = q @ k.mT / math.sqrt(q.shape[-1])
        y = self.o((s.softmax(-1) @ v).transpose(1, 2).flatten(2))
        return y[torch.arange(len(y)), lengths - 1]
"""
)


def test_the_place_of_the_last_token_is_no_number_of_some_of_them():
    assert blamed_in(ENDS) == [("mask-ignored", line_of(ENDS, "lengths - 1]"))]
