"""What docstrings and comments say wrongly is a note; what they say rightly, or as a choice, is none."""

import pytest

from tests.diagnosis.test_laws import changed, told
from tests.diagnosis.written import line_of

DOCUMENTED = '''        """What each query finds.

        Args:
            query (torch.Tensor): shape (batch_size, query_len, width)
            key (torch.Tensor): shape (batch_size, key_len, width)
            value (torch.Tensor): shape (batch_size, key_len, width)
            mask (torch.Tensor): true where a key may be seen
        Returns:
            mixed (torch.Tensor): shape (batch_size, query_len, width)
        """
'''


def documented(old="", new=""):
    assert not old or DOCUMENTED.count(old) == 1
    text = DOCUMENTED.replace(old, new) if old else DOCUMENTED
    return changed(("        q = self.split", f"{text}        q = self.split"))


def notes(source):
    found, said = told(source, severity="note")
    assert found.verdict == "sound", str(found)
    return [(each.kind, each.line) for each in said]


def test_documentation_that_is_right_gets_no_note():
    assert notes(documented()) == []


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        ("docstring-size-name", "query (torch.Tensor): shape (batch_size, query_len, width)",
         "query (torch.Tensor): shape (batch_size, query_dim, width)"),
        ("docstring-size-name", "key (torch.Tensor): shape (batch_size, key_len, width)",
         "key (torch.Tensor): shape->(batch_size, hidden_dim, width)"),
        ("docstring-size-name", "value (torch.Tensor): shape (batch_size, key_len, width)",
         "value (torch.Tensor): shape (batch_size, key_len, seq_len)"),
        ("docstring-shape-empty", "value (torch.Tensor): shape (batch_size, key_len, width)",
         "value (torch.Tensor): shape->()"),
        ("docstring-returns-argument", "mixed (torch.Tensor)", "mask: (torch.Tensor)"),
    ],
)  # fmt: skip
def test_a_size_or_a_result_that_is_named_wrongly_is_a_note_on_its_line(kind, old, new):
    source = documented(old, new)
    assert notes(source) == [(kind, line_of(source, new))]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("query (torch.Tensor): shape (batch_size, query_len, width)", "query: (B, L, D)"),
        ("query (torch.Tensor): shape (batch_size, query_len, width)", "query: (B, L, D) or (L, D)"),
        ("query (torch.Tensor): shape (batch_size, query_len, width)", "query: (batch_size, apples, pears)"),
        ("query (torch.Tensor): shape (batch_size, query_len, width)", "query (Tensor): what asks"),
        ("mixed (torch.Tensor)", "query (torch.Tensor)"),
    ],
)
def test_words_that_may_mean_what_is_true_get_no_note(old, new):
    assert notes(documented(old, new)) == []


def test_a_comment_with_axes_in_another_order_is_a_note():
    source = changed(
        ("        if mask is not None", "        scores = scores * 1.0  # (batch, query_len, heads, key_len)\n"
         "        if mask is not None"),
    )  # fmt: skip
    assert notes(source) == [("comment-shape-wrong", line_of(source, "# (batch"))]


def test_a_comment_that_is_right_gets_no_note():
    source = changed(
        ("        if mask is not None", "        scores = scores * 1.0  # (batch, heads, query_len, key_len)\n"
         "        if mask is not None"),
    )  # fmt: skip
    assert notes(source) == []
