"""Cut keys: keys, windows, images and cached positions that are cut or laid out at the wrong end, beside right ones."""

import pytest
from torch import nn

import headwise as hw
from tests.diagnosis.written import HEAD, attend, blamed_in, found_in, line_of

IMAGE = (
    HEAD
    + """
class Attend(nn.Module):
    def __init__(self, width, heads, ratio=1):
        super().__init__()
        self.heads, self.ratio = heads, ratio
        self.q, self.kv, self.o = nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(width, width)
        if ratio > 1:
            self.fewer = nn.Conv2d(width, width, ratio, stride=ratio)

    def forward(self, x, H, W):
        # x: (B, H*W, width)
        seen = x
        if self.ratio > 1:
            seen = self.fewer({image}).flatten(2).transpose(1, 2)
        q = self.q(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.kv(seen).chunk(2, dim=-1))
        return self.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
"""
)
CONVOLVED = (
    HEAD
    + """
class Attend(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qk = nn.Conv1d(width, 2 * width, 3, padding=2)
        self.v, self.o = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        long = x.shape[1]
        qk = self.qk(x.transpose(1, 2))
        qk = {cut}
        q, k = qk.transpose(1, 2).chunk(2, dim=-1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, self.v(x)))
        s = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(torch.ones(long, long).triu(1).bool(), float("-inf"))
        return self.o((s.softmax(-1) @ v).transpose(1, 2).flatten(2))
"""
)
BLOCKS = (
    HEAD
    + """
class Attend(nn.Module):
    def __init__(self, width, heads, block=8):
        super().__init__()
        self.heads, self.block = heads, block
        self.qkv, self.o = nn.Linear(width, 3 * width), nn.Linear(width, width)
        at, key = torch.arange(block)[:, None] + block, torch.arange(2 * block)
        self.register_buffer("near", (key <= at) & (key > at - block), persistent=False)

    def forward(self, x):
        b, long, _ = x.shape
        x = F.pad(x, (0, 0, 0, -long % self.block))
        q, k, v = (t.reshape(b, -1, self.block, self.heads, t.shape[-1] // self.heads).transpose(2, 3)
                   for t in self.qkv(x).chunk(3, dim=-1))
        k, v = (torch.cat([t.roll(1, 1), t], dim=3) for t in (k, v))
        s = q @ k.mT / math.sqrt(q.shape[-1])
        near = self.near.expand(k.shape[1], -1, -1).clone()
        {first}
        s = s.masked_fill(~near[:, None], torch.finfo(s.dtype).min)
        return self.o((s.softmax(-1) @ v).transpose(2, 3).reshape(b, -1, x.shape[-1])[:, :long])
"""
)
CACHED = (
    HEAD
    + """
class Attend(nn.Module):
    def __init__(self, width, heads, room=64):
        super().__init__()
        self.heads = heads
        self.qkv, self.o = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.places = nn.Embedding(room, width)

    def forward(self, x, cache=None):
        long = x.shape[1]
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
        begin = 0 if cache is None else cache[0].size({axis})
        place = self.places.weight[begin:begin + long].unflatten(-1, (self.heads, -1)).transpose(0, 1)
        q, k = q + place, k + place
        if cache is not None:
            k, v = torch.cat([cache[0], k], dim=2), torch.cat([cache[1], v], dim=2)
        open = torch.ones(long, k.shape[2], dtype=torch.bool).tril(k.shape[2] - long)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=open)
        return self.o(y.transpose(1, 2).flatten(2)), (k, v)
"""
)
# source, what stands in it, the kind of the fault or "", the line of it
CASES = {
    "an image of tokens as they lie": (IMAGE, "image", "x.reshape(x.shape[0], -1, H, W)", "tokens-regrouped"),
    "an image of tokens": (IMAGE, "image", "x.transpose(1, 2).reshape(x.shape[0], -1, H, W)", ""),
    "the last of a convolution": (CONVOLVED, "cut", "qk[..., -long:]", "key-value-misaligned"),
    "the first of a convolution": (CONVOLVED, "cut", "qk[..., :long]", ""),
    "a first block with the last": (BLOCKS, "first", "pass", "windows-wrapped"),
    "a first block alone": (BLOCKS, "first", "near[0, :, : self.block] = False", ""),
    "positions by the heads": (CACHED, "axis", "1", "position-cache"),
    "positions by the tokens": (CACHED, "axis", "2", ""),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_cut_at_the_wrong_end_is_told_where_it_is_made(case):
    source, name, text, kind = case
    source = source.replace(f"{{{name}}}", text)
    place = "masked_fill(~near" if kind == "windows-wrapped" else text if name != "axis" else "cache[0].size"
    assert blamed_in(source) == ([(kind, line_of(source, place))] if kind else [])


NORMED = """
q, k = self.even(q), self.even(k)
y = F.scaled_dot_product_attention({q}, k, v)
"""


@pytest.mark.parametrize(
    ("q", "kinds"),
    [("q * self.part ** -0.5", ["scale-twice"]), ("q", [])],
)
def test_torch_scales_normed_queries_itself(q, kinds):
    source = HEAD + attend("self.even = nn.LayerNorm(self.part)", NORMED.replace("{q}", q))
    assert [kind for kind, _ in blamed_in(source)] == kinds


BOUNDED = """
s = q @ k.mT * self.part ** -0.5
late = torch.ones(long, long, dtype=torch.bool).triu(1)
{body}
y = s.softmax(-1) @ v
"""


@pytest.mark.parametrize(
    ("body", "kinds"),
    [
        ("s = s.masked_fill(late, -1e30)\ns = 10 * torch.tanh(s / 10)", ["mask-bounded"]),
        ("s = 10 * torch.tanh(s / 10)\ns = s.masked_fill(late, -1e30)", []),
    ],
    ids=["after the mask", "before it"],
)
def test_a_cap_after_the_mask_leaves_hidden_keys_some_weight(body, kinds):
    source = HEAD + attend(body=BOUNDED.replace("{body}", body))
    assert [kind for kind, _ in blamed_in(source)] == kinds


POOL = (
    HEAD
    + """
class Attend(nn.Module):
    \"\"\"x (batch, channels, frames); lengths (batch,) how many frames there are\"\"\"

    def __init__(self, channels):
        super().__init__()
        self.mix, self.score = nn.Conv1d(2 * channels, channels, 1), nn.Conv1d(channels, channels, 1)

    def mean(self, x, w):
        return (x * w).sum(dim=2)

    def forward(self, x, lengths):
        there = (torch.arange(x.shape[2]) < lengths[:, None])[:, None].to(x.dtype)
        level = self.mean(x, {level})
        s = self.score(self.mix(torch.cat([x, level[..., None].expand_as(x)], dim=1)).tanh())
        s = s.masked_fill(there == 0, float("-inf"))
        return self.mean(x, s.softmax(dim=2))
"""
)


@pytest.mark.parametrize(
    ("level", "kinds"),
    [("torch.full_like(x, 1 / x.shape[2])", ["padding-pooled"]), ("there / there.sum(dim=2, keepdim=True)", [])],
    ids=["of all frames", "of those that are there"],
)
def test_padding_that_a_right_helper_pools_is_told_at_its_call(level, kinds):
    source = POOL.replace("{level}", level)
    assert blamed_in(source) == [(kind, line_of(source, "level = ")) for kind in kinds]


def test_weights_of_an_activation_are_a_design_that_is_named():
    body = "b = self.far[:long, None] - self.far[:long]\ny = F.silu(q @ k.mT * self.part ** -0.5 + b) / 50 @ v"
    diagnosis = found_in(HEAD + attend("self.far = nn.Parameter(torch.randn(64))", body))
    assert diagnosis.verdict == "sound"
    assert "pointwise attention, arXiv:2402.17152" in str(diagnosis.examined["comparison"])


def test_rows_that_a_large_number_hides_tell_nothing_of_the_formula():
    body = """
    far = self.near(x).transpose(1, 2)[..., None]
    s = q @ k.mT * self.part ** -0.5 + (1e9 * (keep.to(x.dtype) - 1))[:, None, None] + far
    y = s.softmax(-1) @ v
    """
    source = HEAD + attend("self.near = nn.Linear(width, num_heads)", body, given="keep")
    assert found_in(source).verdict == "sound"


class FirstAxis(nn.Module):
    """Tokens first; heads stand beside the samples. x: (T, B, C)"""

    def __init__(self, channels, heads):
        super().__init__()
        self.heads, self.d = heads, channels // heads
        self.make, self.out = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)

    def forward(self, x):
        T, B, C = x.shape
        q, k, v = (t.reshape(T, B * self.heads, self.d).transpose(0, 1) for t in self.make(x).chunk(3, dim=-1))
        w = (q @ k.mT * self.d**-0.5).softmax(-1)
        return self.out((w @ v).transpose(0, 1).reshape(T, B, C))


