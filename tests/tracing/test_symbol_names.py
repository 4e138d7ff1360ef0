"""Other names for the symbols of a trace."""

import re

import pytest

from headwise.errors import InputError
from headwise.tracing.symbol_names import asked
from tests.tracing.made import failing, plain, step, trace


def test_names_change_wherever_a_symbol_is_said_and_all_at_once():
    made = failing().renamed({"L": "S", "S": "L", "D": "E", "H": "n"})
    assert [str(each) for each in made.steps[0].outputs] == ["[B, S, n*d]"]
    assert made.symbols[-1].name == "E"
    assert made.symbols[-1].equals == "n*d"
    assert made.problems[0].reason == "view on [B, L, E] asked for [B, S, n, d]: S is the query length, L was needed"
    assert (made.init, made.call) == (
        {"model_dim": "n*d", "num_heads": "n"},
        {"q": ["B", "S", "E"], "k": ["B", "L", "E"]},
    )
    assert made.renamed({"L": "S", "S": "L", "E": "D", "n": "H"}) == failing()


def test_operations_and_loops_keep_and_change_what_is_theirs():
    source = "t(x)"
    made = trace(source, step(source, source, "L", "B L", "L B", times="H", kernels=("L [B, L] → [L, B]",)))
    found = made.renamed({"L": "t", "H": "n"}).steps[0]
    assert (found.op, found.times, found.kernels) == ("L", "n", ("L [B, t] → [t, B]",))


def test_sizes_in_an_expression_are_renamed_and_what_is_called_or_named_in_it_is_not():
    mask = {"argument": "L", "means": "attend", "shape": ["B", "L"]}
    made = plain(call={"x": {"_expr": "D(torch.D, D, 'L', D=L == D)"}, "_mask": mask})
    call = made.renamed({"L": "T", "D": "E"}).call
    assert call == {"x": {"_expr": "D(torch.D, E, 'L', D=T == E)"}, "_mask": {**mask, "shape": ["B", "T"]}}
    bound = plain(call={"x": {"_expr": "[(lambda L: L + D)(L) for D in\n range(B)]"}}).renamed(
        {"L": "T", "D": "E", "B": "N"}
    )
    assert bound.call == {"x": {"_expr": "[(lambda L: L + D)(L) for D in range(N)]"}}


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ({"X": "Y"}, "which are B, L, S, H, d, D, but X came"),
        ({"L": "S"}, "but S would stand for two"),
        ({"L": "T", "S": "T"}, "but T would stand for two"),
        ({"L": "1x"}, "but came as 1x"),
        ({"L": "a b"}, "but came as a b"),
    ],
)
def test_names_that_cannot_be_are_refused(names, said):
    with pytest.raises(InputError, match=re.escape(said)):
        plain().renamed(names)


def test_the_axes_of_the_first_input_are_named_in_order():
    assert asked(failing(), "b, T ,C") == {"B": "b", "L": "T", "D": "C"}
    assert asked(failing(), "D=E, L=Lq") == {"D": "E", "L": "Lq"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("B,T", r"the first input, which is \[B, L, D\] and has 3, but 2 came"),
        ("B=b,T", "but T of B=b,T is no pair"),
    ],
)
def test_names_for_other_axes_than_there_are_are_refused(text, said):
    with pytest.raises(InputError, match=said):
        asked(failing(), text)


def test_an_axis_that_is_a_product_keeps_its_name():
    made = plain(call={"x": ["B", "L", "3*D"]})
    assert asked(made, "B,T,3*D") == {"L": "T"}
    with pytest.raises(InputError, match=r"the axis 3\*D of the first input is none and C came"):
        asked(made, "B,T,C")
