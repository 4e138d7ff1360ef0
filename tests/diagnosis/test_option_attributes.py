"""What a module has with an option alone is no attribute that is missing."""

from math import sqrt

import pytest
import torch
from torch import nn

import headwise as hw


class KeysOfText(nn.Module):
    """Tokens attend to each other, and to those of a text where the layer is built for one."""

    def __init__(self, width, heads, text_width=None):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
        if text_width is not None:
            self.of_text = nn.Linear(text_width, 2 * width)

    def parts(self, t, count):
        return t.unflatten(-1, (count, self.heads, -1)).permute(2, 0, 3, 1, 4)

    def forward(self, x, text=None, text_mask=None):
        """text_mask: (B, S), True = a token of the text"""
        q, k, v = self.parts(self.qkv(x), 3)
        seen = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        if text is not None:
            extra = self.parts(self.of_text(text), 2)
            k, v = torch.cat([extra[0], k], 2), torch.cat([extra[1], v], 2)
            if text_mask is not None:
                seen = torch.cat([text_mask.bool(), seen], 1)
        scores = q @ k.transpose(-2, -1) / sqrt(q.shape[-1])
        if text is not None and text_mask is not None:
            scores = scores.masked_fill(~seen[:, None, None], -1e4)
        weights = scores.softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


class Forgotten(KeysOfText):
    """What is read in every call is set with an option alone."""

    def forward(self, x, text=None):
        q, k, v = self.parts(self.qkv(x), 3)
        weights = (q @ k.transpose(-2, -1) / sqrt(q.shape[-1])).softmax(-1)
        return self.of_text((weights @ v).transpose(1, 2).flatten(2))


@pytest.mark.parametrize(("kind", "faults"), [(KeysOfText, []), (Forgotten, ["attribute-undefined"])])
def test_an_attribute_of_an_option_is_missing_only_where_every_call_reads_it(kind, faults):
    found = hw.doctor(kind)
    assert [fault.kind for fault in found.faults] == faults
    assert found.verdict == ("faulty" if faults else "sound")
