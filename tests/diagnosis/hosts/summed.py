import torch
import torch.nn as nn


class MultiHeadAttention(nn.Module):
    """Einstein summation all the way; attn_mask (N, T, S): True where a position may be looked at."""

    def __init__(self, embed_size, heads):
        super().__init__()
        self.embed_size, self.heads, self.head_dim = embed_size, heads, embed_size // heads
        self.values = nn.Linear(embed_size, embed_size, bias=False)
        self.keys = nn.Linear(embed_size, embed_size, bias=False)
        self.queries = nn.Linear(embed_size, embed_size, bias=False)
        self.fc_out = nn.Linear(embed_size, embed_size)

    def forward(self, query, key, value, attn_mask=None):
        N, T, S = query.shape[0], query.shape[1], key.shape[1]
        values = self.values(value).reshape(N, S, self.heads, self.head_dim)
        keys = self.keys(key).reshape(N, S, self.heads, self.head_dim)
        queries = self.queries(query).reshape(N, T, self.heads, self.head_dim)
        energy = torch.einsum("nqhd,nkhd->nhqk", [queries, keys])
        energy = energy / (self.head_dim ** (1 / 2))
        if attn_mask is not None:
            energy = energy.masked_fill(~attn_mask[:, None], float("-1e20"))
        attention = torch.softmax(energy, dim=3)
        out = torch.einsum("nhql,nlhd->nqhd", [attention, values])
        out = out.reshape(N, T, self.heads * self.head_dim)
        return self.fc_out(out)
