"""The report of a diagnosis: what a person reads in a terminal and in a notebook, in English and in Chinese."""

import re
from dataclasses import replace

import pytest

from headwise.diagnosis.display import report
from headwise.diagnosis.result import Diagnosis, Finding
from headwise.wording.screen import columns


def finding(source, part, line=7, severity="fault", **options):
    """A finding at a part of a line."""
    start = source.index(part)
    known = {
        "kind": "scale-floor-division", "end_line": line, "what": "What it is.", "why": "Why it matters.",
        "fix": "What mends it.", "proved": True, "evidence": "Output error 0.5 → 0.", "file": "a.py", "code": part,
        "end_column": start + len(part),
    }  # fmt: skip
    return Finding(severity=severity, line=line, column=start, source=source, **{**known, **options})


def told(*findings, lang="en", examined=(), verdict="faulty", reason=""):
    return str(Diagnosis("a.py:A", verdict, findings, dict(examined), reason, lang))


def under(lines, place):
    """The text above the signs of a line, by the columns of a terminal."""
    marks, out, at = lines[place + 1], "", 0
    for sign in lines[place]:
        out += sign if marks[at : at + 1] == "^" else ""
        at += columns(sign)
    assert at >= len(marks.rstrip())
    return out


@pytest.mark.parametrize(
    ("source", "part"),
    [
        ("        s = q @ k // 8", "q @ k // 8"),
        ("\t\ts =\tq @ k // 8", "q @ k // 8"),
        ("    得分 = 查询 @ 键 // 8  # 缩放", "查询 @ 键 // 8"),
        (f"    {'s' * 60} = f({'x' * 90}, q @ k // 8, {'y' * 90})", "q @ k // 8"),
    ],
)
def test_signs_stand_under_the_operation(source, part):
    lines = told(finding(source, part)).splitlines()
    place = next(at for at, line in enumerate(lines) if set(line) == {" ", "^"}) - 1
    assert under(lines, place) == part
    # whole outside of a terminal, and on one about the signs
    assert source.expandtabs(1).strip() in lines[place]
    cut = report(Diagnosis("a.py:A", "faulty", (finding(source, part),)), widest=90).splitlines()
    assert under(cut, place) == part
    assert columns(cut[place]) <= 90
    assert cut[place].endswith("…") == (columns(lines[place]) > 90)


def test_a_long_line_whose_columns_are_not_known_is_cut_on_a_terminal_alone():
    source = "s = " + "x" * 200
    one = replace(finding(source, source), column=None, end_column=None)
    lines = told(one).splitlines()
    assert lines[3:5] == [f"    {source}", "    What it is."]
    cut = report(Diagnosis("a.py:A", "faulty", (one,)), widest=77).splitlines()
    assert cut[3] == f"    {source[:72]}…"
    assert cut[4] == "    What it is."


def test_all_lines_of_an_operation_are_shown():
    source = "    s = torch.softmax("
    text = told(finding(source, "torch.softmax(", end_line=9, end_column=5, code="torch.softmax(\n        s,\n    )"))
    assert re.search(r"    s = torch\.softmax\(\n        \^{14}\n        s,\n        \^\^\n    \)\n    \^\n", text)


def test_one_fault_on_two_lines_is_told_once_with_both_lines():
    k, v = "    k = self.k(x).view(b, n)", "    v = self.v(x).view(b, n)"
    same = {"kind": "key-uses-query-length", "fix": "Write -1. Write: k", "patch": "k"}
    first, second = finding(k, "self.k(x).view(b, n)", **same), finding(v, "self.v(x).view(b, n)", 8, **same)
    found = Diagnosis("a.py:A", "faulty", (first, replace(second, fix="Write -1. Write: v", patch="v")))
    text = str(found)
    assert text.count("Why it matters.") == text.count("Write -1.") == 1
    assert "a.py:7, 8  fault: key-uses-query-length (proved)" in text
    assert text.index(k.strip()) < text.index(v.strip()) < text.index("What it is.")
    assert text.index("\n        k\n") < text.index("\n        v\n")
    assert [each["line"] for each in found.to_dict()["findings"]] == [7, 8]


def test_what_differs_is_told_apart():
    one, two = finding("s = q // k", "q // k"), finding("s = q // k", "q // k", 8, what="Another thing.")
    assert told(one, two).count("Why: ") == 2


