"""What is kept of another call, cut from its gradient or rolled to the other end; each beside the same put right."""

import pytest

from tests.diagnosis.written import HEAD, blamed_in, found_in, marked

KEPT = """

class Frames(nn.Module):
    # x: (batch, frames, width); lengths: (batch,) frames of each

    def __init__(self, width=24, heads=3):
        super().__init__()
        self.heads, self.three = heads, nn.Linear(width, 3 * width)
        self._hidden = None

    def hidden(self, lengths, batch, frames):
        if {known}:
            return self._hidden
        self._hidden = (torch.arange(frames) >= lengths[:, None])[:, None, None]  # <-
        return self._hidden

    def forward(self, x, lengths):
        b, t, c = x.shape
        q, k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in self.three(x).chunk(3, -1))
        s = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(self.hidden(lengths, b, t), -1e9)
        y = (s.softmax(-1) @ v).transpose(1, 2).flatten(2)
        return y * (torch.arange(t) < lengths[:, None])[..., None]
"""


@pytest.mark.parametrize(
    ("known", "kinds"),
    [("self._hidden is not None and self._hidden.shape == (b, 1, 1, t)", ["stateful-forward"]), ("False", [])],
)
def test_a_mask_that_is_kept_for_others_of_its_shape_is_told(known, kinds):
    known = known.replace("(b, 1, 1, t)", "(batch, 1, 1, frames)")
    source = HEAD + KEPT.replace("{known}", known)
    assert blamed_in(source, "Frames") == [each for kind in kinds for each in marked(source, kind)]


RECURRENT = """

class Recurrent(nn.Module):
    {words}

    def __init__(self, width=24, heads=3, room=128):
        super().__init__()
        self.heads, self.room, self.mem, self.norm = heads, room, None, nn.LayerNorm(width)
        self.ask, self.two = nn.Linear(width, width), nn.Linear(width, 2 * width)

    def reset(self):
        self.mem = None

    def forward(self, x):
        t, x = x.shape[1], self.norm(x)
        whole = x if self.mem is None else torch.cat([self.mem, x], dim=1)
        q = self.ask(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in self.two(self.seen(whole)).chunk(2, -1))
        s = q @ k.mT * q.shape[-1] ** -0.5
        later = torch.ones(t, k.shape[2], dtype=torch.bool).triu(k.shape[2] - t + 1)
        y = s.masked_fill(later, float("-inf")).softmax(-1) @ v
        return x + y.transpose(1, 2).flatten(2)

    def seen(self, whole):
        self.mem = whole[:, -self.room:]{cut}  # <-
        return whole
"""
TRAINED = '"A long text, one segment after the other, with a step per segment."'


@pytest.mark.parametrize(
    ("words", "cut", "kinds"),
    [(TRAINED, "", ["second-step-raises"]), (TRAINED, ".detach()", []), ('"Tokens of a memory."', "", [])],
)
def test_a_memory_of_segments_that_is_not_cut_off_is_told_where_it_is_kept(words, cut, kinds):
    source = HEAD + RECURRENT.replace("{words}", words).replace("{cut}", cut)
    assert blamed_in(source, "Recurrent") == [each for kind in kinds for each in marked(source, kind)]


SEGMENTS = """

class Segments(nn.Module):
    # x: (time, batch, width); memory: (past, batch, width) or None, through which no gradient flows

    def __init__(self, width=24, heads=3):
        super().__init__()
        self.heads, self.ask, self.two = heads, nn.Linear(width, width), nn.Linear(width, 2 * width)

    def forward(self, x, memory=None):
        memory = x.new_zeros(0, *x.shape[1:]) if memory is None else memory
        whole = {whole}  # <-
        q = self.ask(x).unflatten(-1, (self.heads, -1))
        k, v = (y.unflatten(-1, (self.heads, -1)) for y in self.two(whole).chunk(2, -1))
        s = torch.einsum("ibhd,jbhd->bhij", q, k) * q.shape[-1] ** -0.5
        later = torch.arange(len(whole)) > torch.arange(len(memory), len(whole))[:, None]
        p = s.masked_fill(later, float("-inf")).softmax(-1)
        return x + torch.einsum("bhij,jbhd->ibhd", p, v).flatten(2)
"""


