"""What the documents show is true: their examples run, and their maps are those of the source."""

import ast
import contextlib
import doctest
import functools
import importlib
import inspect
import re
import tempfile

import pytest

import headwise
from headwise.wording import LANGUAGES
from tests.arrow import ORDER, SRC
from tests.examples import ROOT, Outcome, commands, docstring_outcomes, run_command, run_python_fence, status
from tests.fences import Fence, fences, marked
from tests.filemap import ARROWS, MAP, READMES, file_map
from tests.pages.pictures import GALLERY

DOCS = sorted(str(file.relative_to(ROOT)) for file in ROOT.glob("docs/**/*.md"))
MODULES = sorted(
    ".".join(("headwise", *file.relative_to(SRC).with_suffix("").parts)).removesuffix(".__init__")
    for file in SRC.rglob("*.py")
    if file.name != "__main__.py" and ">>>" in file.read_text(encoding="utf-8")
)


# a guide and its translation
GUIDES = [(name.replace(".zh.md", ".md"), name) for name in DOCS if name.endswith(".zh.md")]
# what a reader copies from: all Python and all commands there run, but for what says why not
SHOWN_WHOLE = [*READMES, *(name for name in DOCS if name.startswith(("docs/guide/", "docs/index", "docs/terminal")))]

PYTHON = ("python", "pycon")
SHELLS = ("console", "sh", "bash", "shell")


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def fences_to_run(name: str, languages: tuple[str, ...]) -> list[Fence]:
    """The blocks in these languages that no comment excepts."""
    blocks = [fence for fence in fences(read(name)) if fence.language in languages]
    return [fence for fence in blocks if not fence.note.startswith("not run: ")]


def program(page: str) -> str:
    """The Python of a page and what it is to print, without the comments, which are in its language."""
    parse = doctest.DocTestParser().get_examples
    blocks = [parse(fence.text) or [doctest.Example(fence.text, "")] for fence in fences_to_run(page, PYTHON)]
    return repr([(ast.dump(ast.parse(example.source)), example.want) for block in blocks for example in block])


# what several pages show alike is run once
SHOWN = {
    (fence.text, status(fence)): (f"{page}:{fence.line}", fence)
    for page in sorted(SHOWN_WHOLE, reverse=True)
    for fence in fences_to_run(page, SHELLS)
}
COMMANDS = dict(SHOWN.values())
PROGRAMS = {program(page): page for page in sorted(SHOWN_WHOLE, reverse=True) if fences_to_run(page, PYTHON)}


@functools.cache
def outcomes(module: str) -> dict[str, Outcome]:
    # examples may write files
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        return docstring_outcomes(importlib.import_module(module))


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings_are_true(module):
    assert "".join(outcome.report for outcome in outcomes(module).values()) == ""


def test_examples_in_docstrings_were_run():
    assert sum(outcome.attempted for module in MODULES for outcome in outcomes(module).values()) > 0


@pytest.mark.parametrize("name", headwise.__all__)
def test_every_public_name_has_an_example_that_was_run(name):
    found = getattr(headwise, name)
    own = f"{found.__module__}.{found.__qualname__}"
    run = {each: outcome.attempted for each, outcome in outcomes(found.__module__).items()}
    assert sum(count for each, count in run.items() if each == own or each.startswith(f"{own}.")) > 0


