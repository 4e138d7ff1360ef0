"""A file or a folder without the name of a class: the attention in it is listed, and nothing of it is run."""

import json
import re

import pytest

ATTENTION = """import torch
raise SystemExit("this was run")


class Spelled(torch.nn.Module):
    def forward(self, q, k, v):
        return torch.softmax(q @ k.mT, dim=-1) @ v


class Fused(torch.nn.Module):
    def forward(self, q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)


class Perceptron(torch.nn.Module):
    def forward(self, x):
        return x @ x


class Classifier(torch.nn.Module):
    def forward(self, x):
        return x.softmax(-1)


def attention(q, k, v): ...
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with attention in it, beside what is not read."""
    monkeypatch.chdir(tmp_path)
    for name in ("code/deep/model.py", "code/.hidden/a.py", "code/node_modules/b.py", "code/venv/c.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(ATTENTION, encoding="utf-8")
    (tmp_path / "code" / "broken.py").write_text("class Attention(:", encoding="utf-8")
    (tmp_path / "code" / "empty.py").write_text("", encoding="utf-8")
    (tmp_path / "code" / "book.ipynb").write_text(
        json.dumps({"nbformat": 4, "cells": [{"cell_type": "code", "source": "class SelfAttn:\n    pass"}]}), "utf-8"
    )
    return tmp_path


@pytest.mark.parametrize("command", ["doctor", "steps", "trace"])
def test_the_attention_of_a_folder_is_listed_and_nothing_is_run(headwise, folder, command):
    done = headwise(command, "code")
    assert (done.exit_code, done.stderr) == (2, "")
    assert re.findall(rf"^  headwise {command} (\S+) +line (\d+)$", done.stdout, re.MULTILINE) == [
        ("code/book.ipynb:SelfAttn", "1"), ("code/deep/model.py:Spelled", "5"), ("code/deep/model.py:Fused", "10"),
        ("code/deep/model.py:attention", "25"),
    ]  # fmt: skip


@pytest.mark.parametrize("command", ["doctor", "look", "steps", "trace"])
def test_a_file_without_a_class_lists_its_attention(headwise, folder, command):
    done = headwise(command, "code/deep/model.py", "--lang", "zh")
    assert (done.exit_code, done.stdout.count(f"headwise {command} code/deep/model.py:")) == (2, 3)
    found = json.loads(headwise(command, "code/deep/model.py", "--json").stdout)
    assert [(each["name"], each["kind"], each["line"]) for each in found["definitions"]] == [
        ("Spelled", "class", 5), ("Fused", "class", 10), ("attention", "function", 25),
    ]  # fmt: skip


def test_a_folder_without_attention_says_so(headwise, folder):
    (folder / "none").mkdir()
    done = headwise("doctor", "none")
    assert (done.exit_code, done.stdout.count("\n")) == (2, 1)
    assert "none looks like attention" in done.stdout


@pytest.mark.parametrize("target", ["code/deep/model.py", "code/deep/model.py:"])
def test_a_file_is_listed_with_and_without_a_colon(headwise, folder, target):
    done = headwise("doctor", target)
    assert done.exit_code == 2
    assert re.findall(r"^  headwise doctor (\S+) +line", done.stdout, re.MULTILINE) == [
        "code/deep/model.py:Spelled", "code/deep/model.py:Fused", "code/deep/model.py:attention",
    ]  # fmt: skip
