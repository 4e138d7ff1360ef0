"""headwise doctor as a person calls it: what it prints, what it writes, and how it ends."""

import json
import re

import pytest

SOUND = """import math
import torch
import torch.nn as nn


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.d = heads, dim // heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, self.d).permute(2, 0, 3, 1, 4)
        w = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(self.d), dim=-1)
        return self.out((w @ v).transpose(1, 2).reshape(b, n, c))
"""
FAULTY = SOUND.replace("/ math", "// math")


# only the values are joined the wrong way round, for which there is no patch
APART = """import torch
import torch.nn as nn


class Cached(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.d, self.qkv = heads, dim // heads, nn.Linear(dim, 3 * dim)

    def forward(self, x, past=None):
        B, T, C = x.shape
        q, k, v = (t.view(B, T, self.heads, self.d).transpose(1, 2) for t in self.qkv(x).split(C, dim=2))
        if past is not None:
            k = torch.cat([past[0], k], dim=2)
            v = torch.cat([v, past[1]], dim=2)
        S = k.size(2)
        scores = q @ k.transpose(-2, -1) * self.d**-0.5
        causal = torch.ones(T, S, dtype=torch.bool).tril(S - T)
        weights = scores.masked_fill(~causal, float("-inf")).softmax(-1)
        return (weights @ v).transpose(1, 2).reshape(B, T, C), (k, v)
"""


@pytest.fixture
def file(tmp_path):
    def written(text, name="attention.py"):
        there = tmp_path / name
        there.write_text(text, encoding="utf-8")
        return there

    return written


def test_a_sound_class_ends_with_0(headwise, file):
    done = headwise("doctor", f"{file(SOUND)}:Attention")
    assert done.exit_code == 0
    assert "sound" in done.stdout


def test_a_fault_is_shown_with_a_caret_and_ends_with_1(headwise, file):
    done = headwise("doctor", f"{file(FAULTY)}:Attention")
    assert done.exit_code == 1
    assert "attention.py:16  fault: scale-floor-division (proved)" in done.stdout
    lines = done.stdout.splitlines()
    shown = next(place for place, line in enumerate(lines) if "torch.softmax" in line)
    caret = lines[shown + 1]
    assert lines[shown][caret.index("^") : caret.rindex("^") + 1] == "q @ k.transpose(-2, -1) // math.sqrt(self.d)"


def test_json_is_one_object(headwise, file):
    done = headwise("doctor", f"{file(FAULTY)}:Attention", "--json")
    found = json.loads(done.stdout)
    assert (done.exit_code, found["schema"], found["verdict"]) == (1, 1, "faulty")
    assert {"schema", "target", "verdict", "findings", "examined"} == set(found)
    for finding in found["findings"]:
        assert {"kind", "severity", "line", "end_line", "column", "source", "what", "why", "fix", "proved",
                "evidence"} <= set(finding)  # fmt: skip
    (finding,) = (each for each in found["findings"] if each["severity"] == "fault")
    assert (finding["kind"], finding["line"], finding["proved"]) == ("scale-floor-division", 16, True)
    assert re.fullmatch(r"Output error 0\.\d+ → 0 when this is put right\.", finding["evidence"])
    assert found["examined"]["self"] is True


def test_json_says_why_nothing_was_examined(headwise, file):
    text = SOUND.replace("dim, heads):", "spec):").replace("self.heads, self.d = heads, dim // heads", "spec.none()")
    done = headwise("doctor", f"{file(text)}:Attention", "--json")
    found = json.loads(done.stdout)
    assert (done.exit_code, found["verdict"], found["findings"]) == (3, "not examined", [])
    assert "--init" in found["reason"]


def test_what_was_examined_is_told_in_words(headwise, file):
    done = headwise("doctor", f"{file(SOUND)}:Attention")
    text = " ".join(done.stdout.split())
    assert "Examined: self-attention; how the weights follow from the scores (softmax(q·kᵀ/√d)); the output" in text
    assert "a mask, decoding with a cache (it takes none)" in text
    assert not any(name in text for name in ("ideal", "state_dict", "divisibility"))


def test_fix_writes_a_copy_that_is_sound(headwise, file):
    there = file(FAULTY)
    done = headwise("doctor", f"{there}:Attention", "--fix")
    assert "+        w = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(self.d), dim=-1)" in done.stdout
    assert f"+++ {there.with_suffix('.fixed.py')}" in done.stdout
    assert there.read_text(encoding="utf-8") == FAULTY
    fixed = there.with_suffix(".fixed.py")
    assert fixed.read_text(encoding="utf-8") == SOUND
    assert headwise("doctor", f"{there}:Attention", "--fix").exit_code == 2


