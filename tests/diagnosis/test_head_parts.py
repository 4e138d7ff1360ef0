"""Head parts: where the products of two parts of a head are added up, the scale is that of the whole head."""

import pytest

from tests.diagnosis.written import HEAD, blamed_in, found_in, line_of

LATENT = """
class Attend(nn.Module):
    def __init__(self, width, num_heads, plain=32, placed=16, rank=24, held=20):
        super().__init__()
        self.num_heads, self.plain, self.placed, self.rank = num_heads, plain, placed, rank
        self.ask = nn.Linear(width, num_heads * (plain + placed))
        self.down = nn.Linear(width, rank + placed)
        self.up = nn.Parameter(torch.randn(num_heads, plain, rank) / rank)
        self.out = nn.Parameter(torch.randn(num_heads, rank, held) / rank)
        self.join = nn.Linear(num_heads * held, width)
        self.factor = {factor} ** -0.5

    def forward(self, x):
        n, long, width = x.shape
        q = self.ask(x).view(n, long, self.num_heads, self.plain + self.placed)
        q_plain, q_placed = q.split([self.plain, self.placed], dim=-1)
        latent, k_placed = self.down(x).split([self.rank, self.placed], dim=-1)
        q_latent = torch.einsum("bihd,hdr->bihr", q_plain, self.up)
        s = torch.einsum("bihr,bjr->bhij", q_latent, latent) + torch.einsum("bihe,bje->bhij", q_placed, k_placed)
        w = (s * self.factor).softmax(-1)
        return self.join(torch.einsum("bhij,bjr,hrv->bihv", w, latent, self.out).flatten(2))
"""


def test_the_scale_of_the_whole_head_is_sound():
    assert found_in(HEAD + LATENT.format(factor="(plain + placed)")).verdict == "sound"


@pytest.mark.parametrize("factor", ["plain", "placed"])
def test_the_scale_of_a_part_of_the_head_is_told(factor):
    source = HEAD + LATENT.format(factor=factor)
    assert blamed_in(source) == [("scale-wrong", line_of(source, "self.factor = "))]
