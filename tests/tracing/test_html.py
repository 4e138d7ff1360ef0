"""The page and the notebook block: complete in themselves, and unable to act."""

import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest

from headwise.tracing.html import block, page
from headwise.tracing.steps import Comment, Place
from tests.tracing.made import failing, plain, step, trace


class Read(HTMLParser):
    """What a browser would find: tags with their attributes, and text outside of style."""

    def __init__(self):
        super().__init__()
        self.tags, self.text, self.style, self.inside = [], "", "", []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "br", "input"):
            self.inside.append(tag)

    def handle_endtag(self, tag):
        assert self.inside.pop() == tag

    def handle_data(self, data):
        if self.inside and self.inside[-1] == "style":
            self.style += data
        else:
            self.text += data


def read(html):
    found = Read()
    found.feed(html)
    assert found.inside == []
    return found


@pytest.mark.parametrize("make", [plain, failing])
def test_the_page_shows_the_listing(make):
    found = read(page([make()]))
    assert "[B, L, D] → linear → [B, L, H*d]" in found.text
    assert "B batch · L query length" in found.text
    assert "self.split(self.to_q(q))" in found.text or make is failing


def test_columns_failures_comments_and_mixed_axes_are_shown():
    assert re.search(r"7 q\s*\[B, L, H\*d\] → view → \[B, L, H, d\]\s*8 k", read(block(plain())).text)
    text = read(block(failing("cross"))).text
    for said in ("✗ 3", "Only where keys differ", "RuntimeError: shape '[5, 7]' is invalid"):
        assert said in text
    wrong = plain(comments=(Comment(Place("code.py", 3), "[B]", "[S]"),))
    assert "≠ the comment says [B]; it is [S]" in read(block(wrong)).text
    source = "def f(x):\n    return x.view(1)\n"
    mixed = block(trace(source, step(source, "x.view(1)", "view", "B H L d", "B (H_L)")))
    assert '<span class="scrambled">(H L)</span>' in mixed


def test_nothing_is_loaded_and_the_policy_allows_only_its_own_style():
    found = read(page([plain()]))
    (policy,) = [own["content"] for tag, own in found.tags if tag == "meta" and "http-equiv" in own]
    digest = base64.b64encode(hashlib.sha256(found.style.encode()).digest()).decode()
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{digest}'")
    assert not {"script", "link", "img", "iframe"} & {tag for tag, _ in found.tags}
    # the policy would drop what is styled in place
    assert not [own for _, own in found.tags if {"style", "src", "href", "onclick"} & own.keys()]
    assert not re.search(r"url\(|@import", found.style)


SWITCHED = "[...document.querySelectorAll('.headwise-trace')].map((each) => [each.lang, each.checkVisibility()])"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_language_and_the_colours_are_switched_without_a_script(browser, tmp_path, scheme):
    file = tmp_path / "trace.html"
    file.write_text(page([plain(lang="zh")]), encoding="utf-8")
    tab = browser.new_page(color_scheme=scheme, viewport={"width": 390, "height": 800})
    tab.goto(file.as_uri())
    assert tab.evaluate(SWITCHED) == [["en", False], ["zh", True]]
    tab.click("text=English")
    assert tab.evaluate(SWITCHED) == [["en", True], ["zh", False]]
    paper = "getComputedStyle(document.querySelector('.headwise-trace[lang=en]')).backgroundColor"
    papers = {"light": "rgb(255, 255, 255)", "dark": "rgb(21, 24, 28)"}
    assert tab.evaluate(paper) == papers[scheme]
    other = "light" if scheme == "dark" else "dark"
    tab.click(f"text={other.capitalize()}")
    assert tab.evaluate(paper) == papers[other]
    assert tab.inner_text("label[for=theme]") == scheme.capitalize()
    tab.close()


def test_text_cannot_become_markup():
    source = "def f(x):\n    return x.relu()  # </table></style><script>alert(1)</script> &amp; \x1b[31m \u202e\n"
    made = trace(source, step(source, "x.relu()", "relu", "B L", "B L"))
    made = type(made)(**{**made.__dict__, "target": "<img src=x onerror=alert(1)>:f"})
    for html in (page([made]), block(made)):
        found = read(html)
        assert not {"script", "img"} & {tag for tag, _ in found.tags}
        assert "</table></style><script>alert(1)</script> &amp; \\x1b[31m \\u202e" in found.text


def test_the_style_of_the_notebook_block_is_for_the_block_alone():
    style = read(block(plain())).style
    plain_rules = re.sub(r"@media [^{]*\{((?:[^{}]*\{[^{}]*\})*)\s*\}", r"\1", style)
    selectors = [one.strip() for rule in re.findall(r"([^{}]+)\{", plain_rules) for one in rule.split(",")]
    assert len(selectors) > 20
    assert [each for each in selectors if ".headwise-trace" not in each] == []


def test_a_notebook_shows_the_block():
    assert plain()._repr_html_() == block(plain())


def test_several_traces_are_one_page():
    assert read(page([plain(), failing()])).text.count("B batch · L query length") == 2
