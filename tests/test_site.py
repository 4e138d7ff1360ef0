"""The documentation site, as make docs builds it: strictly, every link checked, nothing asked of another host."""

import inspect
import os
import pydoc
import re
import subprocess
import sys
from importlib import import_module

import pytest

import headwise
from tests.examples import ROOT
from tests.site import Page, mistakes

# the parts that are public as modules
MODULES = (
    *(f"compat.{name}" for name in ("annotated", "d2l", "huggingface", "keras", "onnx", "torch")),
    *("compat", "distributed", "errors", "maps", "masks", "ops", "ops.reference", "positions", "testing"),
)

pytestmark = pytest.mark.needs("mkdocs")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of a site, built once."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    said = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=said, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_link_leads_somewhere_and_nothing_is_asked_of_another_host(site):
    assert mistakes(site) == []


@pytest.fixture(scope="module")
def places(site):
    """What the reference can be linked to: the dotted names in it."""
    pages = [Page(file.read_text("utf-8")) for file in (site / "reference").glob("*.html")]
    return {place for page in pages for place in page.places if place.startswith("headwise.")}


def test_every_public_name_has_its_place_in_the_reference(places):
    documented = [pydoc.locate(place) for place in places]
    names = {f"headwise.{name}" for name in headwise.__all__}
    for module in (import_module(f"headwise.{name}") for name in MODULES):
        own = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
        names |= {f"{module.__name__}.{name}" for name in getattr(module, "__all__", own) if name[0] != "_"}
    assert [name for name in sorted(names) if pydoc.locate(name) not in documented] == []
    # and no function shows what else is in the file that it is in
    assert [name for name in headwise.__all__ if f"headwise.{name}.{name}" in places] == []


def test_what_a_public_function_returns_has_its_place_in_the_reference(places):
    returned = {}
    for name in headwise.__all__:
        function = inspect.unwrap(getattr(headwise, name))
        if inspect.isfunction(function):
            said = re.findall(r"[A-Z]\w+", function.__annotations__["return"])
            returned[name] = set(said) - {"Any", "Iterator", "Tensor"}
    assert len(set.union(*returned.values())) > 10
    classes = {place.rpartition(".")[2] for place in places}
    assert {name: kinds for name, kinds in returned.items() if not kinds <= classes} == {}


def test_members_that_a_class_inherits_are_in_the_reference(places):
    assert {f"headwise.AttentionMap.{name}" for name in ("dense", "entropy", "plot", "topk")} <= places


@pytest.mark.parametrize(
    ("page", "words", "first"),
    [("index.html", "softcap", "guide/layer.html"), ("zh/index.html", "消融", "zh/guide/intervene.html")],
)
def test_a_search_from_disk_finds_a_page_in_the_language_that_is_read(site, browser, page, words, first):
    asked = []
    opened = browser.new_context(offline=True).new_page()
    opened.on("request", lambda request: asked.append(request.url))
    opened.goto((site / page).as_uri())
    opened.fill(".md-search__input", words)
    # it looks at what is written when a key is let go
    opened.press(".md-search__input", "End")
    opened.wait_for_selector(".md-search-result__link", timeout=20_000)
    links = opened.eval_on_selector_all(".md-search-result__link", "all => all.map(each => each.href)")
    opened.context.close()
    assert any(link.startswith((site / first).as_uri()) for link in links[:3])
    assert all(link.startswith((site / page).parent.as_uri()) for link in links)
    if not page.startswith("zh"):
        assert not any("/zh/" in link for link in links)
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []


COPIED = """() => {
  const copied = [];
  document.execCommand = () => true;
  document.addEventListener("copy", (event) => event.preventDefault());
  const write = HTMLTextAreaElement.prototype.select;
  HTMLTextAreaElement.prototype.select = function () { copied.push(this.value); return write.call(this); };
  document.querySelectorAll(".md-clipboard, .md-code__button[data-clipboard-target]").forEach((each) => each.click());
  return copied;
}"""


@pytest.mark.parametrize("root", ["", "zh/"])
def test_what_is_copied_of_a_session_is_what_is_typed(site, browser, root):
    opened = browser.new_context(offline=True).new_page()
    copied = []
    for page in ("look", "intervene"):
        opened.goto((site / f"{root}guide/{page}.html").as_uri())
        opened.wait_for_selector(".md-code__button[data-clipboard-target]", state="attached")
        copied += opened.evaluate(COPIED)
    opened.context.close()
    assert not re.search(r"^(>>>|\.\.\.|\$) ?", "\n".join(copied), re.MULTILINE)
    (definition,) = [text for text in copied if text.startswith("class Attention")]
    assert "torch.nn.Linear(width, 3 * width)\n    def forward(self, x):" in definition
    assert ".flatten(2)\n\nheads = hw.look(Attention(16, 2)" in definition
    assert "1 map, 2 heads" not in definition
    # pasted at the prompt of Python as it stands, each statement is complete
    commands = [text for text in copied if text.startswith("headwise")]
    assert commands[0].startswith(
        'headwise effects "The animal was tired." --similar "It slept." --top 3\nheadwise look'
    )
    for text in set(copied) - set(commands):
        compile(text, "copied", "exec")


def test_what_is_wrong_with_a_site_is_said(tmp_path):
    (tmp_path / "there.html").write_text('<h1 id="place">', "utf-8")
    (tmp_path / "style.css").write_text(
        "@import 'https://fonts.example/a.css'; a { background: url(here.png) }", "utf-8"
    )
    links = "".join(f'<a href="{each}"></a>' for each in ("there.html#place", "there.html#none", "no.html"))
    page = f'{links}<script src="https://a.example/b.js">'
    (tmp_path / "page.html").write_text(page, "utf-8")
    assert [re.sub(r"^(\S+) .*? (\S+?),.*", r"\1 \2", each) for each in mistakes(tmp_path)] == [
        "page.html https://a.example/b.js",
        "page.html there.html#none",
        "page.html no.html",
        "style.css https://fonts.example/a.css",
    ]
