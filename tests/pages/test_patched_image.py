"""Patched image: the picture under the patches of a vision model written by hand, as timm has them."""

import base64
import io

import pytest
import torch
from torch import nn

import headwise as hw
from headwise.errors import ArgumentError

pytestmark = pytest.mark.needs("matplotlib")


class Attention(nn.Module):
    """One qkv layer, norms of queries and keys, and F.scaled_dot_product_attention or the same by hand."""

    def __init__(self, width, heads, *, is_fused):
        super().__init__()
        self.heads, self.is_fused = heads, is_fused
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.q_norm, self.k_norm = (nn.LayerNorm(width // heads) for _ in range(2))

    def forward(self, x):
        B, N, C = x.shape
        q, k, v = self.qkv(x).reshape(B, N, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        q, k = self.q_norm(q), self.k_norm(k)
        if self.is_fused:
            x = nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=0.0)
        else:
            x = (q * q.shape[-1] ** -0.5 @ k.transpose(-2, -1)).softmax(dim=-1) @ v
        return self.proj(x.transpose(1, 2).reshape(B, N, C))


class VisionTransformer(nn.Module):
    """Patches by a convolution, a class and a register token, blocks with scaled branches, a head on the class."""

    def __init__(self, *, is_fused):
        super().__init__()
        torch.manual_seed(7)
        self.patches = nn.Conv2d(3, 24, kernel_size=(8, 4), stride=(8, 4))
        self.special = nn.Parameter(torch.randn(1, 2, 24))
        self.position = nn.Parameter(torch.randn(1, 12, 24))
        self.blocks = nn.ModuleList(Attention(24, heads, is_fused=is_fused) for heads in (3, 4))
        self.scale, self.head = nn.Parameter(torch.rand(24)), nn.Linear(24, 5)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2) + self.position
        x = torch.cat([self.special.expand(len(x), -1, -1), x], dim=1)
        for block in self.blocks:
            x = x + self.scale * block(nn.functional.layer_norm(x, (24,)))
        return self.head(x[:, 0])


IMAGES = torch.rand(2, 3, 24, 16, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("is_fused", [True, False])
def test_a_vision_model_is_watched_changed_and_shown_under_its_picture(is_fused):
    from PIL import Image

    model, x = VisionTransformer(is_fused=is_fused).eval(), IMAGES * 2 - 1
    with torch.no_grad(), hw.watch(model) as seen:
        out = model(x)
    with torch.no_grad():
        assert torch.equal(out, model(x))
    assert {name: tuple(m.shape) for name, m in seen.items()} == {
        "blocks.0": (2, 3, 14, 14), "blocks.1": (2, 4, 14, 14),
    }  # fmt: skip
    effects = hw.head_effects(model, x, lambda out: out[0, 3])
    assert (effects.batch, effects.measured.shape) == (7, (2, 4))
    weight = model.blocks[1].proj.weight.data
    kept = weight.clone()
    weight[:, 12:18] = 0
    with torch.no_grad():
        wanted = float(model(x)[0, 3] - out[0, 3])
    weight.copy_(kept)
    assert float(effects.measured[1, 2]) == pytest.approx(wanted, abs=1e-6)
    page = hw.look(seen).with_image(IMAGES[0], patches=(3, 4))
    assert page.sides[0].tokens == ("[CLS]", "[1]", *(f"{row},{column}" for row in range(3) for column in range(4)))
    assert (page.picture.rows, page.picture.columns, page.picture.first) == (3, 4, 2)
    shown = Image.open(io.BytesIO(base64.b64decode(page.picture.data.partition(",")[2])))
    assert shown.size == (16, 24)
    colours = torch.tensor(list(shown.tobytes())).view(24, 16, 3).permute(2, 0, 1) / 255
    torch.testing.assert_close(colours, IMAGES[0], rtol=0, atol=0.51 / 255)
    assert '"picture":{"data":"data:image/png;base64,' in page.html()
    assert hw.look(seen).with_image(shown, patches=(3, 4)).picture == page.picture


def test_tokens_that_have_names_keep_them():
    maps = hw.attention_map(torch.randn(1, 2, 4, 3), torch.randn(1, 2, 4, 3))
    page = hw.look(maps, tokens=list("abcd")).with_image(IMAGES[0], patches=(1, 4))
    assert page.sides[0].tokens == tuple("abcd")


def test_a_second_picture_names_the_patches_of_its_own_grid():
    maps = hw.attention_map(torch.randn(1, 2, 13, 3), torch.randn(1, 2, 13, 3))
    page = hw.look(maps)
    first = page.with_image(IMAGES[0], patches=(3, 4))
    second = first.with_image(IMAGES[1], patches=(2, 6))
    assert second.sides == page.with_image(IMAGES[1], patches=(2, 6)).sides
    assert second.sides[0].tokens[-1] == "1,5"
    assert (second.picture.rows, second.picture.columns) == (2, 6)


REFUSED = [
    (IMAGES, (3, 4), r"must be a Tensor \(3, h, w\) of 0..1, but \(2, 3, 24, 16\) of torch.float32 came"),
    (IMAGES[0] * 2 - 1, (3, 4), r"must lie in 0..1, but reach from -0.9"),
    ("cat.png", (3, 4), "an image of pillow, but str came"),
    (IMAGES[0], (3, 5), r"all 3 x 5 patches .*, but the maps are \[\(14, 14\)\]"),
    (IMAGES[0], 6, "rows and columns of patches there are, but 6 came: give two numbers"),
    (IMAGES[0], None, "rows and columns of patches there are, but None came"),
    (IMAGES[0], (3.0, 4), r"rows and columns of patches there are, but \(3.0, 4\) came"),
    (torch.rand(3, 0, 0), (3, 4), "an image must have pixels, but one of 0 x 0 came"),
    (torch.rand(3, 5, 0), (3, 4), "an image must have pixels, but one of 5 x 0 came"),
    (IMAGES[0], (12,), r"rows and columns of patches there are, but \(12,\) came"),
]


@pytest.mark.parametrize(("image", "patches", "sentence"), REFUSED)
def test_a_picture_that_does_not_lie_under_the_tokens_is_refused(image, patches, sentence):
    maps = hw.attention_map(torch.randn(1, 2, 14, 3), torch.randn(1, 2, 14, 3))
    with pytest.raises(ArgumentError, match=sentence):
        hw.look(maps).with_image(image, patches=patches)
