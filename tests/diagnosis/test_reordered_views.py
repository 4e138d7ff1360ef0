"""Views of tokens that name axes in another order than they lie in, in whole models; each beside the same put right."""

import pytest

from tests.diagnosis.written import HEAD, blamed_in, marked

MIX = (
    HEAD
    + """

class Mix(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.three, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in self.three(x).chunk(3, -1))
        y = (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1) @ v
        return self.out(y.transpose(1, 2).flatten(2))
"""
)
VIDEO = """

class Video(nn.Module):
    # video: (batch, frames, places, width)

    def __init__(self, width=24, heads=3):
        super().__init__()
        self.time, self.space = Mix(width, heads), Mix(width, heads)

    def forward(self, video):
        b, t, s, c = video.shape
        y = self.time(video.transpose(1, 2).reshape(b * s, t, c))
        x = video + {back}  # <-
        return x + self.space(x.reshape(b * t, s, c)).reshape(b, t, s, c)
"""
SERIES = """

class Series(nn.Module):
    "x: (batch, length, channels)."

    def __init__(self, channels, patch_len=8, width=24, heads=3):
        super().__init__()
        self.patch, self.enter, self.mix = patch_len, nn.Linear(patch_len, width), Mix(width, heads)
        self.scale = nn.Parameter(torch.ones(channels))

    def forward(self, x):
        b, _, c = x.shape
        y = self.enter((x * self.scale).unfold(1, self.patch, self.patch))
        n = y.shape[1]
        y = {rows}  # <-
        return self.mix(y).reshape(b, c, n, -1).mean(2)
"""


@pytest.mark.parametrize(
    ("back", "kinds"),
    [("y.reshape(b, t, s, c)", ["tokens-regrouped"]), ("y.reshape(b, s, t, c).transpose(1, 2)", [])],
)
def test_what_is_put_back_in_another_order_of_axes_is_told(back, kinds):
    source = MIX + VIDEO.replace("{back}", back)
    assert blamed_in(source, "Video") == [each for kind in kinds for each in marked(source, kind)]


@pytest.mark.parametrize(
    ("rows", "kinds"),
    [("y.reshape(b * c, n, -1)", ["tokens-regrouped"]), ("y.transpose(1, 2).reshape(b * c, n, -1)", [])],
)
def test_channels_that_are_taken_for_samples_without_being_moved_first_are_told(rows, kinds):
    source = MIX + SERIES.replace("{rows}", rows)
    assert blamed_in(source, "Series") == [each for kind in kinds for each in marked(source, kind)]


STEPS = """

class Steps(nn.Module):
    # states: (batch, time, width), actions: (batch, time, width), attention_mask: (batch, time), True at real steps

    def __init__(self, width=24, heads=3):
        super().__init__()
        self.heads, self.three, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, states, actions, attention_mask=None):
        b, t, c = states.shape
        x = torch.stack((states, actions), dim=2).reshape(b, 2 * t, c)
        q, k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in self.three(x).chunk(3, -1))
        s = q @ k.mT * q.shape[-1] ** -0.5
        if attention_mask is not None:
            seen = torch.stack((attention_mask, attention_mask), dim={axis}).reshape(b, 2 * t)  # <-
            s = s.masked_fill(~seen[:, None, None], -1e9)
        return self.out((s.softmax(-1) @ v).transpose(1, 2).flatten(2))
"""


@pytest.mark.parametrize(("axis", "kinds"), [("1", ["mask-broadcast"]), ("2", [])])
def test_a_mask_of_steps_that_is_laid_over_their_tokens_in_another_order_is_told_there(axis, kinds):
    source = HEAD + STEPS.replace("{axis}", axis)
    assert blamed_in(source, "Steps") == [each for kind in kinds for each in marked(source, kind)]


SENSORS = """

class Sensors(nn.Module):
    "x: (batch, length, channels)."

    def __init__(self, length, channels, width=24, heads=3):
        super().__init__()
        self.enter, self.mix = nn.Linear(length, width), Mix(width, heads)
        self.scale = nn.Parameter(torch.ones(channels))

    def forward(self, x):
        b, t, c = x.shape
        y = {rows}  # <-
        return self.mix(self.enter(y)).mean(1)
"""


@pytest.mark.parametrize(
    ("rows", "kinds"),
    [("(x * self.scale).reshape(b, c, t)", ["tokens-regrouped"]), ("(x * self.scale).transpose(1, 2)", [])],
)
def test_tokens_and_features_that_change_places_by_a_view_are_told(rows, kinds):
    source = MIX + SENSORS.replace("{rows}", rows)
    assert blamed_in(source, "Sensors") == [each for kind in kinds for each in marked(source, kind)]


def test_a_view_that_moves_an_axis_of_one_entry_is_no_other_order():
    last = """

class Last(nn.Module):
    "x: (batch, length, width)."

    def __init__(self, width):
        super().__init__()
        self.ask = nn.Linear(width, width)

    def forward(self, x):
        b, n, d = x.shape
        s = torch.bmm(x, self.ask(x)[:, -1:].view(b, d, 1)) / math.sqrt(d)
        return (s.softmax(1) * x).sum(1)
"""
    assert blamed_in(HEAD + last, "Last") == []
