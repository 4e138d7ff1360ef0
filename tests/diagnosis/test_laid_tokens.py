"""Masks and padding that lie otherwise: tokens before samples, rows that nobody reads, masks joined with others."""

import pytest

from tests.diagnosis.written import HEAD, blamed_in, found_in, line_of, marked

TRANSLATES = (
    HEAD
    + '''
class Attend(nn.Module):
    """src: (S, N) and tgt: (T, N), token ids with 0 behind them."""

    def __init__(self, words, width=24, heads=3):
        super().__init__()
        self.source, self.target = (nn.Embedding(words, width, padding_idx=0) for _ in range(2))
        self.attend, self.cross = nn.MultiheadAttention(width, heads), nn.MultiheadAttention(width, heads)
        self.out = nn.Linear(width, words)

    def forward(self, src, tgt):
        pad = ({pad}).mT
        late = torch.ones(len(tgt), len(tgt), dtype=torch.bool).triu(1)
        memory, y = self.source(src), self.target(tgt)
        y = y + self.attend(y, y, y, attn_mask=late, key_padding_mask=(tgt == 0).mT, need_weights=False)[0]
        y = y + self.cross(y, memory, memory, key_padding_mask=pad, need_weights=False)[0]
        return self.out(y)
'''
)
EVENTS = (
    HEAD
    + '''
class Attend(nn.Module):
    """Each event sees those that are not later.

    x: (B, N, width)
    times: (B, N) hours
    void: (B, N), True for empty rows, whose times may be anything
    """

    def __init__(self, width=24, heads=3):
        super().__init__()
        self.heads, self.qkv = heads, nn.Linear(width, 3 * width)

    def forward(self, x, times, void=None):
        void = torch.zeros(x.shape[:2], dtype=torch.bool) if void is None else void
        times = times.masked_fill(void, 0.0)
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        elapsed = times[:, :, None] - times[:, None]
        hidden = (elapsed < 0) | {void}  # <-
        hidden = hidden & ~torch.eye(x.shape[1], dtype=torch.bool)
        scores = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(hidden[:, None], float("-inf"))
        return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
'''
)
NEAR = (
    HEAD
    + '''
class Attend(nn.Module):
    """Residues attend to those within reach. real: (B, N), True for residues that are there."""

    def __init__(self, width=24, heads=3):
        super().__init__()
        self.heads, self.attend = heads, nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, x, places, real):
        near = torch.cdist(places, places) < 7.0
        near = near & real[:, None, :] & real[:, :, None]
        hidden = ~(near | torch.eye(x.shape[1], dtype=torch.bool))
        hidden = hidden.{copied}  # <-
        return self.attend(x, x, x, attn_mask=hidden, need_weights=False)[0] * real[..., None].to(x.dtype)
'''
)
KEPT = (
    HEAD
    + """
class Attend(nn.Module):
    def __init__(self, width=24, heads=3):
        super().__init__()
        self.heads, self.qkv, self.shown = heads, nn.Linear(width, 3 * width), None

    def mask(self, x, lengths):
        if {again}:
            frames = torch.arange(x.shape[1])
            real = frames[None] < lengths[:, None]
            self.shown = real[:, None, None] & (frames[:, None] >= frames)  # <-
        return self.shown

    def forward(self, x, lengths):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        scores = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(~self.mask(x, lengths), float("-inf"))
        return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
"""
)
FORECAST = (
    HEAD
    + '''
class Attend(nn.Module):
    def __init__(self, n_head, d_model):
        super().__init__()
        self.n_head, self.qkv = n_head, nn.Linear(d_model, 3 * d_model)

    def forward(self, x, encoder_lengths, horizon: int):
        """
        x: B x (past + horizon) x d_model
        encoder_lengths: B, how many of the first steps are real (the rest is padding)
        horizon: number of steps to forecast
        """
        past = x.size(1) - horizon
        q, k, v = (t.unflatten(-1, (self.n_head, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        gone = (torch.arange(past)[None] >= encoder_lengths[:, None]).unsqueeze(1).expand(-1, horizon, -1)
        late = torch.ones(horizon, horizon, dtype=torch.bool).triu(1).expand(len(x), -1, -1)
        scores = q[:, :, past:] @ k.mT * q.shape[-1] ** -0.5
        scores = scores.masked_fill(torch.cat([gone, late], 2)[:, None], float("-inf"))
        return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
'''
)
PACKED = (
    HEAD
    + '''
class Attend(nn.Module):
    """Documents one after another, every one closed by the eos token, which is its last.

    x: (B, T, width)
    idx: (B, T) token ids
    """

    def __init__(self, eos_id, width=24, heads=3):
        super().__init__()
        self.eos_id, self.heads, self.qkv = eos_id, heads, nn.Linear(width, 3 * width)

    def forward(self, x, idx):
        ends = (idx == self.eos_id).long()
        document = {count}  # <-
        seen = (document[:, :, None] == document[:, None]).tril()[:, None]
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=seen).transpose(1, 2).flatten(2)
'''
)
TALKING = (
    HEAD
    + '''
class Attend(nn.Module):
    """x: (B, T, width); mask: (B, T), True for frames that are there"""

    def __init__(self, width=24, heads=3):
        super().__init__()
        self.heads, self.qkv, self.mix = heads, nn.Linear(width, 3 * width), nn.Conv2d(heads, heads, 1)

    def forward(self, x, mask):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        scores = {mixed}
        return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
'''
)


