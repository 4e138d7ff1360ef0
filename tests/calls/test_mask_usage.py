"""What a mask means is read from what the code does with it."""

import ast

import pytest

from headwise.calls.mask_usage import meanings


def meant(code):
    return meanings([ast.parse(code)])["mask"].means


@pytest.mark.parametrize(
    ("code", "means"),
    [
        ("s = s.masked_fill(mask == 0, -1e9)", "attend"),
        ("s = s.masked_fill(mask.eq(0), -1e9)", "attend"),
        ("s = s.masked_fill(~mask, -inf)", "attend"),
        ("s = s.masked_fill(~mask[:, None], -inf)", "attend"),
        ("s.masked_fill_(mask.logical_not(), -inf)", "attend"),
        ("s.masked_fill_(torch.logical_not(mask), -inf)", "attend"),
        ("s = s.masked_fill(mask < 0.5, -inf)", "attend"),
        ("s = s + (1.0 - mask) * -10000.0", "attend"),
        ("s = s + (mask - 1) * 1e9", "attend"),
        ("mask = (1 - mask[:, None]) * torch.finfo(x.dtype).min\ns = s + mask", "attend"),
        ("wide = mask[:, None]\nwide = (1 - wide) * -10000.0\ns = s + wide", "attend"),
        ("mask = mask == 0\ns = s.masked_fill(mask, -inf)", "attend"),
        ("s = torch.where(mask, s, float('-inf'))", "attend"),
        ("s = torch.where(mask > 0, s, neg * torch.ones_like(s))", "attend"),
        ("s[~mask] = -1e6", "attend"),
        ("o = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)", "attend"),
        ("s = s.masked_fill(mask, -1e9)", "blocked"),
        ("s = s.masked_fill(mask.bool().unsqueeze(1), -1e9)", "blocked"),
        ("s = s.masked_fill(mask == 1, -1e9)", "blocked"),
        ("s = torch.where(mask, -1e9, s)", "blocked"),
        ("s[mask] = float('-inf')", "blocked"),
        ("s += mask * -1e9", "blocked"),
        ("wide = mask[:, None].float()\nwide = wide * -10000.0\ns = s + wide", "blocked"),
        ("mask = ~mask\ns = s.masked_fill(~mask, -inf)", "blocked"),
        ("o = self.attn(x, x, x, key_padding_mask=mask)", "blocked"),
        ("s = mask * s + (1 - mask) * -1e30", "attend"),
        ("s = (1 - mask) * s + mask * -1e30", "blocked"),
        ("s = s + mask", "additive"),
        ("s += mask", "additive"),
        ("s = s + mask[:, :, :, :n]", "additive"),
        ("mask = mask + far * torch.finfo(x.dtype).min\ns = s + mask", "additive"),
    ],
)
def test_a_mask_means_what_the_code_does(code, means):
    assert meant(code) == means


def test_what_is_done_counts_more_than_what_a_mask_is_handed_to():
    assert meant("o = self.attn(x, attn_mask=mask)\ns = s + mask") == "additive"


def test_a_sum_with_what_a_call_gave_is_no_mask():
    assert "mask" not in meanings([ast.parse("x = self.attention(value, key, query, mask) + query")])
