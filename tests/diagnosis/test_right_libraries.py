"""Right classes as libraries write them, each of which a rule once accused."""

import pytest

from tests.diagnosis.written import found_in

HEAD = """import math
import torch
import torch.nn as nn
import torch.nn.functional as F
from dataclasses import dataclass
"""
CONFIGURED = '''

@dataclass
class Config:
    hidden_size: int = 48
    num_attention_heads: int = 4
    head_dim: int = 256
    query_pre_attn_scalar: int = 256


class Attention(nn.Module):
    """The scale is a number of the config, which is the width of a head by default (Gemma 2, arXiv:2408.00118)."""

    def __init__(self, config: Config):
        super().__init__()
        self.heads, self.scale = config.num_attention_heads, config.query_pre_attn_scalar**-0.5
        self.qkv = nn.Linear(config.hidden_size, 3 * config.num_attention_heads * config.head_dim)
        self.out = nn.Linear(config.num_attention_heads * config.head_dim, config.hidden_size)

    def forward(self, hidden_states):
        q, k, v = self.qkv(hidden_states).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.out(((q @ k.mT * self.scale).softmax(-1) @ v).transpose(1, 2).flatten(2))
'''
ALONE = '''

class Attention(nn.Module):
    """Rotary positions of one sequence without an axis of samples, x: (n_tokens, dim)."""

    def __init__(self, dim, heads):
        super().__init__()
        if dim % (2 * heads):
            raise ValueError("twice heads must divide dim")
        self.heads, self.qkv, self.out = heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def turned(self, x):
        angles = torch.arange(len(x))[:, None] / 100 ** (torch.arange(0, x.shape[-1], 2) / x.shape[-1])
        cos, sin = angles.cos()[:, None].to(x), angles.sin()[:, None].to(x)
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).unbind(1)
        scores = torch.einsum("qhd,khd->hqk", self.turned(q), self.turned(k)) / math.sqrt(q.shape[-1])
        return self.out(torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).flatten(1))
'''
ASKING = '''

class Cross(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        if dim % heads:
            raise ValueError("heads must divide dim")
        self.heads, self.q, self.k, self.v = heads, nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.o = nn.Linear(dim, dim)

    def forward(self, q, k, v):
        q, k, v = (x.unflatten(-1, (self.heads, -1)).transpose(1, 2) for x in (self.q(q), self.k(k), self.v(v)))
        return self.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Attention(nn.Module):
    """Positions are added to the tokens each time that these ask or are asked (SAM, arXiv:2304.02643)."""

    def __init__(self, dim, heads):
        super().__init__()
        self.self_attn, self.cross, self.back = Cross(dim, heads), Cross(dim, heads), Cross(dim, heads)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))
        self.norm_1, self.norm_2, self.norm_3, self.norm_4 = (nn.LayerNorm(dim) for _ in range(4))

    def forward(self, point_embedding, image):
        tokens = self.norm_1(self.self_attn(point_embedding, point_embedding, point_embedding))
        q = tokens + point_embedding
        tokens = self.norm_2(tokens + self.cross(q, image, image))
        tokens = self.norm_3(tokens + self.mlp(tokens))
        q = tokens + point_embedding
        return tokens, self.norm_4(image + self.back(image, q, tokens))
'''
BOTH_WAYS = '''

def masked_softmax(logits, mask, dim):
    mask = mask.type(torch.float32)
    masked = mask * logits + (1 - mask) * -1e30
    return F.softmax(masked, dim)


class Attention(nn.Module):
    """Bidirectional attention flow (Seo et al. 2017, arXiv:1611.01603): the weights of two softmaxes are multiplied."""

    def __init__(self, hidden_size):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(1, 1, hidden_size))

    def forward(self, c, q, c_mask, q_mask):
        s = torch.matmul(c * self.weight, q.transpose(1, 2))
        s1 = masked_softmax(s, q_mask.view(len(q), 1, -1), 2)
        s2 = masked_softmax(s, c_mask.view(len(c), -1, 1), 1)
        a = torch.bmm(s1, q)
        b = torch.bmm(torch.bmm(s1, s2.transpose(1, 2)), c)
        return torch.cat([c, a, c * a, c * b], dim=2)
'''


