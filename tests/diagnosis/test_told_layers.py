"""Told layers: windows, pools and layers of torch, each told at the line that a reader would change, or left."""

import pytest

from tests.diagnosis.written import HEAD, blamed_in, faults_in_file, found_in, line_of

WINDOWS = """
def cut(x, side):
    B, H, W, C = x.shape
    x = x.view(B, H // side, side, W // side, side, C).transpose(2, 3)
    return x.reshape(-1, side * side, C)


def joined(x, side, H, W):
    x = x.view(-1, H // side, W // side, side, side, x.shape[-1]).transpose(2, 3)
    return x.reshape(-1, H, W, x.shape[-1])


class Windows(nn.Module):
    def __init__(self, dim, heads, side=4, shift=0):
        super().__init__()
        assert 0 <= shift < side
        self.heads, self.side, self.shift = heads, side, shift
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def kept(self, H, W):
        regions = torch.zeros(1, H, W, 1)
        for at, rows in enumerate((slice(-self.side), slice(-self.side, -self.shift), slice(-self.shift, None))):
            for by, columns in enumerate((slice(-self.side), slice(-self.side, -self.shift), slice(-self.shift, None))):
                regions[:, rows, columns] = 3 * at + by
        regions = cut(regions, self.side).squeeze(-1)
        return regions[:, None] == regions[:, :, None]

    def forward(self, x):
        B, H, W, C = x.shape
        if self.shift > 0:
            x = torch.roll(x, (-self.shift, -self.shift), (1, 2))
        windows = cut(x, self.side)
        q, k, v = self.qkv(windows).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        {attention}
        y = joined(self.out(y.transpose(1, 2).flatten(2)), self.side, H, W)
        return torch.roll(y, (self.shift, self.shift), (1, 2)) if self.shift > 0 else y
"""
OF_TORCH = """mask = None
        if self.shift > 0:
            mask = self.kept(H, W){copied}[:, None]
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)"""
PLACED = OF_TORCH.replace("attn_mask=mask", "mask, 0.0")
NAMED = OF_TORCH.replace("(q, k, v,", "(query=q, key=k, value=v,")
BY_HAND = """scores = q @ k.mT * q.shape[-1] ** -0.5
        if self.shift > 0:
            mask = self.kept(H, W)[:, None]
            scores = scores.view({axes}, *scores.shape[1:]).masked_fill(~mask{wide}, float("-inf"))
            scores = scores.view(-1, *scores.shape[2:])
        y = scores.softmax(-1) @ v"""


@pytest.mark.parametrize(
    ("attention", "line"),
    [
        (OF_TORCH.format(copied=".repeat_interleave(B, dim=0)"), "mask = self.kept"),
        (OF_TORCH.format(copied=".repeat(B, 1, 1)"), ""),
        (PLACED.format(copied=".repeat_interleave(B, dim=0)"), "mask = self.kept"),
        (NAMED.format(copied=".repeat_interleave(B, dim=0)"), "mask = self.kept"),
        (BY_HAND.format(axes="-1, B", wide="[:, None]"), "scores = scores.view(-1, B"),
        (BY_HAND.format(axes="B, -1", wide=""), ""),
    ],
    ids=[
        "torch, each mask B times",
        "torch, all masks B times",
        "by place",
        "by name",
        "windows first",
        "samples first",
    ],
)
def test_masks_of_other_windows_are_told_where_masks_or_scores_are_laid_out(attention, line, tmp_path):
    source = HEAD + WINDOWS.replace("{attention}", attention)
    assert faults_in_file(tmp_path, "Windows", source) == ([("windows-wrapped", line_of(source, line))] if line else [])


BRANCHES = """
class Bags(nn.Module):
    '''Gated attention over the instances of a bag.'''

    def __init__(self, width, inner=17, branches=3, classes=4):
        super().__init__()
        self.v, self.u, self.w = nn.Linear(width, inner), nn.Linear(width, inner), nn.Linear(inner, branches)
        self.out = nn.Linear(width * branches, classes)

    def forward(self, bags):
        scores = self.w(self.v(bags).tanh() * self.u(bags).sigmoid()).transpose(1, 2)
        weights = torch.softmax(scores, dim={axis})
        return self.out(torch.bmm(weights, bags).flatten(1))
"""


