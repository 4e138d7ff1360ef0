"""How images, sets, graphs, proteins and speech are attended to."""
# ruff: noqa  written as strangers write

from itertools import repeat as again

import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from einops.layers.torch import Rearrange
from torch import einsum, nn


def exists(val):
    return val is not None


def default(val, d):
    return val if exists(val) else d


class LucidAttention(nn.Module):
    def __init__(self, dim, heads=8, dim_head=64, dropout=0.0):
        super().__init__()
        inner_dim = dim_head * heads
        self.heads, self.scale = heads, dim_head**-0.5
        self.norm = nn.LayerNorm(dim)
        self.attend = nn.Softmax(dim=-1)
        self.to_qkv = nn.Linear(dim, inner_dim * 3, bias=False)
        self.to_out = nn.Sequential(nn.Linear(inner_dim, dim), nn.Dropout(dropout))

    def forward(self, x):
        qkv = self.to_qkv(self.norm(x)).chunk(3, dim=-1)
        q, k, v = map(lambda t: rearrange(t, "b n (h d) -> b h n d", h=self.heads), qkv)
        attn = self.attend(torch.matmul(q, k.transpose(-1, -2)) * self.scale)
        return self.to_out(rearrange(torch.matmul(attn, v), "b h n d -> b n (h d)"))


class DiffusersCross(nn.Module):
    def __init__(self, query_dim, context_dim=None, heads=8, dim_head=64, dropout=0.0):
        super().__init__()
        inner_dim = dim_head * heads
        context_dim = default(context_dim, query_dim)
        self.scale, self.heads = dim_head**-0.5, heads
        self.to_q = nn.Linear(query_dim, inner_dim, bias=False)
        self.to_k = nn.Linear(context_dim, inner_dim, bias=False)
        self.to_v = nn.Linear(context_dim, inner_dim, bias=False)
        self.to_out = nn.Sequential(nn.Linear(inner_dim, query_dim), nn.Dropout(dropout))

    def forward(self, x, context=None, mask=None):
        h = self.heads
        context = default(context, x)
        q, k, v = self.to_q(x), self.to_k(context), self.to_v(context)
        q, k, v = map(lambda t: rearrange(t, "b n (h d) -> (b h) n d", h=h), (q, k, v))
        sim = einsum("b i d, b j d -> b i j", q, k) * self.scale
        if exists(mask):
            mask = rearrange(mask, "b ... -> b (...)")
            mask = repeat(mask, "b j -> (b h) () j", h=h)
            sim.masked_fill_(~mask, -torch.finfo(sim.dtype).max)
        out = einsum("b i j, b j d -> b i d", sim.softmax(dim=-1), v)
        return self.to_out(rearrange(out, "(b h) n d -> b n (h d)", h=h))


class TimmAttention(nn.Module):
    def __init__(self, dim: int, num_heads: int = 8, qkv_bias: bool = False, qk_norm: bool = False,
                 attn_drop: float = 0.0, proj_drop: float = 0.0, norm_layer: type = nn.LayerNorm) -> None:  # fmt: skip
        super().__init__()
        assert dim % num_heads == 0, "dim should be divisible by num_heads"
        self.num_heads, self.head_dim = num_heads, dim // num_heads
        self.scale = self.head_dim**-0.5
        self.qkv = nn.Linear(dim, dim * 3, bias=qkv_bias)
        self.q_norm = norm_layer(self.head_dim) if qk_norm else nn.Identity()
        self.attn_drop, self.proj = nn.Dropout(attn_drop), nn.Linear(dim, dim)

    def forward(self, x):
        B, N, C = x.shape
        q, k, v = self.qkv(x).reshape(B, N, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4).unbind(0)
        attn = (self.q_norm(q) * self.scale) @ k.transpose(-2, -1)
        return self.proj((self.attn_drop(attn.softmax(dim=-1)) @ v).transpose(1, 2).reshape(B, N, C))


