"""headwise trace: what it runs, prints, writes and refuses, in both languages."""

import ast
import json
import subprocess
import sys

import pytest

import headwise.targets
from headwise.tracing import Trace
from headwise.wording import CHINESE, ENGLISH
from tests.tracing.made import failing, plain

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
        w = (q @ k.mT).softmax(-1)  # (B, nh, T, T)
        return (w @ v).transpose(1, 2).reshape(B, T, C)  # (T, B, C)


def scale(x):
    return x / 2
"""


@pytest.fixture
def file(tmp_path):
    made = tmp_path / "code.py"
    made.write_text(SOURCE, encoding="utf-8")
    return made


@pytest.fixture
def child(monkeypatch):
    """A child that answers at once: child(trace, ...) or child(refused="..."); gives the requests it got."""
    requests = []

    def answers(*traces, **more):
        def in_child(entry, request, **options):
            requests.append({"entry": entry, **request, **options})
            return {"traces": [each.to_dict() for each in traces], **more}

        monkeypatch.setattr(headwise.targets, "in_child", in_child)
        return requests

    return answers


def test_the_listing_of_a_file(headwise, file):
    done = headwise("trace", f"{file}:Attention")
    assert (done.exit_code, done.stderr) == (0, "")
    rows = done.stdout.split("\n")
    at = next(n for n, row in enumerate(rows) if row.startswith("  14 │"))
    assert [row.partition("│")[2].strip() for row in rows[at + 1 : at + 3]] == [
        "↳ [B, H, L, d] → mT → [B, H, d, L]",
        "↳ [B, H, L, d] @ [B, H, d, L] → [B, H, L, L] → softmax → [B, H, L, L]",
    ]
    assert "H heads (num_heads)" in done.stdout
    assert "def scale" not in done.stdout


def test_one_json_object_and_nothing_else(headwise, file):
    done = headwise("trace", f"{file}:scale", "--call", '{"x": ["B", "L"]}', "--json")
    assert (done.exit_code, done.stderr) == (0, "")
    data = json.loads(done.stdout)
    assert (data["schema"], data["error"], [each["op"] for each in data["ops"]]) == (1, None, ["/"])


def test_a_bare_file_is_listed_and_not_run(headwise, file):
    file.write_text(SOURCE + "\nraise SystemExit('ran')\n")
    done = headwise("trace", file)
    assert (done.exit_code, done.stderr) == (2, "")
    assert done.stdout.split("\n")[1:2] == [f"  headwise trace {file}:Attention  line 5"]
    assert headwise("trace", file, "--lang", "zh").stdout.startswith(CHINESE["list.holds"].format(target=file))


def test_the_parent_does_not_import_torch(file):
    code = f"""
