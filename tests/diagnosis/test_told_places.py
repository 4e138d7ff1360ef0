"""Told places: a fault is told at the line that a reader would change, and a right design by its own name or not."""

import pytest

from tests.diagnosis.written import HEAD, attend, blamed_in, faults_in_file, found_in, line_of

HELPER = """
def shared(scores, mask, dim):
    return torch.softmax(scores + (1.0 - mask.float()) * -1e30, dim=dim)


def folded(scores, axis={default}):
    return scores.softmax(axis)

"""


@pytest.mark.parametrize(
    ("default", "body", "line"),
    [
        (-1, "w = shared(q @ k.mT * self.part ** -0.5, torch.ones(long), 2)\ny = w @ v", "w = shared"),
        (2, "w = folded(q @ k.mT * self.part ** -0.5)\ny = w @ v", "def folded"),
        (-1, "axis = 2\nw = folded(q @ k.mT * self.part ** -0.5, axis)\ny = w @ v", "axis = 2"),
    ],
    ids=["an argument", "a default", "a name"],
)
def test_the_axis_of_a_softmax_is_told_where_it_is_said(default, body, line):
    source = HEAD + HELPER.replace("{default}", str(default)) + attend(body=body)
    assert blamed_in(source) == [("softmax-axis", line_of(source, line))]


CACHED = """
class Decoder(nn.Module):
    def __init__(self, width, heads, room=32):
        super().__init__()
        self.heads, self.table = heads, nn.Embedding(2 * room, heads)
        self.room = room
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))

    def split(self, t):
        return t.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def bias(self, queries, keys):
        far = torch.arange(keys)[None] - torch.arange(queries)[:, None]
        return self.table(far + self.room).permute(2, 0, 1)

    def forward(self, x, past=None):
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        kept = 0
        if past is not None:
            kept = past[0].shape[2]
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        total, new = k.shape[2], x.shape[1]
        bias = self.bias(total, total)
        if past is not None:
            bias = bias[:, {rows}]
        seen = torch.arange(total) <= torch.arange(kept, total)[:, None]
        scores = (q @ k.mT + bias) * q.shape[-1] ** -0.5
        y = scores.masked_fill(~seen, float("-inf")).softmax(-1) @ v
        return self.o(y.transpose(1, 2).flatten(2)), (k, v)
"""


@pytest.mark.parametrize(("rows", "kinds"), [(":new", ["position-cache"]), ("-new:", [])])
def test_a_bias_of_the_first_rows_in_a_step_is_told_where_the_step_takes_them(rows, kinds):
    source = HEAD + CACHED.replace("{rows}", rows)
    assert blamed_in(source, "Decoder") == [(kind, line_of(source, "bias = bias")) for kind in kinds]


CONVOLVED = """
class Local(nn.Module):
    '''Step t of the output depends on steps up to t.'''

    def __init__(self, width, heads, reach=5):
        super().__init__()
        self.heads, self.reach = heads, reach
        self.qk, self.v = nn.Conv1d(width, 2 * width, reach), nn.Conv1d(width, width, 1)

    def split(self, t):
        return t.unflatten(1, (self.heads, -1)).transpose(2, 3)

    def forward(self, x):
        x = x.transpose(1, 2)
        q, k = self.qk(F.pad(x, {pad})).chunk(2, dim=1)
        q, k, v = self.split(q), self.split(k), self.split(self.v(x))
        hidden = torch.ones(x.shape[-1], x.shape[-1]).triu(1).bool()
        scores = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(hidden, -1e9)
        return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
"""


@pytest.mark.parametrize(
    ("pad", "kinds"), [("(self.reach // 2, self.reach // 2)", ["later-tokens-read"]), ("(self.reach - 1, 0)", [])]
)
def test_a_convolution_that_is_padded_on_both_sides_reads_later_tokens(pad, kinds):
    source = HEAD + CONVOLVED.replace("{pad}", pad)
    assert blamed_in(source, "Local") == [(kind, line_of(source, "q, k = self.qk")) for kind in kinds]


INTEREST = """
class Interest(nn.Module):
    def __init__(self, n_items, n_kinds, width=16):
        super().__init__()
        self.items = nn.Embedding(n_items, width, padding_idx=0)
        self.kinds = nn.Embedding(n_kinds, width, padding_idx=0)
        self.score = nn.Sequential(nn.Linear(8 * width, 13), nn.PReLU(), nn.Linear(13, 1))

    def read(self, item, kind):
        return torch.cat([self.items(item), self.kinds(kind)], dim=-1)

    def forward(self, item, kind, past_items, past_kinds):
        '''item, kind: (B,); past_items, past_kinds: (B, T)'''
        asked, clicks = self.read(item, kind), self.read(past_items, past_kinds)
        real = past_items != 0
        c = asked.unsqueeze(1).expand_as(clicks)
        scores = self.score(torch.cat([c, clicks, c - clicks, c * clicks], dim=-1)).squeeze(-1)
        scores = {masked}
        weights = scores.softmax(dim=1)
        return (weights.unsqueeze(-1) * clicks).sum(dim=1)
"""


