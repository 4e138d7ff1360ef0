"""What a class says of itself and does not do, and what it makes and does not read; beside each the same put right."""

import pytest

from tests.diagnosis.written import HEAD, found_in, line_of

ALIKE = (
    HEAD
    + '''
class Attend(nn.Module):
    """Patches with one that is learned before them: (batch, patches, width) -> (batch, classes)."""

    def __init__(self, width=48, heads=4, classes=5):
        super().__init__()
        self.first = nn.Parameter(torch.randn(1, 1, width))
        self.mix = nn.MultiheadAttention(width, heads{way})
        self.out = nn.Linear(width, classes)

    def forward(self, patches):
        patches = torch.cat([self.first.expand(patches.shape[0], -1, -1), patches], dim=1)
        return self.out(self.mix(patches, patches, patches)[0][:, 0])
'''
)
SAID = (
    HEAD
    + '''
class Attend(nn.Module):
    """{says}"""

    def __init__(self, width, heads, reach=4):
        super().__init__()
        self.heads, self.reach = heads, reach
        self.three = nn.Linear(width, 3 * width)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.three(x).chunk(3, -1))
        place = torch.arange(x.shape[1])
        back = place[:, None] - place
        y = F.scaled_dot_product_attention(q, k, v, attn_mask={near})
        return y.transpose(1, 2).flatten(2)
'''
)
LAYER = (
    HEAD
    + '''
class Attend(nn.Module):
    """own_mask: (targets, targets), True = may see; other_mask: (batch, sources), True = a real token."""

    def __init__(self, width=48, heads=4):
        super().__init__()
        self.heads = heads
        self.own, self.other = (nn.ModuleList(nn.Linear(width, width) for _ in range(4)) for _ in range(2))

    def mix(self, parts, x, y, mask=None):
        q, k, v = (p(t).unflatten(-1, (self.heads, -1)).transpose(1, 2) for p, t in zip(parts, (x, y, y)))
        s = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        s = s if mask is None else s.masked_fill(~mask, -1e4)
        return parts[3]((s.softmax(-1) @ v).transpose(1, 2).flatten(2))

    def forward(self, target, source, own_mask=None, other_mask=None):
        if other_mask is not None:
            other_mask = other_mask[:, None, None]
        target = target + self.mix(self.own, target, target, own_mask)
        return target + self.mix(self.other, target, source{passed})
'''
)
SHIFTED_BY = (
    HEAD
    + """
class Attend(nn.Module):
    def __init__(self, width: int = 48, heads: int = 4):
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.three, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.by = nn.Linear(width, 3 * width)

    def forward(self, x, cond):
        up, more, gate = self.by(F.silu(cond)).chunk(3, dim=-1)
        y = self.norm(x) * (1 + more.unsqueeze(1)) + up.unsqueeze(1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.three(y).chunk(3, -1))
        q = q{scaled}
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return x + gate.unsqueeze(1) * self.join(y)
"""
)
MEMORIES = (
    HEAD
    + '''
class Attend(nn.Module):
    """mask: (batch, tokens) bool, True = a token."""

    def __init__(self, width, heads=4, size=8, kept=2):
        super().__init__()
        self.heads, self.kept, self.size = heads, kept, size
        self.three, self.join = nn.Linear(width, 3 * heads * size), nn.Linear(heads * size, width)
        self.more_k, self.more_v = (nn.Parameter(torch.randn(1, heads, kept, size)) for _ in range(2))

    def forward(self, x, mask=None):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.three(x).chunk(3, -1))
        k, v = (torch.cat([m.expand(len(x), -1, -1, -1), t], dim=2) for m, t in ((self.more_k, k), (self.more_v, v)))
        s = q @ k.transpose(-1, -2) / self.size ** 0.5
        if mask is not None:
            mask = F.pad(mask, {side}, value=True)
            s = s.masked_fill(~mask[:, None, None], -1e4)
        return self.join((s.softmax(-1) @ v).transpose(1, 2).flatten(2))
'''
)
TABLE = (
    HEAD
    + """
class Attend(nn.Module):
    def __init__(self, width=48, heads=4):
        super().__init__()
        self.heads = heads
        self.three, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.near = nn.Embedding(16, heads)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.three(x).chunk(3, -1))
        place = torch.arange(x.shape[1])
        rows = ({back}).clamp(0, 15)
        s = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 + self.near(rows).permute(2, 0, 1)
        s = s.masked_fill(place > place[:, None], float("-inf"))
        return self.join((s.softmax(-1) @ v).transpose(1, 2).flatten(2))
"""
)
SLOPES = (
    HEAD
    + """
class Attend(nn.Module):
    def __init__(self, width=48, heads=4, longest=64):
        super().__init__()
        self.heads = heads
        self.three, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
        back = torch.arange(longest)[:, None] - torch.arange(longest)
        slopes = (2.0 ** -torch.arange(1, heads + 1)).view(-1, 1, 1)
        self.register_buffer("far", ({sign}slopes * back).masked_fill(back < 0, float("-inf")))

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.three(x).chunk(3, -1))
        s = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        s = s + self.far[:, :x.shape[1], :x.shape[1]]
        return self.join((s.softmax(-1) @ v).transpose(1, 2).flatten(2))
"""
)
PAIRS = (
    HEAD
    + """
class Attend(nn.Module):
    def __init__(self, width=48, heads=3):
        super().__init__()
        self.heads, self.size = heads, width // heads // 2
        self.q, self.k, self.v, self.join = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x):
        b, n, _ = x.shape
        q1, q2 = self.q(x).view(b, n, self.heads, 2, self.size).permute(3, 0, 2, 1, 4)
        k1, k2 = self.k(x).view(b, n, self.heads, 2, self.size).permute(3, 0, 2, 1, 4)
        v = self.v(x).view(b, n, self.heads, -1).transpose(1, 2)
        w1 = (q1 @ k1.mT / self.size ** 0.5).softmax(-1)
        w2 = ({which} @ k2.mT / self.size ** 0.5).softmax(-1)
        return self.join(((w1 - 0.5 * w2) @ v).transpose(1, 2).flatten(2))
"""
)
FOR_INFERENCE = (
    HEAD
    + """
class Attend(nn.Module):
    def __init__(self, width=48, heads=4):
        super().__init__()
        self.heads = heads
        self.three, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)

    @torch.{mode}()
    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.three(x).chunk(3, -1))
        return self.join(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
"""
)
PLANE = (
    HEAD
    + """
class Attend(nn.Module):
    def __init__(self, channels=24, width=6, height=5, heads=3):
        super().__init__()
        self.heads, self.size = heads, channels // heads
        self.three = nn.Conv2d(channels, 3 * channels, 1)
        self.up = nn.Parameter(torch.randn(heads, self.size, height, 1))
        self.along = nn.Parameter(torch.randn(heads, self.size, 1, width))

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = (t.reshape(b, self.heads, self.size, h * w) for t in self.three(x).chunk(3, 1))
        k = k + (self.up + self.along).flatten(2)
        weights = (q.transpose(2, 3) @ k / self.size ** 0.5).softmax(-1)
        return (v @ weights.transpose(2, 3)).reshape(b, c, h, w)
"""
)
CAUSAL = "Causal attention in which a token sees itself and a few before it."
BOTH = "(back >= 0) & (back < self.reach)"
# the source with what is wrong, the same put right, the kind, and a part of the line
CASES = {
    "tokens along the batch, of which one is learned": (
        ALIKE, {"way": ""}, {"way": ", batch_first=True"}, "batch-length-confused", "nn.MultiheadAttention"),
    "said to be causal": (
        SAID, {"says": CAUSAL, "near": "back < self.reach"}, {"says": CAUSAL, "near": BOTH}, "causal-missing",
        "F.scaled"),
    "a mask that is shaped and not passed on": (
        LAYER, {"passed": ""}, {"passed": ", other_mask"}, "mask-ignored", "self.mix(self.other"),
    "one vector a sample, and scaled twice": (
        SHIFTED_BY, {"scaled": " * self.size ** -0.5"}, {"scaled": ""}, "scale-twice", "self.size ** -0.5"),
    "a mask of other keys beside learned ones": (
        MEMORIES, {"side": "(0, self.kept)"}, {"side": "(self.kept, 0)"}, "mask-shifted", "F.pad"),
    "one row of a table for all": (
        TABLE, {"back": "place - place[:, None]"}, {"back": "place[:, None] - place"}, "position-bias-constant",
        "rows ="),
    "slopes that favour what is far": (
        SLOPES, {"sign": ""}, {"sign": "-"}, "distance-bias-sign", "self.far[:"),
    "half of a projection": (PAIRS, {"which": "q1"}, {"which": "q2"}, "projection-part-unused", "k2.mT"),
}  # fmt: skip


