"""Queries that are learned, or a state for each sample, attend to tokens as other queries do."""

import pytest

from tests.diagnosis.written import HEAD, blamed_in, found_in, line_of, marked

SEEDS = (
    HEAD
    + """
class Attend(nn.Module):
    def __init__(self, dim, num_heads, num_seeds):
        super().__init__()
        self.seeds = nn.Parameter(torch.randn({shape}, dim))
        self.num_heads = num_heads
        self.ask, self.match, self.hold, self.join = (nn.Linear(dim, dim) for _ in range(4))

    def cut(self, t):
        return t.view(t.shape[0], -1, self.num_heads, t.shape[-1] // self.num_heads).transpose(1, 2)

    def forward(self, x, mask=None):
        '''mask (batch, tokens): True for real tokens, False for padding.'''
        n, long, width = x.shape
        q = self.cut(self.ask({seeds}))
        k, v = self.cut(self.match(x)), self.cut(self.hold(x))
        s = q @ k.mT / q.shape[-1] ** 0.5
        if mask is not None:
            s = s.masked_fill({mask}[:, None, None], float("-inf")){mark}
        return self.join((s.softmax({axis}) @ v).transpose(1, 2).reshape(n, -1, width))
"""
)
COPIED = {"shape": "1, num_seeds", "seeds": "self.seeds.expand(n, -1, -1)"}
PROJECTED = {"shape": "1, num_seeds", "seeds": "self.seeds"}


@pytest.mark.parametrize("given", [COPIED, PROJECTED])
def test_learned_queries_are_examined(given):
    found = found_in(SEEDS.format(**given, mask="~mask", axis=-1, mark=""))
    assert (found.verdict, found.examined["mask"]) == ("sound", "mask: attend")


@pytest.mark.parametrize("given", [COPIED, PROJECTED])
def test_faults_with_learned_queries_are_found(given):
    source = SEEDS.format(**given, mask="mask", axis=-1, mark="  # <-")
    assert blamed_in(source) == marked(source, "mask-inverted")
    source = SEEDS.format(**given, mask="~mask", axis=-2, mark="").replace(
        "reshape(n, -1, width))", "reshape(n, -1, width))  # <-"
    )
    assert blamed_in(source) == marked(source, "softmax-axis")


LATENTS = (
    HEAD
    + """
class Attend(nn.Module):
    def __init__(self, width, latents, num_heads):
        super().__init__()
        self.latents = nn.Parameter(torch.randn(latents, width))
        self.num_heads = num_heads
        self.ask, self.match, self.hold, self.join = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x):
        latents = self.latents[None].expand(x.shape[0], -1, -1)
        both = torch.cat((x, latents), 1)
        q, k, v = (each.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
                   for each in (self.ask(latents), self.match(both), self.hold(both)))
        q = q * {scale}{mark}
        return self.join(((q @ k.mT).softmax(-1) @ v).transpose(1, 2).flatten(2))
"""
)


def test_latents_attend_to_tokens_and_to_themselves():
    assert found_in(LATENTS.format(scale="q.shape[-1] ** -0.5", mark="")).verdict == "sound"
    source = LATENTS.format(scale="x.shape[-1] ** -0.5", mark="  # <-")
    assert blamed_in(source) == marked(source, "scale-wrong")


STATE = (
    HEAD
    + """
class Attend(nn.Module):
    def __init__(self, enc_dim, dec_dim, attn_dim):
        super().__init__()
        self.ask, self.match = nn.Linear(dec_dim, attn_dim), nn.Linear(enc_dim, attn_dim)
        self.weigh = nn.Linear(attn_dim, 1, bias=False)

    def forward(self, decoder_state, encoder_outputs, src_mask=None):
        energy = self.weigh(torch.tanh(self.ask(decoder_state)[:, None] + self.match(encoder_outputs))).squeeze(-1)
        if src_mask is not None:
            energy = energy.masked_fill(src_mask == 0, {fill}){mark}
        alpha = energy.softmax({axis}){late}
        return torch.bmm(alpha[:, None], encoder_outputs)[:, 0], alpha
"""
)


def test_a_state_for_each_sample_is_examined():
    assert found_in(STATE.format(fill='float("-inf")', axis=-1, mark="", late="")).verdict == "sound"


def test_faults_of_a_state_for_each_sample_are_found():
    source = STATE.format(fill='float("-inf")', axis=0, mark="", late="  # <-")
    assert blamed_in(source) == marked(source, "softmax-axis")
    source = STATE.format(fill="1e-9", axis=-1, mark="  # <-", late="")
    assert blamed_in(source) == marked(source, "mask-weak-fill")


