"""Tokens that are pooled by one weight each are no attention between tokens; what laws say of them is found."""

import pytest

from tests.diagnosis.written import blamed_in, found_in, line_of

HEAD = "import torch\nfrom torch import nn\n\n\n"
GATED = """class Gated(nn.Module):
    def __init__(self, width, hidden=6):
        super().__init__()
        self.value, self.gate = nn.Linear(width, hidden), nn.Linear(width, hidden)
        self.score = nn.Linear(hidden, 1)

    def forward(self, x):
        scores = self.score(torch.tanh(self.value(x)) * torch.sigmoid(self.gate(x)))
        weights = torch.softmax(scores, dim=1)
        return torch.bmm(weights.transpose(1, 2), x).squeeze(1)
"""
LATE = """class Late(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.score = nn.Linear(width, 1)
        self.last = None

    def forward(self, x):
        weights = torch.softmax(self.score(x).squeeze(-1), dim=-1)
        pooled = torch.einsum("bl,ble->be", weights, x)
        if self.last is not None:
            pooled = pooled + self.last
        self.last = pooled.detach()
        return pooled
"""


def test_it_is_named_pooling_however_it_is_summed():
    for sum_ in ("torch.bmm(weights.transpose(1, 2), x).squeeze(1)", "(weights * x).sum(1)"):
        source = HEAD + GATED.replace("torch.bmm(weights.transpose(1, 2), x).squeeze(1)", sum_)
        report = found_in(source, "Gated")
        assert (report.verdict, report.findings) == ("sound", ())
        assert report.examined["comparison"].startswith("attention pooling, arXiv:")
        assert [report.examined[law] for law in ("samples", "arguments kept", "second call")] == [True] * 3


@pytest.mark.parametrize(
    ("source", "name", "kind", "at"),
    [
        (GATED.replace("softmax(scores, dim=1)", "softmax(scores, dim=0)"), "Gated", "softmax-axis", "torch.softmax"),
        (LATE, "Late", "stateful-forward", "pooled + self.last"),
    ],
    ids=["over the batch", "kept from the call before"],
)
def test_a_law_that_it_breaks_is_told_with_its_line(source, name, kind, at):
    assert blamed_in(HEAD + source, name) == [(kind, line_of(HEAD + source, at))]


PADDED = """class Padded(nn.Module):
    def __init__(self, vocab_size, width, pad_idx=0):
        super().__init__()
        self.pad_idx = pad_idx
        self.embed = nn.Embedding(vocab_size, width, padding_idx=pad_idx)
        self.score = nn.Linear(width, 1)

    def forward(self, ids):
        is_real = ids != self.pad_idx
        h = self.embed(ids)
        s = self.score(h).squeeze(-1)
        s = s.masked_fill(~is_real, float("-inf"))
        weights = s.softmax(dim=1)
        return (weights.unsqueeze(-1) * h).sum(dim=1)
"""
HIDING = 's.masked_fill(~is_real, float("-inf"))'


@pytest.mark.parametrize(
    ("hiding", "kind"),
    [("s * is_real.to(s.dtype)", "mask-multiplied"), ("s.masked_fill(~is_real, -2.0)", "mask-weak-fill")],
)
def test_padding_that_keeps_a_weight_is_told_where_it_should_be_hidden(hiding, kind):
    source = HEAD + PADDED.replace(HIDING, hiding)
    faults = found_in(source, "Padded").faults
    assert [(each.kind, each.line, each.proved) for each in faults] == [(kind, line_of(source, f"s = {hiding}"), True)]


@pytest.mark.parametrize(
    ("hiding", "more"),
    [
        (HIDING, ""),
        ("s.masked_fill(~is_real, -1e9)", ""),
        (
            "s * is_real.to(s.dtype)",
            "\n        weights = weights * is_real\n        weights = weights / weights.sum(1, True)",
        ),
    ],
)
def test_padding_that_has_no_weight_in_the_end_is_hidden(hiding, more):
    weights = "weights = s.softmax(dim=1)"
    source = HEAD + PADDED.replace(HIDING, hiding).replace(weights, weights + more)
    found = found_in(source, "Padded")
    # weights that are divided by their sum once more are not followed
    assert (found.verdict, found.faults) == ("not examined" if more else "sound", ())


def test_features_of_padding_that_are_set_to_0_are_no_scores():
    source = HEAD + PADDED.replace(HIDING, "s + 0.0").replace("self.embed(ids)", "self.embed(ids) * is_real[..., None]")
    assert found_in(source, "Padded").verdict == "sound"


