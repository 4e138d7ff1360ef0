import torch


class MultiHead(torch.nn.Module):
    def __init__(self, emb, n_heads):
        super().__init__()
        s = emb**-0.5
        self.n_heads = n_heads
        self.W = torch.nn.Parameter(torch.randn(3, emb, emb) * s)
        self.W_out = torch.nn.Parameter(torch.randn(emb, emb) * s)

    def forward(self, tokens):
        n, emb = tokens.shape
        q, k, v = tokens @ self.W
        q = q.reshape(n, self.n_heads, -1).swapaxes(0, 1)
        k = k.reshape(n, self.n_heads, -1).swapaxes(0, 1)
        v = v.reshape(n, self.n_heads, -1).swapaxes(0, 1)
        scores = q.bmm(k.transpose(1, 2)) / (emb // self.n_heads) ** 0.5
        ahead = torch.arange(n)[:, None] < torch.arange(n)
        scores = scores.masked_fill(ahead, -torch.inf)
        mixed = scores.softmax(2).bmm(v)
        return mixed.swapaxes(0, 1).reshape(n, emb) @ self.W_out.T
