"""Reached models: whole models that need sizes, options or inputs of their own, right and with one thing wrong."""

import pytest

from tests.diagnosis.written import HEAD, blamed_in, found_in, line_of

SPEECH = """
class Attend(nn.Module):
    '''feats: (B, T, n_mels); lengths: (B,) frames of each'''

    def __init__(self, n_mels=40, d_model=64, n_head=4):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, d_model, 3, 2), nn.ReLU(), nn.Conv2d(d_model, d_model, 3, 2), nn.ReLU()
        )
        self.out = nn.Linear(d_model * (((n_mels - 1) // 2 - 1) // 2), d_model)
        self.heads, self.qkv = n_head, nn.Linear(d_model, 3 * d_model)

    def forward(self, feats, lengths):
        x = self.conv(feats.unsqueeze(1))
        b, c, t, f = x.shape
        x = self.out(x.transpose(1, 2).reshape(b, t, c * f))
        lengths = {lengths}
        mask = torch.arange(t)[None] < lengths[:, None]
        q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in self.qkv(x).chunk(3, -1))
        s = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~mask[:, None, None, :], float("-inf"))
        return (s.softmax(-1) @ v).transpose(1, 2).flatten(2), mask
"""
TWICE = "((lengths - 1) // 2 - 1) // 2"


@pytest.mark.parametrize("guard", ["", "assert (lengths <= feats.shape[1]).all()"])
def test_lengths_are_divided_as_often_as_frames_are(guard):
    assert found_in(HEAD + SPEECH.format(lengths=TWICE)).verdict == "sound"
    source = HEAD + SPEECH.format(lengths="(lengths - 1) // 2").replace(
        "b, c, t, f =", f"{guard}\n        b, c, t, f ="
    )
    assert blamed_in(source) == [("lengths-not-scaled", line_of(source, "mask = torch.arange"))]


OF_FRAMES = "(torch.arange(feats.shape[1])[None] < lengths[:, None])"


def test_a_mask_of_frames_is_taken_in_steps_and_not_cut():
    def cut(steps):
        source = "\n".join(line for line in SPEECH.splitlines() if "n_mels); " not in line)
        mask = "torch.arange(t)[None] < lengths[:, None]"
        return HEAD + source.format(lengths="lengths").replace(mask, OF_FRAMES + steps)

    assert found_in(cut("[:, :-2:2][:, :-2:2]")).verdict == "sound"
    source = cut("[:, :t]")
    assert blamed_in(source) == [("lengths-not-scaled", line_of(source, "[:, :t]"))]


PYRAMID = """
class Attend(nn.Module):
    def __init__(self, dim, num_heads=8, sr_ratio=1):
        super().__init__()
        self.num_heads, self.sr_ratio = num_heads, sr_ratio
        self.q, self.kv, self.proj = nn.Linear(dim, dim), nn.Linear(dim, 2 * dim), nn.Linear(dim, dim)
        if sr_ratio > 1:
            self.sr, self.norm = nn.Conv2d(dim, dim, sr_ratio, sr_ratio), nn.LayerNorm(dim)

    def forward(self, x, H, W):
        B, N, C = x.shape
        q = self.q(x).reshape(B, N, self.num_heads, -1).transpose(1, 2)
        few = x
        if self.sr_ratio > 1:
            few = self.sr(x.transpose(1, 2).reshape(B, C, H, W))
            few = self.norm({few})
        k, v = self.kv(few).reshape(B, -1, 2, self.num_heads, C // self.num_heads).permute(2, 0, 3, 1, 4)
        w = (q @ k.mT * (C // self.num_heads) ** -0.5).softmax(-1)
        return self.proj((w @ v).transpose(1, 2).reshape(B, N, C))
"""


def test_what_stands_behind_a_number_that_is_1_by_default_is_examined_with_2():
    assert found_in(HEAD + PYRAMID.format(few="few.flatten(2).transpose(1, 2)")).verdict == "sound"
    source = HEAD + PYRAMID.format(few="few.reshape(B, -1, C)")
    assert blamed_in(source) == [("tokens-regrouped", line_of(source, "few.reshape"))]


