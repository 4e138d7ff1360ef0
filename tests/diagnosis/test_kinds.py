"""docs/doctor.md tells each kind and each name of the JSON, and no others."""

import re
from dataclasses import fields

from headwise.diagnosis.diagnosis import KINDS, Diagnosis, Finding
from tests.diagnosis.kinds import DOCUMENT, designs, listed, with_list
from tests.diagnosis.mutants import HERE

TEXT = DOCUMENT.read_text(encoding="utf-8")


def test_the_list_of_kinds_is_what_the_doctor_says():
    assert listed() in TEXT
    assert designs() in TEXT
    assert with_list(TEXT) == TEXT


def test_each_kind_that_the_source_names_is_in_the_list():
    found = set()
    for file in (HERE.parents[1] / "src" / "headwise" / "diagnosis").rglob("*.py"):
        found |= set(re.findall(r'Suspect\(\s*"([a-z-]+)"', file.read_text(encoding="utf-8")))
    assert {"scale-missing", "input-ignored"} <= found <= set(KINDS)


def test_each_name_of_the_json_is_told():
    finding = Finding("raises", "fault", 1, 1, 0, "", "", "", "", False, "")
    found = Diagnosis("a.py:A", "faulty", (finding,)).to_dict()
    told = TEXT[TEXT.index("<!-- findings -->") : TEXT.index("<!-- end of findings -->")]
    assert set(found["findings"][0]) == set(re.findall(r"`(\w+)`(?=[^|\n]*\|[^|\n]*\|)", _first_cells(told)))
    assert len(fields(Finding)) == len(found["findings"][0]) + len(["candidates"])
    assert all(f"| `{name}` |" in TEXT for name in (*found, "error"))


def _first_cells(text):
    return "\n".join(f"{line.split('|')[1]}| |" for line in text.splitlines() if line.startswith("| `"))
