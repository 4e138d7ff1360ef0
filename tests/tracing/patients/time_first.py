import torch
import torch.nn as nn
import torch.nn.functional as F


class MultiheadAttention(nn.Module):
    """everything is time x batch x channel in here"""

    def __init__(self, embed_dim, num_heads, dropout=0.0):
        super().__init__()
        self.embed_dim, self.num_heads, self.dropout = embed_dim, num_heads, dropout
        self.head_dim = embed_dim // num_heads
        assert self.head_dim * num_heads == embed_dim, "embed_dim must be divisible by num_heads"
        self.scaling = self.head_dim**-0.5
        self.q_proj = nn.Linear(embed_dim, embed_dim)
        self.k_proj = nn.Linear(embed_dim, embed_dim)
        self.v_proj = nn.Linear(embed_dim, embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, query, key, value, key_padding_mask=None):
        tgt_len, bsz, _ = query.size()
        src_len = key.size(0)
        q = self.q_proj(query)
        q *= self.scaling
        k = self.k_proj(key)
        v = self.v_proj(value)

        q = q.view(tgt_len, bsz * self.num_heads, self.head_dim).transpose(0, 1)
        k = k.view(-1, bsz * self.num_heads, self.head_dim).transpose(0, 1)
        v = v.view(-1, bsz * self.num_heads, self.head_dim).transpose(0, 1)

        logits = torch.bmm(q, k.transpose(1, 2))
        if key_padding_mask is not None:
            logits = logits.view(bsz, self.num_heads, tgt_len, src_len)
            logits = logits.masked_fill(
                key_padding_mask.unsqueeze(1).unsqueeze(2), float("-inf")
            )
            logits = logits.view(bsz * self.num_heads, tgt_len, src_len)
        probs = F.dropout(F.softmax(logits, dim=-1), p=self.dropout, training=self.training)
        attn = torch.bmm(probs, v)
        attn = attn.transpose(0, 1).contiguous().view(tgt_len, bsz, self.embed_dim)
        mean = probs.view(bsz, self.num_heads, tgt_len, src_len).sum(dim=1) / self.num_heads
        return self.out_proj(attn), mean