def test_tokens_that_stand_before_samples_are_padded_along_their_own_axis():
    assert found_in(TRANSLATES.replace("{pad}", "src == 0")).verdict == "sound"
    source = TRANSLATES.replace("{pad}", "src != 0")
    assert blamed_in(source) == [("mask-inverted", line_of(source, "src != 0"))]


@pytest.mark.parametrize(("void", "kinds"), [("void[:, None]", []), ("void[..., None]", ["mask-axis"])])
def test_what_a_hidden_token_sees_is_read_by_nobody(void, kinds):
    source = EVENTS.replace("{void}", void)
    assert blamed_in(source) == [each for kind in kinds for each in marked(source, kind)]


@pytest.mark.parametrize(
    ("copied", "kinds"), [("repeat_interleave(self.heads, 0)", []), ("repeat(self.heads, 1, 1)", ["mask-repeat-order"])]
)
def test_a_mask_that_is_joined_with_one_of_places_is_repeated_in_the_order_of_samples_and_heads(copied, kinds):
    source = NEAR.replace("{copied}", copied)
    assert blamed_in(source) == [each for kind in kinds for each in marked(source, kind)]


@pytest.mark.parametrize(
    ("again", "kinds"),
    [("True", []), ("self.shown is None or self.shown.shape[-1] != x.shape[1]", ["stateful-forward"])],
    ids=["of each call", "of another length"],
)
def test_what_is_kept_for_later_calls_is_told_where_it_is_kept(again, kinds):
    source = KEPT.replace("{again}", again)
    assert blamed_in(source) == [each for kind in kinds for each in marked(source, kind)]


def test_lengths_of_some_of_the_tokens_are_no_lengths_of_fewer():
    found = found_in(FORECAST)
    assert (found.verdict, found.faults) == ("sound", ())


@pytest.mark.parametrize(("count", "kinds"), [("ends.cumsum(1) - ends", []), ("ends.cumsum(1)", ["segment-end-moved"])])
def test_a_token_number_that_closes_a_segment_is_one_of_it(count, kinds):
    source = PACKED.replace("{count}", count)
    assert blamed_in(source) == [each for kind in kinds for each in marked(source, kind)]


OPENED = """Documents one after another; the eos token opens each, and only the last one may be cut off.
"""
PADDED = "ends = (idx == self.eos_id).long()"


def test_a_token_number_that_opens_a_segment_is_not_one_of_the_last():
    source = PACKED.replace("{count}", "ends.cumsum(1)")
    closed = "Documents one after another, every one closed by the eos token, which is its last.\n"
    assert closed in source
    assert blamed_in(source.replace(closed, OPENED)) == []


def test_padding_that_is_compared_first_is_not_what_closes_a_segment():
    source = PACKED.replace("{count}", "ends.cumsum(1)").replace("eos_id, width", "pad_id, eos_id, width")
    source = source.replace("self.eos_id, self", "self.pad_id, self.eos_id, self").replace(
        "= eos_id,", "= pad_id, eos_id,"
    )
    source = source.replace(PADDED, f"pad = idx == self.pad_id\n        {PADDED}")
    source = source.replace(".tril()[:, None]", ".tril()[:, None] & ~pad[:, None, None] | torch.eye(x.shape[1]).bool()")
    assert blamed_in(source) == marked(source, "segment-end-moved")


def test_a_convolution_of_several_places_is_no_step_of_each_score():
    product = "(q @ k.mT * q.shape[-1] ** -0.5)"
    late = ".masked_fill(torch.ones(x.shape[1], x.shape[1]).triu(1).bool(), -1e4)"
    source = TALKING.replace("{mixed}", f"self.mix{product}{late}").replace("heads, 1)", "heads, 3, padding=1)")
    assert found_in(source).verdict == "not examined"


def test_a_convolution_of_one_place_mixes_the_heads():
    product, hidden = "(q @ k.mT * q.shape[-1] ** -0.5)", ".masked_fill(~mask[:, None, None], -1e4)"
    found = found_in(TALKING.replace("{mixed}", f"self.mix{product}{hidden}"))
    assert (found.verdict, found.faults) == ("sound", ())
    assert found.examined["comparison"].startswith("scores with further terms")
    source = TALKING.replace("{mixed}", f"self.mix({product}{hidden})")
    assert [(fault.line, fault.proved) for fault in found_in(source).faults] == [(line_of(source, hidden), True)]


def test_what_is_kept_in_another_branch_is_not_told():
    branches = """if self.shown is not None and self.shown.shape[-1] == x.shape[1]:
            self.hits = 1
        else:"""
    source = KEPT.replace("if {again}:", branches)
    assert blamed_in(source) == marked(source, "stateful-forward")
