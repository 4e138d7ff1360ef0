"""Documents that are packed into one row of tokens, and told by where each begins."""

import pytest

from tests.diagnosis.written import HEAD, blamed_in, found_in, marked

PACKED = """

class Packed(nn.Module):
    # x: (tokens, width); cu_seqlens: (documents + 1,), from 0 to the number of tokens

    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, cu_seqlens):
        n, d = x.shape
        at = torch.arange(n)
        document = {document}
        q, k, v = self.qkv(x).view(n, 3, self.heads, -1).permute(1, 2, 0, 3)
        near = {near}
        s = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(~near, float("-inf"))
        return self.out((s.softmax(-1) @ v).transpose(0, 1).reshape(n, d))
"""
DOCUMENT = "torch.bucketize(at, cu_seqlens[1:], right=True)"
OPEN = "(document[:, None] == document) & (at[:, None] >= at)"


@pytest.mark.parametrize(
    ("document", "near", "kinds"),
    [
        (DOCUMENT, OPEN, []),
        ("torch.searchsorted(cu_seqlens, at, right=True)", OPEN, []),
        ("torch.bucketize(at, cu_seqlens[1:])  # <-", OPEN, ["sample-leak"]),
        (DOCUMENT, "(document[:, None] >= document) & (at[:, None] >= at)", ["sample-leak"]),
    ],
)
def test_documents_in_one_row_stay_apart(document, near, kinds):
    source = HEAD + PACKED.replace("{document}", document).replace("{near}", near)
    found = found_in(source, "Packed")
    assert [(each.kind, each.proved) for each in found.faults] == [(kind, True) for kind in kinds]
    assert "<-" not in source or blamed_in(source, "Packed") == marked(source, kinds[0])
