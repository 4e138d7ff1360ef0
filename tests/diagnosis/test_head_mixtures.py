"""Head mixtures: weights of several heads that learned numbers mix follow a design, with a bias and without."""

import pytest

from headwise.diagnosis.comparison import COMPARISON
from tests.diagnosis.written import HEAD, attend, found_in

LAYERS = """
self.before = nn.Linear(num_heads, num_heads, bias={before})
self.after = nn.Linear(num_heads, num_heads, bias={after})
"""
LAST = """
s = self.before((q @ k.mT * self.part ** -0.5).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
w = self.after(s.softmax(-1).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
y = w @ v
"""
MATRIX = """
self.mix = nn.Parameter(torch.randn(num_heads, num_heads))
self.shift = nn.Parameter(torch.randn(num_heads))
"""
MULTIPLIED = """
s = q @ k.mT * self.part ** -0.5
w = torch.einsum("bhij,hg->bgij", s.softmax(-1), self.mix) + self.shift[:, None, None]
y = w @ v
"""


@pytest.mark.parametrize(("made", "body"), [
    (LAYERS.format(before=True, after=True), LAST),
    (LAYERS.format(before=False, after=True), LAST),
    (LAYERS.format(before=True, after=False), LAST),
    (MATRIX, MULTIPLIED),
])  # fmt: skip
def test_heads_that_learned_numbers_mix_are_sound_with_a_bias_too(made, body):
    found = found_in(HEAD + attend(made, body))
    assert (found.verdict, found.faults) == ("sound", ())
    assert found.examined[COMPARISON].startswith("sums of softmaxes")


@pytest.mark.parametrize(("made", "body"), [
    # numbers that differ between keys are no bias of a head
    (MATRIX, MULTIPLIED.replace("self.shift[", "torch.arange(1.0 * long) * self.shift[")),
    # what nobody learns
    ("", "y = ((q @ k.mT * self.part ** -0.5).softmax(-1) + 1) @ v"),
])  # fmt: skip
def test_what_else_is_added_to_weights_follows_no_design(made, body):
    assert found_in(HEAD + attend(made, body)).verdict != "sound"


# two maps that are subtracted, of which the second takes the more
LESS = """
s = q @ k.mT * self.part ** -0.5
hidden = ~keep[:, None, None]
w = s.masked_fill(hidden, torch.finfo(s.dtype).min).softmax(-1){late}
w = w.view(n, -1, 2, long, long)
v = v.reshape(n, -1, 2, long, self.part)[:, :, 0]
y = ((w[:, :, 0] - 0.9 * w[:, :, 1]) @ v).repeat_interleave(2, dim=1)
"""


@pytest.mark.parametrize("late", ["", ".masked_fill(hidden, 0.0)"])
def test_weights_below_zero_of_keys_that_are_seen_are_no_fill_that_came_late(late):
    found = found_in(HEAD + attend("", LESS.format(late=late), given="keep"), init={"width": 32, "num_heads": 4})
    assert [fault.kind for fault in found.faults] == []