@pytest.mark.needs("matplotlib", "minilm", "onnx", "onnxscript", "safetensors", "transformers")
@pytest.mark.parametrize("page", PROGRAMS.values())
def test_python_of_a_page_runs_from_top_to_bottom(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    names: dict[str, object] = {"__name__": "page"}
    runs = [run_python_fence(fence, page, names) for fence in fences_to_run(page, PYTHON)]
    assert "".join(run.report for run in runs) == ""
    assert sum(run.attempted for run in runs) > 0


@pytest.mark.needs("matplotlib", "minilm", "safetensors", "transformers")
@pytest.mark.parametrize("fence", COMMANDS.values(), ids=COMMANDS)
def test_commands_of_a_page_do_what_it_shows(fence, tmp_path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    runs = [run_command(*pair, tmp_path, status=status(fence)) for pair in commands(fence)]
    assert "".join(run.report for run in runs) == ""
    assert sum(run.attempted for run in runs) > 0


@pytest.mark.parametrize("document", [*READMES, *DOCS])
def test_a_command_is_shown_only_in_a_block_that_is_run(document):
    missed = [each for each in fences(read(document)) if each.text.startswith("$ ") and each.language not in SHELLS]
    assert missed == []


@pytest.mark.parametrize("document", DOCS)
def test_python_that_a_document_marks_runs(document, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    names: dict[str, object] = {"__name__": "document"}
    runs = [run_python_fence(each, document, names) for each in fences(read(document)) if each.note == "run"]
    assert "".join(run.report for run in runs) == ""


def test_the_arrow_that_is_drawn_is_the_one_that_is_enforced():
    for page in ARROWS:
        drawn = marked(read(page), "arrow")
        assert tuple(part.strip() for part in drawn.split("→")) == ORDER, "renew it: python -m tests.filemap --write"


def test_the_file_map_quotes_every_file():
    assert MAP.read_text(encoding="utf-8") == file_map(), "renew it: python -m tests.filemap --write"


@pytest.mark.parametrize("readme", READMES)
def test_a_readme_is_short_enough_to_be_read(readme):
    assert len(read(readme).splitlines()) <= 220


def test_both_readmes_show_the_same_blocks():
    english, chinese = ([(each.language, each.note[:7]) for each in fences(read(readme))] for readme in READMES)
    assert english == chinese


@pytest.mark.parametrize(("english", "chinese"), GUIDES)
def test_a_guide_and_its_translation_show_the_same_blocks(english, chinese):
    shown = [[(each.language, each.note) for each in fences(read(name))] for name in (english, chinese)]
    assert shown[0] == shown[1]
    assert program(english) == program(chinese)


@pytest.mark.parametrize(("english", "chinese"), GUIDES)
def test_a_guide_and_its_translation_have_the_same_headings_tables_and_figures(english, chinese):
    rows = [re.findall(r"^(#+) |^\| .* \| ([\d., /]+) \|$", read(name), re.MULTILINE) for name in (english, chinese)]
    assert rows[0] == rows[1]


@pytest.mark.parametrize("document", ["README.zh.md", *(chinese for _, chinese in GUIDES)])
def test_a_chinese_document_has_full_width_punctuation(document):
    halves = re.compile(r"[\u4e00-\u9fff][,;:?!()]|[,;:?!][\u4e00-\u9fff]")
    assert [line for line in read(document).splitlines() if halves.search(line)] == []


@pytest.mark.parametrize("page", ["docs/gallery.md", "docs/gallery.zh.md"])
def test_the_gallery_shows_each_picture_with_the_command_that_gives_it(page):
    shown = [fence.text.removeprefix("$ ").strip() for fence in fences(read(page))]
    assert shown == [shot.command for shot in GALLERY.values()]
    assert re.findall(r"!\[.*?\]\((.*?)\)", read(page)) == list(GALLERY)
    # a section names in bold what must be chosen on the page: a view, by the words of its tab, or a step
    table = LANGUAGES["zh" if page.endswith(".zh.md") else "en"]
    sections = re.split(r"^## ", read(page), flags=re.MULTILINE)[1:]
    chosen = [
        ([table[f"page.view.{shot.view}"]] if shot.view else []) + ([str(shot.step)] if shot.step else [])
        for shot in GALLERY.values()
    ]
    assert [re.findall(r"\*\*(.+?)\*\*", section) for section in sections] == chosen
    assert [name for name in GALLERY if not 10_000 < (ROOT / "docs" / name).stat().st_size < 120_000] == []


def test_no_hint_installs_headwise_from_an_index_that_does_not_have_it():
    sources = [*SRC.rglob("*.py"), *(ROOT / name for name in (*READMES, *DOCS))]
    assert [str(file) for file in sources if "install 'headwise" in file.read_text(encoding="utf-8")] == []


@pytest.mark.parametrize("document", [*READMES, "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", *DOCS])
def test_links_between_documents_lead_somewhere(document):
    prose = re.sub(r"```.*?```|`[^`]*`", "", read(document), flags=re.DOTALL)
    links = re.findall(r"\]\(([^)\s]+)\)", prose)
    files = [link.partition("#")[0] for link in links if not link.startswith(("http://", "https://", "#"))]
    assert [file for file in files if not (ROOT / document).parent.joinpath(file).exists()] == []


def test_the_newest_entry_of_the_changelog_is_this_version():
    assert re.findall(r"^## (\S+)", read("CHANGELOG.md"), flags=re.MULTILINE)[0] == headwise.__version__


def test_an_example_that_is_not_true_is_reported():
    wrong = Fence("python", ">>> 1 + 1\n3\n", 7, "")
    outcome = run_python_fence(wrong, "README.md", {})
    assert (outcome.attempted, "Expected:\n    3\nGot:\n    2" in outcome.report) == (1, True)
    assert "line 7" in outcome.report
    with pytest.raises(ZeroDivisionError) as raised:
        run_python_fence(Fence("python", "1 / 0\n", 7, ""), "README.md", {})
    assert raised.traceback[-1].lineno + 1 == 7


def test_blocks_share_their_names():
    names: dict[str, object] = {}
    run_python_fence(Fence("python", "x = 1\n", 1, ""), "README.md", names)
    run_python_fence(Fence("python", ">>> y = x + 1\n", 1, ""), "README.md", names)
    assert names["y"] == 2


def test_a_command_that_does_something_else_is_reported(tmp_path):
    shown = "$ python -c 'print(40 + 2)'\n42\n$ python -c 'print(1)' # why\n2\n"
    shown += "$ make \\\n  nothing\n$ python no.py\n$ rm x\n"
    pairs = commands(Fence("console", shown, 1, ""))
    first, second, *others = (run_command(command, output, tmp_path).report for command, output in pairs)
    assert first == ""
    faulty = Fence("console", "$ python -c 'print(1); exit(1)'\n1\n", 1, "exit status 1")
    ((command, output),) = commands(faulty)
    assert run_command(command, output, tmp_path, status=status(faulty)).report == ""
    assert "status 1" in run_command(command, output, tmp_path).report
    assert re.search(r"(?s)status 0\n1\nwanted:\n2\n$", second)
    assert others == [
        "make   nothing: there are no such targets: nothing\n",
        "python no.py: there are no such files: no.py\n",
        "rm x: tests/examples.py does not know how to check rm\n",
    ]


def test_fences_know_their_language_line_and_note():
    text = "a\n\n<!-- not run: slow -->\n```python\nx\n```\n\n- b\n  ```sh\n  make demo\n  ```\n"
    assert fences(text) == [Fence("python", "x\n", 5, "not run: slow"), Fence("sh", "make demo\n", 10, "")]
    with pytest.raises(ValueError, match="line 1: this fence is never closed"):
        fences("```python\nx\n")


def test_the_file_map_follows_the_arrow(tmp_path):
    for path in ("pages/__init__.py", "pages/a.py", "errors.py", "testing.py", "__init__.py", "cli/__init__.py"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(f'"""What {path} gives.\n\nMore.\n"""')
    lines = file_map(tmp_path).splitlines()
    assert [line.split("`")[1] for line in lines if line.startswith("- ")] == [
        "__init__.py", "errors.py", "pages/__init__.py", "pages/a.py", "cli/__init__.py", "testing.py"
    ]  # fmt: skip
    assert [line for line in lines if line.startswith("## ")] == [
        "## headwise", "## errors", "## pages", "## cli", "## testing"
    ]  # fmt: skip
    assert "- `errors.py`: What errors.py gives." in lines


def test_inspected_sources_are_those_of_this_checkout():
    assert inspect.getfile(headwise) == str(SRC / "__init__.py")