def test_a_warning_is_a_line_after_the_faults_and_a_note_a_line_after_the_warnings():
    source = "s = q // k"
    note = finding(source, source, severity="note", what="A note.", line=1)
    warning = finding(source, source, severity="warning", what="A warning.", line=2)
    text = told(note, warning, finding(source, source))
    blocks = text.split("\n\n")[1:]
    assert [block.partition("  ")[0] for block in blocks] == ["a.py:7", "a.py:2", "a.py:1"]
    assert blocks[1:] == ["a.py:2  warning: A warning. What mends it.", "a.py:1  note: A note."]


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_no_line_of_words_is_wider_than_100_columns(lang):
    words = (
        "掩码遮住了该看的键，露出了该遮的键（例如填充）。" if lang == "zh" else "The mask hides what should be seen. "
    )
    one = finding("s = q", "q", what=words * 9, why=words * 9, fix=words * 9, evidence=words * 9)
    examined = {"cross": "no: " + words * 9, "mask": "mask: attend", "half": True}
    text = told(one, replace(one, severity="note"), replace(one, severity="warning"), lang=lang, examined=examined)
    assert max(map(columns, text.splitlines())) <= 100
    assert not re.search(r"^\s*[，。；：、）]|（$", text, re.MULTILINE)


def test_what_was_examined_is_told_in_words_and_what_was_not_with_its_reason():
    examined = {"self": True, "mask": "keep: attend", "ideal": True, "cross": "no: it takes none", "cache": False}
    text = " ".join(told(verdict="sound", examined=examined).split())
    assert "a mask (keep, where 1 or True means: may be seen)" in text
    assert "the output against softmax(q·kᵀ/√d)·v of its own q, k, v." in text
    assert "Not examined: cross-attention with more keys than queries (it takes none); decoding with a cache." in text
    assert "ideal" not in text


def test_what_was_not_examined_for_one_reason_is_told_together():
    examined = {"training": "no: mend the faults first", "self": True, "half": "no: mend the faults first"}
    last = told(verdict="sound", examined=examined).splitlines()[-1]
    assert last == "Not examined: train mode, float16 (mend the faults first)."


def test_an_error_is_told_once_and_what_was_measured_of_each_line_with_the_line():
    crash = finding("s = q // k", "q // k", what="The call fails here: E: no", evidence="E: no")
    assert told(crash).count("E: no") == 1
    first, second = (finding("s = q // k", "q // k", line, evidence=f"Error {line}.") for line in (7, 8))
    assert told(first, second).splitlines()[-2:] == ["    Measured: 7: Error 7.", "    Measured: 8: Error 8."]


def test_nothing_in_a_source_acts_on_a_terminal_or_a_page():
    source = "s = '\x1b[31m</pre><script>' // q"
    found = Diagnosis("<b>:A", "faulty", (finding(source, "// q", what="<i>"),))
    assert "\x1b" not in str(found)
    shown = found._repr_html_()
    assert "\x1b" not in shown
    assert not re.search(r"<(?!/?(div|pre)\b)", shown)
    assert shown.count("<pre") == shown.count("</pre>") == 2


def test_a_notebook_shows_it_in_the_colours_of_the_page():
    shown = Diagnosis("a.py:A", "faulty", (finding("s = q // k", "q // k"),))._repr_html_()
    assert set(re.findall(r"(?<!-)color:([^;]+);", shown)) == {"inherit"}
    assert set(re.findall(r"background:([^;]+);", shown)) == {"transparent"}


def test_chinese_is_chinese_to_the_last_label():
    text = told(finding("s = q // k", "q // k", what="。", why="。", fix="。", evidence="。"), lang="zh",
                examined={"self": True, "cross": "no: 。", "mask": "mask: lengths"})  # fmt: skip
    words = set(re.findall(r"[A-Za-z]{2,}", text))
    assert words == {"py", "scale", "floor", "division", "mask"}


def test_a_finding_is_a_line_where_its_repr_is_shown():
    one = finding("s = q // k", "q // k")
    assert repr(one) == "<Finding scale-floor-division: fault, proved, at a.py:7>"
    assert repr(replace(one, proved=False, line=None)) == "<Finding scale-floor-division: fault, not proved, at a.py>"
