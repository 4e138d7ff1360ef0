"""The tutorials: each notebook is that of its page, runs, and prints what is committed."""

import json
import re

import pytest

from tests.notebooks import cells, notebook, pages, said

PAGES = pages()
ENGLISH = [page for page in PAGES if not page.name.endswith(".zh.md")]
NEEDS = ("matplotlib", "minilm", "nbclient", "onnx", "onnxruntime", "onnxscript", "transformers")


def committed(page):
    return json.loads(page.with_suffix(".ipynb").read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_notebook_is_that_of_its_page(page):
    there = [(cell["cell_type"], "".join(cell["source"])) for cell in committed(page)["cells"]]
    assert there == cells(page.read_text(encoding="utf-8")), "renew it: python -m tests.notebooks --write"


@pytest.mark.parametrize("page", ENGLISH, ids=lambda page: page.name)
def test_both_languages_have_the_same_code_and_pictures(page):
    chinese = page.with_suffix(".zh.md")
    code = [[text for kind, text in cells(each.read_text("utf-8")) if kind == "code"] for each in (page, chinese)]
    assert code[0] == code[1]
    pictures = [page.with_suffix(".ipynb").read_text("utf-8").count("image/png") for page in (page, chinese)]
    assert pictures[0] == pictures[1] > 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_notebook_is_small_and_tells_nothing_of_a_machine(page):
    text = page.with_suffix(".ipynb").read_text(encoding="utf-8")
    assert len(text) < 150_000
    assert re.findall(r"/(?:home|root|tmp|work|usr)/|\"execution\"|\"stderr\"", text) == []


@pytest.mark.needs(*NEEDS)
@pytest.mark.parametrize("page", ENGLISH, ids=lambda page: page.name)
def test_a_notebook_runs_and_prints_what_is_committed(page):
    assert said(notebook(page)) == said(committed(page))
