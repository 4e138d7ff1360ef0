"""docs/faults.md and docs/designs.md are current; docs/doctor.md tells each name of the JSON, and no others."""

import re
from dataclasses import fields

import pytest

from headwise.diagnosis.designs import DESIGNS
from headwise.diagnosis.faults import FAULTS, KINDS
from headwise.diagnosis.result import Diagnosis, Finding
from tests.diagnosis.kinds import DOCS, DOCUMENT, documents, faults_document
from tests.diagnosis.mutants import HERE

TEXT = DOCUMENT.read_text(encoding="utf-8")
DOCUMENTS = documents()


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_is_what_its_table_says(name):
    written = (DOCS / name).read_text(encoding="utf-8")
    assert written == DOCUMENTS[name], "renew it: python -m tests.diagnosis.kinds --write"


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_each_kind_has_a_section_with_the_code_of_its_example(lang):
    sections = re.split(r"^### ", faults_document(lang), flags=re.MULTILINE)[1:]
    by_kind = {section.split("\n")[0]: section for section in sections}
    assert set(KINDS) <= set(by_kind)
    for kind, fault in FAULTS.items():
        added = [line[2:] for line in by_kind[kind].split("\n") if line.startswith("+ ")]
        assert [line for line in added if line not in fault.example.text] == [], kind
        assert added or any(line.startswith("- ") for line in by_kind[kind].split("\n")), kind


def test_each_design_has_a_row_in_both_languages():
    for name in ("designs.md", "designs.zh.md"):
        assert [design.name for design in DESIGNS if f"| {design.name} |" not in DOCUMENTS[name]] == []


def test_each_kind_that_the_source_names_is_in_the_table():
    found = set()
    for file in (HERE.parents[1] / "src" / "headwise" / "diagnosis").rglob("*.py"):
        found |= set(re.findall(r'Suspect\(\s*"([a-z-]+)"', file.read_text(encoding="utf-8")))
    assert {"scale-missing", "input-ignored"} <= found <= set(KINDS)


def test_each_kind_of_the_table_is_named_by_a_check():
    source = "".join(
        file.read_text(encoding="utf-8")
        for file in (HERE.parents[1] / "src" / "headwise" / "diagnosis").rglob("*.py")
        if file.parent.name != "faults"
    )
    assert [kind for kind in KINDS if f'"{kind}"' not in source] == []


def test_each_name_of_the_json_is_told():
    finding = Finding("raises", "fault", 1, 1, 0, "", "", "", "", False, "")
    found = Diagnosis("a.py:A", "faulty", (finding,)).to_dict()
    told = TEXT[TEXT.index("<!-- findings -->") : TEXT.index("<!-- end of findings -->")]
    assert set(found["findings"][0]) == set(re.findall(r"`(\w+)`(?=[^|\n]*\|[^|\n]*\|)", _first_cells(told)))
    assert len(fields(Finding)) == len(found["findings"][0]) + len(["candidates"])
    assert all(f"| `{name}` |" in TEXT for name in (*found, "error"))


def _first_cells(text):
    return "\n".join(f"{line.split('|')[1]}| |" for line in text.splitlines() if line.startswith("| `"))
