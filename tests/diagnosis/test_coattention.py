"""One matrix of scores by which two sequences attend to each other, each along its own axis."""

import pytest

from tests.diagnosis.written import HEAD, blamed_in, found_in, marked

BOTH = (
    HEAD
    + """
class Attend(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, a, b, a_mask=None, b_mask=None):
        '''a_mask, b_mask (batch, tokens): 1 for real tokens, 0 for padding.'''
        s = self.first(a) @ self.second(b).mT / a.shape[-1] ** 0.5
        over_b, over_a = s, {other}
        if b_mask is not None:
            over_b = over_b.masked_fill(b_mask[:, None] == {hidden}, -1e9){mark}
        if a_mask is not None:
            over_a = over_a.masked_fill({row} == 0, -1e9)
        return over_b.softmax(-1) @ b, {weights} @ a
"""
)
COLUMNS = {"other": "s", "row": "a_mask[:, :, None]", "weights": "over_a.softmax(1).mT"}
TRANSPOSED = {"other": "s.mT", "row": "a_mask[:, None]", "weights": "over_a.softmax(-1)"}


@pytest.mark.parametrize("given", [COLUMNS, TRANSPOSED])
def test_both_ways_are_sound(given):
    found = found_in(BOTH.format(**given, hidden=0, mark=""))
    assert (found.verdict, found.examined["mask"]) == ("sound", "b_mask: attend; a_mask: attend")


@pytest.mark.parametrize("given", [COLUMNS, TRANSPOSED])
def test_a_mask_of_one_way_is_held_to_what_is_said(given):
    source = BOTH.format(**given, hidden=1, mark="  # <-")
    assert blamed_in(source) == marked(source, "mask-inverted")


TRILINEAR = (
    HEAD
    + """
class Attend(nn.Module):
    '''A number of each word of a text, one of each word of a question, and one of each pair.'''

    def __init__(self, width):
        super().__init__()
        self.of_text, self.of_question = nn.Linear(width, 1, bias=False), nn.Linear(width, 1, bias=False)
        self.of_pair, self.read = nn.Parameter(torch.rand(1, 1, width)), nn.Linear(width, width)
        self.ask = nn.Linear(width, width)

    def forward(self, text, question):
        text, question = self.read(text).tanh(), self.ask(question).tanh()
        pairs = (text * self.of_pair) @ question.mT
        return {scores}.softmax(-1) @ question
"""
)


@pytest.mark.parametrize(
    "scores",
    [
        "(self.of_text(text) + self.of_question(question).mT + pairs)",
        "(pairs + self.of_question(question).mT + self.of_text(text))",
    ],
)
def test_scores_of_words_and_of_their_pairs_have_no_scale(scores):
    found = found_in(TRILINEAR.format(scores=scores))
    assert (found.verdict, found.faults) == ("sound", ())
