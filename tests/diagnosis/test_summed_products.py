"""Scores and weighted sums that are written as a product of entries and a sum of them, with windows of keys."""

import pytest

from tests.diagnosis.written import HEAD, blamed_in, found_in, marked

STEPS = """

class Steps(nn.Module):
    # series: (batch, width, time)

    def __init__(self, width=24, heads=3, back=4):
        super().__init__()
        self.heads, self.back = heads, back
        self.qkv, self.mix = nn.Conv1d(width, 3 * width, 1), nn.Conv1d(width, width, 1)

    def forward(self, series):
        b, c, t = series.shape
        q, k, v = self.qkv(series).view(b, 3, self.heads, c // self.heads, t).unbind(1)
        k, v = (nn.functional.pad(y, (self.back - 1, 0)).unfold(-1, self.back, 1) for y in (k, v))
        s = {scores}
        there = torch.arange(t)[:, None] + torch.arange(self.back) - (self.back - 1) >= 0
        w = s.masked_fill(~there, float("-inf")).softmax({axis})
        return self.mix((w.unsqueeze(2) * v).sum(-1).reshape(b, c, t))
"""
SCORES = "(q.unsqueeze(-1) * k).sum(dim=2) * (c // self.heads) ** -0.5"
PIXELS = """

class Pixels(nn.Module):
    # x: (batch, channels, height, width)

    def __init__(self, width=24, heads=3, side=3):
        super().__init__()
        self.heads, self.side, self.qkv = heads, side, nn.Conv2d(width, 3 * width, 1)

    def around(self, x):
        y = nn.functional.unfold(x, self.side, padding=self.side // 2)
        return y.view(x.shape[0], self.heads, -1, self.side**2, x.shape[2] * x.shape[3])

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = self.qkv(x).chunk(3, 1)
        q, k, v = q.view(b, self.heads, -1, 1, h * w), self.around(k), self.around(v)
        there = self.around(torch.ones_like(x))[:, :, 0] > 0
        s = (q * k).sum(2) / {root}
        p = s.masked_fill(~there, float("-inf")).softmax(2)
        return (p[:, :, None] * v).sum(3).reshape(b, c, h, w)
"""


@pytest.mark.parametrize(
    ("scores", "axis", "kinds"),
    [
        (SCORES, "-1", []),
        ("torch.mul(k, q[..., None]).sum(2) / math.sqrt(k.shape[2])", "-1", []),
        (SCORES.replace("c // self.heads", "c") + "  # <-", "-1", ["scale-wrong"]),
        (SCORES, "-2)  # <-", ["softmax-axis"]),
    ],
)
def test_windows_of_keys_are_compared_with_softmax(scores, axis, kinds):
    source = HEAD + STEPS.replace("{scores}", scores).replace("{axis})" if "<-" in axis else "{axis}", axis)
    assert blamed_in(source, "Steps") == [each for kind in kinds for each in marked(source, kind)]
    assert found_in(source, "Steps").verdict == ("faulty" if kinds else "sound")


@pytest.mark.parametrize(
    ("root", "kinds"), [("math.sqrt(k.shape[2])", []), ("math.sqrt(k.shape[3])  # <-", ["scale-wrong"])]
)
def test_pixels_around_each_are_compared_with_softmax(root, kinds):
    source = HEAD + PIXELS.replace("{root}", root)
    assert blamed_in(source, "Pixels") == [each for kind in kinds for each in marked(source, kind)]
    assert found_in(source, "Pixels").verdict == ("faulty" if kinds else "sound")


@pytest.mark.parametrize(
    ("scale", "kinds"),
    [("* (c // self.heads) ** -0.5", []), ("/ math.sqrt(c // self.heads)", []), ("* c ** -0.5", ["scale-wrong"])],
)
def test_a_product_that_is_scaled_before_it_is_summed_is_compared_with_softmax(scale, kinds):
    scores = f"(q.unsqueeze(-1) * k {scale}).sum(2)" + "  # <-" * bool(kinds)
    source = HEAD + STEPS.replace("{scores}", scores).replace("{axis}", "-1")
    assert blamed_in(source, "Steps") == [each for kind in kinds for each in marked(source, kind)]
    assert found_in(source, "Steps").verdict == ("faulty" if kinds else "sound")