@pytest.mark.parametrize(("axis", "kinds"), [(1, ["softmax-axis"]), (2, [])])
def test_a_pool_of_several_branches_shares_over_the_tokens_of_each(axis, kinds):
    source = HEAD + BRANCHES.replace("{axis}", str(axis))
    assert blamed_in(source, "Bags") == [(kind, line_of(source, "weights = torch")) for kind in kinds]


@pytest.mark.parametrize("words", ["Soft clusters of the tokens.", "Tokens are pooled softly to fewer ones."])
def test_tokens_that_are_shared_out_among_others_are_left(words):
    source = HEAD + BRANCHES.replace("{axis}", "1").replace("Gated attention over the instances of a bag.", words)
    assert blamed_in(source, "Bags") == []


LAYER = """
class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.attend = nn.MultiheadAttention(dim, heads{told})

    def forward(self, x):
        y = self.norm(x)
        return x + self.attend(y, y, y, need_weights=False)[0]


class Pictures(nn.Module):
    '''img: (B, 3, 32, 32) -> (B, classes)'''

    def __init__(self, patch=8, dim=24, heads=4, depth=2, classes=5):
        super().__init__()
        self.cut = nn.Conv2d(3, dim, patch, patch)
        self.places = nn.Parameter(torch.zeros(1, (32 // patch) ** 2, dim))
        self.blocks = nn.ModuleList([Block(dim, heads) for _ in range(depth)])
        self.out = nn.Linear(dim, classes)

    def forward(self, img):
        x = self.cut(img).flatten(2).transpose(1, 2) + self.places
        for block in self.blocks:
            x = block(x)
        return self.out(x.mean(dim=1))
"""


@pytest.mark.parametrize(("told", "kinds"), [("", ["batch-length-confused"]), (", batch_first=True", [])])
def test_a_layer_that_is_not_told_where_the_batch_is_is_told_where_it_is_built(told, kinds, tmp_path):
    source = HEAD + LAYER.replace("{told}", told)
    found = faults_in_file(tmp_path, "Pictures", source)
    assert found == [(kind, line_of(source, "self.attend = nn")) for kind in kinds]


GRAPH = """
class Neighbours(nn.Module):
    '''x [B, N, width], adj [B, N, N], not 0 where atom i reads atom j; every atom reads itself too.'''

    def __init__(self, width, part, heads=3, sharp=30.0):
        super().__init__()
        self.heads, self.sharp, self.make = heads, sharp, nn.Linear(width, heads * part)
        self.own, self.other = nn.Parameter(torch.randn(heads, part)), nn.Parameter(torch.randn(heads, part))

    def forward(self, x, adj):
        h = self.make(x).unflatten(-1, (self.heads, -1))
        e = self.sharp * F.leaky_relu((h * self.own).sum(-1)[:, :, None] + (h * self.other).sum(-1)[:, None])
        seen = (adj != 0) | torch.eye(x.shape[1], dtype=torch.bool)
        w = e.masked_fill(~seen[..., None], float("-inf")).softmax(dim=2)
        return torch.einsum("bijh,bjhc->bihc", w, h).flatten(2)
"""


def test_a_token_that_is_nearly_nothing_to_itself_may_see_itself_beside_its_mask():
    assert found_in(HEAD + GRAPH, "Neighbours").faults == ()


FRAMES = '''
class Latents(nn.Module):
    def __init__(self, dim, heads, latents=5):
        super().__init__()
        self.latents = nn.Parameter(torch.randn(latents, dim))
        self.attend = nn.MultiheadAttention(dim, heads, batch_first=True)

    def forward(self, x, frame_mask=None):
        """
        x: ``(b, media, frames, features, dim)``, or ``(b, media, features, dim)``
        frame_mask: ``(b, media, frames)``, True for frames that exist
        """
        x = x.unsqueeze(2) if x.ndim == 4 else x
        b, m, f, n, d = x.shape
        hidden = None
        if frame_mask is not None:
            hidden = ~frame_mask.reshape(b * m, f).repeat_interleave(n, dim=1).bool()
        x = x.reshape(b * m, f * n, d)
        y, _ = self.attend(self.latents.expand(b * m, -1, -1), x, x, key_padding_mask=hidden, need_weights=False)
        return y.view(b, m, -1, d)
'''


def test_a_mask_that_words_give_other_axes_than_it_was_given_raises_nothing_of_its_own():
    assert found_in(HEAD + FRAMES, "Latents").faults == ()
