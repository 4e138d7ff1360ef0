"""Nothing that comes from a text can act on a terminal, and widths are those of the screen."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwise.wording.screen import columns, fit, visible


@given(st.text())
def test_nothing_that_is_visible_acts(text):
    acting = [c for c in visible(text) if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")]
    assert acting == []


@given(st.text())
def test_what_is_visible_stays_so(text):
    assert visible(visible(text)) == visible(text)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("\x1b[31m", "\\x1b[31m"),
        ("a\nb\tc", "a\\nb\\tc"),
        ("\u202eevil", "\\u202eevil"),
        ("\u200b", "\\u200b"),
        ("\ud83d", "\\ud83d"),
        ("   ", "␣␣␣"),
        ("a b", "a b"),
        ("你好 हिन्दी 👍🏽", "你好 हिन्दी 👍🏽"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("", ""),
    ],
)
def test_what_acts_is_spelled_out_and_what_is_read_is_kept(text, wanted):
    assert visible(text) == wanted


@given(st.text(alphabet="ab你好 …é", max_size=12), st.integers(min_value=2, max_value=9))
def test_a_fitted_text_has_exactly_the_width(text, width):
    assert columns(fit(text, width)) == width
