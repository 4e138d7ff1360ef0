import torch.nn as nn
import torch.nn.functional as F


class FusedAttention(nn.Module):
    def __init__(self, hidden_size: int, num_attention_heads: int, attention_dropout: float = 0.0):
        super().__init__()
        self.num_heads = num_attention_heads
        self.head_dim = hidden_size // num_attention_heads
        self.attention_dropout = attention_dropout
        self.q_proj = nn.Linear(hidden_size, hidden_size)
        self.k_proj = nn.Linear(hidden_size, hidden_size)
        self.v_proj = nn.Linear(hidden_size, hidden_size)
        self.out_proj = nn.Linear(hidden_size, hidden_size)

    def forward(self, hidden_states, encoder_hidden_states, attention_mask=None):
        bsz, q_len, _ = hidden_states.size()
        query = self.q_proj(hidden_states).view(bsz, q_len, self.num_heads, self.head_dim).transpose(1, 2)
        key = self.k_proj(encoder_hidden_states).view(bsz, -1, self.num_heads, self.head_dim).transpose(1, 2)
        value = self.v_proj(encoder_hidden_states).view(bsz, -1, self.num_heads, self.head_dim).transpose(1, 2)
        output = F.scaled_dot_product_attention(
            query, key, value, attn_mask=attention_mask, dropout_p=self.attention_dropout if self.training else 0.0
        )
        output = output.transpose(1, 2).reshape(bsz, q_len, self.num_heads * self.head_dim)
        return self.out_proj(output)
