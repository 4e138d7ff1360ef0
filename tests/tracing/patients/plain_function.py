import math

import torch


def attention(q, k, v, mask=None):
    scale = 1 / math.sqrt(q.shape[-1])
    scores = scale * q @ k.transpose(-1, -2)
    if mask is not None:
        scores = scores + (1.0 - mask.float()) * -10000.0
    peak = torch.amax(scores, dim=-1, keepdim=True)
    weights = torch.exp(scores - peak)
    weights = weights / torch.sum(weights, dim=-1, keepdim=True)
    return weights @ v, weights
