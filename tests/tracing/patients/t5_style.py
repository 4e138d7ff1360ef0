import math

import torch
from torch import nn


class T5LikeAttention(nn.Module):
    def __init__(self, d_model, d_kv, num_heads, relative_attention_num_buckets=32, max_distance=128):
        super().__init__()
        self.num_buckets = relative_attention_num_buckets
        self.max_distance = max_distance
        self.n_heads = num_heads
        self.key_value_proj_dim = d_kv
        self.inner_dim = self.n_heads * self.key_value_proj_dim
        self.q = nn.Linear(d_model, self.inner_dim, bias=False)
        self.k = nn.Linear(d_model, self.inner_dim, bias=False)
        self.v = nn.Linear(d_model, self.inner_dim, bias=False)
        self.o = nn.Linear(self.inner_dim, d_model, bias=False)
        self.relative_attention_bias = nn.Embedding(self.num_buckets, self.n_heads)

    def _bucket(self, relative_position):
        num_buckets = self.num_buckets // 2
        ret = (relative_position > 0).long() * num_buckets
        n = torch.abs(relative_position)
        max_exact = num_buckets // 2
        is_small = n < max_exact
        large = max_exact + (
            torch.log(n.float() / max_exact) / math.log(self.max_distance / max_exact) * (num_buckets - max_exact)
        ).long()
        large = torch.min(large, torch.full_like(large, num_buckets - 1))
        return ret + torch.where(is_small, n, large)

    def compute_bias(self, qlen, klen):
        context_position = torch.arange(qlen)[:, None]
        memory_position = torch.arange(klen)[None, :]
        rp_bucket = self._bucket(memory_position - context_position)
        values = self.relative_attention_bias(rp_bucket)
        return values.permute([2, 0, 1]).unsqueeze(0)

    def forward(self, hidden_states, key_value_states=None):
        batch_size, qlen = hidden_states.shape[:2]
        source = hidden_states if key_value_states is None else key_value_states

        def shape(states):
            return states.view(batch_size, -1, self.n_heads, self.key_value_proj_dim).transpose(1, 2)

        q = shape(self.q(hidden_states))
        k = shape(self.k(source))
        v = shape(self.v(source))
        scores = torch.matmul(q, k.transpose(3, 2))
        scores += self.compute_bias(qlen, k.size(2))
        attn_weights = nn.functional.softmax(scores.float(), dim=-1).type_as(scores)
        context = torch.matmul(attn_weights, v).transpose(1, 2).contiguous().view(batch_size, -1, self.inner_dim)
        return self.o(context)
