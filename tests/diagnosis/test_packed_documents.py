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


ROWS = '''

class Rows(nn.Module):
    """Documents follow one another in each row, and each counts its tokens from 0.

    x: (B, T, width); doc_ids: (B, T) long
    """

    def __init__(self, width, heads, longest=32):
        super().__init__()
        self.heads, self.places = heads, nn.Embedding(longest, width)
        self.qk, self.v, self.out = nn.Linear(width, 2 * width), nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x, doc_ids):
        b, t, d = x.shape
        at = torch.arange(t).expand(b, t)
        begins = torch.ones_like(doc_ids, dtype=torch.bool)
        begins[:, 1:] = doc_ids[:, 1:] != doc_ids[:, :-1]
        place = at - torch.where(begins, at, 0).cummax(dim=1).values
        q, k = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qk(x + self.places(place)).chunk(2, -1))
        v = self.v(x).view(b, t, self.heads, -1).transpose(1, 2)
        near = (doc_ids[:, :, None] == doc_ids[:, None]).tril()
        s = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(~near[:, None], float("-inf"))
        return self.out((s.softmax(-1) @ v).transpose(1, 2).reshape(b, t, d))
'''


def test_numbers_of_documents_are_used_where_only_their_differences_count():
    found = found_in(HEAD + ROWS, "Rows")
    assert (found.verdict, found.faults) == ("sound", ())


TURNED = """

class Turned(nn.Module):
    # x: (tokens, width); cu_seqlens: (documents + 1,); cos, sin: (tokens, head_dim)

    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, cu_seqlens, cos, sin):
        n, d = x.shape
        at = torch.arange(n)
        document = torch.bucketize(at, cu_seqlens[1:], right=True)
        cos, sin = cos[at - cu_seqlens[document]], sin[at - cu_seqlens[document]]
        q, k, v = self.qkv(x).view(n, 3, self.heads, -1).permute(1, 2, 0, 3)
        a, b = q.chunk(2, -1)
        q = q * cos + torch.cat((-b, a), -1) * sin
        a, b = k.chunk(2, -1)
        k = k * cos + torch.cat((-b, a), -1) * sin
        near = (document[:, None] == document) & (at[:, None] >= at)
        s = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(~near, float("-inf"))
        return self.out((s.softmax(-1) @ v).transpose(0, 1).reshape(n, d))
"""


def test_tables_of_places_are_every_documents():
    assert found_in(HEAD + TURNED, "Turned").faults == ()
