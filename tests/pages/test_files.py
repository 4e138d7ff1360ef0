"""A file is written whole or not at all, in the form of its suffix, and never over another unasked."""

import json

import pytest

from headwise.pages import files, look
from headwise.wording import Refusal
from tests.pages.small_models import SENTENCE

pytestmark = pytest.mark.needs("transformers", "matplotlib")

STARTS = {
    ".html": b"<!doctype html>",
    ".png": b"\x89PNG",
    ".svg": b"<?xml",
    ".pdf": b"%PDF",
    ".json": b"{",
    ".txt": b"small-bert: 2 layers",
}


@pytest.mark.parametrize("suffix", files.SUFFIXES)
def test_the_suffix_chooses_the_form_and_nothing_else_is_left(bert_folder, tmp_path, suffix):
    file = tmp_path / f"seen{suffix.upper()}"
    seen = look(SENTENCE, model=bert_folder, output=file)
    assert file.read_bytes().startswith(STARTS[suffix])
    assert list(tmp_path.iterdir()) == [file]
    assert seen.notes == (f"Written: {file}",)


@pytest.mark.parametrize("suffix", files.SUFFIXES)
def test_the_same_look_gives_the_same_file(bert_folder, tmp_path, suffix):
    written = []
    for name in ("a", "b"):
        look(SENTENCE, model=bert_folder, output=tmp_path / f"{name}{suffix}")
        written.append((tmp_path / f"{name}{suffix}").read_bytes())
    assert written[0] == written[1]


def test_the_json_is_the_dictionary(bert_folder, tmp_path):
    seen = look(SENTENCE, model=bert_folder, output=tmp_path / "seen.json")
    assert json.loads((tmp_path / "seen.json").read_text(encoding="utf-8")) == seen.to_dict()


def assert_refused(wanted, tmp_path, bert_folder, name, **options):
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    with pytest.raises(Refusal, match=wanted):
        look(SENTENCE, model=bert_folder, output=tmp_path / name, **options)
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before


def test_an_existing_file_is_kept(bert_folder, tmp_path):
    (tmp_path / "seen.txt").write_text("mine")
    assert_refused(
        "seen.txt exists: choose another name, or give force=True to replace it", tmp_path, bert_folder, "seen.txt"
    )


def test_an_existing_file_is_replaced_by_force(bert_folder, tmp_path):
    (tmp_path / "seen.txt").write_text("mine")
    look(SENTENCE, model=bert_folder, output=tmp_path / "seen.txt", force=True)
    assert (tmp_path / "seen.txt").read_text(encoding="utf-8").startswith("small-bert")


@pytest.mark.parametrize("name", ["seen", "seen.gif", "seen.png.exe"])
def test_an_unknown_suffix_is_refused_with_those_that_are_known(bert_folder, tmp_path, name):
    assert_refused(
        rf"one of \.html, \.png, \.svg, \.pdf, \.json, \.txt, but came as .*{name}", tmp_path, bert_folder, name
    )


def test_a_folder_that_does_not_exist_is_refused(bert_folder, tmp_path):
    assert_refused("to a folder that exists, but .*nowhere does not", tmp_path, bert_folder, "nowhere/seen.png")


def test_a_folder_in_the_place_of_the_file_is_refused_even_by_force(bert_folder, tmp_path):
    (tmp_path / "seen.png").mkdir()
    assert_refused("seen.png is a folder: add a file name", tmp_path, bert_folder, "seen.png", force=True)


@pytest.mark.parametrize("force", [False, True])
def test_a_write_that_fails_halfway_leaves_what_was_there(bert_folder, tmp_path, monkeypatch, force):
    def fail(look, file, form):
        file.write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setitem(files._WRITERS, ".txt", fail)
    if force:
        (tmp_path / "seen.txt").write_text("mine")
    assert_refused(r"could not be written \(No space left on device\)", tmp_path, bert_folder, "seen.txt", force=force)


def test_a_file_that_appears_during_the_run_is_kept(bert_folder, tmp_path):
    def appears(key, values):
        if key == "step.links":
            (tmp_path / "seen.txt").write_text("theirs")

    with pytest.raises(Refusal, match=r"seen\.txt exists"):
        look(SENTENCE, model=bert_folder, output=tmp_path / "seen.txt", progress=appears)
    assert (tmp_path / "seen.txt").read_text() == "theirs"
    assert list(tmp_path.iterdir()) == [tmp_path / "seen.txt"]


def test_what_cannot_be_written_is_refused_before_the_model_is_loaded(bert_folder, tmp_path):
    steps = []
    with pytest.raises(Refusal, match="does not: make it first"):
        look(SENTENCE, model=bert_folder, output=tmp_path / "no" / "a.png", progress=lambda key, _: steps.append(key))
    assert steps == []