@pytest.mark.parametrize(
    ("masked", "kinds"), [("scores * real", ["mask-multiplied"]), ("scores.masked_fill(~real, -1e9)", [])]
)
def test_scores_of_differences_and_products_are_followed_and_padding_beside_other_inputs_is_hidden(masked, kinds):
    source = HEAD + INTEREST.replace("{masked}", masked)
    found = found_in(source, "Interest")
    places = [(each.kind, each.line) for each in found.faults]
    assert places == [(kind, line_of(source, f"scores = {masked}")) for kind in kinds]
    assert found.verdict == ("faulty" if kinds else "sound")


QUESTION = """
def shared(logits, mask, dim):
    mask = mask.type(logits.dtype)
    return F.softmax(mask * logits + (1 - mask) * -1e30, dim)


class Flow(nn.Module):
    '''c, q: token ids, 0 is padding at the end.'''

    def __init__(self, vocab_size, width=14):
        super().__init__()
        self.table = nn.Embedding(vocab_size, width, padding_idx=0)
        self.of_c, self.of_q = nn.Linear(width, 1), nn.Linear(width, 1)
        self.of_both = nn.Parameter(torch.randn(width))

    def forward(self, c_ids, q_ids):
        c, q, c_mask, q_mask = self.table(c_ids), self.table(q_ids), c_ids != 0, q_ids != 0
        s = self.of_c(c) + self.of_q(q).mT + (c * self.of_both) @ q.mT
        asked = shared(s, q_mask.unsqueeze(1), dim=2) @ q
        best = s.masked_fill(~q_mask.unsqueeze(1), -1e30).max(dim=2)[0]
        told = shared(best, c_mask, dim=1).unsqueeze(1) @ c
        return torch.cat([c, asked, c * asked, c * told], dim=2)
"""


def test_the_largest_score_of_each_key_is_compared_as_its_score():
    found = found_in(HEAD + QUESTION, "Flow")
    assert (found.verdict, found.faults) == ("sound", ())
    assert "scores with further terms" in found.examined["comparison"]


SEGMENTS = """
from typing import NamedTuple


class Memory(NamedTuple):
    M: torch.Tensor
    z: torch.Tensor


class Recalling(nn.Module):
    def __init__(self, dim, heads, part_len):
        super().__init__()
        assert dim % heads == 0
        self.heads, self.d, self.part_len = heads, dim // heads, part_len
        self.ask, self.both, self.out = nn.Linear(dim, dim), nn.Linear(dim, 2 * dim), nn.Linear(dim, dim)
        self.share = nn.Parameter(torch.zeros(heads))

    def read(self, asked, state):
        total = torch.einsum("bhtk,bhk->bht", asked, state.z)
        return torch.einsum("bhtk,bhkv->bhtv", asked, state.M) / (total.unsqueeze(-1) + 1e-8)

    def written(self, told, v, state):
        return Memory(state.M + torch.einsum("bhtk,bhtv->bhkv", told, v), state.z + told.sum(dim=2))

    def split(self, t):
        return t.unflatten(-1, (self.heads, self.d)).transpose(1, 2)

    def forward(self, x, state=None):
        if state is None:
            sizes = (x.shape[0], self.heads, self.d)
            state = Memory(x.new_zeros(*sizes, self.d), x.new_zeros(*sizes))
        q = self.split(self.ask(x))
        k, v = self.both(x).chunk(2, dim=-1)
        k, v = self.split(k), self.split(v)
        gate = torch.sigmoid(self.share).view(1, -1, 1, 1)
        parts = []
        for qs, ks, vs in zip(*(t.split(self.part_len, dim=2) for t in (q, k, v))):
            near = F.scaled_dot_product_attention(qs, ks, vs, is_causal=True)
            parts.append(gate * self.read(F.elu(qs) + 1.0, state) + (1.0 - gate) * near)
            state = self.written(F.elu(ks) + 1.0, vs, state)
        return self.out(torch.cat(parts, dim=2).transpose(1, 2).flatten(2)), state
"""


def test_a_state_that_is_written_after_each_segment_is_handed_on_between_segments():
    assert found_in(HEAD + SEGMENTS, "Recalling").verdict == "sound"


RELATIVE = """
class Relative(nn.Module):
    def __init__(self, width, heads, max_len=40):
        super().__init__()
        self.heads = heads
        self.qkv, self.far = nn.Linear(width, 3 * width), nn.Linear(width // heads, width // heads, bias=False)
        far = torch.arange(max_len - 1, -max_len, -1.0)[:, None]
        self.register_buffer("table", (far * 0.3 ** torch.arange(width // heads)).sin())

    def shift(self, s):
        n, m = s.shape[-2:]
        s = F.pad(s, (1, 0)).reshape(*s.shape[:2], m + 1, n)
        return s[:, :, 1:].reshape(*s.shape[:2], n, m)[..., :n]

    def forward(self, x):
        n, middle = x.shape[1], self.table.shape[0] // 2
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        table = self.table[{rows}]
        scores = (q @ k.mT + self.shift(q @ self.far(table).mT)) * q.shape[-1] ** -0.5
        return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
"""


