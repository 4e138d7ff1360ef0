"""Class tokens: what stands before the patches of an image is cut off by its number, and is at no place."""

import pytest

from headwise.calls import find
from tests.diagnosis.written import HEAD, blamed_in, found_in, loaded_from, marked

ROTATED = (
    HEAD
    + """
def turned(x):
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack((-b, a), dim=-1).flatten(-2)


class Attend(nn.Module):
    def __init__(self, width, heads=4, first=1):
        super().__init__()
        self.heads, self.first = heads, first
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def angles(self, rows, columns, part):
        speeds = 50.0 ** -(torch.arange(part // 4) / (part // 4))
        at = torch.stack(torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij"), -1).flatten(0, 1)
        angle = (at[..., None] * speeds).flatten(1)
        return {laid}{mark}

    def placed(self, x, angle):
        before, patches = x[:, :, : self.first], x[:, :, self.first :]
        return torch.cat((before, patches * angle.cos() + turned(patches) * angle.sin()), dim=2)

    def forward(self, x, grid):
        # x: (B, first + rows * columns, width); grid: its rows and columns
        n, long, width = x.shape
        q, k, v = self.qkv(x).view(n, long, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        angle = self.angles(*grid, width // self.heads)
        y = F.scaled_dot_product_attention(self.placed(q, angle), self.placed(k, angle), v)
        return self.out(y.transpose(1, 2).reshape(n, long, width))
"""
)
CONVOLVED = (
    HEAD
    + """
class Attend(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.near = nn.Conv2d(width, width, 3, padding=1, groups=width)
        self.qkv = nn.Linear(width, 3 * width)

    def forward(self, x, h, w):
        first, x = torch.split(x, [{count}, h * w], dim=1)
        x = self.near(x.transpose(1, 2).unflatten(2, (h, w))).flatten(2).transpose(1, 2)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                   for t in self.qkv(torch.cat((first, x), dim=1)).chunk(3, dim=-1))
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
"""
)


def test_patches_are_rotated_and_what_stands_before_them_is_not():
    right = ROTATED.format(laid="angle.repeat_interleave(2, dim=-1)", mark="")
    assert found_in(right).verdict == "sound"
    assert "rotation" not in found_in(right).examined
    wrong = ROTATED.format(laid="torch.cat((angle, angle), dim=-1)", mark="  # <-")
    assert blamed_in(wrong) == marked(wrong, "rotary-wrong")


@pytest.mark.parametrize("count", [1, 3])
def test_the_tokens_are_as_many_as_they_are_cut_into(count):
    target, namespace, _ = loaded_from(CONVOLVED.format(count=count))
    plan = find(target, namespace=namespace).plans[0]
    lengths = {symbol.name: symbol.equals for symbol in plan.symbols}
    assert (plan.call["x"][1], lengths["L"]) == ("L", f"h*w+{count}")
