"""headwise steps in a real browser: the person's own lines, each number as the code had it, colours by head."""

import re

import pytest
from click.testing import CliRunner

from headwise.cli import main
from headwise.errors import ArgumentError
from headwise.pages.page import Page
from headwise.pages.steps import worked_example
from tests.pages.browsing import PHONE

SOURCE = '''\
import torch
from torch import nn


class Attention(nn.Module):
    """</script><script>alert(1)</script><!-- & "quoted" -->"""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h, self.dk = num_heads, d_model // num_heads
        self.q, self.k, self.v = (nn.Linear(d_model, d_model) for _ in range(3))

    def split(self, x):  # 拆成多个头 <b onload="alert(2)">
        return x.view(x.size(0), -1, self.h, self.dk).transpose(1, 2)

    def forward(self, query, key, mask=None):
        q, k, v = self.split(self.q(query)), self.split(self.k(key)), self.split(self.v(key))
        scores = q @ k.mT / self.dk ** 0.5  # </li></script>
        if mask is not None:
            scores = scores.masked_fill(mask == 0, float("-inf"))
        x = scores.softmax(-1) @ v
        return x.reshape(x.size(0), -1, self.h * self.dk)
'''
CELLS = (
    "[...document.querySelectorAll('.tensor.new td')]"
    ".map((cell) => [cell.textContent, cell.style.getPropertyValue('--colour')])"
)
SLIDE = """(at) => {
    const slider = document.getElementById("step-slider");
    slider.value = at;
    slider.dispatchEvent(new Event("input"));
}"""


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """The page of a class that merges its heads wrongly."""
    folder = tmp_path_factory.mktemp("steps")
    (folder / "own.py").write_text(SOURCE, encoding="utf-8")
    done = CliRunner().invoke(main, ["steps", f"{folder}/own.py:Attention", "-o", f"{folder}/own.html"])
    assert (done.exit_code, done.stderr) == (0, "")
    return folder / "own.html"


@pytest.fixture
def page(open_page, file):
    return open_page(file)


def told(page):
    return page.asked("window.headwise.header.steps")


def go(page, at):
    page.tab.evaluate(SLIDE, str(at))


def as_shown(value):
    text = value if isinstance(value, str) else str(value) if isinstance(value, int) else f"{value:.2f}"
    return text.replace("-inf", "−∞").replace("-", "−")


def test_the_page_opens_at_the_steps_and_shows_the_persons_own_lines(page):
    assert page.text("h1").endswith("own.py:Attention")
    assert page.asked("[...document.querySelectorAll('[role=tab]')].map((tab) => tab.id)") == ["tab-steps"]
    lines = page.asked("[...document.querySelectorAll('.source li')].map((item) => [item.value, item.textContent])")
    own = SOURCE.split("\n")
    assert [text.replace("\u00a0", "") for _, text in lines] == own[lines[0][0] - 1 : lines[-1][0]]
    assert (lines[0][0], lines[-1][0]) == (13, 22)


def test_each_step_marks_its_operation_and_shows_each_number_as_the_code_had_it(page):
    steps = told(page)
    for at, step in enumerate(steps["steps"]):
        go(page, at)
        start, end = step["span"]
        assert page.text(".source .now mark") == SOURCE.split("\n")[step["line"] - 1][start:end]
        made = steps["tensors"][step["output"]]
        assert [text for text, _ in page.asked(CELLS)] == [as_shown(each) for each in made["values"]]
        assert page.text(".what h2") == (step["name"] if isinstance(step["name"], str) else step["name"]["en"])


def test_a_masked_pair_is_shown_as_such(page):
    steps = told(page)
    go(page, next(at for at, step in enumerate(steps["steps"]) if step["op"] == "masked_fill"))
    assert [text for text, _ in page.asked(CELLS)].count("−∞") == 6


def test_the_colours_show_that_the_merge_mixes_pieces_of_heads(page):
    steps = told(page)["steps"]
    go(page, next(at for at, step in enumerate(steps) if step["op"] == "linear"))
    first, second = (colour for _, colour in page.asked(CELLS)[1:3])
    assert first != second
    go(page, len(steps) - 1)
    assert page.text(".what h2") == "Mixed up"
    assert [colour for _, colour in page.asked(CELLS)] == [first] * 6 + [second] * 6
    assert "(H L)*d" in page.text(".tensor.new .letters")


def test_every_key_and_control_works_without_maps(page):
    count = len(told(page)["steps"])
    for key in ("ArrowRight", "h", "H", "l", "L", "j", "+", "0", "1", "6", "ArrowRight"):
        page.tab.keyboard.press(key)
    assert page.text(".what small") == f"Step 3 of {count}"
    page.tab.click("#step-back")
    page.tab.click("#step-numbers")
    assert page.asked("document.querySelectorAll('.tensor td').length") == 0
    page.tab.click("#step-play")
    assert page.asked("document.getElementById('step-play').getAttribute('aria-pressed')") == "true"
    page.tab.keyboard.press("Space")
    page.tab.click("#theme")
    page.tab.click("#language")
    assert re.search("[\u4e00-\u9fff]", page.text(".what h2"))
    assert page.text("#tab-steps") == "步骤"
    page.tab.set_viewport_size({"width": 600, "height": 700})
    assert page.asked("window.headwise.shown().view") == "steps"


def test_it_fits_a_phone(open_page, file):
    page = open_page(file, size=PHONE, scheme="dark", place="#view=map&layer=3")
    assert page.asked("document.documentElement.scrollWidth") <= PHONE[0]
    assert page.text("#shown") == "The steps of one run; this page holds no maps."


def test_a_page_of_steps_alone_is_told_in_words_in_a_notebook():
    page = Page(title="own <steps>", layers=(), sides=(), steps=worked_example())
    assert "own &lt;steps&gt;" in page._repr_html_()
    assert "<img" not in page._repr_html_()
    with pytest.raises(ArgumentError, match="must show maps or steps, but has neither"):
        Page(title="nothing", layers=(), sides=())


@pytest.mark.parametrize("size", [(1280, 900), PHONE], ids=["desktop", "phone"])
def test_every_line_of_code_is_seen_whole_in_the_width_that_there_is(open_page, size, tmp_path):
    (tmp_path / "own.py").write_text(SOURCE.replace("# </li></script>", f"+ 0 * ({'q.sum() + ' * 30}q.sum())"))
    done = CliRunner().invoke(main, ["steps", f"{tmp_path}/own.py:Attention", "-o", f"{tmp_path}/own.html"])
    assert (done.exit_code, done.stderr) == (0, "")
    page = open_page(tmp_path / "own.html", size=size)
    lines = page.asked("[...document.querySelectorAll('.source li')].map((item) => item.textContent)")
    assert max(map(len, lines)) > 300
    assert page.asked(
        "[...document.querySelectorAll('.code, .source li')].every((each) => each.scrollWidth <= each.clientWidth)"
    )