ROTATING = """
def turned(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


class Attend(nn.Module):
    def __init__(self, vocab=33, dim=64, heads=4):
        super().__init__()
        self.table, self.heads, self.qkv = nn.Embedding(vocab, dim, padding_idx=1), heads, nn.Linear(dim, 3 * dim)
        width = dim // heads
        self.register_buffer("rates", 10000.0 ** -(torch.arange(0, width, 2).float() / width), persistent=False)

    def forward(self, tokens):
        there, x = tokens.ne(1), self.table(tokens)
        angles = torch.outer(torch.arange(tokens.size(1), dtype=self.rates.dtype), self.rates)
        angles = {angles}
        q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in self.qkv(x).chunk(3, -1))
        q, k = (turned(each, angles.cos(), angles.sin()) for each in (q, k))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=there[:, None, None, :])
        return y.transpose(1, 2).flatten(2)
"""


def test_a_model_that_hides_padding_by_its_token_numbers_has_its_rotation_proved():
    assert found_in(HEAD + ROTATING.format(angles="torch.cat((angles, angles), -1)")).verdict == "sound"
    source = HEAD + ROTATING.format(angles="angles.repeat_interleave(2, -1)")
    assert blamed_in(source) == [("rotary-wrong", line_of(source, "repeat_interleave"))]


PACKED = """
class Attend(nn.Module):
    '''tokens : LongTensor (B, L). segment : LongTensor (B, L), 1 on the first segment, 2 on the second, 0 on padding'''

    def __init__(self, vocab, dim=64, heads=4):
        super().__init__()
        self.table, self.part, self.heads = nn.Embedding(vocab, dim), nn.Embedding(64, dim), heads
        self.attend = nn.MultiheadAttention(dim, heads, batch_first=True)

    def blocked(self, segment):
        return (segment[:, :, None] != segment[:, None, :]).repeat_interleave(self.heads, 0)

    def forward(self, tokens, segment):
        before = torch.cat([torch.zeros_like(segment[:, :1]), segment[:, :-1]], dim=1)
        first = (segment != before) & (segment != 0)
        x = self.table(tokens) + self.part(segment * first)
        x = self.attend(x, x, x, attn_mask=self.blocked(segment), need_weights=False)[0]
        w = first.unsqueeze(-1).to(x.dtype)
        return x, (x * w).sum(dim=1) / w.sum(dim=1).clamp(min=1)
"""


def test_numbers_that_a_helper_compares_with_each_other_are_segments():
    assert found_in(HEAD + PACKED).verdict == "sound"


CAPPED = """
from dataclasses import dataclass


@dataclass
class Config:
    hidden_size: int = 64
    num_heads: int = 4
    num_layers: int = 1
    query_pre_attn_scalar: int = {number}


class Attend(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.heads, self.scale = config.num_heads, config.query_pre_attn_scalar ** -0.5
        self.qkv = nn.Linear(config.hidden_size, 3 * config.hidden_size)

    def forward(self, x):
        q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in self.qkv(x).chunk(3, -1))
        return ((q * self.scale @ k.mT).softmax(-1) @ v).transpose(1, 2).flatten(2)
"""


@pytest.mark.parametrize("number", [4, 5, 16, 33, 256])
def test_a_number_that_is_called_a_scale_is_none_of_the_sizes_that_it_equals_by_chance(number):
    assert found_in(HEAD + CAPPED.format(number=number)).verdict == "sound"


NORMED = """
from dataclasses import dataclass


@dataclass
class Config:
    hidden_size: int = 64
    num_heads: int = 4
    query_pre_attn_scalar: int = 32


class Attend(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.heads, self.scale = config.num_heads, config.query_pre_attn_scalar ** -0.5
        self.width = config.hidden_size // config.num_heads
        self.qkv, self.norm = nn.Linear(config.hidden_size, 3 * config.hidden_size), nn.RMSNorm(self.width)

    def forward(self, x):
        q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in self.qkv(x).chunk(3, -1))
        q, k = self.norm(q) * self.scale{back}, self.norm(k)
        return F.scaled_dot_product_attention(q, k, v{told}).transpose(1, 2).flatten(2)
"""


@pytest.mark.parametrize("told", [{"back": " * self.width ** 0.5", "told": ""}, {"back": "", "told": ", scale=1.0"}])
def test_a_scale_of_its_own_is_the_only_one(told):
    assert found_in(HEAD + NORMED.format(**told)).verdict == "sound"