def faults_of(source):
    return [(each.kind, each.line) for each in found_in(source).findings if each.severity == "fault"]


@pytest.mark.parametrize("case", CASES)
def test_what_is_wrong_is_found_on_its_line(case):
    source, wrong, _, kind, part = CASES[case]
    text = source.format(**wrong)
    assert faults_of(text) == [(kind, line_of(text, part))]


@pytest.mark.parametrize("case", CASES)
def test_put_right_it_is_sound(case):
    source, _, right, _, _ = CASES[case]
    found = found_in(source.format(**right))
    assert (found.verdict, faults_of(source.format(**right))) == ("sound", [])


@pytest.mark.parametrize(
    "says",
    [
        "Attention of near tokens, causal or not.",
        "Attention over covariates, by which causal effects are estimated.",
        "Replaces the causal attention of GPT with full attention.",
        "Encoder self-attention of an autoregressive translation model.",
        "Autoregressive attention from right to left.",
        "Attends to past and future tokens alike, as the teacher of a causal student.",
        "因果推断中协变量之间的注意力。",
        "Attention of near tokens. A causal mask is for the caller to give.",
        "Attention of near tokens. Unlike the causal one, it looks both ways.",
        "近处的注意力，不是因果的。",
        "Attention of near tokens. Decoding is causal if a mask is given.",
        "Attention of near tokens. Attention is rarely causal.",
        "Attention of the encoder. The decoder attends to what it gives. Decoding is autoregressive.",
        "Attention over regions. Text attends to them by another module. Generation is autoregressive.",
    ],
)
def test_a_condition_or_a_denial_asks_for_no_order(says):
    assert faults_of(SAID.format(says=says, near="back.abs() < self.reach")) == []


