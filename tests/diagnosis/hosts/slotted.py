"""Attention over slots of a fixed number, written at the positions that the call names."""
import torch
from torch import nn
from torch.nn import functional as F


class Slots(nn.Module):
    def __init__(self, max_batch_size, max_seq_length, n_heads, head_dim):
        super().__init__()
        shape = (max_batch_size, n_heads, max_seq_length, head_dim)
        self.register_buffer("k_slots", torch.zeros(shape))
        self.register_buffer("v_slots", torch.zeros(shape))

    def update(self, input_pos, k, v):
        self.k_slots[:, :, input_pos] = k
        self.v_slots[:, :, input_pos] = v
        return self.k_slots, self.v_slots


class SlottedAttention(nn.Module):
    def __init__(self, dim, n_head):
        super().__init__()
        self.n_head, self.head_dim = n_head, dim // n_head
        self.wqkv = nn.Linear(dim, 3 * dim, bias=False)
        self.wo = nn.Linear(dim, dim, bias=False)
        self.kv_cache = None

    def setup_cache(self, max_batch_size, max_seq_length):
        self.kv_cache = Slots(max_batch_size, max_seq_length, self.n_head, self.head_dim)

    def forward(self, x, input_pos):
        bsz, seqlen, dim = x.shape
        q, k, v = (
            each.view(bsz, seqlen, self.n_head, self.head_dim).transpose(1, 2) for each in self.wqkv(x).split(dim, dim=-1)
        )
        slots = input_pos
        if self.kv_cache is not None:
            k, v = self.kv_cache.update(input_pos, k, v)
            slots = torch.arange(k.shape[2])
        mask = slots[None, :] <= input_pos[:, None]
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.wo(y.transpose(1, 2).contiguous().view(bsz, seqlen, dim))
