"""A decoder with one class for attention to itself and one across; the second takes its softmax over queries."""

from torch import nn


class SelfAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, dim * 3, bias=False)
        self.out = nn.Linear(dim, dim)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        a = (q @ k.mT * (d // self.heads) ** -0.5).softmax(-1)
        return self.out((a @ v).transpose(1, 2).reshape(b, n, d))


class CrossAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(dim, dim, bias=False)
        self.kv = nn.Linear(dim, dim * 2, bias=False)
        self.out = nn.Linear(dim, dim)

    def forward(self, x, context):
        b, n, d = x.shape
        q = self.q(x).view(b, n, self.heads, -1).transpose(1, 2)
        k, v = self.kv(context).chunk(2, -1)
        k = k.view(b, -1, self.heads, d // self.heads).transpose(1, 2)
        v = v.view(b, -1, self.heads, d // self.heads).transpose(1, 2)
        a = (q @ k.mT * (d // self.heads) ** -0.5).softmax(-2)
        return self.out((a @ v).transpose(1, 2).reshape(b, n, d))


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.a = SelfAttention(dim, heads)
        self.c = CrossAttention(dim, heads)

    def forward(self, x, context):
        x = x + self.a(x)
        return x + self.c(x, context)


class Decoder(nn.Module):
    def __init__(self, dim=24, heads=3, depth=2):
        super().__init__()
        self.layers = nn.ModuleList([Layer(dim, heads) for _ in range(depth)])

    def forward(self, x, context):
        for each in self.layers:
            x = each(x, context)
        return x
