"""Comments about shapes: what is right in other words is left alone, and what is surely wrong is marked."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headwise as hw
from headwise.tracing.comment_check import compared
from headwise.tracing.legend import notices
from headwise.tracing.shape_text import spoken
from tests.tracing.made import d, plain, step, trace

EXAMPLES = Path(__file__).parents[2] / "examples"

D, H = plain().symbols[5], plain().symbols[3]


@pytest.mark.parametrize(
    ("text", "chains"),
    [
        ("[B, L, D] → 线性投影(nn.Linear) → [B, L, H*d_k]", ["[B, L, D] → 线性投影(nn.Linear) → [B, L, H*d_k]"]),
        ("X (torch.Tensor): shape->(batch_size, qkv_dim, n/h)", ["(batch_size, qkv_dim, n/h)"]),
        ("shape->(batch_size，查询的个数，num_hiddens)", ["(batch_size，查询的个数，num_hiddens)"]),
        ("(B, nh, T, hs) x (B, nh, hs, T) -> (B, nh, T, T)", ["(B, nh, T, hs) x (B, nh, hs, T) -> (B, nh, T, T)"]),
        ("(B, T, S) @ (B, S, C) = (B, T, C)", ["(B, T, S) @ (B, S, C) = (B, T, C)"]),
        ("BLD -> BLHd -> BHLd", ["BLD -> BLHd -> BHLd"]),
        ("b x n x d", ["b x n x d"]),
        ("B, nh, T, hs", ["B, nh, T, hs"]),
        ("q (B, T, C), k (B, S, C)", ["(B, T, C)", "(B, S, C)"]),
        ("of shape (batch, seq len, dim)", ["(batch, seq len, dim)"]),
        # calls, indices, words and numbers alone are no shapes
        ("x.view(B, L, H, d)", []),
        ("q[i, j] = W_q(X[i, j])", []),
        ("queries, keys, values", []),
        ("[2, 10, 768]", []),
        ("from d_model => h x d_k", []),
        ("THE END -> of it", []),
        ("(see above, please!)", []),
        ("b n (h d) -> b h n d", []),
    ],
)  # fmt: skip
def test_shapes_are_read_as_people_write_them(text, chains):
    assert [each.text for each in spoken(text, bare=True)] == chains


CODE = """\
def forward(self, q, k):
    {above}
    q = self.to_q(q).view(B, L, H, d).transpose(1, 2){behind}
    {between}
    k = self.to_k(k).view(B, S, H, d).transpose(1, 2)
    k = k.mT
