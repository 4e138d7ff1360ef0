"""Other lengths: a call with fewer or more tokens leaves nothing behind that changes the next one."""

import pytest

from tests.diagnosis.written import HEAD, attend, blamed_in, found_in, marked

# what is kept of distances, which the longest call so far makes
MADE = "self.far = None"
BIASED = """
if {asked}:
    at = torch.arange(long)
    self.far = -(at[None] - at[:, None]).abs() / {share}{made}
w = (q @ k.mT * self.part ** -0.5 + self.far[:long, :long]).softmax(-1){mark}
y = w @ v
"""
# an image of one window is not rolled
WINDOWS = (
    HEAD
    + """
class Attend(nn.Module):
    def __init__(self, width, heads, side=4, step=2):
        super().__init__()
        self.heads, self.side, self.steps = heads, side, [step, step]
        self.qkv, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        # x: (B, H, W, width), H and W multiples of the side
        n, H, W, width = x.shape
        down, across, s = H // self.side, W // self.side, self.side
        steps = {steps}
        if down == 1:
            steps[0] = 0
        if across == 1:
            steps[1] = 0
        x = torch.roll(x, (-steps[0], -steps[1]), (1, 2)){mark}
        x = x.view(n, down, s, across, s, width).transpose(2, 3).reshape(-1, s * s, width)
        q, k, v = self.qkv(x).view(-1, s * s, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        at = torch.zeros(H, W)
        at[{cut}] += 1
        at = torch.roll(at, (-steps[0], -steps[1]), (0, 1)) if sum(steps) else torch.zeros(H, W)
        at = at.view(down, s, across, s).transpose(1, 2).reshape(-1, s * s)
        other = (at[:, None] != at[:, :, None]).repeat(n, 1, 1)[:, None]
        w = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(other, float("-inf")).softmax(-1)
        y = self.join((w @ v).transpose(1, 2).flatten(2))
        y = y.view(n, down, across, s, s, width).transpose(2, 3).reshape(n, H, W, width)
        return torch.roll(y, (steps[0], steps[1]), (1, 2))
"""
)


@pytest.mark.parametrize(
    "given",
    [
        {"asked": "self.far is None or self.far.shape[0] < long", "share": "4"},
        {"asked": "self.far is None or self.far.shape[0] != long", "share": "long"},
    ],
)
def test_what_is_made_again_where_it_does_not_fit_is_sound(given):
    assert found_in(HEAD + attend(MADE, BIASED.format(**given, made="", mark=""))).verdict == "sound"


@pytest.mark.parametrize(
    "given",
    [
        # too short for a longer call; longer, and of another scale than that of a shorter one
        {"asked": "self.far is None", "share": "4", "made": "", "mark": "  # <-"},
        {"asked": "self.far is None or self.far.shape[0] < long", "share": "long", "made": "  # <-", "mark": ""},
    ],
)
def test_what_the_lengths_of_an_earlier_call_made_is_told(given):
    source = HEAD + attend(MADE, BIASED.format(**given))
    assert blamed_in(source) == marked(source, "stateful-forward")


def test_a_step_that_one_small_image_takes_away_for_all_is_told():
    cut = "-steps[0] :, -steps[1] :"
    source = WINDOWS.format(steps="self.steps", cut=cut, mark="  # <-")
    assert "stateful-forward" in [fault.kind for fault in found_in(source).faults]
    own = WINDOWS.format(steps="list(self.steps)", cut=cut, mark="")
    assert "stateful-forward" not in [fault.kind for fault in found_in(own).faults]
