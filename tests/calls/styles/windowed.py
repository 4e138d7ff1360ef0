"""Classes whose sizes hang together: windows of images, tables of windows, pairs of tokens, shares of a head."""

import torch
from torch import nn


class Tiles(nn.Module):
    """Windows under a name that says nothing, of images with the channels last."""

    def __init__(self, dim, patchwork=7, dim_head=32):
        super().__init__()
        self.patchwork, self.heads, self.part = patchwork, dim // dim_head, dim_head
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        batch, height, width, dim = x.shape
        side = self.patchwork
        x = x.view(batch, height // side, side, width // side, side, dim).transpose(2, 3)
        tokens = x.reshape(-1, side * side, dim)
        q, k, v = self.qkv(tokens).view(-1, side * side, 3, self.heads, self.part).permute(2, 0, 3, 1, 4)
        y = ((q @ k.mT * self.part**-0.5).softmax(-1) @ v).transpose(1, 2).reshape(x.shape)
        return self.out(y.transpose(2, 3).reshape(batch, height, width, dim))


class Shifts(Tiles):
    """The same, after the image was rolled by a number that must be given."""

    def __init__(self, dim, num_heads, window_size, shift_size):
        super().__init__(dim, window_size, dim // num_heads)
        self.shift_size = shift_size

    def forward(self, x):
        rolled = x.roll((-self.shift_size, -self.shift_size), (1, 2))
        return x + super().forward(rolled).roll((self.shift_size, self.shift_size), (1, 2))


class Table(nn.Module):
    """A bias for each pair of a class token and the patches of a window."""

    def __init__(self, dim, num_heads, window_size):
        super().__init__()
        height, width = window_size
        self.heads = num_heads
        self.bias = nn.Parameter(torch.randn(num_heads, height * width + 1, height * width + 1))
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        scores = q @ k.mT * q.shape[-1] ** -0.5 + self.bias
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class Pairs(nn.Module):
    """Rows of pairs attend along themselves, with a bias of each pair that all rows share."""

    def __init__(self, dim, num_heads):
        super().__init__()
        self.heads, self.bias = num_heads, nn.Linear(dim, num_heads, bias=False)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, z):
        q, k, v = self.qkv(z).unflatten(-1, (3, self.heads, -1)).permute(3, 0, 1, 4, 2, 5)
        scores = q @ k.mT * q.shape[-1] ** -0.5 + self.bias(z).permute(0, 3, 1, 2)[:, None]
        return self.out((scores.softmax(-1) @ v).transpose(2, 3).flatten(3))


class Partly(nn.Module):
    """Some of each head is scaled by its positions, as much of it as a number between 0 and 1 says."""

    def __init__(self, dim, num_heads, turned_pct):
        super().__init__()
        self.heads, self.turned = num_heads, int(dim // num_heads * turned_pct)
        self.register_buffer("rates", torch.rand(self.turned))
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        gain = 1 + torch.arange(x.shape[1])[:, None] * self.rates
        q, k = (torch.cat([t[..., : self.turned] * gain, t[..., self.turned :]], -1) for t in (q, k))
        return self.out(((q @ k.mT * q.shape[-1] ** -0.5).softmax(-1) @ v).transpose(1, 2).flatten(2))


class Placed(nn.Module):
    """Keys have positions, which must be given."""

    def __init__(self, dim):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(dim, dim) for _ in range(3))

    def forward(self, x, memory, pos):
        scores = self.q(x) @ self.k(memory + pos).mT / memory.shape[-1] ** 0.5
        return scores.softmax(-1) @ self.v(memory)


class Scorer(nn.Module):
    """Weighs encoder outputs by one state."""

    def __init__(self, enc_dim, dec_dim, attn_dim):
        super().__init__()
        self.of_outputs, self.of_state = nn.Linear(enc_dim, attn_dim), nn.Linear(dec_dim, attn_dim)
        self.score = nn.Linear(attn_dim, 1)

    def forward(self, hidden, encoder_outputs, src_mask=None):
        # hidden [batch, dec_dim], encoder_outputs [batch, src_len, enc_dim], src_mask [batch, src_len]
        scores = self.score(torch.tanh(self.of_outputs(encoder_outputs) + self.of_state(hidden).unsqueeze(1)))
        if src_mask is not None:
            scores = scores.masked_fill(~src_mask.unsqueeze(-1), -1e9)
        return (scores.softmax(1) * encoder_outputs).sum(1)


class Step(nn.Module):
    """One step of a decoder: words tell the shapes of some arguments here, and of one in its part."""

    def __init__(self, vocab_size, emb_dim, enc_dim, dec_dim, attn_dim=64):
        super().__init__()
        self.words, self.attend = nn.Embedding(vocab_size, emb_dim), Scorer(enc_dim, dec_dim, attn_dim)
        self.gru = nn.GRU(emb_dim + enc_dim, dec_dim, batch_first=True)

    def forward(self, y_prev, hidden, encoder_outputs, src_mask=None):
        """y_prev: [batch] the last token; hidden: [1, batch, dec_dim]"""
        context = self.attend(hidden[-1], encoder_outputs, src_mask)
        return self.gru(torch.cat([self.words(y_prev), context], -1)[:, None], hidden)[0]


class Registers(nn.Module):
    """Tokens of an image behind one of the class and registers."""

    def __init__(self, dim, registers=4):
        super().__init__()
        self.first = 1 + registers
        self.three = nn.Linear(dim, 3 * dim)

    def forward(self, x, hw):
        h, w = hw
        assert x.shape[1] == self.first + h * w
        q, k, v = self.three(x).chunk(3, dim=-1)
        return (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1) @ v


class Quartered(nn.Module):
    """Sines and cosines of two directions in a quarter of the features each."""

    def __init__(self, d_model=256, nhead=8):
        super().__init__()
        assert d_model % 4 == 0
        self.mix = nn.MultiheadAttention(d_model, nhead, batch_first=True)

    def forward(self, x):
        return self.mix(x, x, x)[0]


class Patches(nn.Module):
    """A series in patches, which must fill it. x: (batch, seq_len, channels)."""

    def __init__(self, channels=7, seq_len=96, patch_len=8, width=64, heads=4):
        super().__init__()
        assert seq_len % patch_len == 0, "patches must fill the series"
        self.count, self.patch = seq_len // patch_len, patch_len
        self.embed = nn.Linear(channels * patch_len, width)
        self.mix = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, x):
        b, _, c = x.shape
        y = self.embed(x.reshape(b, self.count, self.patch * c))
        return self.mix(y, y, y)[0]


