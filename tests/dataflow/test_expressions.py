"""Expressions: what blocks, patches and tables of distances count has a name, and what fits nothing has none."""

import pytest

from headwise.dataflow import Expressions

SIZES = {"L": (17, 23, 29, 46), "S": (11, 19, 31, 26), "w": (5, 7, 3, 8), "p": (3, 2, 5, 7), "s": (2, 3, 2, 4)}


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (lambda L, S, w, p, s: -(-L // w), "ceil(L/w)"),
        (lambda L, S, w, p, s: -(-L // w) * w, "ceil(L/w)*w"),
        (lambda L, S, w, p, s: L % w, "L%w"),
        (lambda L, S, w, p, s: (L - p) // s + 1, "(L-p)//s+1"),
        (lambda L, S, w, p, s: (L - p) // s + 2, "(L-p)//s+2"),
        (lambda L, S, w, p, s: (2 * w - 1) * (2 * p - 1), "(2*w-1)*(2*p-1)"),
        (lambda L, S, w, p, s: -(-L // w) * -(-S // p), "ceil(L/w)*ceil(S/p)"),
        (lambda L, S, w, p, s: s * -(-L // w) * -(-S // p), "s*ceil(L/w)*ceil(S/p)"),
        (lambda L, S, w, p, s: L * L + 5, "?"),
    ],
)
def test_a_size_is_named_by_the_simplest_expression(count, text):
    assert Expressions(SIZES).name(tuple(count(*sizes) for sizes in zip(*SIZES.values(), strict=True))) == text


def test_a_number_that_the_code_may_hold_itself_is_no_symbol():
    fixed = Expressions({"L": (5, 7, 11, 13), "Hkv": (2, 2, 2, 2), "d": (16, 16, 16, 16)})
    assert (fixed.name((2, 2, 2, 2)), fixed.name((16, 16, 16, 16))) == ("2", "d")