SCORED = """class Scored(nn.Module):
    def __init__(self, vocabulary, width, classes, pad_idx=0):
        super().__init__()
        self.pad_idx = pad_idx
        self.words = nn.Embedding(vocabulary, width, padding_idx=pad_idx)
        self.ask, self.score = nn.Linear(width, width), nn.Linear(width, 1, bias=False)
        self.out = nn.Linear(width, classes)

    def forward(self, ids):
        x = self.words(ids)
        scores = self.score(torch.tanh(self.ask(x))).squeeze(-1)
        scores = scores.masked_fill(ids == self.pad_idx, torch.finfo(x.dtype).min)
        weights = scores.softmax(1)
        return self.out(torch.bmm(weights.unsqueeze(1), x).squeeze(1))
"""
SUMMED = SCORED.replace("torch.bmm(weights.unsqueeze(1), x).squeeze(1)", "(weights.unsqueeze(-1) * x).sum(1)")
NAMED = SCORED.replace("torch.bmm(weights.unsqueeze(1), x).squeeze(1)", 'torch.einsum("bl,bld->bd", weights, x)')
TURNED = SCORED.replace("class Scored(nn.Module):\n", 'class Scored(nn.Module):\n    """ids: (length, batch)"""\n\n')
TURNED = TURNED.replace("softmax(1)", "softmax(0)").replace(
    "torch.bmm(weights.unsqueeze(1), x).squeeze(1)", 'torch.einsum("lb,lbd->bd", weights, x)'
)


@pytest.mark.parametrize(
    ("source", "axis"),
    [(SCORED, 1), (SUMMED, 1), (NAMED, 1), (TURNED, 0)],
    ids=["product", "sum", "einsum", "batch second"],
)
def test_scores_of_tokens_that_are_shared_out_over_the_batch(source, axis):
    right = HEAD + source
    assert found_in(right, "Scored").faults == ()
    wrong = right.replace(f"softmax({axis})", f"softmax({1 - axis})")
    assert blamed_in(wrong, "Scored") == [("softmax-axis", line_of(wrong, "scores.softmax"))]


def test_weights_of_slots_and_of_samples_that_are_no_tokens_are_left():
    slots = SCORED.replace("nn.Linear(width, 1, bias=False)", "nn.Linear(width, 3, bias=False)")
    slots = slots.replace(".squeeze(-1)", "").replace("ids == self.pad_idx", "(ids == self.pad_idx).unsqueeze(-1)")
    slots = slots.replace("softmax(1)", "softmax(-1)").replace(
        "torch.bmm(weights.unsqueeze(1), x).squeeze(1)", "(weights.mT @ x).mean(1)"
    )
    assert not found_in(HEAD + slots, "Scored").faults
    among = SCORED.replace("softmax(1)", "softmax(1) * x.mean((1, 2), keepdim=True).softmax(0).squeeze(-1)")
    assert ("softmax-axis", line_of(HEAD + among, "scores.softmax")) not in blamed_in(HEAD + among, "Scored")


WORDED = """class Attn(nn.Module):
    def __init__(self, method, size):
        super().__init__()
        if method not in ("dot", "general"):
            raise ValueError(method)
        self.turn = nn.Linear(size, size) if method == "general" else nn.Identity()

    def forward(self, state, memory):
        return ((state * self.turn(memory)).sum(-1)).softmax(0)


class Decoder(nn.Module):
    def __init__(self, attention, vocabulary, size):
        super().__init__()
        self.words, self.rnn, self.attention = nn.Embedding(vocabulary, size), nn.GRU(size, size), Attn(attention, size)
        self.out = nn.Linear(2 * size, vocabulary)

    def forward(self, word, state, memory):
        \"\"\"word: (1, B) ids; state: (1, B, H); memory: (S, B, H)\"\"\"
        output, state = self.rnn(self.words(word), state)
        weights = self.attention(output, memory)
        context = (weights.unsqueeze(-1) * memory).sum(0)
        return self.out(torch.cat((output.squeeze(0), context), -1)), state
"""


def test_scores_of_the_one_query_of_each_sample_are_shared_out_over_the_batch_behind_a_word_of_the_constructor():
    assert found_in(HEAD + WORDED, "Decoder").faults == ()
    wrong = HEAD + WORDED.replace("softmax(0)", "softmax(1)")
    assert blamed_in(wrong, "Decoder") == [("softmax-axis", line_of(wrong, "softmax(1)"))]


