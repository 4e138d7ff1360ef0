"""Laws of whole models: samples, padding, a batch of one, shared parts; what a whole shows right is no fault inside."""

import pytest

import headwise as hw
from headwise.calls import find
from headwise.diagnosis.checks.regrouped_tokens import _reorders
from tests.diagnosis.written import line_of, loaded_from

HEAD = "import math\nimport torch\nimport torch.nn.functional as F\nfrom torch import nn\n\n\n"


@pytest.fixture
def found_in(tmp_path):
    """The diagnosis of a class of a file."""

    def found(source, name):
        file = tmp_path / "written.py"
        file.write_text(source, encoding="utf-8")
        return hw.doctor(f"{file}:{name}")

    return found


@pytest.fixture
def blamed_in(found_in):
    """The kind and the line of each fault that is found."""
    return lambda source, name: [(each.kind, each.line) for each in found_in(source, name).faults]


PATCHES = (
    HEAD
    + """class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.attention = nn.MultiheadAttention(dim, heads, batch_first=True)

    def forward(self, x):
        h = self.norm(x)
        return x + self.attention(h, h, h, need_weights=False)[0]


class Patches(nn.Module):
    def __init__(self, img_size=32, patch_size=4, num_classes=10, dim=48, depth=2, heads=3):
        super().__init__()
        self.cut = nn.Conv2d(3, dim, kernel_size=patch_size, stride=patch_size)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_embed = nn.Parameter(torch.randn(1, (img_size // patch_size) ** 2 + 1, dim))
        self.blocks = nn.Sequential(*[Block(dim, heads) for _ in range(depth)])
        self.head = nn.Linear(dim, num_classes)

    def forward(self, img):
        x = self.cut(img).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1) + self.pos_embed
        return self.head(self.blocks(x)[:, 0])
"""
)


def test_images_that_change_nothing_since_samples_are_taken_for_tokens(found_in, blamed_in):
    source = PATCHES.replace(", batch_first=True", "")
    assert blamed_in(source, "Patches") == [("batch-length-confused", line_of(source, "nn.MultiheadAttention("))]
    assert found_in(PATCHES, "Patches").verdict == "sound"


TRANSLATION = (
    HEAD
    + """class Translation(nn.Module):
    def __init__(self, src_vocab, tgt_vocab, width, heads, pad_idx=1):
        super().__init__()
        self.pad_idx = pad_idx
        self.src_emb, self.tgt_emb = nn.Embedding(src_vocab, width), nn.Embedding(tgt_vocab, width)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(width, heads, 64, batch_first=True), 1)
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(width, heads, 64, batch_first=True), 1)
        self.out = nn.Linear(width, tgt_vocab)

    def forward(self, src, tgt):
        pad = src.eq(self.pad_idx)
        memory = self.encoder(self.src_emb(src), src_key_padding_mask=pad)
        causal = torch.ones(tgt.size(1), tgt.size(1), dtype=torch.bool, device=tgt.device).triu(1)
        y = self.decoder(self.tgt_emb(tgt), memory, tgt_mask=causal, memory_key_padding_mask=pad)
        return self.out(y)
"""
)


def test_a_decoder_that_sees_the_padding_of_its_source_is_found(blamed_in):
    source = TRANSLATION.replace(", memory_key_padding_mask=pad", "")
    assert blamed_in(source, "Translation") == [("padding-attended", line_of(source, "y = self.decoder"))]
    assert blamed_in(TRANSLATION, "Translation") == []


SETS = (
    HEAD
    + '''class Sets(nn.Module):
    """x (B, n, dim); present (B, n) bool, True for the elements that belong to the set."""

    def __init__(self, dim, heads, count):
        super().__init__()
        self.queries = nn.Parameter(torch.randn(1, count, dim))
        self.attention = nn.MultiheadAttention(dim, heads, batch_first=True)

    def forward(self, x, present):
        queries = self.queries.expand(x.size(0), -1, -1)
        return self.attention(queries, x, x, key_padding_mask=~present, need_weights=False)[0]
'''
)


def test_a_mask_of_what_learned_queries_read_is_examined(blamed_in):
    source = SETS.replace("key_padding_mask=~present", "key_padding_mask=present")
    assert blamed_in(source, "Sets") == [("mask-inverted", line_of(source, "self.attention(queries"))]
    assert blamed_in(SETS, "Sets") == []


