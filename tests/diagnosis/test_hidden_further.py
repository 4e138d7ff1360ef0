"""What is hidden here and not there: padding in one layer and not in the next, later tokens in long sequences alone."""

import pytest

from tests.diagnosis.written import HEAD, blamed_in, marked

LAYERS = """

class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.mix = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norm = nn.LayerNorm(width)

    def forward(self, x, pad=None):
        return self.norm(x + self.mix(x, x, x, key_padding_mask=pad, need_weights=False)[0])


class Reader(nn.Module):
    def __init__(self, words=60, width=24, heads=3):
        super().__init__()
        self.table = nn.Embedding(words, width, padding_idx=0)
        self.first, self.second = Layer(width, heads), Layer(width, heads)
        self.out = nn.Linear(width, 1)

    def forward(self, ids):
        pad = ids == 0
        x = self.first(self.table(ids), pad)
        x = {second}  # <-
        x = x.masked_fill(pad[..., None], 0.0).sum(1) / (~pad).sum(1, keepdim=True).clamp(min=1)
        return self.out(x)
"""


@pytest.mark.parametrize(
    ("second", "kinds"), [("self.second(x, pad)", []), ("nn.Sequential(self.second)(x)", ["padding-attended"])]
)
def test_padding_that_one_layer_hides_and_the_next_sees_is_told_where_that_is_called(second, kinds):
    source = HEAD + LAYERS.replace("{second}", second)
    assert blamed_in(source, "Reader") == [each for kind in kinds for each in marked(source, kind)]


FRAMES = """

class Causal(nn.Module):
    '''Tokens of one frame see each other and all earlier frames.'''

    def __init__(self, width=24, heads=3, per_frame=16, frames=5):
        super().__init__()
        self.heads, self.qkv = heads, nn.Linear(width, 3 * width)
        frame = torch.arange(per_frame * frames) // per_frame
        self.register_buffer("seen", {seen})

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        s = q @ k.mT * q.shape[-1] ** -0.5
        s = s.masked_fill(~self.seen[: x.shape[1], : x.shape[1]], float("-inf"))  # <-
        return (s.softmax(-1) @ v).transpose(1, 2).flatten(2)
"""


@pytest.mark.parametrize(
    ("seen", "kinds"),
    [
        ("frame[:, None] >= frame", []),
        ("frame[:, None] >= frame - 9", ["causal-missing"]),
        ("torch.ones(80, 80, dtype=torch.bool).tril(8)", ["causal-missing"]),
    ],
)
def test_frames_longer_than_a_short_sequence_hide_later_ones_all_the_same(seen, kinds):
    source = HEAD + FRAMES.format(seen=seen)
    assert [kind for kind, _ in blamed_in(source, "Causal")] == kinds


PACKED = """

class Reads(nn.Module):
    # history: (batch, steps, width); future: (batch, later, width); lengths: (batch,) steps of each history

    def __init__(self, width=24, heads=3):
        super().__init__()
        self.heads, self.rnn = heads, nn.LSTM(width, width, batch_first=True)
        self.q, self.kv, self.out = nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(width, width)

    def forward(self, history, future, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(history, lengths.cpu(), batch_first=True, enforce_sorted=False)
        past, state = self.rnn(packed)
        past, _ = nn.utils.rnn.pad_packed_sequence(past, batch_first=True, total_length=history.shape[1])
        now, _ = self.rnn(future, state)
        absent = torch.arange(past.shape[1])[None] >= lengths[:, None]
        hidden = torch.cat([absent, torch.zeros(now.shape[:2], dtype=torch.bool)], dim=1)
        k, v = self.kv(torch.cat([past, now], dim=1)).chunk(2, dim=-1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (self.q(now), k, v))
        scores = q @ k.mT * q.shape[-1] ** -0.5
        scores = scores.masked_fill(hidden[:, None, None], float("-inf"))  # <-
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
"""


def test_padding_of_a_packed_sequence_is_padding():
    assert blamed_in(HEAD + PACKED, "Reads") == []
