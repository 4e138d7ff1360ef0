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
