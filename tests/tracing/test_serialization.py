"""to_dict: a trace as plain data, and back without loss."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from headwise.dataflow import NamedAxis, Shape
from headwise.tracing.html import block
from headwise.tracing.steps import Comment, Place, Problem, Step, Symbol, Trace
from headwise.tracing.terminal import as_text
from headwise.wording import ENGLISH
from headwise.wording.screen import visible
from tests.tracing.made import failing, place, plain

# what JSON can carry: half of a surrogate pair it cannot
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
numbers = st.integers(0, 10**6)
maybe = st.none() | numbers
places = st.builds(Place, texts, numbers, maybe, maybe, maybe, texts)
shapes = st.builds(Shape, st.lists(st.builds(NamedAxis, texts, numbers, st.booleans()), max_size=4).map(tuple))
shape_lists = st.lists(shapes, max_size=3).map(tuple)
steps = st.builds(
    Step, texts, places, shape_lists, shape_lists, st.lists(places, max_size=2).map(tuple), texts, texts,
    st.booleans(), st.lists(texts, max_size=2).map(tuple),
)  # fmt: skip
meanings = st.sampled_from([key.rpartition(".")[2] for key in ENGLISH if key.startswith("trace.meaning.")])
symbols = st.lists(
    st.builds(Symbol, texts, meanings, numbers, texts, texts), max_size=4, unique_by=lambda each: each.name
)
# a comment that is right has no true chain of its own
comments = st.builds(Comment, places, texts, texts)
problems = st.builds(Problem, st.none() | places, texts, texts, texts, texts)
plain_data = st.none() | st.dictionaries(
    texts,
    st.recursive(st.none() | st.booleans() | numbers | texts, lambda each: st.lists(each, max_size=3)),
    max_size=3,
)
traces = st.builds(
    Trace, texts, st.dictionaries(texts, texts, max_size=3), symbols.map(tuple), st.lists(steps, max_size=3).map(tuple),
    st.lists(comments, max_size=2).map(tuple), st.lists(problems, max_size=2).map(tuple),
    st.lists(texts, max_size=2).map(tuple), plain_data, plain_data, st.sampled_from(["en", "zh"]),
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(traces)
def test_what_was_made_plain_is_the_same_again(trace):
    assert Trace.from_dict(json.loads(json.dumps(trace.to_dict()))) == trace


def test_the_schema_is_the_one_that_is_promised():
    data = plain().to_dict()
    assert data["schema"] == 1
    assert data["target"] == "code.py:Attention"
    assert data["symbols"]["B"]["meaning"] == "batch"
    assert (data["symbols"]["D"]["size"], data["symbols"]["D"]["said"]) == (221, "model_dim")
    view = data["ops"][1]
    assert (view["line"], view["column"], view["end_line"], view["end_column"]) == (3, 12, 3, 44)
    assert (view["source"], view["op"]) == ("x.view(*x.shape[:2], self.h, -1)", "view")
    assert (view["inputs"], view["output"]) == (["[B, L, H*d]"], "[B, L, H, d]")
    assert (view["axes"], view["scrambled"]) == (["B", "L", "H", "d"], False)
    assert (data["comments"], data["error"]) == ([], None)


def test_the_error_is_the_problem_that_stops_the_code_always():
    where = place("f(x)\ng(x)\n", "g(x)")
    only_cross = Problem(where, "view", "why", "RuntimeError: a", "cross")
    always = Problem(None, "", "", "AttributeError: b")
    data = Trace("t", {}, (), (), problems=(only_cross, always)).to_dict()
    assert (data["error"]["error"], data["error"]["line"]) == ("AttributeError: b", None)
    assert [each["setting"] for each in data["problems"]] == ["cross", ""]
    error = failing().to_dict()["error"]
    assert (error["line"], error["op"]) == (3, "view")
    assert error["reason"].endswith("S was needed")


def test_a_comment_that_is_right_says_what_is_true():
    where = place("# [B, L]\n", "[B, L]")
    made = Trace("t", {}, (), (), comments=(Comment(where, "[B, L]"), Comment(where, "[B, L]", "[B, S]")))
    said = [(each["line"], each["said"], each["true"], each["wrong"]) for each in made.to_dict()["comments"]]
    assert said == [(1, "[B, L]", "[B, L]", False), (1, "[B, L]", "[B, S]", True)]


@settings(max_examples=150, deadline=None)
@given(traces, st.integers(1, 120), st.booleans())
def test_whatever_a_trace_holds_it_can_be_shown(trace, width, real):
    text = as_text(trace, width=width, real=real)
    assert visible(trace.target) in text
    assert all(each == "\n" or visible(each) == each or each == " " for each in text)
    assert block(trace).count("<div") == block(trace).count("</div>")
