import torch
from torch import nn


class AdditiveAttention(nn.Module):
    def __init__(self, key_size, query_size, num_hiddens):
        super().__init__()
        self.W_k = nn.Linear(key_size, num_hiddens, bias=False)
        self.W_q = nn.Linear(query_size, num_hiddens, bias=False)
        self.w_v = nn.Linear(num_hiddens, 1, bias=False)

    def forward(self, queries, keys, values, mask=None):
        q, k = self.W_q(queries), self.W_k(keys)
        features = torch.tanh(q.unsqueeze(2) + k.unsqueeze(1))
        scores = self.w_v(features).squeeze(-1)
        if mask is not None:
            scores = torch.where(mask.unsqueeze(1), scores, -1e9)
        return torch.bmm(nn.functional.softmax(scores, dim=-1), values)
