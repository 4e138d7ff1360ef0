"""Masks that a model makes of its ids, and repeats for the heads of torch's layer."""

import pytest

import headwise as hw
from tests.diagnosis.written import HEAD, blamed_in, found_in, line_of, marked

RANKED = '''

class Ranked(nn.Module):
    """Scores for the next item of a history of ids, 0 where it is padded on the left."""

    def __init__(self, items=11, width=24, heads=3, longest=9):
        super().__init__()
        self.heads = heads
        self.items, self.places = nn.Embedding(items + 1, width, padding_idx=0), nn.Embedding(longest, width)
        self.attend = nn.MultiheadAttention(width, heads, batch_first=True)

    def blocked(self, pad):
        n = pad.shape[1]
        late = torch.ones(n, n, dtype=torch.bool).triu(1) | pad[:, None, :]
        late = late & ~torch.eye(n, dtype=torch.bool)
        return {repeated}

    def forward(self, ids):
        x = self.items(ids) + self.places(torch.arange(ids.shape[1]))
        y, _ = self.attend(x, x, x, attn_mask=self.blocked(ids == 0), need_weights=False)
        return (x + y) @ self.items.weight.T
'''


@pytest.mark.parametrize(
    ("repeated", "kinds"),
    [
        ("late.repeat_interleave(self.heads, dim=0)", []),
        ("late.repeat(self.heads, 1, 1)  # <-", ["mask-repeat-order"]),
        ("torch.cat([late] * self.heads)  # <-", ["mask-repeat-order"]),
        ("late.expand(self.heads, *late.shape).reshape(-1, n, n)  # <-", ["mask-repeat-order"]),
    ],
)
def test_masks_of_all_heads_follow_each_other_for_each_sample(repeated, kinds):
    source = HEAD + RANKED.replace("{repeated}", repeated)
    assert blamed_in(source, "Ranked") == [each for kind in kinds for each in marked(source, kind)]


def test_a_mask_that_is_repeated_in_another_order_is_patched(tmp_path):
    path = tmp_path / "ranked.py"
    path.write_text(HEAD + RANKED.replace("{repeated}", "late.repeat(self.heads, 1, 1)"))
    (fault,) = hw.doctor(f"{path}:Ranked").faults
    assert (fault.kind, fault.proved) == ("mask-repeat-order", True)
    assert "late.repeat_interleave(self.heads, dim=0)" in fault.patch


OFFERED = (
    HEAD
    + """
class Attend(nn.Module):
    def __init__(self, width, memory_width, heads):
        super().__init__()
        self.heads = heads
        self.memory = nn.Linear(memory_width, width)
        self.nothing = nn.Parameter(torch.randn(1, 1, width))
        self.attn = nn.MultiheadAttention(width, heads, batch_first=True)

    def shut(self, offered):
        # the first key always is
        shut = F.pad(~offered, (1, 0))
        return {tiled}

    def forward(self, tokens, regions, offered):
        \"\"\"
        tokens: (B, L, width)
        regions: (B, S, memory_width)
        offered: (B, L, S) bool, whether a region is offered to a token
        \"\"\"
        keys = torch.cat([self.nothing.expand(tokens.shape[0], -1, -1), self.memory(regions)], dim=1)
        return self.attn(tokens, keys, keys, attn_mask=self.shut(offered), need_weights=False)[0]
"""
)


def test_what_is_said_of_pairs_is_repeated_in_the_order_of_samples_and_heads():
    source = OFFERED.replace("{tiled}", "shut.repeat(self.heads, 1, 1)")
    assert blamed_in(source) == [("mask-repeat-order", line_of(source, "shut.repeat"))]
    assert found_in(OFFERED.replace("{tiled}", "shut.repeat_interleave(self.heads, dim=0)")).verdict == "sound"


PACKED = (
    HEAD
    + """
class Attend(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.attn = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, x, segment_ids):
        \"\"\"
        x: (B, L, width)
        segment_ids: (B, L) integers, of which text a token is
        \"\"\"
        others = segment_ids[:, :, None] != segment_ids[:, None, :]
        return self.attn(x, x, x, attn_mask={tiled}, need_weights=False)[0]
"""
)


def test_a_mask_of_segments_is_repeated_in_the_order_of_samples_and_heads():
    source = PACKED.replace("{tiled}", "others.repeat(self.heads, 1, 1)")
    assert blamed_in(source) == [("mask-repeat-order", line_of(source, "others.repeat"))]
    assert found_in(PACKED.replace("{tiled}", "others.repeat_interleave(self.heads, dim=0)")).verdict == "sound"
