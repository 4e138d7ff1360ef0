"""A file appears whole or not at all, whoever writes it."""

import ast
import errno
import tempfile

import pytest

import headwise as hw
from headwise.atomic_write import check_place, write_whole
from headwise.errors import InputError
from headwise.maps import container
from headwise.wording import Refusal
from tests.arrow import SRC
from tests.maps.oracle import inputs, made


def names(folder):
    return sorted(each.name for each in folder.iterdir())


def half(error):
    def fill(unfinished):
        unfinished.write_text("half")
        raise error

    return fill


@pytest.mark.parametrize("before", [None, "mine"])
def test_what_fails_halfway_leaves_the_folder_as_it_was(tmp_path, before):
    file = tmp_path / "a.txt"
    if before is not None:
        file.write_text(before)
    full = OSError(28, "No space left on device")
    with pytest.raises(Refusal, match=r"a\.txt could not be written \(No space left on device\)"):
        write_whole(file, half(full), force=True)
    with pytest.raises(KeyError, match="of its own"):
        write_whole(file, half(KeyError("of its own")), force=True)
    assert names(tmp_path) == ([] if before is None else ["a.txt"])
    assert before is None or file.read_text() == before


def test_while_it_is_filled_the_file_has_another_name_in_the_same_folder(tmp_path):
    seen = []

    def fill(unfinished):
        unfinished.write_text("all")
        seen.extend(names(tmp_path))

    write_whole(tmp_path / "a.txt", fill, force=False)
    assert len(seen) == 1
    assert seen != ["a.txt"]
    assert names(tmp_path) == ["a.txt"]


def test_a_file_that_came_to_be_in_the_meantime_is_not_replaced(tmp_path):
    file = tmp_path / "a.txt"

    def fill(unfinished):
        unfinished.write_text("ours")
        file.write_text("theirs")

    with pytest.raises(Refusal, match=r"must be a new file, but .*a\.txt exists"):
        write_whole(file, fill, force=False)
    assert (file.read_text(), names(tmp_path)) == ("theirs", ["a.txt"])
    write_whole(file, lambda unfinished: unfinished.write_text("ours") and None, force=True)
    assert file.read_text() == "ours"


def test_a_place_where_no_file_can_be_is_refused(tmp_path):
    with pytest.raises(Refusal, match="must go to a folder that exists"):
        check_place(tmp_path / "none" / "a.txt", force=True)
    with pytest.raises(Refusal, match="is a folder: add a file name"):
        check_place(tmp_path, force=True)
    (tmp_path / "a.txt").write_text("")
    with pytest.raises(Refusal, match="exists: choose another name, or give force=True to replace it"):
        check_place(tmp_path / "a.txt", force=False)
    assert check_place(tmp_path / "a.txt", force=True) == tmp_path / "a.txt"


def test_maps_that_cannot_be_written_leave_those_that_were_there(tmp_path, monkeypatch):
    file = tmp_path / "maps.safetensors"
    made(inputs()).save(file)
    before = file.read_bytes()

    def full(tensor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(container, "_bytes", full)
    with pytest.raises(InputError, match="No space left on device"):
        made(inputs(mask=hw.causal())).save(file)
    assert (file.read_bytes(), names(tmp_path)) == (before, ["maps.safetensors"])


def test_no_other_part_renames_files_by_itself():
    own = []
    for file in SRC.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            # Path.replace takes one argument, a text's replace two
            is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
            if is_call and node.func.attr == "replace" and len(node.args) == 1 and not node.keywords:
                own.append(str(file.relative_to(SRC)))
    assert own == ["atomic_write.py"]


def test_a_name_that_is_too_long_is_refused_in_one_sentence_and_the_longest_is_not(tmp_path):
    with pytest.raises(Refusal, match=r"a\.txt could not be written \(File name too long\)"):
        write_whole(tmp_path / ("a" * 296 + ".txt"), lambda unfinished: unfinished.write_text("all"), force=False)
    assert names(tmp_path) == []
    longest = tmp_path / ("a" * 251 + ".txt")
    write_whole(longest, lambda unfinished: unfinished.write_text("all"), force=False)
    assert longest.read_text() == "all"


def test_what_lies_beside_the_file_comes_with_it(tmp_path):
    def fill(unfinished):
        unfinished.write_text("names a.data")
        unfinished.with_name("a.data").write_text("weights")

    write_whole(tmp_path / "a.txt", fill, force=False)
    assert names(tmp_path) == ["a.data", "a.txt"]


def test_a_folder_in_which_nothing_can_be_made_is_refused_in_one_sentence(tmp_path, monkeypatch):
    def read_only(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(tempfile, "mkdtemp", read_only)
    with pytest.raises(Refusal, match=r"could not be written \(Read-only file system\)"):
        write_whole(tmp_path / "a.txt", half(OSError(errno.EROFS, "Read-only file system")), force=False)