"""


def verdicts(made):
    """The comments of a trace as text and verdict: the correction, "right" or "not compared"."""
    return [(each.said, each.true or ("right" if each.is_compared else "not compared")) for each in compared(made)]


def about(above="pass", behind="", between="pass"):
    """What is found of comments around the heads of queries and keys."""
    source = CODE.format(above=above, behind=behind, between=between)
    steps = []
    for name, length in (("q", "L"), ("k", "S")):
        first = f"self.to_{name}({name})"
        then = f"{first}.view(B, {length}, H, d)"
        steps += [
            step(source, first, "linear", f"B {length} D", f"B {length} H*d"),
            step(source, then, "view", f"B {length} H*d", f"B {length} H d"),
            step(source, f"{then}.transpose(1, 2)", "transpose", f"B {length} H d", f"B H {length} d"),
        ]
    steps.append(step(source, "k.mT", "mT", "B H S d", "B H d S"))
    return [(each.said, each.true) for each in compared(trace(source, *steps)) if each.is_compared]


@pytest.mark.parametrize(
    "said",
    [
        "[B, L, d_model] → linear → [B, L, H*d_k] → view → [B, L, H, d_k] → transpose → [B, H, L, d_k]",
        "(batch, seq, dim) -> (batch, heads, seq, head_dim)",
        "(B, T, C) -> (B, nh, T, hs)",
        "(b, n, d_model) => (b, h, n, d)",
        "BLD -> BLHd -> BHLd",
        "b x t x c",
        "B, nh, T, hs",
        "(batch_size, num_heads, query_length_of_mine, num_hiddens/num_heads)",
        "(B, num_heads, T, model_dim // num_heads)",
        # length first or last is how the person calls the axes of the arguments
        "(T, B, C)",
    ],
)
def test_another_way_to_say_the_same_is_no_mistake(said):
    assert all(true == "" for _, true in about(above=f"# {said}"))
    assert all(true == "" for _, true in about(behind=f"  # {said}"))


@pytest.mark.parametrize(
    ("said", "true"),
    [
        ("(B, T, C) -> (B, T, nh, hs) -> (B, nh, hs, T)", "(B, T, C) -> (B, T, nh, hs) -> (B, nh, T, hs)"),
        ("(B, T, nh, hs)", "(B, nh, T, hs)"),
        ("[batch, seq, heads, head_dim]", "[batch, heads, seq, head_dim]"),
    ],
)
def test_axes_in_another_order_are_marked_in_the_persons_own_words(said, true):
    assert about(behind=f"  # {said}") == [(said, true)]
    assert about(above=f"# {said}", between="") == [(said, true)]


def test_a_shape_of_the_second_of_two_statements_is_no_mistake_of_the_first():
    source = "def f(self, x):\n    # (B, T, C) -> (B, nh, T, hs)\n    x = x.view(1)\n    x = x.mT\n"
    steps = (step(source, "x.view(1)", "view", "B L D", "B L H d"), step(source, "x.mT", "mT", "B L H d", "B H L d"))
    assert all(each.true == "" for each in compared(trace(source, *steps)))
    apart = source.replace("    x = x.mT", "\n    x = x.mT")
    steps = (step(apart, "x.view(1)", "view", "B L D", "B L H d"), step(apart, "x.mT", "mT", "B L H d", "B H L d"))
    assert [each.true for each in compared(trace(apart, *steps))] == ["(B, T, C) -> (B, T, nh, hs)"]


def test_a_comment_apart_from_the_statement_below_is_not_surely_about_it():
    source = "def f(self, x):\n    # (B, T, nh, hs)\n\n    x = x.view(1)\n"
    made = trace(source, step(source, "x.view(1)", "view", "B L D", "B H L d"))
    assert verdicts(made) == [("(B, T, nh, hs)", "not compared")]


def test_a_comment_below_its_statement_is_compared_with_it():
    source = "def f(self, x):\n    x = x.view(1)\n    # shape->(batch, seq, heads, head_dim)\n    return x.mT.relu()\n"
    steps = (
        step(source, "x.view(1)", "view", "B L D", "B L H d"),
        step(source, "x.mT", "mT", "B L H d", "B L d H"),
        step(source, "x.mT.relu()", "relu", "B L d H", "B L d H"),
    )
    assert [each.true for each in compared(trace(source, *steps))] == [""]


def test_a_length_that_turns_into_another_is_marked_where_the_person_tells_them_apart():
    queries = "# [B, L, d_model] → [B, L, H*d_k] → [B, L, H, d_k] → [B, H, L, d_k]"
    keys = "# [B, S, d_model] → [B, L, H*d_k] → [B, L, H, d_k] → [B, H, L, d_k]"
    true = "[B, S, d_model] → [B, S, H*d_k] → [B, S, H, d_k] → [B, H, S, d_k]"
    assert about(above=queries, between=keys) == [(queries[2:], ""), (keys[2:], true)]
    # two words for one length are no mistake where neither is that of another
    assert about(between=keys) == [(keys[2:], "")]
    # nor is one word for both
    same = queries.replace("L", "T")
    assert about(above=same, between=same) == [(same[2:], "")] * 2


def test_a_word_that_means_something_else_in_the_other_comments_is_marked():
    source = "def f(x):\n    a = x.view(1)  # (B, nh, T, hs)\n    b = (a @ a.mT)\n    b.softmax(-1)  # (B, nh, T, hs)\n"
    steps = (
        step(source, "x.view(1)", "view", "B L D", "B H L d"),
        step(source, "a @ a.mT", "@", "B H L d;B H d L", "B H L L"),
        step(source, "b.softmax(-1)", "softmax", "B H L L", "B H L L"),
    )
    assert [each.true for each in compared(trace(source, *steps))] == ["", "(B, nh, T, T)"]


def test_a_letter_that_stands_nowhere_else_may_mean_what_it_is_put_for_and_a_word_means_itself():
    for word, verdict in (("k", "not compared"), ("hs", "[B, H, L, L]")):
        source = f"def f(x):\n    b.softmax(-1)  # (B, nh, T, {word})\n"
        made = trace(source, step(source, "b.softmax(-1)", "softmax", "B H L L", "B H L L"))
        assert [each for _, each in verdicts(made)] == [verdict]


def test_comments_cannot_be_wrong_as_a_whole_where_the_order_of_the_arguments_was_guessed():
    source = "def attention(q, k):\n    return q * k  # (B, T, H, head_dim)\n"
    made = trace(source, step(source, "q * k", "*", "B H L d;B H L d", "B H L d"), call={"q": ["B", "H", "L", "d"]})
    assert verdicts(made) == [("(B, T, H, head_dim)", "not compared")]


def test_what_is_mixed_up_or_unknown_is_not_compared():
    source = "def f(x):\n    return x.reshape(1)  # (B, H, d)\n"
    for result in ("B (H_L) d", "B (L) d", "B ? d"):
        made = trace(source, step(source, "x.reshape(1)", "reshape", "B H L d", result))
        assert verdicts(made) == [("(B, H, d)", "not compared")]


NOTE = """\
# Attention