SPEAKER = (
    HEAD
    + """class Speaker(nn.Module):
    def __init__(self, n_mels=20, width=32, heads=4):
        super().__init__()
        self.proj, self.score = nn.Linear(n_mels, width), nn.Linear(width, 1)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(width, heads, 64, batch_first=True), 1)

    def forward(self, mels):
        h = self.encoder(self.proj(mels))
        e = self.score(h).squeeze(-1)
        w = F.softmax(e, dim=1).unsqueeze(1)
        return torch.bmm(w, h).squeeze(1)
"""
)


def test_an_axis_that_a_batch_of_one_loses_is_found_where_it_raises(blamed_in):
    source = SPEAKER.replace("self.score(h).squeeze(-1)", "self.score(h).squeeze()")
    assert blamed_in(source, "Speaker") == [("single-sample-raises", line_of(source, ".squeeze()"))]
    assert blamed_in(SPEAKER, "Speaker") == []


SHARED = (
    HEAD
    + """class Layer(nn.Module):
    def __init__(self, dim, heads, feed):
        super().__init__()
        self.attention, self.feed = nn.MultiheadAttention(dim, heads, batch_first=True), feed

    def forward(self, x):
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return x + self.feed(x)


def made(dim):
    return nn.Sequential(nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))


class Encoder(nn.Module):
    def __init__(self, dim=24, heads=3, num_layers=3):
        super().__init__()
        feed = made(dim)
        self.layers = nn.ModuleList([Layer(dim, heads, feed) for _ in range(num_layers)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x
"""
)


def test_a_part_that_all_layers_hold_is_found(blamed_in):
    assert blamed_in(SHARED, "Encoder") == [("layers-shared", line_of(SHARED, "self.layers ="))]
    assert blamed_in(SHARED.replace("(dim, heads, feed) for", "(dim, heads, made(dim)) for"), "Encoder") == []
    said = SHARED.replace("class Encoder(nn.Module):\n", 'class Encoder(nn.Module):\n    """One feed is shared."""\n')
    assert blamed_in(said, "Encoder") == []


SLOPES = (
    HEAD
    + """class Slopes(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.register_buffer("slopes", 2.0 ** -torch.arange(1.0, heads + 1).view(heads, 1, 1), persistent=False)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = (t.view(b, n, self.heads, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        places = torch.arange(n, device=x.device)
        behind = places[:, None] - places[None, :]
        bias = -self.slopes * behind
        bias = bias.masked_fill(behind < 0, float("-inf"))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias.to(q.dtype)[None])
        return self.out(y.transpose(1, 2).reshape(b, n, d))
"""
)


def test_a_bias_that_favours_far_keys_is_found_in_what_torch_is_given(blamed_in):
    source = SLOPES.replace("-self.slopes * behind", "self.slopes * behind")
    assert blamed_in(source, "Slopes") == [("distance-bias-sign", line_of(source, "bias = self.slopes"))]
    assert blamed_in(SLOPES, "Slopes") == []


HANDED = (
    HEAD
    + '''class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.attention = nn.MultiheadAttention(dim, heads, batch_first=True)

    def forward(self, x, drop):
        return x + self.attention(x, x, x, key_padding_mask=drop, need_weights=False)[0]


class Reader(nn.Module):
    """input_ids: (B, L), attention_mask: (B, L) with 1 for tokens and 0 for padding"""

    def __init__(self, vocab_size=50, dim=24, heads=3):
        super().__init__()
        self.words, self.layer = nn.Embedding(vocab_size, dim), Layer(dim, heads)

    def forward(self, input_ids, attention_mask):
        keep = attention_mask.bool()
        return self.layer(self.words(input_ids), ~keep)
'''
)


def test_what_the_whole_shows_right_is_no_fault_of_a_class_inside(found_in, blamed_in):
    assert found_in(HANDED, "Reader").verdict == "sound"
    source = HANDED.replace("~keep", "keep")
    assert blamed_in(source, "Reader") == [("mask-inverted", line_of(source, "self.attention(x"))]


UNCALLED = HANDED.replace("def forward(self, input_ids, attention_mask):\n", "def forward(self, input_ids, oracle):\n")