def test_a_sentence_that_says_nothing_else_asks_for_order():
    source = SAID.format(
        says="Attention of near tokens.\n\n    Decoding is autoregressive.\n    ", near="back < self.reach"
    )
    assert [kind for kind, _ in faults_of(source)] == ["causal-missing"]


def test_what_is_made_for_inference_is_not_to_be_trained():
    found = found_in(FOR_INFERENCE.format(mode="inference_mode"))
    assert (found.verdict, faults_of(FOR_INFERENCE.format(mode="inference_mode"))) == ("sound", [])
    for_training = FOR_INFERENCE.format(mode="no_grad")
    assert [kind for kind, _ in faults_of(for_training)] == ["gradient-cut"]
    for_decoding = for_training.replace("def forward(self, x):", 'def forward(self, x):\n        """Inference only."""')
    assert for_decoding != for_training
    named = for_training.replace("self.three", "self.decode")
    assert [kind for kind, _ in faults_of(named)] == ["gradient-cut"]
    assert faults_of(for_decoding) == []
    taught = for_training.replace("(nn.Module):", '(nn.Module):\n    """Trained with teachers, used for generation."""')
    assert [kind for kind, _ in faults_of(taught)] == ["gradient-cut"]
    of_class = for_training.replace("(nn.Module):", '(nn.Module):\n    """For generation on a device."""')
    assert faults_of(of_class) == []