def test_heads_beside_samples_are_no_tokens_where_the_sizes_of_a_module_are_alike():
    assert hw.doctor(FirstAxis(16, 4)).verdict == "sound"


ROLLING = (
    HEAD
    + """
class Attend(nn.Module):
    def __init__(self, width, heads, window=8):
        super().__init__()
        self.heads, self.window = heads, window
        self.qkv, self.o = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def spin(self, t, begin):
        half = t.shape[-1] // 2
        far = torch.arange(begin, begin + t.shape[2])[:, None] / 100 ** (torch.arange(half) / half)
        a, b = t[..., :half], t[..., half:]
        return torch.cat([a * far.cos() - b * far.sin(), b * far.cos() + a * far.sin()], dim=-1)

    def forward(self, x, cache=None):
        begin = 0 if cache is None else cache[2]
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
        q, k, near = self.spin(q, begin), self.spin(k, begin), None
        if cache is not None:
            k, v = torch.cat([cache[0], k], dim=2), torch.cat([cache[1], v], dim=2)
        else:
            far = torch.arange(x.shape[1])[:, None] - torch.arange(x.shape[1])
            near = (far >= 0) & (far < self.window)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=near)
        kept = k[:, :, {cut}:], v[:, :, {cut}:]
        return self.o(y.transpose(1, 2).flatten(2)), (*kept, begin + x.shape[1])
"""
)


@pytest.mark.parametrize(
    ("cut", "kinds"), [("-self.window", ["cache-window-wide"]), ("1 - self.window", [])], ids=["one more", "as many"]
)
def test_a_rolling_cache_leaves_room_for_the_token_that_comes(cut, kinds):
    source = ROLLING.replace("{cut}", cut)
    assert blamed_in(source) == [(kind, line_of(source, "kept = ")) for kind in kinds]