def test_a_scale_of_its_own_beside_that_of_torch_is_one_too_many():
    source = HEAD + NORMED.format(back="", told="")
    assert blamed_in(source) == [("scale-twice", line_of(source, "self.norm(q) * self.scale"))]


MISSING = """
class Attend(nn.Module):
    '''Hides what is not there.'''

    def __init__(self, count, vocab, dim=64, heads=4):
        super().__init__()
        self.weight, self.table = nn.Parameter(torch.randn(count, dim)), nn.Embedding(vocab, dim)
        self.heads, self.qkv = heads, nn.Linear(dim, 3 * dim)

    def forward(self, numbers, kinds):
        missing = torch.isnan(numbers)
        x = torch.cat([self.weight * numbers.masked_fill(missing, 0.0)[..., None], self.table(kinds)], 1)
        there = torch.ones(x.shape[:2], dtype=torch.bool)
        there[:, : numbers.shape[1]] = ~missing
        q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in self.qkv(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=there[:, None, None, :])
        return y.transpose(1, 2).flatten(2)
"""


def test_a_mask_that_a_model_writes_into_is_compared_as_it_was():
    found = found_in(HEAD + MISSING)
    assert (found.verdict, found.examined["comparison"]) == ("sound", "torch scaled_dot_product_attention")


KEPT = """
class Attend(nn.Module):
    '''start_pos=None leaves the cache untouched (training).'''

    def __init__(self, dim, heads, most=16, batch=8):
        super().__init__()
        self.heads, self.width = heads, dim // heads
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(batch, most, heads, self.width), persistent=False)

    def forward(self, x, start_pos):
        b, n, d = x.shape
        q, k, v = (each.view(b, n, self.heads, self.width) for each in self.qkv(x).chunk(3, -1))
        if {trained}:
            keys, values, past = k, v, 0
        else:
            past = start_pos or 0
            self.keys[:b, past : past + n], self.values[:b, past : past + n] = k.detach(), v.detach()
            keys, values = self.keys[:b, : past + n], self.values[:b, : past + n]
        late = torch.ones(n, past + n, dtype=torch.bool).triu(past + 1)
        s = torch.einsum("bnhd,bmhd->bhnm", q, keys) / self.width ** 0.5
        w = s.masked_fill(late, float("-inf")).softmax(-1)
        return self.out(torch.einsum("bhnm,bmhd->bnhd", w, values).flatten(2))
"""


def test_what_is_kept_for_decoding_alone_needs_no_gradient():
    assert found_in(HEAD + KEPT.format(trained="start_pos is None")).verdict == "sound"
    assert [kind for kind, _ in blamed_in(HEAD + KEPT.format(trained="False"))] == ["gradient-path-cut"]


POOLING = """
class Attend(nn.Module):
    def __init__(self, vocab_size, dim=64, heads=4, pad_id=0):
        super().__init__()
        self.pad_id, self.heads = pad_id, heads
        self.table, self.qkv = nn.Embedding(vocab_size, dim, padding_idx=pad_id), nn.Linear(dim, 3 * dim)
        self.context = nn.Parameter(torch.randn(2, dim))

    def forward(self, tokens):
        keep = tokens != self.pad_id
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.table(tokens)).chunk(3, -1))
        x = F.scaled_dot_product_attention(q, k, v, attn_mask=keep[:, None, None]).transpose(1, 2).flatten(2)
        weight = torch.einsum("btd,hd->bht", x.tanh(), self.context){hidden}.softmax(-1)
        weight = weight * keep[:, None]{shared}
        return torch.einsum("bht,btd->bhd", weight, x).flatten(1)
"""


def test_weights_of_a_pool_that_are_shared_with_padding_are_told_at_their_softmax():
    hidden = ".masked_fill(~keep[:, None], -1e9)"
    shared = "\n        weight = weight / weight.sum(-1, keepdim=True)"
    for right in ({"hidden": hidden, "shared": ""}, {"hidden": "", "shared": shared}):
        assert found_in(HEAD + POOLING.format(**right)).verdict == "sound"
    source = HEAD + POOLING.format(hidden="", shared="")
    assert blamed_in(source) == [("padding-pooled", line_of(source, ".softmax(-1)"))]