def test_an_image_is_as_large_as_the_constructor_is_told():
    assert (found_in(PLANE).verdict, faults_of(PLANE)) == ("sound", [])


ADDED = (
    HEAD
    + """
class Attend(nn.Module):
    def __init__(self, width=48, heads=4, side=14):
        super().__init__()
        self.heads, self.side = heads, side
        self.three, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.near = nn.Embedding(2 * side, heads)
        self.register_buffer("slopes", (2.0 ** -torch.arange(1, heads + 1)).view(-1, 1, 1))

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.three(x).chunk(3, -1))
        place = torch.arange(x.shape[1])
        back = place[:, None] - place
        far = self.slopes * back.abs()
        s = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        {added}
        return self.join((s.softmax(-1) @ v).transpose(1, 2).flatten(2))
"""
)
RIGHT = {
    "coarse buckets": "s = s + self.near((back.abs() // 16).clamp(max=15)).permute(2, 0, 1)",
    "near and far": "s = s + self.near((back.abs() > 8).long()).permute(2, 0, 1)",
    "rows of an image": "s = s + self.near(back // self.side + self.side - 1).permute(2, 0, 1)",
    "segments that are all one": "s = s + self.near((back == 100).long()).permute(2, 0, 1)",
    "slopes taken from": "s = s - far",
    "costs": "s = -(far - s)",
    "costs with their sign later": "s = s * -1\n        s = -(s + far)",
    "costs on the left": "s = -far - s * -1",
}


def of_distances(added):
    """The faults of what is added by distance; a table may have no use in a case."""
    kinds = [kind for kind, _ in faults_of(ADDED.format(added=added))]
    return [kind for kind in kinds if kind in ("distance-bias-sign", "position-bias-constant")]


@pytest.mark.parametrize("case", RIGHT)
def test_a_right_term_of_distances_is_no_fault(case):
    assert of_distances(RIGHT[case]) == []


@pytest.mark.parametrize("added", ["s = s + far", "s = -(-s - far)", "s = far - s * -1"])
def test_a_term_that_favours_what_is_far_is_a_fault_however_it_enters(added):
    assert of_distances(added) == ["distance-bias-sign"]


USED = (
    HEAD
    + """
class Attend(nn.Module):
    def __init__(self, width=48, heads=4, experts=16):
        super().__init__()
        self.heads, self.fade = heads, 0.0
        self.three, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.router, self.up, self.down = nn.Linear(width, experts), nn.Linear(width, 8), nn.Linear(8, width)
        self.latent = nn.Parameter(torch.randn(1, 5, width))

    def mix(self, x):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.three(x).chunk(3, -1))
        w = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1)
        return self.join((w @ v).transpose(1, 2).flatten(2)), w.transpose(1, 2)

    def forward(self, x):
        y, weights = self.mix(x)
        {then}
"""
)
THEN = {
    "weights that nobody wants, and a router": (
        "best, place = self.router(y).topk(2)\n        return y * best.softmax(-1).sum(-1, keepdim=True)"
        " + self.down(self.up(y).relu())"
    ),
    "weights that nobody wants, and dead units": "return self.down((self.up(y) - 4).relu()) + y",
}


@pytest.mark.parametrize("case", THEN)
def test_what_a_layer_does_not_train_at_first_is_no_part_that_is_unread(case):
    assert "projection-part-unused" not in [kind for kind, _ in faults_of(USED.format(then=THEN[case]))]


def test_a_gate_that_is_off_at_first_hides_no_input():
    faded = USED.format(then="return self.latent[:, : x.shape[1]].mean(1, keepdim=True) + self.fade * y")
    assert [kind for kind, _ in faults_of(faded) if kind in ("input-unused", "batch-length-confused")] == []
