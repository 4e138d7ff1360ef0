"""The script of the page: its modules are joined, every sentence is there, and tools agree."""

import re
import subprocess

import pytest

from headwise.pages.script import joined, script
from headwise.wording import LANGUAGES
from tests.pages.script_source import ASSETS, SOURCE

ROOT = ASSETS.parents[3]
MODULES = sorted(SOURCE.glob("*.js"))
SAID = re.compile(r"page(?:\.[a-z_]+)+")


@pytest.mark.parametrize("file", [*MODULES, ASSETS / "style.css", ASSETS / "shell.html"], ids=lambda file: file.name)
def test_a_file_of_the_page_has_at_most_300_lines_and_says_what_it_is(file):
    text = file.read_text(encoding="utf-8")
    assert text.count("\n") <= 300
    assert text.startswith("//" if file.suffix == ".js" else (":root", "<!doctype"))


def test_every_module_is_in_the_script():
    assert [file.name for file in MODULES if f"// {file.name}\n" not in script()] == []


def test_every_sentence_of_the_page_is_used_and_every_one_used_is_there():
    used = {key for file in MODULES for key in SAID.findall(file.read_text(encoding="utf-8"))}
    used |= set(SAID.findall((ASSETS / "shell.html").read_text(encoding="utf-8")))
    python = {key for file in ASSETS.parent.glob("*.py") for key in SAID.findall(file.read_text(encoding="utf-8"))}
    for table in LANGUAGES.values():
        there = {key for key in table if key.startswith("page.")}
        assert used <= there
        assert there <= used | python


@pytest.mark.parametrize(
    ("modules", "sentence"),
    [
        ({"main": 'import { a } from "./a.js";\nconst b = a;\n', "a": "const a = 1;\nconst b = 2;\n"}, "b stands in"),
        ({"main": 'import { a } from "./a.js";\n', "a": 'import { b } from "./main.js";\n'}, "in a circle"),
        ({"main": 'import a from "./a.js";\n', "a": ""}, "a form that cannot be joined"),
        ({"main": "export default 3;\n"}, "a form that cannot be joined"),
    ],
    ids=["one name twice", "circle", "default import", "default export"],
)
def test_what_cannot_be_joined_is_refused(tmp_path, modules, sentence):
    for name, text in modules.items():
        (tmp_path / f"{name}.js").write_text(text)
    with pytest.raises(ValueError, match=sentence):
        joined(tmp_path)


def run(*command):
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.needs("node")
def test_the_unit_tests_of_the_script_pass():
    done = run("node", "--test", *map(str, sorted((ROOT / "tests/pages/script").glob("*.test.js"))))
    assert done.returncode == 0, done.stdout
    assert int(re.search(r"^# pass (\d+)$", done.stdout, re.MULTILINE)[1]) >= 20


@pytest.mark.needs("node")
def test_the_script_can_be_read_by_node(tmp_path):
    (tmp_path / "script.js").write_text(script(), encoding="utf-8")
    done = run("node", "--check", str(tmp_path / "script.js"))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.needs("eslint")
def test_the_linter_has_nothing_to_say():
    done = run("node_modules/.bin/eslint", "src/headwise/pages/assets/source", "tests/pages/script")
    assert (done.returncode, done.stdout) == (0, "")
