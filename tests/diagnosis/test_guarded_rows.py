"""NaN of samples with nothing to attend to, which a product with 0 is to take away; each beside the same put right."""

import pytest

from tests.diagnosis.written import HEAD, blamed_in, marked

READER = """

class Reader(nn.Module):
    # x: (batch, tokens, width); memory: (batch, entries, width); there: (batch, entries), True where there is an entry

    def __init__(self, width=24, heads=3):
        super().__init__()
        self.heads, self.ask, self.two, self.out = heads, *(nn.Linear(width, n * width) for n in (1, 2, 1))

    def forward(self, x, memory, there):
        q = self.ask(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in self.two(memory).chunk(2, -1))
        s = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(~there[:, None, None], float("-inf"))
        p = s.softmax(-1)  # <-
        y = self.out((p @ v).transpose(1, 2).flatten(2))
        return {guarded}
"""
HELD = "y * there.any(1).to(y.dtype)[:, None, None]"
HISTORY = """

class History(nn.Module):
    {words}

    def __init__(self, items=50, width=24, heads=3):
        super().__init__()
        self.heads, self.table = heads, nn.Embedding(items + 1, width, padding_idx=0)
        self.three, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, items):
        gone = (items == 0)[..., None]
        x = self.table(items).masked_fill(gone, 0.0)
        hidden = (items == 0)[:, None] | torch.ones(items.shape[1], items.shape[1], dtype=torch.bool).triu(1)
        q, k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in self.three(x).chunk(3, -1))
        s = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(hidden[:, None], {fill})
        p = s.softmax(-1)  # <-
        return self.out((p @ v).transpose(1, 2).flatten(2)) * ~gone
"""
EMPTY = '"""Items of a user, with 0 behind them; a new user comes with an empty history."""'
INFINITE, LEAST = 'float("-inf")', "-1e9"


@pytest.mark.parametrize(
    ("guarded", "kinds"),
    [
        (HELD, ["empty-row-spreads"]),
        ("y", []),
        ("torch.where(there.any(1)[:, None, None], y, 0.0)", []),
        ("y.nan_to_num(0.0) * there.any(1)[:, None, None]", []),
    ],
)
def test_a_sample_without_entries_is_not_put_right_by_a_product_with_0(guarded, kinds):
    source = HEAD + READER.replace("{guarded}", guarded)
    assert blamed_in(source, "Reader") == [each for kind in kinds for each in marked(source, kind)]


@pytest.mark.parametrize(
    ("words", "fill", "kinds"),
    [(EMPTY, INFINITE, ["empty-row-spreads"]), (EMPTY, LEAST, []), ('"""Items of a user."""', INFINITE, [])],
)
def test_words_tell_that_a_history_may_be_empty(words, fill, kinds):
    source = HEAD + HISTORY.replace("{words}", words).replace("{fill}", fill)
    assert blamed_in(source, "History") == [each for kind in kinds for each in marked(source, kind)]