@pytest.mark.parametrize(
    ("rows", "kinds"), [(": 2 * n - 1", ["relative-table-start"]), ("middle - n + 1 : middle + n", [])]
)
def test_a_table_of_distances_is_read_around_its_middle(rows, kinds):
    source = HEAD + RELATIVE.replace("{rows}", rows)
    assert blamed_in(source, "Relative") == [(kind, line_of(source, "table = self.table[")) for kind in kinds]


TERMS = """
class Terms(nn.Module):
    def __init__(self, width, heads, terms=("c2p", "p2c"), span=8):
        super().__init__()
        self.heads, self.terms, self.span = heads, terms, span
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.table = nn.Parameter(torch.randn(2 * span, width))

    def split(self, t):
        return t.unflatten(-1, (self.heads, -1)).transpose(-2, -3)

    def forward(self, x):
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        n = x.shape[1]
        scale = (q.shape[-1] * (1 + len(self.terms))) ** -0.5
        at = (torch.arange(n)[:, None] - torch.arange(n) + self.span).clamp(0, 2 * self.span - 1)
        at = at.expand(*q.shape[:2], n, n)
        bias = torch.zeros_like(q[..., :1]) * torch.zeros(n)
        if "c2p" in self.terms:
            bias = bias + (q @ self.split(self.k(self.table)).mT).gather(-1, at) * scale
        if "p2c" in self.terms:
            bias = bias + (k @ self.split(self.q(self.table)).mT).gather(-1, at).mT * scale
        return self.out(((q @ k.mT * scale + bias).softmax(-1) @ v).transpose(1, 2).flatten(2))
"""


def test_terms_that_are_added_to_zeros_first_are_counted_once():
    assert found_in(HEAD + TERMS, "Terms").faults == ()


LAYERS = """
class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attend = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        return self.norm(x + self.attend(x, x, x, need_weights=False)[0])


class Layers(nn.Module):
    '''{words}'''

    def __init__(self, width, heads, num_layers=3):
        super().__init__()
        layer = Layer(width, heads)
        self.layers = nn.ModuleList([layer for _ in range(num_layers)])
        self.head = nn.Linear(width, 5)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)
"""


@pytest.mark.parametrize(
    ("words", "kinds"),
    [
        ("Layers with their own weights; the head is shared by all of them.", ["layers-shared"]),
        ("Layers that share their weights.", []),
        ("All layers share their weights, where others have separate parameters for each layer.", []),
        ("The same block at each step; only the embeddings of steps have their own parameters.", []),
    ],
)
def test_layers_with_weights_of_their_own_are_not_one_whatever_else_is_shared(words, kinds, tmp_path):
    source = HEAD + LAYERS.replace("{words}", words)
    assert [kind for kind, _ in faults_in_file(tmp_path, "Layers", source)] == kinds


TOLD_TWICE = """
class Reader(nn.Module):
    '''src (B, S), src_len (B,), asked (B, width)'''

    def __init__(self, vocab_size, width=12, pad_idx=0):
        super().__init__()
        self.pad_idx, self.table = pad_idx, nn.Embedding(vocab_size, width, padding_idx=pad_idx)
        self.rnn, self.key = nn.GRU(width, width, batch_first=True), nn.Linear(width, width)

    def forward(self, src, src_len, asked):
        packed = nn.utils.rnn.pack_padded_sequence(
            self.table(src), src_len.cpu(), batch_first=True, enforce_sorted=False
        )
        read, _ = nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True, total_length=src.shape[1])
        scores = torch.tanh(asked.unsqueeze(1) + self.key(read)).sum(-1)
        weights = scores.masked_fill(src == self.pad_idx, float("-inf")).softmax(1)
        return torch.bmm(weights.unsqueeze(1), read).squeeze(1)
"""


def test_tokens_behind_the_length_that_are_no_padding_by_their_numbers_tell_nothing():
    assert found_in(HEAD + TOLD_TWICE, "Reader").faults == ()


COUNTED = """
class Counted(nn.Module):
    def __init__(self, vocab_size, width, heads, pad_id=0):
        super().__init__()
        self.pad_id, self.table = pad_id, nn.Embedding(vocab_size, width, padding_idx=pad_id)
        self.attend = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, input_ids, attention_mask):
        x = self.table(input_ids)
        x = x + self.attend(x, x, x, key_padding_mask=attention_mask == 0, need_weights=False)[0]
        lengths = (input_ids != self.pad_id).sum(dim=1, keepdim=True).clamp(min=1)
        return {pooled}
"""


@pytest.mark.parametrize(
    ("pooled", "kinds"),
    [("x.sum(dim=1) / lengths", ["padding-pooled"]), ("(x * attention_mask[..., None]).sum(dim=1)", [])],
)
def test_tokens_that_are_counted_by_their_numbers_are_hidden_by_their_mask(pooled, kinds):
    source = HEAD + COUNTED.replace("{pooled}", pooled)
    assert [each.kind for each in found_in(source, "Counted").faults] == kinds