import sys
from click.testing import CliRunner
from headwise.cli import main
assert CliRunner().invoke(main, ["trace", {str(file)!r}]).exit_code == 2
print([name for name in ("torch", "numpy") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_what_is_asked_for_reaches_the_child(headwise, child, file):
    requests = child(plain())
    target = f"{file}:Attention"
    headwise("trace", target)
    assert requests[0] == {
        "entry": "headwise.tracing.child:answer", "target": target, "init": None, "call": None, "cross": None,
        "aten": False, "all": False, "lang": "en", "seconds": 60,
    }  # fmt: skip
    options = ("--init", '{"h": 4}', "--call", "{}", "--cross", "--aten", "--seconds", 5, "--lang", "zh")
    headwise("trace", target, *options)
    assert {"init": {"h": 4}, "call": {}, "cross": True, "aten": True, "seconds": 5, "lang": "zh"}.items() <= requests[
        1
    ].items()
    headwise("trace", file, "--all")
    assert (requests[2]["target"], requests[2]["all"]) == (str(file), True)


@pytest.mark.parametrize(("setting", "options", "status"), [("", (), 1), ("cross", (), 0), ("cross", ("--cross",), 1)])
def test_the_exit_status_says_whether_the_code_fails(headwise, child, file, setting, options, status):
    child(failing(setting))
    done = headwise("trace", f"{file}:Attention", *options)
    assert (done.exit_code, "S was needed" in done.stdout) == (status, True)
    done = headwise("trace", f"{file}:Attention", "--json", *options)
    assert (done.exit_code, json.loads(done.stdout)["error"]["op"]) == (status, "view")


def test_what_the_child_refuses_is_said_in_one_line(headwise, child, file):
    child(refused="nothing to trace here")
    done = headwise("trace", f"{file}:Attention")
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", "nothing to trace here\n")


def test_all_shows_each_and_says_what_could_not_be(headwise, child, file):
    child(plain(), failing(), refused_each={"scale": "no call was found"})
    done = headwise("trace", file, "--all")
    assert (done.exit_code, done.stderr) == (1, "scale: no call was found\n")
    assert done.stdout.count("code.py:Attention") == 2
    data = json.loads(headwise("trace", file, "--all", "--json").stdout)
    assert [Trace.from_dict(each) for each in data["traces"]] == [plain(), failing()]
    assert data["refused"] == {"scale": "no call was found"}
    child(refused_each={"scale": "no call was found"})
    assert headwise("trace", file, "--all").exit_code == 2


def test_names_rename_what_is_shown_and_written(headwise, child, file):
    child(plain(call={"q": ["B", "L", "D"], "k": ["B", "S", "D"]}))
    done = headwise("trace", f"{file}:Attention", "--names", "b,T,C")
    assert "↳ [b, T, C] → linear → [b, T, H*d]" in done.stdout
    done = headwise("trace", f"{file}:Attention", "--names", "D=E,L=Lq", "--json")
    assert json.loads(done.stdout)["ops"][0]["inputs"] == ["[B, Lq, E]"]
    done = headwise("trace", f"{file}:Attention", "--names", "X=Y")
    assert (done.exit_code, done.stderr.count("\n"), "but X came" in done.stderr) == (2, 1, True)


def test_real_sizes_are_shown(headwise, child, file):
    child(plain())
    assert "↳ [5, 7, 221] → linear → [5, 7, 221]" in headwise("trace", f"{file}:Attention", "--real").stdout


def test_a_copy_with_comments_is_written_beside_the_file_which_stays(headwise, file):
    copy = file.with_name("code.traced.py")
    done = headwise("trace", f"{file}:Attention", "--write")
    assert (done.exit_code, done.stdout.strip().split("\n")[-1]) == (0, ENGLISH["look.wrote"].format(file=copy))
    assert file.read_text(encoding="utf-8") == SOURCE
    text = copy.read_text(encoding="utf-8")
    assert ast.dump(ast.parse(text)) == ast.dump(ast.parse(SOURCE))
    assert "        # [B, H, L, d] → mT → [B, H, d, L]\n" in text
    before = copy.read_bytes()
    done = headwise("trace", f"{file}:Attention", "--write")
    assert (done.exit_code, done.stderr) == (2, ENGLISH["refuse.exists.command"].format(file=copy) + "\n")
    assert copy.read_bytes() == before
    assert headwise("trace", f"{file}:scale", "--call", '{"x": ["B", "L"]}', "--write", "--force").exit_code == 0
    assert copy.read_bytes() != before
    assert sorted(each.name for each in file.parent.iterdir()) == ["code.py", "code.traced.py"]


def test_a_page_is_written_and_json_stays_one_object(headwise, child, file, tmp_path):
    child(plain())
    page = tmp_path / "page.html"
    done = headwise("trace", f"{file}:Attention", "--html", page, "--json")
    assert json.loads(done.stdout)["schema"] == 1
    assert done.stderr == ENGLISH["look.wrote"].format(file=page) + "\n"
    assert "[B, L, D]" in page.read_text(encoding="utf-8")
    assert headwise("trace", f"{file}:Attention", "--html", page).exit_code == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--init", "[1]"), "--init must be a JSON object"),
        (("--call", "{x: 1}"), "--call must be a JSON object"),
        (("--html", "none/page.html"), "folder that exists, but none does not"),
        (("--seconds", 0), "--seconds cannot be used (0 < 1)"),
        (("--names", "B=b,T"), "but T of B=b,T is no pair"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_sentence(headwise, child, file, monkeypatch, options, said):
    monkeypatch.chdir(file.parent)
    child(plain())
    done = headwise("trace", "code.py:Attention", *options)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert said in done.stderr
    chinese = headwise("trace", "code.py:Attention", *options, "--lang", "zh")
    assert any("\u4e00" <= each <= "\u9fff" for each in chinese.stderr)
    assert [each.name for each in file.parent.iterdir()] == ["code.py"]


def test_the_help_warns_that_the_code_is_run(headwise):
    assert "in no sandbox" in " ".join(headwise("trace", "--help").stdout.split())
    assert "没有沙箱" in headwise("trace", "--help", "--lang", "zh").stdout
