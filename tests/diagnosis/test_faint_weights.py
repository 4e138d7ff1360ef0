"""Faint weights: what begins next to zero hides what it multiplies from no run."""

from tests.diagnosis.written import HEAD, attend, blamed_in, found_in, marked

SCALED = "self.gamma = nn.Parameter(1e-6 * torch.ones(width))"
ADDED = "y = {weights} @ v\nreturn x + self.gamma * self.join(y.transpose(1, 2).reshape(n, long, width))"
RIGHT = "(q @ k.mT / math.sqrt(self.part)).softmax(-1)"
WRONG = "(q @ k.mT).softmax(-1)"


def test_a_scale_of_a_layer_that_begins_next_to_zero_hides_no_fault():
    source = HEAD + attend(SCALED, f"w = {WRONG}  # <-\n" + ADDED.format(weights="w"))
    assert blamed_in(source) == marked(source, "scale-missing")
    assert found_in(HEAD + attend(SCALED, ADDED.format(weights=RIGHT))).verdict == "sound"
