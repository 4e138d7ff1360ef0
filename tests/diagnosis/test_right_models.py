"""Right classes of others whose like was called faulty: what each has that looks like a fault, and is none."""

import pytest

from tests.diagnosis.written import HEAD, blamed_in, found_in, marked

WEIGHED_HEADS = """

class Heads(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.three, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, hidden_states, attention_mask=None, head_mask=None):
        q, k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in self.three(hidden_states).chunk(3, -1))
        s = q @ k.mT * q.shape[-1] ** -0.5
        if attention_mask is not None:
            s = s + attention_mask
        p = s.softmax(-1)
        p = p if head_mask is None else p * head_mask
        return self.out((p @ v).transpose(1, 2).flatten(2))


class Attend(nn.Module):
    def __init__(self, words=50, width=24, heads=3):
        super().__init__()
        self.table = nn.Embedding(words, width, padding_idx=1)
        self.layers = nn.ModuleList([Heads(width, heads) for _ in range(2)])

    def forward(self, input_ids, head_mask=None):
        x, hidden = self.table(input_ids), input_ids.eq(1)
        bias = torch.zeros_like(hidden, dtype=x.dtype).masked_fill(hidden, torch.finfo(x.dtype).min)
        for at, layer in enumerate(self.layers):
            of_layer = head_mask[at].view(1, -1, 1, 1) if head_mask is not None else None
            x = x + layer(x, bias[:, None, None, :], of_layer)
        return x[:, 0]
"""
DIFFERENCE = """

class Attend(nn.Module):
    def __init__(self, width=32, heads=4):
        super().__init__()
        self.heads, self.three, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.part = nn.Parameter(torch.tensor((width // heads // 2) ** -0.5))

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = self.three(x).chunk(3, -1)
        q, k = (y.unflatten(-1, (2 * self.heads, -1)).transpose(1, 2) for y in (q, k))
        v = v.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        p = (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1).view(b, self.heads, 2, n, n)
        p = p[:, :, 0] - self.part * p[:, :, 1]
        return self.out((p @ v).transpose(1, 2).flatten(2))
"""
TRANSLATION = """

class Memory(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.between, self.join = nn.Linear(width, width, bias=False), nn.Linear(2 * width, width, bias=False)

    def forward(self, h, memory, hidden=None):
        # h: (batch, width), memory: (tokens, batch, width)
        s = torch.einsum("bd,sbd->bs", h, self.between(memory))
        if hidden is not None:
            s = s.masked_fill(hidden, float("-inf"))
        w = s.softmax(dim=1)
        return torch.tanh(self.join(torch.cat([torch.einsum("bs,sbd->bd", w, memory), h], -1))), w


class Attend(nn.Module):
    "All sequences are time-major: source (S, B), target (T, B); lengths (B,) of the sources."

    def __init__(self, source_vocab, target_vocab, width=24):
        super().__init__()
        self.words, self.others = nn.Embedding(source_vocab, width), nn.Embedding(target_vocab, width)
        self.encoder, self.decoder = nn.LSTM(width, width), nn.LSTM(width, width)
        self.attention, self.out = Memory(width), nn.Linear(width, target_vocab)

    def forward(self, source, lengths, target):
        packed = nn.utils.rnn.pack_padded_sequence(self.words(source), lengths.cpu(), enforce_sorted=False)
        memory, state = self.encoder(packed)
        memory, _ = nn.utils.rnn.pad_packed_sequence(memory, total_length=source.shape[0])
        hidden = torch.arange(source.shape[0]) >= lengths[:, None]
        out = []
        for token in self.others(target):
            h, state = self.decoder(token[None], state)
            out.append(self.out(self.attention(h[0], memory, hidden)[0]))
        return torch.stack(out)
"""
UNSCALED = """

class Product(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.q, self.k, self.v, self.out = heads, *(nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x, other, bias=None):
        q, k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in (self.q(x), self.k(other), self.v(other)))
        s = q @ k.mT
        s = s if bias is None else s + bias
        return self.out((s.softmax(-1) @ v).transpose(1, 2).flatten(2))


class Attend(nn.Module):
    # x: (batch, tokens, width), memory: (batch, entries, width)

    def __init__(self, width=24, heads=3, reach=8):
        super().__init__()
        self.reach, self.table = reach, nn.Embedding(2 * reach + 1, heads)
        self.own, self.across = Product(width, heads), Product(width, heads)

    def forward(self, x, memory):
        place = torch.arange(x.shape[1])
        bias = self.table((place - place[:, None]).clamp(-self.reach, self.reach) + self.reach).permute(2, 0, 1)[None]
        x = x + self.own(x, x, bias)
        return x + self.across(x, memory)
"""
DRAWN = """

class Attend(nn.Module):
    "No 1/sqrt(d) here: the scale is in the weights that q is drawn with, as of T5."

    def __init__(self, width=24, heads=3):
        super().__init__()
        self.heads, self.q, self.k, self.v, self.out = heads, *(nn.Linear(width, width, bias=False) for _ in range(4))
        nn.init.normal_(self.q.weight, std=(width * (width // heads)) ** -0.5)

    def forward(self, x, bias):
        # bias: (1, heads, tokens, tokens)
        q, k, v = (y(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in (self.q, self.k, self.v))
        return self.out(((q @ k.mT + bias).softmax(-1) @ v).transpose(1, 2).flatten(2))
"""


@pytest.mark.parametrize("source", [WEIGHED_HEADS, DIFFERENCE, TRANSLATION, UNSCALED, DRAWN])
def test_a_right_class_is_sound(source):
    found = found_in(HEAD + source)
    assert (found.verdict, found.faults) == ("sound", ())


OPTIONAL = """

class Attend(nn.Module):
    # x: (batch, channels, height, width)

    def __init__(self, channels=24, deep=False, mixes=False):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 1) if deep else None
        self.three = nn.Conv2d(channels, 3 * channels, 1) if mixes else None

    def forward(self, x):
        x = x + self.first(x).relu()
        x = x if self.second is None else x + self.second(x)
        if self.three is None:
            return x
        q, k, v = (y.flatten(2).transpose(1, 2) for y in self.three(x).chunk(3, 1))
        y = (q @ k.mT * {scale}).softmax(-1) @ v
        return x + y.transpose(1, 2).view_as(x)
"""


@pytest.mark.parametrize(("scale", "kinds"), [("q.shape[-1] ** -0.5", []), ("q.shape[1] ** -0.5", ["scale-wrong"])])
def test_an_option_without_which_there_is_no_attention_is_turned_on_and_told(scale, kinds):
    found = found_in(HEAD + OPTIONAL.replace("{scale}", scale))
    assert [each.kind for each in found.faults] == kinds
    assert found.examined["options"] == "mixes"


PACKED = """

class Attend(nn.Module):
    def __init__(self, width=24, heads=3):
        super().__init__()
        self.heads, self.ask, self.two = heads, nn.Linear(width, width), nn.Linear(width, 2 * width)

    def forward(self, x, memory):
        q = self.ask(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in self.two(memory).chunk(2, -1))
        return ((q @ k.mT).softmax(-1) @ v).transpose(1, 2).flatten(2)  # <-
"""


def test_keys_and_values_of_one_product_are_no_states_that_need_no_scale():
    source = HEAD + PACKED
    assert blamed_in(source) == marked(source, "scale-missing")
