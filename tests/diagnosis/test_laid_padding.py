"""Padding masks on their way: laid at the wrong end, tiled in another order, or not handed to one of several calls."""

from tests.diagnosis.written import HEAD, blamed_in, found_in, line_of

CLASSIFIER = (
    HEAD
    + """
class Classifier(nn.Module):
    def __init__(self, vocab_size, width, heads, pad_id=0):
        super().__init__()
        self.pad_id = pad_id
        self.table = nn.Embedding(vocab_size, width, padding_idx=pad_id)
        self.first = nn.Parameter(torch.randn(1, 1, width))
        self.ask, self.match, self.hold = (nn.Linear(width, width) for _ in range(3))

    def forward(self, tokens):
        pad = tokens.eq(self.pad_id)
        x = torch.cat([self.first.expand(len(tokens), -1, -1), self.table(tokens)], dim=1)
        pad = F.pad(pad, {ends}, value=False)
        scores = self.ask(x) @ self.match(x).mT * x.shape[-1] ** -0.5
        weights = scores.masked_fill(pad[:, None], float("-inf")).softmax(-1)
        return (weights @ self.hold(x))[:, 0]
"""
)
TILED = (
    HEAD
    + """
class Tiled(nn.Module):
    '''Heads in the batch, those of a sample side by side.'''

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ask, self.match, self.hold = (nn.Linear(width, width) for _ in range(3))

    def cut(self, t):
        return t.unflatten(-1, (self.heads, -1)).transpose(1, 2).flatten(0, 1)

    def forward(self, x, valid_lens=None):
        '''valid_lens: (batch,) how many tokens of each sample are real'''
        q, k, v = self.cut(self.ask(x)), self.cut(self.match(x)), self.cut(self.hold(x))
        scores = torch.bmm(q, k.mT) / math.sqrt(q.shape[-1])
        if valid_lens is not None:
            valid_lens = {tiled}
            there = torch.arange(x.shape[1])[None, None] < valid_lens[:, None, None].expand(-1, x.shape[1], -1)
            scores = scores.masked_fill(~there, -1e9)
        y = torch.bmm(scores.softmax(-1), v)
        return y.unflatten(0, (-1, self.heads)).transpose(1, 2).flatten(2)
"""
)
POOLED = (
    HEAD
    + """
class Attend(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.ask, self.match, self.hold = (nn.Linear(width, width) for _ in range(3))

    def forward(self, x, y, mask=None):
        scores = self.ask(x) @ self.match(y).mT * x.shape[-1] ** -0.5
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None], -1e9)
        return scores.softmax(-1) @ self.hold(y)


class Pool(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.seeds, self.attend = nn.Parameter(torch.randn(1, 2, width)), Attend(width)

    def forward(self, x, mask=None):
        return self.attend(self.seeds.repeat(len(x), 1, 1), x, mask)


class Pooled(nn.Module):
    '''sizes: (batch,) how many elements of each set are real'''

    def __init__(self, width):
        super().__init__()
        self.first, self.pool = Attend(width), Pool(width)

    def forward(self, x, sizes=None):
        mask = None if sizes is None else torch.arange(x.shape[1]) < sizes[:, None]
        x = self.first(x, x, mask)
        return self.pool({handed})
"""
)


def test_a_mask_of_tokens_that_is_laid_at_the_wrong_end_is_told_where_it_is():
    right = found_in(CLASSIFIER.replace("{ends}", "(1, 0)"), "Classifier")
    assert (right.verdict, right.faults) == ("sound", ())
    source = CLASSIFIER.replace("{ends}", "(0, 1)")
    assert blamed_in(source, "Classifier") == [("mask-shifted", line_of(source, "pad = F.pad"))]


def test_lengths_that_are_tiled_in_another_order_than_heads_are_told_where_they_are_tiled():
    assert found_in(TILED.replace("{tiled}", "valid_lens.repeat_interleave(self.heads)"), "Tiled").faults == ()
    source = TILED.replace("{tiled}", "torch.cat([valid_lens] * self.heads)")
    assert blamed_in(source, "Tiled") == [("mask-repeat-order", line_of(source, "valid_lens = torch.cat"))]


def test_a_mask_that_one_of_several_calls_is_not_handed_is_told_at_that_call():
    right = found_in(POOLED.replace("{handed}", "x, mask"), "Pooled")
    assert (right.verdict, right.faults) == ("sound", ())
    source = POOLED.replace("{handed}", "x")
    assert blamed_in(source, "Pooled") == [("padding-attended", line_of(source, "return self.pool"))]