LUONG = (
    HEAD
    + """
class Attend(nn.Module):
    def __init__(self, enc_dim, dec_dim):
        super().__init__()
        self.weigh = nn.Linear({weigh}, bias=False)

    def forward(self, hidden, encoder_outputs):
        scores = torch.bmm({keys}, {query}.unsqueeze(2)).squeeze(2)
        return torch.bmm(scores.softmax(-1)[:, None], encoder_outputs)[:, 0]
"""
)


@pytest.mark.parametrize(
    "given",
    [
        {"weigh": "dec_dim, enc_dim", "keys": "encoder_outputs", "query": "self.weigh(hidden)"},
        {"weigh": "enc_dim, dec_dim", "keys": "self.weigh(encoder_outputs)", "query": "hidden"},
    ],
)
def test_one_matrix_between_a_state_and_the_keys_has_no_scale(given):
    assert found_in(LUONG.format(**given)).verdict == "sound"


GRAPH = (
    HEAD
    + """
class Attend(nn.Module):
    def __init__(self, in_dim, out_dim):
        super().__init__()
        self.hold = nn.Linear(in_dim, out_dim, bias=False)
        self.source, self.target = nn.Linear(out_dim, 1, bias=False), nn.Linear(out_dim, 1, bias=False)

    def forward(self, h, adj):
        v = self.hold(h)
        e = F.leaky_relu(self.source(v) + self.target(v).mT, 0.2)
        e = torch.where(adj > 0, e, torch.full_like(e, -9e15))
        return e.softmax({axis}) @ v{mark}
"""
)


def test_additive_scores_that_nothing_weighs_are_examined():
    assert found_in(GRAPH.format(axis=-1, mark="")).verdict == "sound"
    source = GRAPH.format(axis=1, mark="  # <-")
    assert blamed_in(source) == marked(source, "softmax-axis")


MODULATED = (
    HEAD
    + """
class Attend(nn.Module):
    def __init__(self, width, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.shape = nn.Linear(width, 2 * width)
        self.ask, self.match, self.hold, self.join = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x, c):
        shift, scale = self.shape(c).chunk(2, dim=1)
        x = x * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)
        q, k, v = (each(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
                   for each in (self.ask, self.match, self.hold))
        y = (q @ k.mT / {width} ** 0.5).softmax(-1) @ v{mark}
        return self.join(y.transpose(1, 2).flatten(2))
"""
)


def test_a_condition_for_each_sample_is_no_memory():
    found = found_in(MODULATED.format(width="q.shape[-1]", mark=""))
    assert (found.verdict, found.examined["cross"]) == ("sound", "no: it does not take more keys than queries")
    source = MODULATED.format(width="x.shape[-1]", mark="  # <-")
    assert blamed_in(source) == marked(source, "scale-wrong")


LATENT = (
    HEAD
    + """
class Attend(nn.Module):
    def __init__(self, dim, latents, heads, head_dim):
        super().__init__()
        self.heads, self.scale = heads, head_dim**-0.5
        self.latents = nn.Parameter(torch.randn(latents, dim))
        inner = heads * head_dim
        self.norm, self.ask, self.join = nn.LayerNorm(dim), nn.Linear(dim, inner), nn.Linear(inner, dim)
        self.pack = nn.Linear(dim, 2 * inner)

    def forward(self, data):
        latents = self.norm(self.latents.unsqueeze(0).expand(data.shape[0], -1, -1))
        q, k, v = self.ask(latents){once}, *self.pack(data).chunk(2, -1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v))
        y = {attention}
        return self.join(y.transpose(1, 2).flatten(2))
"""
)
FUSED = "F.scaled_dot_product_attention(q, k, v)"
BY_HAND = "(q @ k.mT{again}).softmax(-1) @ v"


@pytest.mark.parametrize(
    ("once", "attention", "kinds"),
    [
        ("", FUSED, []),
        (" * self.scale", FUSED, ["scale-twice"]),
        (" * self.scale", BY_HAND.format(again=""), []),
        (" * self.scale", BY_HAND.format(again=" * self.scale"), ["scale-twice"]),
    ],
)
def test_learned_queries_are_scaled_once(once, attention, kinds):
    source = LATENT.format(once=once, attention=attention)
    assert [kind for kind, _ in blamed_in(source)] == kinds


