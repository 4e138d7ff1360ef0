"""The listing in a terminal: golden, to any width, and unable to act."""

import io
import re

import pytest
from rich.console import Console

import headwise as hw
from headwise.tracing.html import block
from headwise.tracing.legend import called, notices
from headwise.tracing.steps import Comment, Place, Problem, Trace
from headwise.tracing.terminal import as_text, show
from headwise.wording.screen import columns
from tests.tracing.made import failing, place, plain, step, trace


def test_the_listing_is_as_agreed():
    assert as_text(plain(), width=100).split("\n") == [
        "code.py:Attention",
        "B batch · L query length · S key length · H heads (num_heads) · d head width (head_dim) ·",
        "D = H*d (model_dim)",
        "",
        "  1 │ class Attention(nn.Module):",
        "  2 │     def split(self, x):",
        "  3 │         x = x.view(*x.shape[:2], self.h, -1)",
        "    │         7 q                                      ┊  8 k",
        "    │         [B, L, H*d] → view → [B, L, H, d]        ┊  [B, S, H*d] → view → [B, S, H, d]",
        "  4 │         return x.transpose(1, 2)",
        "    │         [B, L, H, d] → transpose → [B, H, L, d]  ┊  [B, S, H, d] → transpose → [B, H, S, d]",
        "  ⋮",
        "  6 │     def forward(self, q, k):",
        "  7 │         q = self.split(self.to_q(q))",
        "    │         ↳ [B, L, D] → linear → [B, L, H*d]",
        "  8 │         k = self.split(self.to_k(k))",
        "    │         ↳ [B, S, D] → linear → [B, S, H*d]",
        "  9 │         return (q @ k.transpose(-2, -1)).softmax(-1)",
        "    │         ↳ [B, H, S, d] → transpose → [B, H, d, S]",
        "    │         ↳ [B, H, L, d] @ [B, H, d, S] → [B, H, L, S] → softmax → [B, H, L, S]",
    ]


def test_where_columns_find_no_room_each_call_has_a_row():
    rows = as_text(plain(), width=60).split("\n")
    at = rows.index("  3 │         x = x.view(*x.shape[:2], self.h, -1)")
    assert rows[at + 1 : at + 3] == [
        "    │         7 q: [B, L, H*d] → view → [B, L, H, d]",
        "    │         8 k: [B, S, H*d] → view → [B, S, H, d]",
    ]


def test_where_all_calls_agree_a_line_is_told_once():
    same = trace(
        source := "def split(x):\n    return x.mT\n\ndef f(q, k):\n    return split(q) + split(k)\n",
        step(source, "x.mT", "mT", "B L D", "B D L", calls=["split(q)"]),
        step(source, "x.mT", "mT", "B L D", "B D L", calls=["split(k)"]),
    )
    text = as_text(same)
    assert text.count("→ mT →") == 1
    assert "split(q)" not in text  # of f nothing is to be said


def test_a_line_on_which_the_calls_agree_is_told_once_though_they_differ_on_another():
    source = "def turn(x):\n    a = angle(1)\n    return x * a\n\ndef f(q, k):\n    return turn(q), turn(k)\n"
    steps = []
    for call, heads in (("turn(q)", "H"), ("turn(k)", "1")):
        steps.append(step(source, "angle(1)", "cos", "L d", "L d", calls=[call]))
        steps.append(step(source, "x * a", "*", f"B {heads} L d;L d", f"B {heads} L d", calls=[call]))
    rows = [row.partition("│")[2].strip() for row in as_text(trace(source, *steps)).split("\n")]
    assert rows.count("↳ [L, d] → cos → [L, d]") == 1
    assert [row.split() for row in rows if row.startswith("6 q")] == [["6", "q", "┊", "6", "k"]]