@pytest.mark.parametrize(
    ("whole", "kinds"),
    [
        ("torch.cat([memory, x]).detach()", ["gradient-path-cut"]),
        ("torch.cat([memory.detach(), x])", []),
        ("torch.cat([memory, x])", []),
    ],
)
def test_tokens_that_are_detached_with_their_memory_are_told(whole, kinds):
    source = HEAD + SEGMENTS.replace("{whole}", whole)
    assert blamed_in(source, "Segments") == [each for kind in kinds for each in marked(source, kind)]


WINDOWS = '''

def with_earlier(t):
    earlier = {earlier}
    return torch.cat([earlier, t], dim=3)


class LocalCausalAttention(nn.Module):
    """Each token sees those before it in its window and the window before.

    x: (batch, tokens, width); mask: (batch, tokens), True = a real token
    """

    def __init__(self, width=24, heads=3, window=16):
        super().__init__()
        self.heads, self.window, self.three = heads, window, nn.Linear(width, 3 * width)

    def forward(self, x, mask=None):
        b, t, _ = x.shape
        mask = torch.ones(b, t, dtype=torch.bool) if mask is None else mask
        x, mask = F.pad(x, (0, 0, 0, -t % self.window)), F.pad(mask, (0, -t % self.window))
        q, k, v = (
            y.view(b, -1, self.window, self.heads, y.shape[-1] // self.heads).permute(0, 3, 1, 2, 4)
            for y in self.three(x).chunk(3, -1)
        )
        k, v = with_earlier(k), with_earlier(v)
        real = with_earlier(mask.view(b, 1, -1, self.window, 1)).squeeze(-1)[..., None, :]
        s = q @ k.mT * q.shape[-1] ** -0.5
        at = torch.arange(self.window)
        seen = torch.cat([at, at + self.window]) <= at[:, None] + self.window
        s = s.masked_fill(~(seen & real), -1e9)
        y = s.softmax(-1).masked_fill(~real, 0.0) @ v
        return y.permute(0, 2, 3, 1, 4).reshape(b, -1, q.shape[1] * q.shape[-1])[:, :t]
'''


@pytest.mark.parametrize(
    ("earlier", "kinds"),
    [("t.roll(1, dims=2)", ["causal-missing"]), ("F.pad(t, (0, 0, 0, 0, 1, 0))[:, :, :-1]", [])],
)
def test_the_last_window_that_is_rolled_before_the_first_is_told(earlier, kinds):
    source = HEAD + WINDOWS.replace("{earlier}", earlier)
    assert [kind for kind, _ in blamed_in(source, "LocalCausalAttention")] == kinds


GAMES = '''

class Players(nn.Module):
    """obs: (n_games, n_players, features), and a value of each game."""

    def __init__(self, features=12, width=24, heads=3):
        super().__init__()
        self.enter = nn.Linear(features, width)
        self.mix = nn.MultiheadAttention(width, heads{way})  # <-
        self.value = nn.Linear(width, 1)

    def forward(self, obs):
        h = self.enter(obs)
        h = h + self.mix(h, h, h, need_weights=False)[0]
        return self.value(h.mean(1)).squeeze(-1)
'''


@pytest.mark.parametrize(("way", "kinds"), [("", ["batch-length-confused"]), (", batch_first=True", [])])
def test_games_that_see_each_other_are_told_by_the_words_of_their_shape(way, kinds):
    source = HEAD + GAMES.replace("{way}", way)
    assert blamed_in(source, "Players") == [each for kind in kinds for each in marked(source, kind)]


STATISTICS = '''

class Statistics(nn.Module):
    """x: (batch, width, frames); lengths: (batch,), relative to the longest, in (0, 1]."""

    def __init__(self, width=24, inner=10):
        super().__init__()
        self.score = nn.Sequential(nn.Conv1d(width, inner, 1), nn.Tanh(), nn.Conv1d(inner, width, 1))

    def forward(self, x, lengths):
        real = torch.arange(x.shape[-1]) < (lengths * x.shape[-1]).round()[:, None]
        w = self.score(x).masked_fill(~real[:, None], {fill}).softmax(-1)  # <-
        mean = (w * x).sum(-1)
        far = (w * (x - mean[..., None]) ** 2).sum(-1)
        return torch.cat([mean, far.clamp(min=1e-9).sqrt()], -1)
'''


