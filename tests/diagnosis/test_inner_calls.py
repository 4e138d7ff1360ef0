"""A class inside another is examined as that calls it: with its inputs, and as many axes of each."""

import torch
from torch import nn

import headwise as hw


class Additive(nn.Module):
    """Takes one query for each sample, and a mask."""

    def __init__(self, wide, narrow):
        super().__init__()
        self.ask, self.match, self.score = nn.Linear(narrow, narrow), nn.Linear(wide, narrow), nn.Linear(narrow, 1)

    def forward(self, query, keys, mask):
        scores = self.score(torch.tanh(self.ask(query)[:, None] + self.match(keys))).squeeze(2)
        weights = scores.masked_fill(~mask, float("-inf")).softmax(1)
        return torch.bmm(weights[:, None], keys).squeeze(1)


class Translator(nn.Module):
    def __init__(self, vocab_size, hidden=8, pad_id=0):
        super().__init__()
        self.pad_id, self.table = pad_id, nn.Embedding(vocab_size, hidden, padding_idx=pad_id)
        self.encoder = nn.GRU(hidden, hidden, batch_first=True, bidirectional=True)
        self.attend, self.cell = Additive(2 * hidden, hidden), nn.GRUCell(3 * hidden, hidden)
        self.head = nn.Linear(hidden, vocab_size)

    def forward(self, src, tgt):
        memory, state = self.encoder(self.table(src))
        state, out = state.sum(0), []
        for token in self.table(tgt).unbind(1):
            found = self.attend(state, memory, src != self.pad_id)
            state = self.cell(torch.cat([token, found], 1), state)
            out.append(self.head(state))
        return torch.stack(out, 1)


def test_a_call_that_the_whole_does_not_make_accuses_no_class_inside():
    assert hw.doctor(Translator).faults == ()


class Attend(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.ask, self.both, self.out = nn.Linear(dim, dim), nn.Linear(dim, 2 * dim), nn.Linear(dim, dim)

    def forward(self, x, context=None, mask=None):
        context = x if context is None else context
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                   for t in (self.ask(x), *self.both(context).chunk(2, -1)))  # fmt: skip
        scores = q @ k.mT * q.shape[-1] ** -0.5
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None, None], torch.finfo(scores.dtype).min)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class Block(nn.Module):
    """context_mask: (b, m), True on the tokens of the context that may be seen"""

    def __init__(self, dim, heads):
        super().__init__()
        self.own, self.other = Attend(dim, heads), Attend(dim, heads)

    def forward(self, x, context=None, context_mask=None):
        x = x + self.own(x)
        return x + self.other(x, context, context_mask)


class Forgetful(Block):
    def forward(self, x, context=None, context_mask=None):
        x = x + self.own(x)
        return x + self.other(x, context)


def test_a_mask_that_is_called_after_an_input_is_of_that_input_alone():
    assert hw.doctor(Block).faults == ()
    assert [fault.kind for fault in hw.doctor(Forgetful).faults] == ["mask-ignored"]


class Decoder(nn.Module):
    """Its block is told to look at memory, which it gets in every call."""

    def __init__(self, vocab_size, dim, heads):
        super().__init__()
        self.table, self.block = nn.Embedding(vocab_size, dim), Masked(dim, heads)

    def forward(self, tokens, memory):
        x = self.table(tokens)
        seen = torch.ones(x.shape[1], x.shape[1]).triu(1).masked_fill_(torch.ones(1, 1).triu(1) != 0, 0)
        return self.block(x, memory, seen.masked_fill(seen != 0, float("-inf")))


class Masked(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.own, self.other = Summed(dim, heads), Summed(dim, heads)

    def forward(self, x, memory=None, mask=None):
        x = x + self.own(x, None, mask)
        return x + self.other(x, memory)


class Summed(Attend):
    def forward(self, x, context=None, mask=None):
        context = x if context is None else context
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                   for t in (self.ask(x), *self.both(context).chunk(2, -1)))  # fmt: skip
        scores = q @ k.mT * q.shape[-1] ** -0.5
        scores = scores if mask is None else scores + mask
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


def test_an_input_that_the_whole_always_gives_is_given():
    assert hw.doctor(Decoder).faults == ()


class History(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.ask, self.match, self.hold = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, query, history):
        b, n, d = query.shape
        q, k, v = (layer(t).view(b, n, 2, d // 2).transpose(1, 2)
                   for layer, t in ((self.ask, query), (self.match, history), (self.hold, history)))  # fmt: skip
        late = torch.ones(n, n, dtype=torch.bool).triu(1)
        weights = (q @ k.mT * (d // 2) ** -0.5).masked_fill(late, float("-inf")).softmax(-1)
        return (weights @ v).transpose(1, 2).reshape(b, n, d)


class Items(nn.Module):
    """Queries are normed, and what they attend to is not: both are as long as the history."""

    def __init__(self, count, hidden=8):
        super().__init__()
        self.table, self.norm, self.attend = nn.Embedding(count, hidden), nn.LayerNorm(hidden), History(hidden)

    def forward(self, items):
        x = self.table(items)
        return x + self.attend(self.norm(x), x)


def test_a_class_that_gets_as_many_keys_as_queries_is_not_asked_for_more():
    assert hw.doctor(Items).faults == ()
    assert [fault.kind for fault in hw.doctor(History).faults] == ["key-uses-query-length"]
