"""What words say of a mask's shape and of what it holds, where the code takes another: which is examined, and told."""

import pytest

from tests.diagnosis.test_masks import FILL, GIVEN, attend
from tests.diagnosis.written import blamed_in, found_in, marked

ONES = "mask: (B, 1, L, L), 1 = keep, 0 = hidden"
TURNED = "mask.transpose(1, 2).unsqueeze(1) == 0"
# of each: the kind, the fault, and the same put right
CASES = {
    "a mask of keys, as it is said to be, is laid along the queries": (
        "mask-axis",
        attend(GIVEN + FILL.format(TURNED, "  # <-"), words="mask: (batch, 1, seq_len) 1 = keep"),
        attend(GIVEN + FILL.format(TURNED, ""), words="mask: (batch, seq_len, 1) 1 = keep"),
    ),
    "ones and zeros are added": (
        "mask-weak-fill",
        attend(GIVEN + "s = s + mask  # <-", words=ONES),
        attend(GIVEN + "s = s + mask", words="mask: (B, 1, L, L), 0 = keep, -inf = hidden, added"),
    ),
    "no kind of mask is taken by each step": (
        "mask-raises",
        attend(GIVEN + "s = s + (1 - mask) * -1e9\n    s = s.masked_fill(1 - mask, -1e9)  # <-"),
        attend(GIVEN + "s = s + (1 - mask) * -1e9\n    s = s.masked_fill(mask == 0, -1e9)"),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_words_say_of_a_mask_is_what_is_examined(name):
    kind, wrong, _ = CASES[name]
    assert blamed_in(wrong) == marked(wrong, kind)


@pytest.mark.parametrize("name", CASES)
def test_put_right_it_is_sound(name):
    found = found_in(CASES[name][2])
    assert (found.verdict, found.faults) == ("sound", ())


def test_a_mask_that_fails_on_scores_of_a_wrong_shape_is_no_fault_of_its_own():
    body = attend(GIVEN + FILL.format("mask == 0", "")).replace(
        "self.cut(self.match(x)), self.cut(self.hold(x))",
        "*(t.view(t.shape[0], -1, self.num_heads, self.part) for t in (self.match(x), self.hold(x)))",
    )
    found = found_in(body)
    assert found.verdict != "sound"
    assert "mask-raises" not in [each.kind for each in found.faults]
