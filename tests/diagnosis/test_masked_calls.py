"""What only a call with a mask shows, in the shapes that words give: a backward that fails."""

from tests.diagnosis.written import found_in, line_of

PAIRS = """import torch
from torch import nn


class PairRows(nn.Module):
    def __init__(self, c_pair, n_heads, c_head):
        super().__init__()
        self.n_heads = n_heads
        self.c_head = c_head
        self.qkv = nn.Linear(c_pair, 3 * n_heads * c_head, bias=False)
        self.edge = nn.Linear(c_pair, n_heads, bias=False)
        self.out = nn.Linear(n_heads * c_head, c_pair)

    def forward(self, pair, pair_mask=None):
        \"\"\"
        pair: [*, N, M, C_pair] residues by residues, N == M
        pair_mask: [*, N, M], 1 where both residues exist
        \"\"\"
        q, k, v = self.qkv(pair).unflatten(-1, (3, self.n_heads, self.c_head)).unbind(-3)
        edge = self.edge(pair).movedim(-1, -3).unsqueeze(-4)
        scores = torch.einsum("...qhc,...khc->...hqk", q, k) / self.c_head**0.5 + edge
        if pair_mask is not None:
            seen = pair_mask[..., None, None, :]
            scores = scores.masked_fill(seen == 0, -1e4)
        weights = scores.softmax(dim=-1)
        if pair_mask is not None:
            weights *= seen
        return self.out(torch.einsum("...hqk,...khc->...qhc", weights, v).flatten(-2))
"""


def verdict_on(source, name):
    found = found_in(source, name)
    return found.verdict, [(each.kind, each.line) for each in found.faults]


def test_weights_that_are_changed_in_place_only_where_there_is_a_mask_are_found():
    assert verdict_on(PAIRS, "PairRows") == ("faulty", [("inplace-breaks-backward", line_of(PAIRS, "weights *= seen"))])


def test_weights_that_are_multiplied_into_a_new_tensor_are_right():
    source = PAIRS.replace("weights *= seen", "weights = weights * seen")
    assert verdict_on(source, "PairRows") == ("sound", [])
