"""A number that is 0 by default turns a part of a class off: what is wrong with that part is found all the same."""

from math import sqrt

import pytest
import torch
from torch import nn

import headwise as hw


class Shifted(nn.Module):
    """Windows of an image; in every other layer the image is rolled before it is cut, and back."""

    turn_back, keeps_apart = 1, True

    def __init__(self, width, heads, window, shift=0):
        super().__init__()
        self.heads, self.window, self.shift = heads, window, shift
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, image):
        batch, rows, columns, width = image.shape
        x = image.roll((-self.shift, -self.shift), (1, 2)) if self.shift else image
        size = self.window
        x = x.view(batch, rows // size, size, columns // size, size, width).transpose(2, 3).reshape(-1, size**2, width)
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / sqrt(q.shape[-1])
        if self.shift and self.keeps_apart:
            scores = scores.masked_fill(self.for_all(self.apart(rows, columns), batch)[:, None], -100)
        x = self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        x = x.view(batch, rows // size, columns // size, size, size, width).transpose(2, 3).reshape(image.shape)
        if self.shift:
            x = x.roll((self.turn_back * self.shift, self.turn_back * self.shift), (1, 2))
        return image + x

    def for_all(self, apart, batch):
        return apart.repeat(batch, 1, 1)

    def apart(self, rows, columns):
        size = self.window
        region = 2 * (torch.arange(rows) >= rows - self.shift).long()[:, None]
        region = region + (torch.arange(columns) >= columns - self.shift).long()
        region = region.view(rows // size, size, columns // size, size).transpose(1, 2).reshape(-1, size**2)
        return region[:, :, None] != region[:, None, :]


class TurnedOn(Shifted):
    """Rolled the same way again."""

    turn_back = -1


class EdgesMeet(Shifted):
    """Tokens of opposite edges see each other."""

    keeps_apart = False


class OnlyEdgesMeet(Shifted):
    """Only tokens of opposite edges see each other."""

    def apart(self, rows, columns):
        return ~super().apart(rows, columns)


class Exchanged(Shifted):
    """Each window has the mask of another, where there are several images."""

    def for_all(self, apart, batch):
        return apart.repeat_interleave(batch, 0)


class Globe(EdgesMeet):
    """Rows and columns are periodic: what stands at opposite edges belongs together."""


@pytest.mark.parametrize(
    ("kind", "faults"),
    [
        (Shifted, []),
        (TurnedOn, ["windows-misplaced"]),
        (EdgesMeet, ["windows-wrapped"]),
        (OnlyEdgesMeet, ["windows-wrapped"]),
        (Globe, []),
    ],
)
def test_windows_that_are_rolled_on_are_found_though_none_are_rolled_by_default(kind, faults):
    found = hw.doctor(kind)
    assert [fault.kind for fault in found.faults] == faults
    assert found.verdict == ("faulty" if faults else "sound")


class Spread(nn.Module):
    """Windows of neighbours, or, by a word, groups that are spread over the image (arXiv:2204.01697)."""

    back = (0, 3, 1, 4, 2, 5)

    def __init__(self, width, heads, window, pattern="block"):
        super().__init__()
        assert pattern in ("block", "grid")
        self.heads, self.window, self.pattern = heads, window, pattern
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, image):
        batch, rows, columns, width = image.shape
        size = self.window
        if self.pattern == "block":
            x = image.view(batch, rows // size, size, columns // size, size, width).permute(0, 1, 3, 2, 4, 5)
        else:
            x = image.view(batch, size, rows // size, size, columns // size, width).permute(0, 2, 4, 1, 3, 5)
        shape, x = x.shape, x.reshape(-1, size**2, width)
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-2, -1) / sqrt(q.shape[-1])).softmax(-1)
        x = self.out((weights @ v).transpose(1, 2).flatten(2)).view(shape)
        x = x.permute(0, 1, 3, 2, 4, 5) if self.pattern == "block" else x.permute(self.back)
        return image + x.reshape(image.shape)


class SpreadBack(Spread):
    """The groups are put back as windows are."""

    back = (0, 1, 3, 2, 4, 5)


@pytest.mark.parametrize(("kind", "faults"), [(Spread, []), (SpreadBack, ["windows-misplaced"])])
def test_groups_that_a_word_asks_for_are_examined_though_another_is_the_default(kind, faults):
    found = hw.doctor(kind)
    assert [fault.kind for fault in found.faults] == faults
    assert found.verdict == ("faulty" if faults else "sound")


def test_masks_that_are_right_and_come_in_another_order_are_told_where_they_are_copied():
    assert [fault.source.strip() for fault in hw.doctor(Exchanged).faults] == [
        "return apart.repeat_interleave(batch, 0)"
    ]


class Volume(nn.Module):
    """Windows of a volume (B, D, H, W, C), shifted along each side."""

    turn_back = 1

    def __init__(self, dim, heads, window_size=(2, 4, 4), shift=(0, 0, 0)):
        super().__init__()
        self.heads, self.window, self.shift = heads, tuple(window_size), tuple(shift)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def cut(self, x):
        b, d, h, w, c = x.shape
        e, f, g = self.window
        x = x.view(b, d // e, e, h // f, f, w // g, g, c).permute(0, 1, 3, 5, 2, 4, 6, 7)
        return x.reshape(-1, e * f * g, c)

    def forward(self, x):
        b, d, h, w, c = x.shape
        e, f, g = self.window
        y = x.roll([-s for s in self.shift], (1, 2, 3)) if any(self.shift) else x
        q, k, v = self.qkv(self.cut(y)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        scores = q @ k.mT * q.shape[-1] ** -0.5
        if any(self.shift):
            sides = [(torch.arange(n) >= n - s).long() for n, s in zip((d, h, w), self.shift, strict=True)]
            parts = 4 * sides[0][:, None, None] + 2 * sides[1][:, None] + sides[2]
            parts = self.cut(parts[None, ..., None]).squeeze(-1)
            apart = (parts[:, :, None] != parts[:, None]).repeat(b, 1, 1)
            scores = scores.masked_fill(apart[:, None], float("-inf"))
        y = self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        y = y.view(b, d // e, h // f, w // g, e, f, g, c).permute(0, 1, 4, 2, 5, 3, 6, 7).reshape(x.shape)
        if any(self.shift):
            y = y.roll([self.turn_back * s for s in self.shift], (1, 2, 3))
        return x + y


class TurnedTwice(Volume):
    """Windows of a volume (B, D, H, W, C), rolled the same way again."""

    turn_back = -1


@pytest.mark.parametrize(("target", "kinds"), [(Volume, []), (TurnedTwice, ["windows-misplaced"])])
def test_a_volume_is_shifted_along_each_side(target, kinds):
    report = hw.doctor(target)
    assert [fault.kind for fault in report.faults] == kinds
    assert kinds or report.verdict == "sound"