def test_a_whole_that_cannot_be_called_is_not_sound_for_what_it_holds(found_in):
    source = UNCALLED.replace("attention_mask.bool()", "oracle.consult(input_ids).bool()")
    report = found_in(source, "Reader")
    assert (report.verdict, report.faults) == ("not examined", ())
    assert report.reason.startswith("It is not known how to build or call it")


WINDOWS = (
    HEAD
    + """class Windows(nn.Module):
    def __init__(self, dim, resolution, heads, window):
        super().__init__()
        self.H, self.W = resolution
        assert self.H % window == 0 and self.W % window == 0
        self.window, self.attention = window, nn.MultiheadAttention(dim, heads, batch_first=True)

    def forward(self, x):
        b, _, c = x.shape
        w = self.window
        x = x.view(b, self.H // w, w, self.W // w, w, c).transpose(2, 3).reshape(-1, w * w, c)
        x = self.attention(x, x, x, need_weights=False)[0]
        x = x.view(b, self.H // w, self.W // w, w, w, c).transpose(2, 3)
        return x.reshape(b, self.H * self.W, c)
"""
)


def test_an_image_is_as_many_windows_as_its_constructor_demands():
    target, namespace, _ = loaded_from(WINDOWS, "Windows")
    plan = find(target, namespace=namespace).plans[0]
    assert plan.call["x"] == ["B", "L", "D"]
    assert {each.name: each.equals for each in plan.symbols}["resolution_h"] == "n*window"


POOLED = (
    HEAD
    + """class Pool(nn.Module):
    def forward(self, tokens, attention_mask):
        mask = attention_mask.unsqueeze(-1).to(tokens.dtype)
        summed = (tokens * mask).sum(dim=1)
        counts = attention_mask.sum(dim=1, keepdim=True).clamp(min=1)
        return summed / counts


class Sentences(nn.Module):
    def __init__(self, vocab_size=50, dim=24, heads=3):
        super().__init__()
        self.words, self.pool = nn.Embedding(vocab_size, dim), Pool()
        self.attention = nn.MultiheadAttention(dim, heads, batch_first=True)

    def forward(self, input_ids, attention_mask):
        x = self.words(input_ids)
        x = x + self.attention(x, x, x, key_padding_mask=attention_mask == 0)[0]
        return self.pool(x, attention_mask)
"""
)


def test_the_mask_of_one_sample_changes_no_other(blamed_in):
    source = POOLED.replace("attention_mask.sum(dim=1, keepdim=True)", "attention_mask.sum()")
    assert blamed_in(source, "Sentences") == [("sample-leak", line_of(source, "summed / counts"))]
    assert blamed_in(POOLED, "Sentences") == []


FRAMES = (
    HEAD
    + """class Frames(nn.Module):
    \"\"\"Attention within each frame: x (b, c, t, h, w).\"\"\"

    def __init__(self, channels):
        super().__init__()
        self.q, self.k, self.v = (nn.Conv3d(channels, channels, kernel_size=1) for _ in range(3))

    def forward(self, x):
        b, c, t, h, w = x.shape
        q, k, v = (f(x).transpose(1, 2) for f in (self.q, self.k, self.v))
        q, k, v = (
            each.reshape(b * t, c, h * w)
            for each in (q, k, v)
        )
        weights = (q.transpose(1, 2) @ k * c**-0.5).softmax(dim=-1)
        y = v @ weights.transpose(1, 2)
        return x + y.reshape(b, t, c, h, w).transpose(1, 2)
"""
)


def test_a_reshape_that_names_axes_in_another_order_mixes_frames_and_channels(blamed_in):
    source = FRAMES.replace("f(x).transpose(1, 2) for f", "f(x) for f")
    assert blamed_in(source, "Frames") == [("tokens-regrouped", line_of(source, "each.reshape(b * t"))]
    assert blamed_in(FRAMES, "Frames") == []