**queries**:

- `[B, L, d_model] → linear → [B, L, H*d_k]`

**keys** of the other sequence:

- `[B, S, d_model] → linear → [B, L, H*d_k]`

```python
class Attention(nn.Module):
    def forward(self, q, k):
        a = self.q_proj(q)
        b = self.k_proj(k)
```
"""


def test_prose_between_backticks_is_compared_with_what_it_names():
    steps = (
        step(NOTE, "self.q_proj(q)", "linear", "B L D", "B L H*d"),
        step(NOTE, "self.k_proj(k)", "linear", "B S D", "B S H*d"),
    )
    found = compared(trace(NOTE, *steps))
    assert [(each.place.line, each.true) for each in found] == [
        (5, ""),
        (9, "[B, S, d_model] → linear → [B, S, H*d_k]"),
    ]
    line = NOTE.split("\n")[8]
    assert line[found[1].place.column : found[1].place.end_column] == found[1].said


def test_prose_about_several_tensors_cannot_be_wrong():
    note = NOTE.replace("**keys** of the other sequence", "**keys** and **values** of the other sequence")
    steps = (
        step(note, "self.q_proj(q)", "linear", "B L D", "B L H*d"),
        step(note, "self.k_proj(k)", "linear", "B S D", "B S H*d"),
    )
    assert [each.true for each in compared(trace(note, *steps)) if each.true] == []


NAMED = """\
def forward(self, x):
    # {said}
    x = self.split(self.to_q(x))
    return x.mean(-1)  # {behind}