NORMED = (
    HEAD
    + """
class Attend(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.norm = heads, nn.LayerNorm(dim)
        self.ask, self.match, self.hold, self.join = (nn.Linear(dim, dim) for _ in range(4))

    def forward(self, x, context):
        q, k, v = self.ask(self.norm(x)), self.match(context), self.hold(context)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v))
        y = (q @ k.mT{scale}).softmax(-1) @ v
        return self.join(y.transpose(1, 2).flatten(2))
"""
)


@pytest.mark.parametrize(
    ("scale", "kinds"),
    [(" / q.shape[-1] ** 0.5", []), ("", ["scale-missing"]), (" / x.shape[-1] ** 0.5", ["scale-wrong"])],
)
def test_what_is_normalised_before_it_is_projected_has_the_scale_of_others(scale, kinds):
    assert [kind for kind, _ in blamed_in(NORMED.format(scale=scale))] == kinds


LAST_STATES = (
    HEAD
    + """
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class Attend(nn.Module):
    def __init__(self, words=30, width=12, hidden=10):
        super().__init__()
        self.words = nn.Embedding(words, width, padding_idx=0)
        self.read = nn.LSTM(width, hidden, bidirectional=True, batch_first=True)
        self.ask = nn.Linear(2 * hidden, 2 * hidden)

    def forward(self, ids, lengths):
        # ids: (batch, seq), lengths: (batch,)
        long = ids.shape[1]
        packed = pack_padded_sequence(self.words(ids), lengths, batch_first=True, enforce_sorted=False)
        out, (last, _) = self.read(packed)
        out = pad_packed_sequence(out, batch_first=True, total_length=long)[0]
        q = self.ask({joined}){mark}
        s = torch.bmm(out, q.unsqueeze(2)).squeeze(2) / out.shape[-1] ** 0.5
        s = s.masked_fill(torch.arange(long) >= lengths[:, None], {fill}){late}
        return torch.bmm(s.softmax(-1)[:, None], out)[:, 0]
"""
)
JOINED = "torch.cat((last[0], last[1]), dim=-1)"


def test_the_last_states_of_a_recurrent_layer_are_examined():
    found = found_in(LAST_STATES.format(joined=JOINED, mark="", fill="-1e4", late=""))
    assert (found.verdict, found.examined["mask"]) == ("sound", "lengths: lengths")


def test_faults_of_last_states_are_found():
    view = LAST_STATES.format(joined="last.reshape(ids.shape[0], -1)", mark="  # <-", fill="-1e4", late="")
    assert blamed_in(view) == marked(view, "tokens-regrouped")
    # what is padded again holds zeros, of no token, which take a part of the weights here
    weak = LAST_STATES.format(joined=JOINED, mark="", fill="1e-9", late="")
    assert blamed_in(weak) == [("padding-pooled", line_of(weak, "return"))]


BEGUN = (
    HEAD
    + """
class Attend(nn.Module):
    def __init__(self, vocab, emb_dim, enc_dim, dec_dim, attn_dim):
        super().__init__()
        self.words, self.begin = nn.Embedding(vocab, emb_dim), nn.Linear(enc_dim, dec_dim)
        self.ask, self.match = nn.Linear(dec_dim, attn_dim, bias=False), nn.Linear(enc_dim, attn_dim)
        self.weigh = nn.Linear(attn_dim, 1, bias=False)
        self.step, self.out = nn.GRUCell(emb_dim + enc_dim, dec_dim), nn.Linear(dec_dim, vocab)

    def forward(self, ids, memory, mask):
        # ids: (batch, steps); memory: (batch, tokens, enc_dim); mask: (batch, tokens), True for real tokens
        there = mask.unsqueeze(-1).to(memory.dtype)
        state = torch.tanh(self.begin((memory * there).sum(1) / there.sum(1).clamp(min=1)))
        out = []
        for word in self.words(ids).unbind(1):
            energy = self.weigh(torch.tanh(self.ask(state)[:, None] + self.match(memory))).squeeze(-1)
            weights = energy.masked_fill({hidden}, float("-inf")).softmax(-1){mark}
            context = (weights[..., None] * memory).sum(1)
            state = self.step(torch.cat((word, context), dim=-1), state)
            out.append(self.out(state))
        return torch.stack(out, dim=1)
"""
)


def test_a_decoder_that_begins_with_the_mean_of_its_memory_is_examined():
    assert found_in(BEGUN.format(hidden="~mask", mark="")).verdict == "sound"
    source = BEGUN.format(hidden="mask", mark="  # <-")
    assert blamed_in(source) == marked(source, "mask-inverted")