PACKED = """class Packed(nn.Module):
    def __init__(self, vocabulary, width, dropout=0.1):
        super().__init__()
        self.words, self.rnn = nn.Embedding(vocabulary, width, padding_idx=0), nn.LSTM(width, width, batch_first=True)
        self.score, self.dropout = nn.Linear(width, 1), dropout

    def forward(self, ids):
        packed = nn.utils.rnn.pack_padded_sequence(
            self.words(ids), (ids != 0).sum(1).clamp(min=1), batch_first=True, enforce_sorted=False
        )
        h, _ = nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True, total_length=ids.shape[1])
        scores = self.score(h).squeeze(-1).masked_fill(ids == 0, -1e9)
        weights = nn.functional.dropout(scores.softmax(1), self.dropout, self.training)
        return (weights.unsqueeze(-1) * h).sum(1)
"""


def test_dropout_in_eval_is_found_where_memory_that_was_not_written_differs_too():
    assert found_in(HEAD + PACKED, "Packed").faults == ()
    wrong = HEAD + PACKED.replace(", self.training)", ")")
    assert blamed_in(wrong, "Packed") == [("dropout-in-eval", line_of(wrong, "nn.functional.dropout"))]


STATES = """class States(nn.Module):
    def __init__(self, width, hidden, hops=3):
        super().__init__()
        self.gru, self.score = nn.GRU(width, hidden, batch_first=True), nn.Linear(hidden, hops)

    def forward(self, x):
        states, _ = self.gru(x)
        weights = self.score(states).softmax({axis})
        return torch.einsum("btr,bth->brh", weights, states).flatten(1)
"""
HOPS = """class Hops(nn.Module):
    '''tokens: (length, batch), padded with 0 behind'''

    def __init__(self, vocab, emb, hidden, hops=3):
        super().__init__()
        self.emb, self.lstm = nn.Embedding(vocab, emb, padding_idx=0), nn.LSTM(emb, hidden, bidirectional=True)
        self.first, self.second = nn.Linear(2 * hidden, 2 * hidden), nn.Linear(2 * hidden, hops)

    def forward(self, tokens):
        pads = tokens == 0
        packed = nn.utils.rnn.pack_padded_sequence(self.emb(tokens), (~pads).sum(0).cpu(), enforce_sorted=False)
        states, _ = nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], total_length=len(tokens))
        scores = self.second(torch.tanh(self.first(states))).masked_fill(pads[..., None], float("-inf"))
        return torch.einsum("tbr,tbh->brh", scores.softmax({axis}), states).flatten(1)
"""


def test_tokens_are_followed_through_packed_sequences():
    report = found_in(HEAD + HOPS.format(axis=0), "Hops")
    assert report.verdict == "sound"
    assert report.examined["comparison"].startswith("attention pooling")


@pytest.mark.parametrize(("axis", "kinds"), [(1, []), (0, ["softmax-axis"])])
def test_states_of_a_recurrent_layer_are_pooled_by_several_weights_each(axis, kinds):
    assert [kind for kind, _ in blamed_in(HEAD + STATES.format(axis=axis), "States")] == kinds


MEAN = """class Mean(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.ask, self.match, self.hold = (nn.Linear(width, width) for _ in range(3))

    def forward(self, x, there=None):
        '''there: (B, N) bool, False for padding'''
        if there is None:
            return self.pooled(torch.cat([x.mean(1, keepdim=True), x], 1), None)
        share = there / there.sum(-1, keepdim=True)
        return self.pooled(torch.cat([{mean}, x], 1), nn.functional.pad(~there, (1, 0), value=False)[:, None])

    def pooled(self, x, closed):
        s = self.ask(x[:, :1]) @ self.match(x).mT * x.shape[-1] ** -0.5
        s = s if closed is None else s.masked_fill(closed, float("-inf"))
        return (s.softmax(-1) @ self.hold(x)).squeeze(1)
"""


def test_padding_that_is_pooled_before_an_attention_is_told_where_it_is():
    assert found_in(HEAD + MEAN.format(mean="(share[..., None] * x).sum(1, keepdim=True)"), "Mean").verdict == "sound"
    source = HEAD + MEAN.format(mean="x.mean(1, True)")
    assert blamed_in(source, "Mean") == [("padding-pooled", line_of(source, "x.mean(1, True)"))]


SCALED = """class Scaled(nn.Module):
    '''Tokens are put together two by two until few are left.'''

    def __init__(self, width):
        super().__init__()
        self.first, self.second = nn.Linear(2 * width, width), nn.Linear(2 * width, width)
        self.ask = nn.Linear(width, width)

    def forward(self, x):
        for layer in (self.first, self.second):
            x = layer(x[:, : x.shape[1] // 2 * 2].reshape(x.shape[0], x.shape[1] // 2, -1))
        return (self.ask(x) @ x.mT * x.shape[-1] ** -0.5).softmax(-1) @ x
"""


def test_few_tokens_are_no_softmax_over_one():
    assert "softmax-single-entry" not in [kind for kind, _ in blamed_in(HEAD + SCALED, "Scaled")]