class Spectra(nn.Module):
    """A convolution of as many channels as it has by default, which come before the tokens."""

    def __init__(self, mels=80, width=64, heads=4):
        super().__init__()
        self.front = nn.Conv1d(mels, width, 1)
        self.mix = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, x):
        y = self.front(x).transpose(1, 2)
        return self.mix(y, y, y)[0]


class Scalar(nn.Module):
    """Its own window is one number, which a class inside is built with twice."""

    def __init__(self, dim, input_resolution, num_heads, window_size=7):
        super().__init__()
        self.input_resolution, self.window_size = input_resolution, window_size
        if min(input_resolution) <= window_size:
            self.window_size = min(input_resolution)
        self.mix = Squares(dim, (self.window_size, self.window_size), num_heads)

    def forward(self, x):
        height, width = self.input_resolution
        batch, length, dim = x.shape
        assert length == height * width, "as many tokens as the image has"
        side = self.window_size
        x = x.view(batch, height // side, side, width // side, side, dim).transpose(2, 3)
        y = self.mix(x.reshape(-1, side * side, dim)).view(x.shape).transpose(2, 3)
        return y.reshape(batch, height * width, dim)


class Squares(nn.Module):
    """Attention in windows with a bias of each pair of places."""

    def __init__(self, dim, window_size, num_heads):
        super().__init__()
        area = window_size[0] * window_size[1]
        self.bias = nn.Parameter(torch.zeros(num_heads, area, area))
        self.heads, self.qkv, self.out = num_heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        q, k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        y = (q @ k.mT * q.shape[-1] ** -0.5 + self.bias).softmax(-1) @ v
        return self.out(y.transpose(1, 2).flatten(2))


class Grouped(nn.Module):
    """Heads by default divide nothing: they are given."""

    def __init__(self, dim=64, n_heads=8, n_kv=2):
        super().__init__()
        self.heads, self.kv, self.part = n_heads, n_kv, dim // n_heads
        self.q, self.two = nn.Linear(dim, dim), nn.Linear(dim, 2 * n_kv * self.part)

    def forward(self, x):
        q = self.q(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = (y.unflatten(-1, (self.kv, -1)).transpose(1, 2) for y in self.two(x).chunk(2, -1))
        k, v = (y.repeat_interleave(self.heads // self.kv, dim=1) for y in (k, v))
        return ((q @ k.mT * self.part**-0.5).softmax(-1) @ v).transpose(1, 2).flatten(2)


class Normed(nn.Module):
    """A norm of as many channels as it has by default."""

    def __init__(self, channels=32, groups=1):
        super().__init__()
        self.norm, self.three = nn.GroupNorm(groups, channels), nn.Conv2d(channels, 3 * channels, 1)

    def forward(self, x):
        q, k, v = (y.flatten(2).mT for y in self.three(self.norm(x)).chunk(3, 1))
        return ((q @ k.mT * q.shape[-1] ** -0.5).softmax(-1) @ v).mT.view_as(x)


class Beside(nn.Module):
    """places: (B, N, 3), feats: (B, N, F)."""

    def __init__(self, feat_dim, dim=24):
        super().__init__()
        self.norm, self.three = nn.LayerNorm(6 + feat_dim), nn.Linear(6 + feat_dim, 3 * dim)

    def forward(self, places, feats):
        x = torch.cat([places.sin(), places.cos(), feats], dim=-1)
        q, k, v = self.three(self.norm(x)).chunk(3, -1)
        return (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1) @ v
