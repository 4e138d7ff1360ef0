"""A mask's default of None is tried, and torch's two ways to say a mask are not taken together."""

import pytest

from tests.diagnosis.written import HEAD, found_in

DEFAULTED = """
class Reader(nn.Module):
    def __init__(self, d_model, nhead):
        super().__init__()
        self.nhead, self.width = nhead, d_model // nhead
        self.to_q, self.to_kv = nn.Linear(d_model, d_model), nn.Linear(d_model, 2 * d_model)
        self.merge = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        q = self.to_q(x).unflatten(-1, (self.nhead, self.width)).transpose(1, 2)
        k, v = self.to_kv(x).unflatten(-1, (2, self.nhead, self.width)).permute(2, 0, 3, 1, 4)
        scores = q @ k.mT * self.width ** -0.5
        if mask is not None:
            scores = scores.masked_fill(mask.logical_not(), float("-inf"))
        return self.merge((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
"""
GUARD = "        if mask is not None:\n            scores"
FUSED = """
class Reader(nn.Module):
    def __init__(self, d_model, nhead):
        super().__init__()
        self.nhead = nhead
        self.to_qkv, self.merge = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        q, k, v = self.to_qkv(x).unflatten(-1, (3, self.nhead, -1)).permute(2, 0, 3, 1, 4)
        out = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        return self.merge(out.transpose(1, 2).flatten(2))
"""


@pytest.mark.parametrize(
    ("code", "old", "new", "wanted"),
    [
        (DEFAULTED, "", "", []),
        (DEFAULTED, GUARD, "        scores", [("mask-default-raises", "warning", True)]),
        (DEFAULTED, "mask=None", "mask", []),
        (FUSED, "", "", []),
        (FUSED, "is_causal=mask is None", "is_causal=True", [("mask-beside-is-causal", "fault", True)]),
    ],
)
def test_what_a_mask_argument_promises_is_kept(code, old, new, wanted):
    found = found_in(HEAD + code.replace(old, new, 1), "Reader")
    kinds = ("mask-default-raises", "mask-beside-is-causal")
    told = [each for each in found.findings if each.severity == "fault" or each.kind in kinds]
    assert [(each.kind, each.severity, each.proved) for each in told] == wanted