"""
FREE = type(D)("d_in", "parameter", 19, "d_in")


def of_variable(said, behind="-"):
    source = NAMED.format(said=said, behind=behind)
    steps = (
        step(source, "self.to_q(x)", "linear", "B L d_in", "B L H*d"),
        step(source, "self.split(self.to_q(x))", "split", "B L H*d", "B H L d"),
        step(source, "x.mean(-1)", "mean", "B H L d", "B H L"),
    )
    call, init = {"x": ["B", "L", "d_in"]}, {"d_in": "d_in", "d_model": "H*d", "heads": "H"}
    return verdicts(trace(source, *steps, symbols=(*plain().symbols, FREE), call=call, init=init))


@pytest.mark.parametrize(
    ("said", "verdict"),
    [
        # before or after the line, and nothing in between
        ("(batch, seq_len, d_in)", "right"),
        ("(batch, heads, seq_len, head_dim)", "right"),
        ("(batch, heads, seq_len, d_model // heads)", "right"),
        ("(batch, seq_len, d_model)", "[B, L, d_in] → [B, H, L, d]"),
        ("(d_in, batch, seq_len)", "[B, L, d_in] → [B, H, L, d]"),
        ("(batch, heads, seq_len, d_model)", "[B, L, d_in] → [B, H, L, d]"),
        ("(batch, seq_len)", "[B, L, d_in] → [B, H, L, d]"),
        # of each head, in letters, and in words that nobody knows
        ("(seq_len, head_dim)", "not compared"),
        ("(B, C, T)", "not compared"),
        ("(apple, pear, plum)", "not compared"),
        ("(batch, apple, d_model)", "not compared"),
    ],
)
def test_a_comment_that_names_a_variable_is_of_its_value_before_or_after_the_line(said, verdict):
    assert of_variable(f"x: {said}") == [(said, verdict)]


def test_a_comment_on_a_variable_may_stand_above_several_statements():
    lines = ["# x: (batch, heads, seq_len, head_dim)", "y = x.relu()", "x = x.view(1)", "return x"]
    source = "def forward(self, x):\n" + "".join(f"    {line}\n" for line in lines)
    steps = (step(source, "x.relu()", "relu", "B L D", "B L D"), step(source, "x.view(1)", "view", "B L D", "B H L d"))
    assert [each for _, each in verdicts(trace(source, *steps, call={"x": ["B", "L", "D"]}))] == ["right"]
    apart = source.replace("    x = x.view", "\n    x = x.view")
    assert [each for _, each in verdicts(trace(apart, *steps, call={"x": ["B", "L", "D"]}))] == ["[B, L, D]"]


@pytest.mark.parametrize(
    ("lines", "verdict"),
    [
        (["y = x.relu()", "# x: (batch, heads, seq_len, head_dim)", "return x"], "[B, L, D]"),
        (["x.unsqueeze_(1)", "# x: (batch, heads, seq_len, head_dim)", "return x"], "not compared"),
        (["for x in self.split(x):", "    # x: (batch, heads, seq_len, head_dim)", "    y = x.relu()"], "not compared"),
        (
            ["with self.split(x) as x:", "    # x: (batch, heads, seq_len, head_dim)", "    y = x.relu()"],
            "not compared",
        ),
        (["a, (b, x) = self.split(x)", "# x: (batch, heads, seq_len, head_dim)", "return x"], "not compared"),
        (["del x", "import x", "# x: (batch, heads, seq_len, head_dim)", "return x"], "not compared"),
        (
            [
                "for _ in range(2):",
                "    # x: (batch, heads, seq_len, head_dim)",
                "    y = x.relu()",
                "",
                "    x = y[None]",
            ],
            "not compared",
        ),
    ],
)
def test_a_variable_that_is_changed_in_another_way_is_not_compared(lines, verdict):
    source = "def forward(self, x):\n" + "".join(f"    {line}\n" for line in lines)
    called = "x.relu()" if "x.relu()" in source else lines[0].split("= ")[-1].split("in ")[-1]
    made = trace(
        source,
        step(source, called if called in source else "return x", "relu", "B L D", "B L D"),
        call={"x": ["B", "L", "D"]},
    )
    assert [each for _, each in verdicts(made)] == [verdict]


def test_a_comment_without_a_name_may_be_of_any_value_on_its_line_and_is_wrong_of_none():
    for said in ("(batch, seq_len, d_in)", "(batch, heads, seq_len, head_dim)"):
        assert of_variable(said) == [(said, "right")]
    # one that is on the way only is not surely meant
    assert of_variable("(batch, seq_len, d_model)") == [("(batch, seq_len, d_model)", "not compared")]
    assert of_variable("(batch, heads, seq_len, d_model)") == [("(batch, heads, seq_len, d_model)", "[B, H, L, d]")]
    assert of_variable("-", behind="(batch, heads, d_in)") == [("(batch, heads, d_in)", "[B, H, L]")]


def test_sizes_that_are_one_by_construction_have_each_others_names():
    source = NAMED.format(said="x: (batch, seq_len, d_in)", behind="-")
    steps = (
        step(source, "self.to_q(x)", "linear", "B L D", "B L H*d"),
        step(source, "self.split(self.to_q(x))", "split", "B L H*d", "B H L d"),
    )
    init = {"d_in": "D", "d_model": "D", "heads": "H"}
    assert verdicts(trace(source, *steps, call={"x": ["B", "L", "D"]}, init=init)) == [
        ("(batch, seq_len, d_in)", "right")
    ]
    free = trace(source, *steps, call={"x": ["B", "L", "D"]}, init=init | {"d_in": "d"})
    assert verdicts(free) == [("(batch, seq_len, d_in)", "[B, L, D] → [B, H, L, d]")]


def test_columns_of_a_comment_are_those_of_its_line():
    source = "def f(x):\n    y = x.relu()  ##  gives [B, L, D] and 注释\n"
    (found,) = compared(trace(source, step(source, "x.relu()", "relu", "B L D", "B L D")))
    assert source.split("\n")[1][found.place.column : found.place.end_column] == "[B, L, D]"


@pytest.mark.parametrize(
    ("said", "true"),
    [("(B, T, my_heads, mine)", ""), ("(B, my_heads, T, mine)", "(B, T, my_heads, mine)")],
)
def test_the_names_in_the_code_count_as_words(said, true):
    source = f"def f(x):\n    return x.view(1)  # {said}\n"
    symbols = (*plain().symbols[:3], type(H)("H", "heads", 13, "my_heads"), type(d)("d", "head_width", 17, "mine"), D)
    steps = (step(source, "x.view(1)", "view", "B L D", "B L H d"),)
    assert [each.true for each in compared(trace(source, *steps, symbols=symbols))] == [true]


WORDS = {
    "B": ["B", "b", "batch", "batch_size", "N", "bsz", "批量大小"],
    "L": ["L", "T", "t", "seq", "seq_len", "n", "length", "my_own_word", "序列长度"],
    "S": ["S", "T", "src_len", "kv_len", "seq", "m", "my_own_word"],
    "H": ["H", "h", "nh", "heads", "num_heads", "n_head"],
    "d": ["d", "d_k", "hs", "head_dim", "dh", "num_hiddens/num_heads"],
    "D": ["D", "C", "d_model", "dim", "hidden_size", "num_hiddens", "embed_dim"],
}
SHAPES = {"q": ["B L D", "B L H*d", "B L H d", "B H L d"], "k": ["B S D", "B S H*d", "B S H d", "B H S d"]}
STYLES = [("[", ", ", "]"), ("(", ", ", ")"), ("(", ",", ")"), ("shape->(", "，", ")")]


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_no_way_to_say_what_is_true_is_called_wrong(data):
    def comment(shapes):
        words = {symbol: data.draw(st.sampled_from(own)) for symbol, own in WORDS.items()}
        start, comma, end = data.draw(st.sampled_from(STYLES))
        kept = [each for each in shapes if each == shapes[-1] or data.draw(st.booleans())]
        said = [comma.join("*".join(words[one] for one in axis.split("*")) for axis in each.split()) for each in kept]
        arrow = data.draw(st.sampled_from([" -> ", " → ", " => split => "]))
        return "# " + arrow.join(f"{start}{each}{end}" for each in said)

    # the length of the keys may be called as that of the queries is, and each may have any word
    found = about(above=comment(SHAPES["q"]), between=comment(SHAPES["k"]))
    assert [each for each in found if each[1]] == []
    assert found


@settings(max_examples=200, deadline=None)
@given(st.permutations(["B", "T", "nh", "hs"]), st.sampled_from(["# (B, T, C) -> ", "# "]))
def test_of_the_orders_of_four_axes_only_those_that_may_be_meant_are_called_right(order, before):
    found = about(above=f"{before}({', '.join(order)})", between="")
    right = [said for said, true in found if not true]
    # the result, and where several shapes are told, those on the way to it
    meant = [["B", "nh", "T", "hs"], *([["B", "T", "nh", "hs"]] if "->" in before else [])]
    assert bool(right) == (order in meant)


def test_a_comment_on_a_line_that_calls_a_helper_is_about_what_comes_back():
    found = hw.trace(f"{EXAMPLES}/first_attention.py:FirstAttention")
    assert [(each.place.line, each.said, each.true) for each in found.comments] == [
        (23, "[B, L, D] -> [B, H, L, d]", ""),
        (24, "[B, S, D] -> [B, H, L, d]", "[B, S, D] -> [B, H, S, d]"),
    ]


def test_a_formula_beside_the_word_does_not_hide_which_tensor_is_meant(tmp_path):
    note = tmp_path / "note.md"
    note.write_text(WITH_MATH, encoding="utf-8")
    found = hw.trace(f"{note}:Two")
    assert [(each.place.line, each.said, each.true) for each in found.comments] == [
        (2, "[B, L, E] → [B, L, H, d]", ""),
        (5, "[B, S, E] → [B, L, H, d]", "[B, S, E] → [B, S, H, d]"),
    ]


WITH_MATH = """**queries**:
- `[B, L, E] → [B, L, H, d]`

**keys**: $D_Q = D_K$
- `[B, S, E] → [B, L, H, d]`

```python
class Two(nn.Module):
    def __init__(self, E, H):
        super().__init__()
        self.H, self.d = H, E // H
        self.wq, self.wk = nn.Linear(E, E), nn.Linear(E, E)

    def forward(self, q, k):
        q = self.wq(q).view(*q.shape[:2], self.H, self.d)
        k = self.wk(k).view(*k.shape[:2], self.H, self.d)
        return torch.einsum("blhd,bshd->bhls", q, k)
```
"""


def test_lines_that_are_not_compared_are_named_with_their_files_where_these_are_several():
    def told(*files):
        places = [SimpleNamespace(file=file, line=at) for at, file in enumerate(files, 3)]
        comments = [SimpleNamespace(place=each, true="", is_compared=False) for each in places]
        made = SimpleNamespace(supplied=(), steps=(1,), problems=(), comments=comments, lang="en")
        return next(iter(notices(made)))

    assert "(line 3, 4)" in told("a.py", "a.py")
    assert "(line a.py:3, b.py:4)" in told("a.py", "b.py")