def test_fix_names_the_faults_that_it_leaves(headwise, file):
    there = file(APART.replace("self.d**-0.5", "self.d**0.5"))
    done = headwise("doctor", f"{there}:Cached", "--fix")
    assert f"Written: {there.with_suffix('.fixed.py')}" in done.stdout
    assert done.stdout.endswith("Not mended there, by kind (and line): cache-order-mismatch (15).\n")


def test_where_no_patch_is_found_fix_says_so_and_of_a_sound_class_nothing(headwise, file):
    done = headwise("doctor", f"{file(APART)}:Cached", "--fix")
    assert done.stdout.endswith("Nothing was written: no patch was found.\n")
    assert "Why: Keys and values stand in different orders" in done.stdout
    assert "a mask meets" not in done.stdout
    done = headwise("doctor", f"{file(SOUND, 'sound.py')}:Attention", "--fix")
    assert (done.exit_code, "Nothing was written" in done.stdout) == (0, False)
    assert list(file(SOUND, "sound.py").parent.glob("*.fixed.py")) == []


def test_the_mended_copy_of_a_note_or_a_notebook_is_its_python(headwise, file):
    there = file("# Attention\n\n```python\nx = 1\n```\n\nthen\n\n```python\n" + FAULTY + "```\n", "note.md")
    done = headwise("doctor", f"{there}:Attention", "--fix")
    assert there.with_suffix(".fixed.py").read_text(encoding="utf-8") == "x = 1\n\n\n" + SOUND
    assert "␣" not in done.stdout
    cells = [{"cell_type": "code", "source": text, "metadata": {}, "outputs": []} for text in ("x = 1\n", FAULTY)]
    book = file(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}), "book.ipynb")
    headwise("doctor", f"{book}:Attention", "--fix")
    assert book.with_suffix(".fixed.py").read_text(encoding="utf-8") == "x = 1\n\n\n" + SOUND


def test_it_speaks_chinese(headwise, file):
    done = headwise("doctor", f"{file(FAULTY)}:Attention", "--lang", "zh")
    assert "用 / 代替 //" in done.stdout


def test_a_name_that_is_not_there_ends_with_2(headwise, file):
    done = headwise("doctor", f"{file(SOUND)}:Attentoin")
    assert done.exit_code == 2
    assert "Attention" in done.stderr


def test_what_is_no_attention_ends_with_3(headwise, file):
    text = (
        "import torch.nn as nn\n\n\nclass Feed(nn.Module):\n    def __init__(self, dim):\n        super().__init__()\n"
    )
    text += "        self.one = nn.Linear(dim, dim)\n\n    def forward(self, x):\n        return self.one(x).relu()\n"
    done = headwise("doctor", f"{file(text)}:Feed")
    assert done.exit_code == 3


def test_a_refusal_of_the_child_is_said_in_chinese_alone(headwise, file):
    done = headwise("doctor", f"{file(SOUND)}:Attentoin", "--lang", "zh")
    assert done.exit_code == 2
    assert "英文" not in done.stderr
    assert "Attention" in done.stderr


def test_help_tells_the_exit_statuses_and_the_file_that_is_written(headwise):
    said = {lang: " ".join(headwise("doctor", "--help", "--lang", lang).stdout.split()) for lang in ("en", "zh")}
    assert "0 sound, 1 faulty, 2 bad input, 3 not examined" in said["en"]
    assert "退出状态：0 正确，1 有错，2 输入有误，3 未检查" in said["zh"]
    assert said["zh"].startswith("用法：")
    assert "选项：" in said["zh"]
    assert not any(".fixed.md" in each for each in said.values())


@pytest.mark.parametrize(("option", "said"), [("--init", '{"foo": "H"}'), ("--call", '{"foo": ["B"]}')])
def test_a_name_that_is_no_parameter_is_bad_input_and_with_json_one_object(headwise, file, option, said):
    target = f"{file(SOUND)}:Attention"
    done = headwise("doctor", target, option, said, "--json")
    answer = json.loads(done.stdout)
    assert (done.exit_code, set(answer), answer["target"]) == (2, {"schema", "target", "error"}, target)
    assert f"{option} names foo" in answer["error"]


def test_a_path_is_checked_before_a_child_is_started(headwise, tmp_path, monkeypatch):
    monkeypatch.setattr("headwise.targets.in_child", None)
    done = headwise("doctor", f"{tmp_path / 'none.py'}:X")
    assert done.exit_code == 2
    assert "none.py" in done.stderr
