"""Attention along an axis of a grid, with a residual: each token must meet itself again where it is added."""

import pytest

from tests.diagnosis.written import HEAD, blamed_in, marked

COLUMNS = (
    HEAD
    + """
class Heads(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.packed, self.join = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.packed(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        weights = (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1)
        return self.join((weights @ v).transpose(1, 2).flatten(2))


class Columns(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm, self.attend = nn.LayerNorm(width), Heads(width, heads)

    def forward(self, x):
        '''x: (batch, height, width, channels)'''
        b, h, w, c = x.shape
        lines = self.norm(x).{taken}
        lines = self.attend(lines)
        return x + {laid}
"""
)
TAKEN = "transpose(1, 2).reshape(b * w, h, c)"
LAID = "lines.view(b, w, h, c).transpose(1, 2)"


def test_columns_laid_back_as_rows_are_a_fault_of_the_layout():
    source = COLUMNS.replace("{taken}", TAKEN).replace("{laid}", "lines.view(b, h, w, c)  # <-")
    assert blamed_in(source, "Columns") == marked(source, "heads-batch-swapped")


@pytest.mark.parametrize("both", [(TAKEN, LAID), ("reshape(b * h, w, c)", "lines.view(b, h, w, c)")])
def test_lines_laid_back_as_they_were_taken_are_none(both):
    assert blamed_in(COLUMNS.replace("{taken}", both[0]).replace("{laid}", both[1]), "Columns") == []