@pytest.mark.parametrize(("fill", "kinds"), [("0.0", ["mask-weak-fill"]), ('float("-inf")', [])])
def test_lengths_that_are_shares_of_the_longest_hide_padding(fill, kinds):
    source = HEAD + STATISTICS.replace("{fill}", fill)
    found = found_in(source, "Statistics")
    assert [(each.kind, each.line) for each in found.faults] == [each for k in kinds for each in marked(source, k)]
    assert found.verdict == ("faulty" if kinds else "sound")


INTEREST = '''

class Interest(nn.Module):
    """{words}

    query: (batch, width); keys: (batch, steps, width); keys_length: (batch,) steps of each
    """

    def __init__(self, width=24):
        super().__init__()
        self.score = nn.Sequential(nn.Linear(3 * width, 10), nn.ReLU(), nn.Linear(10, 1))

    def forward(self, query, keys, keys_length):
        q = query[:, None].expand_as(keys)
        w = self.score(torch.cat([q, keys, q * keys], -1)).squeeze(-1)
        real = torch.arange(keys.shape[1]) < keys_length[:, None]
        return torch.bmm({weights}[:, None], keys).squeeze(1)
'''


@pytest.mark.parametrize(
    ("words", "weights", "verdict"),
    [
        ("The weights are not normalised, as in the paper.", "(w * real)", "sound"),
        ("The weights are not normalised, as in the paper.", "w", "faulty"),
        ("What a user is interested in.", "(w * real)", "not examined"),
    ],
)
def test_raw_weights_of_tokens_are_a_design_where_words_say_so_and_they_leave_out_padding(words, weights, verdict):
    source = HEAD + INTEREST.replace("{words}", words).replace("{weights}", weights)
    assert found_in(source, "Interest").verdict == verdict


LAYERED = """

class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.three = heads, nn.Linear(width, 3 * width)

    def forward(self, x, below=None):
        q, k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in self.three(x).chunk(3, -1))
        s = q @ k.mT * {scale}
        s = s if below is None else s + below
        return x + (s.softmax(-1) @ v).transpose(1, 2).flatten(2), s


class Stack(nn.Module):
    def __init__(self, width=24, heads=3):
        super().__init__()
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(2))

    def forward(self, x):
        s = None
        for layer in self.layers:
            x, s = layer(x, s)
        return x
"""


@pytest.mark.parametrize(("scale", "verdict"), [("q.shape[-1] ** -0.5", "sound"), ("q.shape[-1] ** 0.5", "faulty")])
def test_scores_of_the_layer_below_may_be_added_to_those_of_a_layer(scale, verdict):
    assert found_in(HEAD + LAYERED.replace("{scale}", scale), "Stack").verdict == verdict


ROWS = '''

class Rows(nn.Module):
    """x: (rows, columns, batch, width). Rows share the weights of their columns, doi:10.1101/2021.02.12.430858."""

    def __init__(self, width=24, heads=3):
        super().__init__()
        self.heads, self.three = heads, nn.Linear(width, 3 * width)

    def forward(self, x):
        q, k, v = (y.unflatten(-1, (self.heads, -1)) for y in self.three(x).chunk(3, -1))
        s = torch.einsum("rinhd,rjnhd->hnij", q, k) * (q.shape[-1] * len(x)) ** -0.5
        return torch.einsum("hnij,rjnhd->rinhd", s.softmax({axis}), v).flatten(3)
'''


@pytest.mark.parametrize(("axis", "verdict"), [("-1", "sound"), ("0", "faulty")])
def test_rows_that_share_their_weights_are_followed(axis, verdict):
    assert found_in(HEAD + ROWS.replace("{axis}", axis), "Rows").verdict == verdict


def test_what_is_not_zero_may_be_seen():
    source = (
        HEAD
        + '''
class Attend(nn.Module):
    """mask: (batch, 1, time), non zero = attend"""

    def __init__(self, width=24, heads=3):
        super().__init__()
        self.heads, self.three = heads, nn.Linear(width, 3 * width)

    def forward(self, x, mask=None):
        q, k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in self.three(x).chunk(3, -1))
        s = q @ k.mT * q.shape[-1] ** -0.5
        if mask is not None:
            s = s.masked_fill(mask.unsqueeze(1).eq(0), float("-inf"))
        return (s.softmax(-1) @ v).transpose(1, 2).flatten(2)
'''
    )
    assert blamed_in(source) == []
    assert [kind for kind, _ in blamed_in(source.replace("eq(0)", "ne(0)"))] == ["mask-inverted"]