def test_the_turns_of_a_comprehension_are_no_calls():
    source = "def f(q, k):\n    return [lin(x) for x in (q, k)]\n"
    around = ["[lin(x) for x in (q, k)]"]
    made = trace(
        source,
        step(source, "lin(x)", "linear", "B L D", "B L D", calls=around),
        step(source, "lin(x)", "linear", "B S D", "B S D", calls=around),
        step(source, around[0], "stack", "B L D;B S D", "2 B L D"),
    )
    rows = [row.partition("│")[2].strip() for row in as_text(made).split("\n")[-3:]]
    assert rows[0] == "↳ [B, L, D] → linear → [B, L, D]"
    assert rows[1].startswith("↳ [B, S, D] → linear → [B, S, D]")


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
@pytest.mark.parametrize("make", [plain, failing], ids=["plain", "failing"])
def test_no_line_is_wider_than_a_terminal_and_source_is_cut_with_a_sign(width, make, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    console = Console(file=io.StringIO(), force_terminal=True, width=width, highlight=False)
    show(make(), console)
    rows = re.sub(r"\x1b\[[0-9;]*m", "", console.file.getvalue()).split("\n")
    assert max(map(columns, rows)) <= width
    row = next(row for row in rows if "q = self.split" in row)
    assert "self.split(self.to_q(q))".startswith(row.partition("q = ")[2].rstrip("…"))
    assert row.endswith("…") == (width == 40)


@pytest.mark.parametrize("width", [40, 80])
@pytest.mark.parametrize("make", [plain, failing], ids=["plain", "failing"])
def test_outside_of_a_terminal_no_line_of_source_is_broken_or_cut(width, make):
    made = make()
    rows = as_text(made, width=width).split("\n")
    (text,) = made.sources.values()
    shown = [row.partition(" │ ")[2] for row in rows if row.partition(" │ ")[0].strip(" ✗").isdigit()]
    assert shown
    assert set(shown) <= set(text.split("\n"))
    assert max(columns(row) for row in rows if row.startswith("    │")) <= width
    piped = Console(file=io.StringIO(), width=width)
    show(made, piped)
    assert [row.rstrip() for row in piped.file.getvalue().split("\n")[:-1]] == [row.rstrip() for row in rows]


def test_chinese_takes_two_columns_and_is_cut_by_them():
    source = (
        "def f(输入):\n    权重 = 输入.softmax(-1)  # " + "注意力权重在每一行上相加等于一" * 4 + "\n    return 权重\n"
    )
    made = trace(source, step(source, "输入.softmax(-1)", "softmax", "B L S", "B L S"))
    assert as_text(made, width=50).count("注意力权重在每一行上相加等于一" * 4) == 1
    console = Console(file=io.StringIO(), force_terminal=True, width=50, color_system=None)
    show(made, console)
    row = next(row for row in console.file.getvalue().split("\n") if "权重 =" in row)
    # two columns a sign: of the last one there is room for, or half of it
    assert columns(row.rstrip("…")) in (48, 49)
    assert row.endswith("…")


def test_nothing_in_a_source_can_act_in_the_terminal():
    source = "def f(x):\n    return x.relu()  # \x1b[31m[bold]red[/bold]\u202e\n"
    made = trace(source, step(source, "x.relu()", "relu", "B L", "B L"))
    made = type(made)(**{**made.__dict__, "target": "a\x1b]0;title\x07.py:f"})
    text = as_text(made)
    assert "\x1b" not in text
    assert "\\x1b[31m[bold]red[/bold]\\u202e" in text
    assert "a\\x1b]0;title\\x07.py:f" in text


def test_axes_that_are_mixed_up_are_red_and_told_in_words():
    source = "def f(x):\n    return x.reshape(B, L, D)\n"
    made = trace(source, step(source, "x.reshape(B, L, D)", "reshape", "B H L d", "B (H_L) (L_H)*d"))
    text = as_text(made)
    assert "[B, H, L, d] → reshape → [B, (H L), (L H)*d]" in text
    assert "⚠ (H L), (L H)*d: the size is legal" in text
    console = Console(file=io.StringIO(), force_terminal=True, color_system="standard", width=90)
    show(made, console)
    assert "\x1b[1;31m(H L)" in console.file.getvalue()


def test_weights_among_the_elements_of_a_batch_have_a_sign():
    source = "def f(x):\n    return attn(x, x, x)\n"
    among, within = (
        trace(source, step(source, "attn(x, x, x)", "MultiheadAttention", "B L D", f"B L D;{weights}"))
        for weights in ("L B B", "B L L")
    )
    text = as_text(among)
    assert "⚠ [L, B, B]: these weights are among the batch elements (B)" in text
    assert "batch_first=True" in text
    assert "⚠ [L, B, B]" in block(among)
    assert "⚠" not in as_text(within) + block(within)


def test_the_line_that_fails_is_marked_with_its_reason_before_the_error():
    rows = as_text(failing(), width=100).split("\n")
    at = rows.index("✗ 3 │         x = x.view(*x.shape[:2], self.h, -1)")
    assert rows[at + 1 : at + 3] == [
        "    │         view on [B, S, D] asked for [B, L, H, d]: L is the query length, S was needed",
        "    │         RuntimeError: shape '[5, 7]' is invalid",
    ]
    assert rows[2] == "Attention(model_dim=H*d, num_heads=H)(q=[B, L, D], k=[B, S, D])"


def test_what_fails_only_across_two_sequences_is_said_so_in_either_language():
    assert "Only where keys differ from queries in length:" in as_text(failing("cross"))
    assert "Only where" not in as_text(failing())
    chinese = type(made := failing("cross"))(**{**made.__dict__, "lang": "zh"})
    assert "只在键与查询长度不同时" in as_text(chinese)
    assert "B 批大小 · L 查询长度" in as_text(chinese)


@pytest.mark.parametrize("where", [None, Place("library.py", 3), Place("code.py", 99)])
def test_a_problem_that_stands_on_no_line_at_hand_is_told_at_the_end(where):
    made = plain(problems=(Problem(where, "", "", "ValueError: nowhere"),))
    assert as_text(made).split("\n")[-1].endswith("ValueError: nowhere")
    assert "ValueError: nowhere" in block(made)
    assert "library.py" not in as_text(made)


def test_a_wrong_comment_is_told_under_its_line_and_all_are_counted():
    where = place("class Attention(nn.Module):", "class", file="code.py")
    wrong, right = Comment(where, "[B, L]", "[B, S]"), Comment(Place("code.py", 3), "[B, L]")
    text = as_text(plain(comments=(wrong, right)))
    assert "    │ ≠ the comment says [B, L]; it is [B, S]" in text
    assert "Comments that tell shapes: 1 right, 1 wrong." in text


def test_real_sizes_take_the_place_of_names():
    console = Console(file=io.StringIO(), width=100)
    show(plain(), console, real=True)
    text = console.file.getvalue()
    assert "[5, 13, 7, 17] @ [5, 13, 17, 11] → [5, 13, 7, 11]" in text
    assert "B = 5 batch" in text


def test_only_the_functions_that_ran_are_shown_and_long_silence_is_left_out():
    assert "def other" not in as_text(plain())
    source = "def f(x):\n" + "".join(f"    a{n} = {n}\n" for n in range(40)) + "    return x.relu()\n"
    text = as_text(trace(source, step(source, "x.relu()", "relu", "B L", "B L")))
    shown = [number for number in (2, 20, 39) if f"a{number} = {number}" in text]
    assert shown == [2, 39]


def test_what_torch_really_ran_is_told_under_a_step_unless_it_is_the_same():
    source = "def f(x):\n    return lin(x).relu()\n"
    kernels = ("view [B, L, D] → [B*L, D]", "addmm [D], [B*L, D], [D, D] → [B*L, D]")
    made = trace(
        source,
        step(source, "lin(x)", "linear", "B L D", "B L D", kernels=kernels),
        step(source, "lin(x).relu()", "relu", "B L D", "B L D", kernels=("relu [B, L, D] → [B, L, D]",)),
    )
    rows = as_text(made).split("\n")
    assert [row.partition("│")[2].strip() for row in rows[-2:]] == [f"linear ran as {kernels[0]}", kernels[1]]


def test_names_that_were_supplied_are_named():
    assert "taken from headwise: clones, attention." in as_text(plain(supplied=("clones", "attention")))


def test_a_step_in_a_file_that_is_not_at_hand_is_told_where_it_was_called():
    source = "def f(x):\n    return outside(x)\n"
    inner = Place("library.py", 9, 0, 9, 4, "x.mT")
    made = trace(source, type(one := step(source, "outside(x)", "mT", "B L", "L B"))(
        one.op, inner, one.inputs, one.outputs, chain=(one.place,)
    ))  # fmt: skip
    assert "library.py" not in as_text(made)
    assert "[B, L] → mT → [L, B]" in as_text(made)


def test_no_colour_is_written_where_none_is_wanted(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    console = Console(file=io.StringIO(), force_terminal=True, width=90)
    show(plain(), console)
    assert "\x1b[36m" not in console.file.getvalue()
    assert "\x1b[3" not in console.file.getvalue()


def test_printing_a_trace_shows_its_listing():
    assert str(plain()) == as_text(plain())


def test_a_trace_is_a_line_where_its_repr_is_shown():
    assert repr(plain()) == "<Trace code.py:Attention: 9 steps>"
    assert repr(failing()).endswith(" problem>")


@pytest.mark.parametrize(
    ("means", "english", "chinese"),
    [
        ("attend", "m=[B, S] attend", "m=[B, S] （1 或 True 表示可以看）"),
        ("lengths", "m=[B, S] lengths", "m=[B, S] （每个样本有效的键数）"),
    ],
)
def test_what_a_mask_means_is_said_in_the_language_of_the_trace(means, english, chinese):
    call = {"q": ["B"], "_mask": {"argument": "m", "means": means, "shape": ["B", "S"]}}
    for lang, said in (("en", english), ("zh", chinese)):
        assert called(trace("def f(q): ...", call=call, lang=lang)).endswith(f", {said})")


def test_comments_that_were_not_compared_are_counted_by_themselves_with_their_lines():
    where = place("a = b", "a")
    comments = (Comment(where, "x"), Comment(where, "y", "z"), Comment(where, "w", is_compared=False))
    made = trace("a = b", step("a = b", "b", "op", "B", "B"), comments=comments)
    assert list(notices(made)) == ["Comments that tell shapes: 1 right, 1 wrong, 1 not compared (line 1)."]
    assert Trace.from_dict(made.to_dict()).comments == comments


def test_code_that_was_typed_at_a_prompt_is_shown_by_the_numbers_of_its_lines():
    given = {}
    exec("def scores(q, k):\n    return q @ k.mT\n", given)
    shapes = {"q": ["B", "H", "L", "d"], "k": ["B", "H", "S", "d"]}
    text = str(hw.trace(given["scores"], call=shapes))
    assert re.search(r"\n +2 │\n(?s:.*)│ ↳ \[B, H, L, d\] @ \[B, H, d, S\] → \[B, H, L, S\]", text)