@pytest.mark.parametrize(
    "source", [CONFIGURED, ALONE, ASKING, BOTH_WAYS], ids=["configured", "alone", "asking", "both ways"]
)
def test_a_right_class_has_no_fault(source):
    found = found_in(HEAD + source, "Attention")
    assert [(each.kind, each.line) for each in found.faults] == []
    assert found.verdict == "sound", found.reason


def test_a_scale_by_a_size_is_a_fault_within_a_config_too():
    source = HEAD + CONFIGURED.replace("config.query_pre_attn_scalar**-0.5", "config.hidden_size**-0.5")
    assert [each.kind for each in found_in(source, "Attention").faults] == ["scale-wrong"]


SEQUENCE_FIRST = '''

class Attention(nn.Module):
    """Two streams, sequence-first: tensors are [len, bsz, d_model] (XLNet, arXiv:1906.08237)."""

    def __init__(self, d_model, n_head, d_head):
        super().__init__()
        self.scale = 1 / d_head**0.5
        self.q, self.k, self.v, self.o = (nn.Parameter(torch.randn(d_model, n_head, d_head)) for _ in range(4))

    def core(self, q, k, v, attn_mask=None):
        score = torch.einsum("ibnd,jbnd->bnij", q, k) * self.scale
        if attn_mask is not None:
            score = score - 1e9 * torch.einsum("ijb->bij", attn_mask)[:, None]
        vec = torch.einsum("bnij,jbnd->ibnd", score.softmax(dim=3), v)
        return torch.einsum("ibnd,hnd->ibh", vec, self.o)

    def forward(self, h, g=None, attn_mask_h=None, attn_mask_g=None):
        # h: content stream [qlen, bsz, d_model]; g: query stream; masks: [qlen, klen, bsz], 1 where not allowed
        k, v = (torch.einsum("ibh,hnd->ibnd", h, each) for each in (self.k, self.v))
        streams = [(each, mask) for each, mask in ((h, attn_mask_h), (g, attn_mask_g)) if each is not None]
        return [self.core(torch.einsum("ibh,hnd->ibnd", each, self.q), k, v, mask) for each, mask in streams]
'''
STATIC = """

class Attention(nn.Module):
    def __init__(self, dim, n_heads):
        super().__init__()
        self.heads, self.qkv, self.out = n_heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x, mask):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.out(F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2))


class Model(nn.Module):
    def __init__(self, dim, n_heads):
        super().__init__()
        self.attention = Attention(dim, n_heads)

    def forward(self, x):
        mask = torch.full((x.shape[1], x.shape[1]), float("-inf"))
        mask = torch.triu(mask, diagonal=1)
        return x + self.attention(x, mask)
"""
QUERIES = '''

class Attention(nn.Module):
    """The first tokens ask, as in a Q-Former (arXiv:2301.12597)."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, hidden_states, query_length):
        q, k, v = self.qkv(hidden_states).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        weights = (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))[:, :query_length]
'''
ALIGNED = '''

class Attention(nn.Module):
    """Words of two texts are aligned without a scale (Parikh et al. 2016, arXiv:1606.01933)."""

    def __init__(self, dim, hidden):
        super().__init__()
        self.attend = nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())

    def forward(self, premise, hypothesis):
        scores = self.attend(premise) @ self.attend(hypothesis).transpose(1, 2)
        return scores.softmax(-1) @ hypothesis
'''


@pytest.mark.parametrize(
    ("source", "name"),
    [(SEQUENCE_FIRST, "Attention"), (STATIC, "Attention"), (QUERIES, "Attention"), (ALIGNED, "Attention")],
    ids=["sequence first", "static", "queries", "aligned"],
)
def test_a_class_as_its_file_calls_it_has_no_fault(source, name):
    assert [(each.kind, each.line) for each in found_in(HEAD + source, name).faults] == []
