"""Code that fails, or for which no call is found: the place, Python's words, and no blame that is not sure."""

import pytest
import torch
from torch import nn

import headwise as hw
from headwise.errors import InputError
from headwise.wording import ENGLISH


class RaisesWhenBuilt(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        raise RuntimeError("no weights found")

    def forward(self, x):
        return x


class NeverSet(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.q = nn.Linear(dim, dim)

    def forward(self, x):
        return self.merge(self.q(x))


class Odd(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.q = nn.Linear(dim, dim)

    def forward(self, x, table):
        return self.q(x)[:, table.long().tolist()[0][0][0][0][0][0][0]]


class Kept:
    pass


def test_a_constructor_that_raises_is_told_with_its_line_and_words():
    trace = hw.trace(RaisesWhenBuilt)
    (problem,) = trace.problems
    assert problem.place.source.strip() == 'raise RuntimeError("no weights found")'
    assert (problem.error, problem.setting) == ("RuntimeError: no weights found", "")
    assert "✗" in str(trace)


def test_where_no_call_was_found_that_may_be_why_it_fails():
    trace = hw.trace(Odd)
    assert [each.setting for each in trace.problems] == ["guessed"]
    assert ENGLISH["trace.guessed"][:30] in str(trace)
    assert ENGLISH["trace.guessed"][:30] in trace._repr_html_()
    assert trace.to_dict()["error"]["setting"] == "guessed"


def test_where_the_person_says_the_call_nothing_was_guessed():
    trace = hw.trace(Odd, call={"x": ["B", "L", "D"], "table": ["L"]})
    assert [each.setting for each in trace.problems] == [""]


def test_no_call_mends_what_was_never_set():
    (problem,) = hw.trace(NeverSet).problems
    assert problem.error == "AttributeError: 'NeverSet' object has no attribute 'merge'"
    assert problem.setting == ""


def test_an_expression_that_raises_is_told_in_its_own_words():
    (problem,) = hw.trace(Odd, call={"x": {"_expr": "1 / 0"}, "table": ["L"]}).problems
    assert problem.error == "ZeroDivisionError: division by zero"


def test_what_cannot_be_called_is_refused():
    with pytest.raises(InputError, match="Kept makes nothing that can be called"):
        hw.trace(Kept)


def test_where_only_a_library_ran_that_is_said():
    trace = hw.trace(nn.MultiheadAttention(12, 3))
    assert trace.steps == ()
    assert ENGLISH["trace.nothing"] in str(trace).replace("\n", " ")


def test_scripted_and_compiled_code_runs_line_by_line_in_the_child(tmp_path):
    file = tmp_path / "code.py"
    file.write_text(
        "import torch\n@torch.jit.script\ndef scores(q, k):\n    return q @ k.mT\n@torch.compile\ndef more(q, k):\n"
        "    return (q @ k.mT).softmax(-1)\n"
    )
    assert [step.op for step in hw.trace(f"{file}:scores").steps] == ["mT", "@"]
    assert [step.op for step in hw.trace(f"{file}:more").steps] == ["mT", "@", "softmax"]


class Swapped(nn.Module):
    """The scores are (keys, queries), which fits where both are as many."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.q, self.kv = heads, nn.Linear(dim, dim), nn.Linear(dim, 2 * dim)

    def forward(self, x, context=None):
        context = x if context is None else context
        q, k, v = (
            t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (self.q(x), *self.kv(context).chunk(2, -1))
        )
        scores = torch.einsum("b h i d, b h j d -> b h j i", q, k)
        out = torch.einsum("b h i j, b h j d -> b h i d", scores.softmax(-1), v)
        return out.transpose(1, 2).flatten(-2)


@pytest.mark.parametrize("cross", [None, True])
def test_an_einsum_that_fails_is_told_by_its_letter_whether_keys_are_asked_for_or_not(cross):
    trace = hw.trace(Swapped, cross=cross)
    (problem,) = trace.problems
    assert problem.reason.endswith("letter j is L in one and S in the other")
    assert problem.setting == "cross"
    assert trace.call == {"x": ["B", "L", "D"], "context": ["B", "S", "D"]}


def test_what_is_no_code_is_refused():
    with pytest.raises(InputError, match="must be given, but 3 came"):
        hw.trace(3)


def test_a_python_file_without_a_class_is_not_told_about_fences(tmp_path):
    (tmp_path / "empty.py").write_text("x = 1\n")
    (tmp_path / "empty.md").write_text("x = 1\n")
    with pytest.raises(
        InputError, match=r"empty\.py must define a class or a function to be named, but it defines none"
    ):
        hw.trace(f"{tmp_path / 'empty.py'}:A")
    with pytest.raises(InputError, match="between ```python and ```"):
        hw.trace(f"{tmp_path / 'empty.md'}:A")


def test_a_product_of_two_matrices_bears_the_name_that_was_written():
    def product(x, w):
        return torch.mm(x, w)

    trace = hw.trace(product, call={"x": ["L", "D"], "w": ["D", "D"]})
    assert [(step.op, str(step.outputs[0])) for step in trace.steps] == [("mm", "[L, D]")]


def test_the_weights_of_a_recurrent_layer_are_none_of_its_inputs():
    gru = nn.GRU(6, 6, batch_first=True)

    def stepped(x, state):
        return gru(x, state)

    (step,) = hw.trace(stepped, call={"x": ["B", "L", "6"], "state": ["1", "B", "6"]}).steps
    assert [str(each) for each in step.inputs] == ["[B, L, 6]", "[1, B, 6]"]
