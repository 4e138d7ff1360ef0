"""headwise itself: its help, its version, and what it says of a command it does not have."""

import re
import subprocess
import sys

import pytest

import headwise as package
from headwise.cli import COMMANDS
from headwise.wording import CHINESE, ENGLISH


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)], ids=str)
def test_help_is_in_the_language_asked_for_wherever_it_is_asked(headwise, lang, command):
    before = headwise(*command, "--help", "--lang", lang)
    after = headwise(*command, "--lang", lang, "--help")
    assert (before.exit_code, before.stdout) == (0, after.stdout)
    rows = before.stdout.partition("\n  -")[2]
    assert bool(re.search("[\u4e00-\u9fff]", rows)) == (lang == "zh")
    # nothing is left that is still a key
    names = "|".join(["cli", *COMMANDS])
    assert not re.search(rf"\b({names})\.(help|[a-z]+\.)", before.stdout)


def test_every_option_has_a_row_in_the_help(headwise):
    shown = headwise("look", "--help").stdout
    for option in ("--query WORD", "--layer N", "--head N", "--model NAME_OR_FOLDER", "-o, --output FILE", "--force"):
        assert option in shown
    assert ".png, .svg, .pdf, .json, .txt" in " ".join(shown.split())


def test_the_version_is_that_of_the_package(headwise):
    done = headwise("--version")
    assert (done.exit_code, done.stdout) == (0, f"headwise, version {package.__version__}\n")


@pytest.mark.parametrize(
    ("lang", "said"),
    [
        ("en", "There is no command zzz; there are: convert, doctor, effects, heads, look, plot, steps, trace.\n"),
        ("zh", "没有 zzz 这个命令；现有：convert, doctor, effects, heads, look, plot, steps, trace。\n"),
    ],
)
def test_an_unknown_command_is_refused_with_those_that_exist(headwise, lang, said):
    done = headwise("--lang", lang, "zzz", "text")
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", said)


def test_a_language_that_is_not_there_is_refused(headwise):
    done = headwise("look", "text", "--lang", "fr")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "--lang cannot be used ('fr' is not one of 'en', 'zh')" in done.stderr


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_headwise_alone_shows_each_command_with_a_line_to_copy(headwise, lang):
    done = headwise("--lang", lang) if lang == "zh" else headwise()
    assert (done.exit_code, done.stderr) == (0, "")
    names, examples = (re.findall(rf"^{pad}(\w+) .*$", done.stdout, re.MULTILINE) for pad in ("  ", " {11}headwise "))
    assert names == examples == list(COMMANDS)
    assert max(map(len, done.stdout.splitlines())) <= 84
    assert bool(re.search("[\u4e00-\u9fff]", done.stdout)) == (lang == "zh")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_is_given_nothing_shows_a_line_to_copy(headwise, command):
    done = headwise(command)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert re.search(rf"must be given, as in `headwise {command} .+`: see `headwise {command} --help`", done.stderr)
    assert f"`headwise {command} " in headwise(command, "--lang", "zh").stderr


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_what_click_says_of_words_and_numbers_is_said_in_both_languages(headwise, lang):
    words = CHINESE if lang == "zh" else ENGLISH
    command = {"command": "headwise look"}
    for given, key, values in (
        (("a", "b"), "cli.extra", {"what": "b"}),
        (("a", "--layer", "x"), "cli.not_number", {"what": "--layer", "value": "'x'"}),
    ):
        done = headwise("look", *given, "--lang", lang)
        assert (done.exit_code, done.stderr) == (2, words[key].format(**values, **command) + "\n")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_prints_json(headwise, command):
    assert "--json" in headwise(command, "--help").stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_the_commands(shell):
    said = {"COMP_WORDS": "headwise ", "COMP_CWORD": "1", "_HEADWISE_COMPLETE": f"{shell}_complete"}
    code = "from headwise.cli import main; main(prog_name='headwise')"
    done = subprocess.run([sys.executable, "-c", code], env=said, capture_output=True, text=True, check=False)
    assert {name for name in COMMANDS if name in done.stdout} == set(COMMANDS)


def test_a_text_that_holds_an_option_is_no_option(headwise):
    done = headwise("look", "--model", "./nowhere", "--", "--lang=zh")
    assert (done.exit_code, done.stderr[:15]) == (2, "--model must be")


def test_the_module_runs_as_the_command():
    command = [sys.executable, "-m", "headwise", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Usage: headwise [OPTIONS]")


@pytest.mark.parametrize(
    ("arguments", "english", "chinese"),
    [
        (["doctr", "x"], "no command doctr: did you mean doctor?", "没有 doctr 这个命令：是不是 doctor？"),
        (["trace", "x.py:A", "--jsn"], "no option --jsn: did you mean --json?", "没有 --jsn 这个选项：是不是 --json？"),
        (["trace", "--zebra"], "no option --zebra: see", "没有 --zebra 这个选项：请看"),
        (["effects", "hello"], "needs one metric, and none came: give", "effects 需要一个指标，但没有给出："),
    ],
)
def test_a_misspelt_or_missing_word_of_a_command_is_told_in_both_languages(headwise, arguments, english, chinese):
    for more, said in (((), english), (("--lang", "zh"), chinese)):
        done = headwise(*arguments, *more)
        assert (done.exit_code, said in done.stderr) == (2, True), done.stderr
