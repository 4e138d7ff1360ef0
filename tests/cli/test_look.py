"""headwise look: what it prints, writes and refuses, in both languages."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from headwise.maps import save_maps
from headwise.wording import CHINESE, ENGLISH
from tests.pages.conftest import ANIMAL
from tests.pages.made import a_map
from tests.pages.small_models import SENTENCE

pytestmark = pytest.mark.needs("transformers")


@pytest.fixture(autouse=True)
def folder_of_its_own(tmp_path_factory, monkeypatch):
    """The page goes to the folder in which the command runs."""
    folder = tmp_path_factory.mktemp("here")
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.needs("minilm", "matplotlib")
def test_the_readme_sentence_in_a_process_of_its_own(tmp_path):
    from matplotlib.image import imread

    picture = tmp_path / "it.png"
    command = [sys.executable, "-m", "headwise", "look", ANIMAL, "--query", "it", "--output", str(picture)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, encoding="utf-8")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"^  animal +█+ +0\.68 L3H1", done.stdout, flags=re.MULTILINE)
    assert re.search(r"^  tired +█+ +0\.71 L2H1", done.stdout, flags=re.MULTILINE)
    assert "bit for bit that of a run without headwise (largest difference: 0)" in " ".join(done.stdout.split())
    assert "\x1b" not in done.stdout
    assert imread(picture).shape[:2] > (900, 900)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_each_part_is_printed_in_the_language_asked_for(headwise, bert_folder, lang):
    done = headwise("look", SENTENCE, "--model", bert_folder, "--layer", 1, "--head", 2, "--lang", lang)
    assert (done.exit_code, done.stderr) == (0, "")
    table = {"en": ENGLISH, "zh": CHINESE}[lang]
    assert table["look.walk"].format(layer=1) in done.stdout
    assert table["look.map"].format(layer=1, head=2) in done.stdout
    assert table["look.links"] in done.stdout
    assert bool(re.search("[\u4e00-\u9fff]", done.stdout)) == (lang == "zh")


def test_the_language_may_stand_before_the_command(headwise, bert_folder):
    before = headwise("--lang", "zh", "look", SENTENCE, "--model", bert_folder, "-o", "it.html")
    after = headwise("look", SENTENCE, "--model", bert_folder, "--lang=zh", "-o", "it.html", "--force")
    assert before.exit_code == after.exit_code == 0
    assert before.stdout == after.stdout


def test_layer_and_head_may_be_repeated(headwise, bert_folder):
    done = headwise("look", SENTENCE, "--model", bert_folder, "--layer", 1, "--layer", 0, "--head", 2, "--head", 0)
    drawn = re.findall(r"^Layer (\d), head (\d):", done.stdout, flags=re.MULTILINE)
    assert drawn == [("1", "2"), ("1", "0"), ("0", "2"), ("0", "0")]


def test_another_kind_of_model_is_read_as_well(headwise, gpt2_folder):
    done = headwise("look", SENTENCE, "--model", gpt2_folder)
    assert done.exit_code == 0
    assert "bit for bit" in " ".join(done.stdout.split())


def test_the_page_is_written_and_named_and_a_second_one_beside_it(headwise, bert_folder, folder_of_its_own):
    for name in ("look.html", "look-2.html"):
        done = headwise("look", SENTENCE, "--model", bert_folder)
        assert (done.exit_code, f"Written: {name}" in done.stdout) == (0, True)
        assert (folder_of_its_own / name).read_text(encoding="utf-8").startswith("<!doctype html>")
    assert sorted(file.name for file in folder_of_its_own.iterdir()) == ["look-2.html", "look.html"]


def test_a_text_may_come_from_a_file_and_be_read_with_another(headwise, bert_folder, folder_of_its_own):
    (folder_of_its_own / "text.txt").write_text("the tired animal", encoding="utf-8")
    done = headwise("look", "--file", "text.txt", "--pair", "was it", "--model", bert_folder, "--query", "it")
    assert done.exit_code == 0
    page = (folder_of_its_own / "look.html").read_text(encoding="utf-8")
    assert '"text":"the tired animal\\nwas it"' in page


def test_a_text_that_is_too_long_is_cut_on_request(headwise, bert_folder):
    call = ("look", "it " * 59 + "it", "--model", bert_folder, "-o", "it.json")
    refused = headwise(*call)
    assert (refused.exit_code, "--cut" in refused.stderr) == (2, True)
    assert headwise(*call, "--cut").exit_code == 0
    assert len(json.loads(Path("it.json").read_text(encoding="utf-8"))["tokens"]) == 40


def test_maps_of_a_file_are_shown_without_a_model(headwise, folder_of_its_own):
    save_maps("maps.safetensors", {"own": a_map(), "other": a_map(Lq=2)}, tokens=list("abcdefg"))
    done = headwise("look", "--maps", "maps.safetensors", "--layer", 1, "-o", "maps.html")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == "own  (1, 3, 5, 7)\nother  (1, 3, 2, 7)\nWritten: maps.html\n"
    again = headwise("look", "--maps", "maps.safetensors", "-o", "maps.html", "--force", "--lang", "zh")
    assert again.stdout.endswith("已写入：maps.html\n")


def test_samples_of_maps_are_chosen(headwise, tmp_path):
    save_maps(
        tmp_path / "maps.safetensors", {"x": a_map(B=3)}, tokens=[list("abcdefg"), list("hijklmn"), list("opqrstu")]
    )
    call = ("look", "--maps", tmp_path / "maps.safetensors", "-o", tmp_path / "maps.html", "--force")
    assert headwise(*call, "--sample", 2, "--sample", 0).exit_code == 0
    page = (tmp_path / "maps.html").read_text(encoding="utf-8")
    assert ('"sample":2,' in page, '"carried":[2,0]' in page) == (True, True)
    refused = headwise(*call, "--sample", 3)
    assert (refused.exit_code, "0..2" in refused.stderr) == (2, True)
    refused = headwise("look", SENTENCE, "--sample", 0)
    assert (refused.exit_code, "--sample came" in refused.stderr) == (2, True)


def test_the_file_is_opened_on_request(headwise, bert_folder, folder_of_its_own, monkeypatch):
    opened = []
    monkeypatch.setattr("click.launch", opened.append)
    assert headwise("look", SENTENCE, "--model", bert_folder, "--open").exit_code == 0
    assert opened == [(folder_of_its_own / "look.html").resolve().as_uri()]


def test_a_page_is_no_larger_than_allowed(headwise, bert_folder, folder_of_its_own):
    done = headwise("look", SENTENCE, "--model", bert_folder, "--max-mb", "0.05")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "may have 0.05 million bytes" in done.stderr
    assert list(folder_of_its_own.iterdir()) == []


def test_a_file_is_written_kept_and_replaced(headwise, bert_folder, tmp_path):
    call = ("look", SENTENCE, "--model", bert_folder, "-o", tmp_path / "seen.txt")
    first = headwise(*call)
    assert (first.exit_code, f"Written: {tmp_path / 'seen.txt'}" in first.stdout.replace("\n", "")) == (0, True)
    (tmp_path / "seen.txt").write_text("mine")
    assert headwise(*call).exit_code == 2
    assert (tmp_path / "seen.txt").read_text() == "mine"
    assert headwise(*call, "--force").exit_code == 0
    assert (tmp_path / "seen.txt").read_text(encoding="utf-8").startswith("small-bert")


# what is wrong, the arguments, and the numbers and names that both languages must say
BAD = {
    "empty text": (["", "--model", "{bert}"], []),
    "too long": (["it " * 59 + "it", "--model", "{bert}"], ["small-bert", "40", "60", "20"]),
    "unknown word": ([SENTENCE, "--model", "{bert}", "--query", "dog"], ["“dog”", "the, tired, animal, was, it"]),
    "no such layer": ([SENTENCE, "--model", "{bert}", "--layer", "7"], ["0", "1", "2", "7"]),
    "no such head": ([SENTENCE, "--model", "{bert}", "--head", "-1"], ["0", "2", "3", "-1"]),
    "no weights": ([SENTENCE, "--model", "{bare}"], ["bare", "*.safetensors"]),
    "no such model": ([SENTENCE, "--model", "./nowhere"], ["./nowhere"]),
    "no output folder": ([SENTENCE, "--model", "{bert}", "-o", "{bare}/no/seen.png"], ["bare/no"]),
    "unknown suffix": (
        [SENTENCE, "--model", "{bert}", "-o", "seen.gif"],
        [".png", ".svg", ".pdf", ".json", "seen.gif"],
    ),
    "output exists": ([SENTENCE, "--model", "{bert}", "-o", "{bare}/config.json"], ["bare/config.json", "--force"]),
    "no text": ([], ["TEXT", "headwise look --help"]),
    "text and file": ([SENTENCE, "--file", "a.txt"], ["TEXT, --file", "--maps"]),
    "no such text": (["--file", "nowhere.txt"], ["nowhere.txt", "UTF-8"]),
    "maps and a model": (["--maps", "a.safetensors", "--model", "{bert}", "--cut"], ["--model, --cut"]),
    "no bytes": ([SENTENCE, "--max-mb", "0"], ["--max-mb 0"]),
    "no such option": ([SENTENCE, "--size", "3"], ["--size", "headwise look --help"]),
    "layer is a word": ([SENTENCE, "--layer", "third"], ["--layer", "third"]),
    "no value": ([SENTENCE, "--query"], ["--query", "headwise look --help"]),
    "two texts": ([SENTENCE, "more"], ["more", "headwise look --help"]),
}


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("case", BAD)
def test_bad_input_gets_one_sentence_and_status_2(headwise, bert_folder, tmp_path, case, lang):
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "config.json").write_text("{}")
    args, wanted = BAD[case]
    done = headwise("look", "--lang", lang, *(arg.format(bert=bert_folder, bare=bare) for arg in args))
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert [part for part in wanted if part not in done.stderr] == []
    assert bool(re.search("[\u4e00-\u9fff]", done.stderr)) == (lang == "zh")


def test_an_error_of_another_part_is_said_with_status_2(headwise, bert_folder, monkeypatch):
    from headwise.errors import ConversionError

    def refuse(model):
        raise ConversionError("7 keys are missing")

    monkeypatch.setattr("headwise.pages.model_run.watch", refuse)
    done = headwise("look", SENTENCE, "--model", bert_folder)
    assert (done.exit_code, done.stderr) == (2, "7 keys are missing\n")
    done = headwise("look", SENTENCE, "--model", bert_folder, "--lang", "zh")
    assert (done.exit_code, done.stderr) == (2, "无法继续，原因（英文）：7 keys are missing\n")


def test_what_was_typed_cannot_act_on_the_terminal(headwise, bert_folder):
    evil = "\x1b[31m\x9b\u202e[red]"
    for args in (
        [SENTENCE, "--query", evil],
        [SENTENCE, "--model", f"./{evil}"],
        [f"it {evil}"],
        [SENTENCE, f"--{evil}"],
    ):
        done = headwise("look", *args, *(() if "--model" in args else ("--model", bert_folder)))
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", done.stdout + done.stderr)


def test_a_terminal_that_cannot_write_a_sign_shows_a_question_mark(bert_folder):
    code = "import sys\nsys.argv[0] = 'headwise'\nfrom headwise.cli import main\nmain()"
    done = subprocess.run(
        [sys.executable, "-X", "utf8=0", "-c", code, "look", SENTENCE, "--model", str(bert_folder)],
        capture_output=True,
        check=False,
        env={"PYTHONIOENCODING": "ascii", "PYTHONPATH": ":".join(sys.path), "HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == 0
    assert b"small-bert: 2 layers ? 3 heads" in done.stdout
