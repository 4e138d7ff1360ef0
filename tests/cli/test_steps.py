"""headwise steps: what it runs, writes and refuses, in both languages."""

import json
import re

import pytest

from headwise.wording import CHINESE, ENGLISH

SOURCE = """\
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, model_dim, num_heads):
        super().__init__()
        self.heads, self.head_dim = num_heads, model_dim // num_heads
        self.qkv = nn.Linear(model_dim, 3 * model_dim)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.heads, self.head_dim).permute(2, 0, 3, 1, 4)
        w = (q @ k.mT).softmax(-1)
        return (w @ v).transpose(1, 2).reshape(B, T, C)


def idle(x):
    torch.manual_seed(0)
    return 1


def split(x):
    return x.view(-1, 5, 999_983)


class Unbuilt(nn.Module):
    def __init__(self, dim):
        raise ValueError("never <built>")

    def forward(self, x):
        return x
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = tmp_path / "code.py"
    made.write_text(SOURCE, encoding="utf-8")
    return made


def header(page):
    """What a page says of itself."""
    return json.loads(re.search(r'id="header">(.*?)</script>', page.read_text(encoding="utf-8"))[1])


def test_the_page_holds_the_persons_own_lines_and_steps(headwise, file, tmp_path):
    done = headwise("steps", "code.py:Attention", "-o", "own.html")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == ENGLISH["look.wrote"].format(file="own.html") + "\n"
    made = header(tmp_path / "own.html")
    assert (made["title"], made["layers"], made["lang"]) == ("code.py:Attention", [], "en")
    assert made["steps"]["source"]["first"] == 11
    assert made["steps"]["source"]["lines"] == SOURCE.split("\n")[10:15]
    assert [each["op"] for each in made["steps"]["steps"]] == [
        "linear", "view", "permute", "unbind", "unbind", "unbind", "mT", "@", "softmax", "@", "transpose", "reshape",
    ]  # fmt: skip
    assert made["steps"]["tensors"]["w"]["letters"] == ["B", "H", "L", "L"]


def test_the_worked_example_is_shown_in_the_language_asked_for(headwise, file, tmp_path):
    done = headwise("steps", "--example", "--lang", "zh")
    assert (done.exit_code, done.stdout) == (0, CHINESE["look.wrote"].format(file="steps.html") + "\n")
    made = header(tmp_path / "steps.html")
    assert (made["title"], made["lang"]) == (CHINESE["steps.of_example"], "zh")
    assert made["steps"]["tensors"]["query by head"]["values"][0] == pytest.approx(1.45)
    assert headwise("steps", "--example").exit_code == 0
    assert (tmp_path / "steps-2.html").exists()


def test_what_fails_with_sizes_that_differ_is_not_shown_as_right(headwise, file, tmp_path):
    file.with_name("turned.py").write_text("def scores(q, k):\n    a = q * 2\n    return a @ k\n", encoding="utf-8")
    call = ("--call", '{"q": ["B", "L", "D"], "k": ["B", "L", "D"]}')
    assert headwise("steps", "turned.py:scores", *call, "-o", "a.html").exit_code == 0
    steps = header(tmp_path / "a.html")["steps"]
    assert steps["tensors"]["q"]["sizes"] == [1, 3, 4]
    assert [each["op"] for each in steps["steps"]] == ["*"]
    assert "After the last step it fails: RuntimeError" in str(steps["title"])


def test_what_the_person_says_of_the_call_is_used(headwise, file, tmp_path):
    call = ("--init", '{"model_dim": "H*d", "num_heads": "H"}', "--call", '{"x": ["B", "L", "D"]}')
    assert headwise("steps", "code.py:Attention", *call, "-o", "a.html").exit_code == 0
    assert header(tmp_path / "a.html")["steps"]["tensors"]["x"]["sizes"] == [1, 3, 4]


@pytest.mark.parametrize(("options", "said"), [
    (("code.py:Attention", "-o", "a.png"), "must end in .html, but a.png came"),
    (("code.py:Attention", "-o", "none/a.html"), "folder that exists, but none does not"),
    (("code.py:Attention", "-o", "code.py.html"), "code.py.html"),
    ((), "TARGET must be given, as in `headwise steps attention.py:MyAttention`: see `headwise steps --help`."),
    (("code.py:Attention", "--example"), "--example came with code.py:Attention"),
    (("--init", "{}"), "--init says how a target is built and called, but no TARGET came"),
    (("code.py:Attention", "--call", "[]"), "--call must be a JSON object"),
    (("code.py:Attention", "--seconds", 0), "--seconds cannot be used (0 < 1)"),
    (("code.py:Attentoin",), "Attention"),
    (("code.py:Unbuilt",), "never <built>"),
    (("code.py:split", "--call", '{"x": ["B", "L"]}'), "but code.py:split failed at the first (RuntimeError: shape"),
    (("code.py:idle",), "No call could be thought of for idle"),
])  # fmt: skip
def test_what_cannot_be_done_is_refused_in_one_sentence_and_nothing_is_written(headwise, file, options, said):
    file.with_name("code.py.html").write_text("kept", encoding="utf-8")
    done = headwise("steps", *options)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert said in done.stderr
    chinese = headwise("steps", *options, "--lang", "zh")
    assert any("\u4e00" <= each <= "\u9fff" for each in chinese.stderr)
    assert sorted(each.name for each in file.parent.iterdir()) == ["code.py", "code.py.html"]
    assert file.with_name("code.py.html").read_text(encoding="utf-8") == "kept"


def test_the_help_warns_that_the_code_is_run(headwise):
    assert "in no sandbox" in " ".join(headwise("steps", "--help").stdout.split())
    assert "没有沙箱" in headwise("steps", "--help", "--lang", "zh").stdout


@pytest.mark.parametrize(("turns", "left"), [(12, 0), (15, 3)])
def test_of_a_long_loop_the_first_turns_are_shown_and_the_others_counted(headwise, tmp_path, turns, left):
    made = tmp_path / "looped.py"
    made.write_text(
        f"def repeated(x):\n    for _ in range({turns}):\n        x = x.softmax(-1)\n    return x\n", encoding="utf-8"
    )
    done = headwise("steps", f"{made}:repeated", "--call", '{"x": ["B", "L"]}', "-o", tmp_path / "looped.html")
    assert (done.exit_code, done.stderr) == (0, "")
    page = (tmp_path / "looped.html").read_text(encoding="utf-8")
    assert page.count('"op":"softmax"') == 12
    assert (f"A loop ran {turns} times: its first 12 turns are shown, and {left} are left out." in page) == bool(left)