class SwinWindow(nn.Module):
    def __init__(self, dim, window_size, num_heads, qkv_bias=True):
        super().__init__()
        self.window_size, self.num_heads = window_size, num_heads
        head_dim = dim // num_heads
        self.scale = head_dim**-0.5
        count = (2 * window_size[0] - 1) * (2 * window_size[1] - 1)
        self.relative_position_bias_table = nn.Parameter(torch.zeros(count, num_heads))
        coords = torch.stack(torch.meshgrid([torch.arange(s) for s in self.window_size], indexing="ij")).flatten(1)
        relative = (coords[:, :, None] - coords[:, None, :]).permute(1, 2, 0).contiguous()
        relative[:, :, 0] += self.window_size[0] - 1
        relative[:, :, 1] += self.window_size[1] - 1
        relative[:, :, 0] *= 2 * self.window_size[1] - 1
        self.register_buffer("relative_position_index", relative.sum(-1))
        self.qkv, self.proj = nn.Linear(dim, dim * 3, bias=qkv_bias), nn.Linear(dim, dim)

    def forward(self, x, mask=None):
        B_, N, C = x.shape
        qkv = self.qkv(x).reshape(B_, N, 3, self.num_heads, C // self.num_heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        attn = (q * self.scale) @ k.transpose(-2, -1)
        bias = self.relative_position_bias_table[self.relative_position_index.view(-1)].view(N, N, -1)
        attn = attn + bias.permute(2, 0, 1).contiguous().unsqueeze(0)
        if mask is not None:
            nW = mask.shape[0]
            attn = attn.view(B_ // nW, nW, self.num_heads, N, N) + mask.unsqueeze(1).unsqueeze(0)
            attn = attn.view(-1, self.num_heads, N, N)
        return self.proj((attn.softmax(-1) @ v).transpose(1, 2).reshape(B_, N, C))


class LocalWindows(nn.Module):
    def __init__(self, dim, heads, window_size):
        super().__init__()
        self.w, self.h = window_size, heads
        self.qkv = nn.Linear(dim, 3 * dim)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = rearrange(self.qkv(x), "b (n w) (three h d) -> three b n h w d", three=3, w=self.w, h=self.h)
        out = F.scaled_dot_product_attention(q, k, v)
        return rearrange(out, "b n h w d -> b (n w) (h d)")


class SpatialSelf(nn.Module):
    """A GAN's."""

    def __init__(self, in_dim):
        super().__init__()
        self.query_conv = nn.Conv2d(in_dim, in_dim, kernel_size=1)
        self.key_conv = nn.Conv2d(in_dim, in_dim, kernel_size=1)
        self.value_conv = nn.Conv2d(in_dim, in_dim, kernel_size=1)
        self.gamma = nn.Parameter(torch.zeros(1))
        self.softmax = nn.Softmax(dim=-1)

    def forward(self, x):
        m_batchsize, C, width, height = x.size()
        proj_query = self.query_conv(x).view(m_batchsize, -1, width * height).permute(0, 2, 1)
        proj_key = self.key_conv(x).view(m_batchsize, -1, width * height)
        attention = self.softmax(torch.bmm(proj_query, proj_key))
        out = torch.bmm(self.value_conv(x).view(m_batchsize, -1, width * height), attention.permute(0, 2, 1))
        return self.gamma * out.view(m_batchsize, C, width, height) + x


class LinearConv(nn.Module):
    def __init__(self, dim, heads=4, dim_head=32):
        super().__init__()
        self.scale, self.heads = dim_head**-0.5, heads
        self.to_qkv = nn.Conv2d(dim, dim_head * heads * 3, 1, bias=False)
        self.to_out = nn.Conv2d(dim_head * heads, dim, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = map(
            lambda t: rearrange(t, "b (h c) x y -> b h c (x y)", h=self.heads), self.to_qkv(x).chunk(3, dim=1)
        )
        q, k = q.softmax(dim=-2) * self.scale, k.softmax(dim=-1)
        out = torch.einsum("b h d e, b h d n -> b h e n", torch.einsum("b h d n, b h e n -> b h d e", k, v), q)
        return self.to_out(rearrange(out, "b h c (x y) -> b (h c) x y", h=self.heads, x=h, y=w))


class GroupNormAttention(nn.Module):
    """A diffusion model's."""

    def __init__(self, channels, num_heads=1, norm_groups=32):
        super().__init__()
        self.n = num_heads
        self.norm = nn.GroupNorm(1, channels)
        self.qkv, self.out = nn.Conv1d(channels, channels * 3, 1), nn.Conv1d(channels, channels, 1)

    def forward(self, x):
        b, c, *spatial = x.shape
        x = x.reshape(b, c, -1)
        q, k, v = self.qkv(self.norm(x)).reshape(b * self.n, -1, x.shape[-1]).chunk(3, dim=1)
        w = torch.einsum("bct,bcs->bts", q, k).softmax(-1)
        h = torch.einsum("bts,bcs->bct", w, v).reshape(b, -1, x.shape[-1])
        return (x + self.out(h)).reshape(b, c, *spatial)


class PatchViT(nn.Module):
    def __init__(self, *, image_size, patch_size, num_classes, dim, depth, heads, mlp_dim, channels=3):
        super().__init__()
        assert image_size % patch_size == 0, "image must be divisible by the patch size"
        num_patches = (image_size // patch_size) ** 2
        self.embed = nn.Sequential(
            Rearrange("b c (h p1) (w p2) -> b (h w) (p1 p2 c)", p1=patch_size, p2=patch_size),
            nn.Linear(channels * patch_size**2, dim),
        )
        self.pos_embedding = nn.Parameter(torch.randn(1, num_patches + 1, dim))
        self.cls_token = nn.Parameter(torch.randn(1, 1, dim))
        layer = nn.TransformerEncoderLayer(dim, heads, mlp_dim, dropout=0.0, batch_first=True)
        self.transformer = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(dim, num_classes)

    def forward(self, img):
        x = self.embed(img)
        x = torch.cat((self.cls_token.expand(x.shape[0], -1, -1), x), dim=1)
        return self.head(self.transformer(x + self.pos_embedding)[:, 0])


class SetMAB(nn.Module):
    def __init__(self, dim_Q, dim_K, dim_V, num_heads, ln=False):
        super().__init__()
        self.dim_V, self.num_heads = dim_V, num_heads
        self.fc_q, self.fc_k, self.fc_v = nn.Linear(dim_Q, dim_V), nn.Linear(dim_K, dim_V), nn.Linear(dim_K, dim_V)
        self.fc_o = nn.Linear(dim_V, dim_V)

    def forward(self, Q, K):
        Q, K, V = self.fc_q(Q), self.fc_k(K), self.fc_v(K)
        dim_split = self.dim_V // self.num_heads
        Q_, K_, V_ = (torch.cat(t.split(dim_split, 2), 0) for t in (Q, K, V))
        A = torch.softmax(Q_.bmm(K_.transpose(1, 2)) / self.dim_V**0.5, 2)
        O = torch.cat((Q_ + A.bmm(V_)).split(Q.size(0), 0), 2)
        return O + F.relu(self.fc_o(O))


class DetrLayer(nn.Module):
    def __init__(self, d_model, nhead, dim_feedforward=2048, dropout=0.1):
        super().__init__()
        self.self_attn = nn.MultiheadAttention(d_model, nhead, dropout=dropout)
        self.linear1, self.linear2 = nn.Linear(d_model, dim_feedforward), nn.Linear(dim_feedforward, d_model)
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)

    def forward(self, src, src_mask=None, src_key_padding_mask=None, pos=None):
        q = k = src if pos is None else src + pos
        src2 = self.self_attn(q, k, value=src, attn_mask=src_mask, key_padding_mask=src_key_padding_mask)[0]
        src = self.norm1(src + src2)
        return self.norm2(src + self.linear2(F.relu(self.linear1(src))))


class SamAttention(nn.Module):
    def __init__(self, embedding_dim: int, num_heads: int, downsample_rate: int = 1) -> None:
        super().__init__()
        self.internal_dim, self.num_heads = embedding_dim // downsample_rate, num_heads
        assert self.internal_dim % num_heads == 0, "num_heads must divide embedding_dim."
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(embedding_dim, self.internal_dim) for _ in range(3))
        self.out_proj = nn.Linear(self.internal_dim, embedding_dim)

    def _separate_heads(self, x, num_heads):
        b, n, c = x.shape
        return x.reshape(b, n, num_heads, c // num_heads).transpose(1, 2)

    def forward(self, q, k, v):
        q, k, v = (
            self._separate_heads(p(t), self.num_heads)
            for p, t in ((self.q_proj, q), (self.k_proj, k), (self.v_proj, v))
        )
        attn = torch.softmax(q @ k.permute(0, 1, 3, 2) / q.shape[-1] ** 0.5, dim=-1)
        out = (attn @ v).transpose(1, 2)
        return self.out_proj(out.reshape(out.shape[0], out.shape[1], -1))


class AxialProtein(nn.Module):
    """Gated attention with a pair bias."""

    def __init__(self, c_in, c_hidden, no_heads):
        super().__init__()
        self.h, self.c = no_heads, c_hidden
        self.q, self.k, self.v = (nn.Linear(c_in, c_hidden * no_heads, bias=False) for _ in range(3))
        self.g, self.o = nn.Linear(c_in, c_hidden * no_heads), nn.Linear(c_hidden * no_heads, c_in)

    def forward(self, q_x, kv_x, biases=None):
        q, k, v = (
            t.view(*t.shape[:-1], self.h, -1).transpose(-2, -3) for t in (self.q(q_x), self.k(kv_x), self.v(kv_x))
        )
        a = torch.matmul(q / self.c**0.5, k.transpose(-1, -2))
        for b in biases or []:
            a = a + b
        o = torch.matmul(a.softmax(-1), v).transpose(-2, -3)
        g = torch.sigmoid(self.g(q_x)).view(*q_x.shape[:-1], self.h, -1)
        return self.o((o * g).flatten(-2))


class GraphAttention(nn.Module):
    def __init__(self, in_features, out_features, dropout, alpha, concat=True):
        super().__init__()
        self.dropout, self.alpha, self.concat, self.out_features = dropout, alpha, concat, out_features
        self.W = nn.Parameter(torch.empty(size=(in_features, out_features)))
        nn.init.xavier_uniform_(self.W.data, gain=1.414)
        self.a = nn.Parameter(torch.empty(size=(2 * out_features, 1)))
        nn.init.xavier_uniform_(self.a.data, gain=1.414)

    def forward(self, h, adj):
        Wh = torch.mm(h, self.W)
        e = torch.matmul(Wh, self.a[: self.out_features, :]) + torch.matmul(Wh, self.a[self.out_features :, :]).T
        e = F.leaky_relu(e, self.alpha)
        attention = torch.where(adj > 0, e, -9e15 * torch.ones_like(e))
        attention = F.dropout(F.softmax(attention, dim=1), self.dropout, training=self.training)
        return F.elu(torch.matmul(attention, Wh)) if self.concat else torch.matmul(attention, Wh)


class SequenceFirst(nn.Module):
    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=True):
        super().__init__()
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        assert self.head_dim * num_heads == self.embed_dim, "embed_dim must be divisible by num_heads"
        self.in_proj = nn.Linear(embed_dim, 3 * embed_dim, bias=bias)
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=bias)

    def forward(self, query, key_padding_mask=None, attn_mask=None):
        tgt_len, bsz, embed_dim = query.size()
        q, k, v = self.in_proj(query).chunk(3, dim=-1)
        q, k, v = (t.contiguous().view(tgt_len, bsz * self.num_heads, self.head_dim).transpose(0, 1) for t in (q, k, v))
        w = torch.bmm(q * self.head_dim**-0.5, k.transpose(1, 2))
        if attn_mask is not None:
            w = w + attn_mask.unsqueeze(0)
        if key_padding_mask is not None:
            w = w.view(bsz, self.num_heads, tgt_len, tgt_len)
            w = w.masked_fill(key_padding_mask.unsqueeze(1).unsqueeze(2), float("-inf"))
            w = w.view(bsz * self.num_heads, tgt_len, tgt_len)
        return self.out_proj(torch.bmm(w.softmax(-1), v).transpose(0, 1).contiguous().view(tgt_len, bsz, embed_dim))


class SqueezeExcite(nn.Module):
    def __init__(self, channel, reduction=16):
        super().__init__()
        self.avg_pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Sequential(nn.Linear(channel, channel), nn.ReLU(), nn.Linear(channel, channel), nn.Sigmoid())

    def forward(self, x):
        b, c, _, _ = x.size()
        return x * self.fc(self.avg_pool(x).view(b, c)).view(b, c, 1, 1).expand_as(x)


class Perceiver(nn.Module):
    def __init__(self, *, dim, dim_head=64, heads=8):
        super().__init__()
        self.heads, self.scale = heads, dim_head**-0.5
        self.norm_media, self.norm_latents = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.to_q = nn.Linear(dim, dim_head * heads, bias=False)
        self.to_kv = nn.Linear(dim, dim_head * heads * 2, bias=False)
        self.to_out = nn.Linear(dim_head * heads, dim, bias=False)

    def forward(self, x, latents):
        x, latents = self.norm_media(x), self.norm_latents(latents)
        k, v = self.to_kv(torch.cat((x, latents), dim=-2)).chunk(2, dim=-1)
        q, k, v = (rearrange(t, "b n (h d) -> b h n d", h=self.heads) for t in (self.to_q(latents), k, v))
        sim = einsum("... i d, ... j d -> ... i j", q * self.scale, k)
        return self.to_out(rearrange(einsum("... i j, ... j d -> ... i d", sim.softmax(-1), v), "b h n d -> b n (h d)"))


STRIDES = list(again(1, 2))