PEAK = """class Peak(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.ask, self.match, self.hold = (nn.Linear(width, width) for _ in range(3))

    def forward(self, x, mask=None):
        '''mask: (B, N) bool, False for padding'''
        if mask is None:
            mask = torch.ones(x.shape[:2], dtype=torch.bool)
        s = self.ask(x) @ self.match(x).mT * x.shape[-1] ** -0.5
        y = s.masked_fill(~mask[:, None], -1e9).softmax(-1) @ self.hold(x)
        return y.masked_fill(~mask[..., None], {fill}).max(1).values
"""


def test_padding_that_is_zero_when_the_largest_is_taken_is_told():
    assert found_in(HEAD + PEAK.format(fill='float("-inf")'), "Peak").faults == ()
    source = HEAD + PEAK.format(fill="0.0")
    assert blamed_in(source, "Peak") == [("padding-pooled", line_of(source, ".max(1)"))]


STATISTICS = """class Statistics(nn.Module):
    '''Frames of a speaker, pooled by weights that know the mean of all.'''

    def __init__(self, width, hidden=6):
        super().__init__()
        self.score = nn.Sequential(nn.Linear(2 * width, hidden), nn.Tanh(), nn.Linear(hidden, width))

    def forward(self, frames, lengths=None):
        '''frames: (batch, time, width); lengths: (batch,) number of real frames'''
        if lengths is None:
            lengths = torch.full((frames.shape[0],), frames.shape[1])
        real = (torch.arange(frames.shape[1]) < lengths[:, None]).unsqueeze(-1)
        share = real.to(frames.dtype) / {count}
        mean = (share * frames).sum(1, keepdim=True).expand_as(frames)
        scores = self.score(torch.cat([frames, mean], -1)).masked_fill(~real, float("-inf"))
        return (scores.softmax(1) * frames).sum(1)
"""


def test_a_sum_over_real_tokens_that_is_divided_by_the_length_of_the_batch_is_told():
    right = found_in(HEAD + STATISTICS.format(count="lengths[:, None, None]"), "Statistics")
    assert (right.verdict, right.faults) == ("sound", ())
    source = HEAD + STATISTICS.format(count="frames.shape[1]")
    assert blamed_in(source, "Statistics") == [("padding-pooled", line_of(source, "share = "))]


GATED_TOKENS = """class GatedTokens(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.ask, self.match, self.hold, self.gate = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x, mask=None):
        '''mask: (B, N) bool, False for padding'''
        if mask is None:
            mask = torch.ones(x.shape[:2], dtype=torch.bool)
        s = self.ask(x) @ self.match(x).mT * x.shape[-1] ** -0.5
        y = s.masked_fill(~mask[:, None], -1e9).softmax(-1) @ self.hold(x)
        summary = (y * mask[..., None]).sum(1, keepdim=True)
        summary = summary / {count}
        return y * torch.sigmoid(self.gate(summary))
"""


def test_what_padding_changes_of_all_tokens_is_told_where_it_comes_in():
    right = found_in(HEAD + GATED_TOKENS.format(count="mask.sum(1)[:, None, None]"), "GatedTokens")
    assert (right.verdict, right.faults) == ("sound", ())
    source = HEAD + GATED_TOKENS.format(count="x.shape[1]")
    assert blamed_in(source, "GatedTokens") == [("padding-pooled", line_of(source, "summary = summary"))]


NEAREST = """class Nearest(nn.Module):
    '''For each query the passage whose tokens are nearest to its own; token 0 is padding.'''

    def __init__(self, vocab_size, width=12, heads=3):
        super().__init__()
        self.table = nn.Embedding(vocab_size, width, padding_idx=0)
        layer = nn.TransformerEncoderLayer(width, heads, 2 * width, 0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

    def forward(self, query_ids, passage_ids):
        asked, told = self.encoded(query_ids), self.encoded(passage_ids)
        near = -(asked[:, None, :, None] - told[None, :, None]).square().sum(-1)
        near = near.masked_fill(passage_ids.eq(0)[None, :, None, :], {fill})
        best = near.max(-1).values
        return (best * query_ids.ne(0)[:, None]).sum(-1)

    def encoded(self, ids):
        return self.encoder(self.table(ids), src_key_padding_mask=ids.eq(0))
"""


def test_of_padding_that_is_filled_before_the_largest_is_taken_the_fill_is_told():
    assert found_in(HEAD + NEAREST.format(fill='float("-inf")'), "Nearest").faults == ()
    source = HEAD + NEAREST.format(fill="0.0")
    assert blamed_in(source, "Nearest") == [("padding-pooled", line_of(source, "near = near.masked_fill"))]