DIVIDED = (
    HEAD
    + """class Attend(nn.Module):
    def __init__(self, dim, num_heads):
        super().__init__()
        if dim % num_heads:
            raise ValueError("num_heads must divide dim")
        self.heads, self.qkv, self.out = num_heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.out(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Divided(nn.Module):
    # x: (batch, frames * patches, dim), one frame after another
    def __init__(self, dim, num_heads, num_frames):
        super().__init__()
        self.frames = num_frames
        self.over_time, self.within = Attend(dim, num_heads), Attend(dim, num_heads)

    def forward(self, x):
        b, n, d = x.shape
        t = self.frames
        y = x.reshape(b, t, n // t, d).transpose(1, 2).reshape(-1, t, d)
        y = self.over_time(y).reshape(b, n // t, t, d).transpose(1, 2).reshape(b, n, d)
        x = x + y
        return x + self.within(x.reshape(b * t, n // t, d)).reshape(b, n, d)
"""
)


def test_of_two_axes_in_one_only_the_last_lies_in_runs(blamed_in):
    taken_apart = "y = x.reshape(b, t, n // t, d).transpose(1, 2).reshape(-1, t, d)"
    source = DIVIDED.replace(taken_apart, "y = x.reshape(-1, t, d)").replace(
        "self.over_time(y).reshape(b, n // t, t, d).transpose(1, 2).reshape", "self.over_time(y).reshape"
    )
    assert blamed_in(source, "Divided") == [("tokens-regrouped", line_of(source, "y = x.reshape(-1, t, d)"))]
    assert blamed_in(DIVIDED, "Divided") == []


RIGHT = {
    "two dropouts of one output": """class Attend(nn.Module):
    def __init__(self, dim=24, heads=3):
        super().__init__()
        self.attention = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.out, self.one, self.two = nn.Linear(dim, dim), nn.Dropout(0.1), nn.Dropout(0.2)

    def forward(self, x):
        y = self.attention(x, x, x, need_weights=False)[0]
        return (self.out(self.one(y)) + self.out(self.two(y))) / 2
""",
    "one part that several tasks read": """class Task(nn.Module):
    def __init__(self, base, dim):
        super().__init__()
        self.base, self.out = base, nn.Linear(dim, 2)

    def forward(self, x):
        return self.out(self.base(x)[:, 0])


class Attend(nn.Module):
    def __init__(self, dim=24, heads=3, tasks=2):
        super().__init__()
        base = nn.TransformerEncoderLayer(dim, heads, 64, batch_first=True)
        self.tasks = nn.ModuleList([Task(base, dim) for _ in range(tasks)])

    def forward(self, x):
        return torch.stack([task(x) for task in self.tasks], dim=1)
""",
    "an additive mask beside ids, said to be one": """class Attend(nn.Module):
    def __init__(self, vocab_size=50, dim=24, heads=3):
        super().__init__()
        self.heads, self.words, self.qkv = heads, nn.Embedding(vocab_size, dim), nn.Linear(dim, 3 * dim)

    def forward(self, input_ids, attention_mask):
        # attention_mask: (B, L), additive: 0 for a token, -inf for padding
        x = self.words(input_ids)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        scores = q @ k.mT / math.sqrt(q.shape[-1]) + attention_mask[:, None, None, :]
        return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
""",
    "the token with the largest number, after a norm of one's own": """class Norm(nn.Module):
    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


class Attend(nn.Module):
    def __init__(self, vocab_size=50, dim=24, heads=3):
        super().__init__()
        self.words, self.norm = nn.Embedding(vocab_size, dim), Norm()
        self.attention = nn.MultiheadAttention(dim, heads, batch_first=True)

    def forward(self, input_ids, attention_mask):
        x = self.words(input_ids)
        x = self.norm(x + self.attention(x, x, x, key_padding_mask=attention_mask == 0)[0])
        return x[torch.arange(len(x)), input_ids.argmax(-1)]
""",
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_only_looks_like_a_fault_is_none(name, blamed_in):
    assert blamed_in(HEAD + RIGHT[name], "Attend") == []


def test_sizes_of_a_view_are_told_apart_from_another_order_of_them():
    videos = (4, 8, 12, 9, 10)
    assert _reorders(videos, (48, 8, 90))
    assert _reorders(videos, (48, 2, 4, 90))
    assert not _reorders(videos, (4, 96, 90))
    assert not _reorders((4, 9, 10, 24), (4, 3, 3, 2, 5, 24))
    assert not _reorders((2, 3, 0, 4), (2, 0, 12))
