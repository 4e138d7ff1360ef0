"""The bytes of a changed text are written as the file is."""

import codecs

import pytest

from headwise.targets.text_files import bytes_like, text_of

CODE = "x = 1  # 注\nif x:\n\ty = 7 // 2\n\x0cz = 'é'\n"


@pytest.mark.parametrize(
    "data",
    [
        CODE.encode(),
        CODE.encode().rstrip(b"\n"),
        CODE.replace("\n", "\r\n").encode(),
        CODE.replace("\n", "\r\n", 2).encode(),
        CODE.replace("\n", "\r", 1).encode(),
        codecs.BOM_UTF8 + CODE.encode(),
        b"# coding: gbk\r\n" + CODE.replace("é", "中").encode("gbk"),
    ],
    ids=["plain", "no last newline", "windows", "mixed", "old mac", "mark", "another coding"],
)
def test_a_changed_text_is_written_in_the_encoding_and_with_the_line_ends_of_its_file(tmp_path, data):
    file = tmp_path / "a.py"
    file.write_bytes(data)
    text = text_of(file, "a.py", is_python=True)
    assert bytes_like(file, text) == data
    assert bytes_like(file, text.replace("//", "/")) == data.replace(b"//", b"/")


def test_a_line_that_is_new_ends_as_the_one_before_it(tmp_path):
    file = tmp_path / "a.py"
    file.write_bytes(b"a = 1\r\nb = 2\r\nc = 3")
    assert bytes_like(file, "a = 1\nnew = 0\nb = 2\nc = 4\nd = 5") == b"a = 1\r\nnew = 0\r\nb = 2\r\nc = 4\r\nd = 5"
