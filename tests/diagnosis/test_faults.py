"""The table of faults: each example has its fault on its line and nothing else; both languages say the same."""

import re
import string

import pytest

from headwise.diagnosis.child import answer
from headwise.diagnosis.faults import FAMILIES, FAULTS, KINDS, fault_of
from headwise.diagnosis.faults.fault import ENGINES, SEVERITIES
from headwise.diagnosis.faults.templates import SELF
from headwise.diagnosis.findings import NAMES, merged
from headwise.diagnosis.patches.candidates import WRITTEN
from headwise.diagnosis.result import Diagnosis
from headwise.diagnosis.suspects import Suspect
from headwise.source import Span
from tests.diagnosis.kinds import TEMPLATES

PARTS = ("what", "why", "fix")
VERDICTS = {"fault": "faulty", "warning": "sound", "note": "sound"}


def diagnosis_of(folder, text, **declared):
    """What the command line says of a class of this text."""
    file = folder / "attention.py"
    file.write_text(text, encoding="utf-8")
    return Diagnosis.from_dict(answer({"target": f"{file}:Attention", **declared})["diagnosis"])


def values_of(sentence):
    return {name for _, name, _, _ in string.Formatter().parse(sentence) if name is not None}


@pytest.mark.parametrize("kind", KINDS)
def test_an_example_has_its_fault_on_its_line_and_nothing_else(kind, tmp_path):
    fault, example = fault_of(kind), fault_of(kind).example
    found = diagnosis_of(tmp_path, example.text, init=example.init, call=example.call)
    told = [(each.kind, each.severity, each.line, bool(each.patch)) for each in found.findings]
    assert told == [(kind, fault.severity, example.line, fault.has_patch)]
    verdict = "not examined" if kind == "differs-from-every-formula" else VERDICTS[fault.severity]
    assert found.verdict == verdict


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_is_sound_and_nothing_is_found_in_it(name, tmp_path):
    found = diagnosis_of(tmp_path, TEMPLATES[name].text)
    assert (found.verdict, found.findings) == ("sound", ())


@pytest.mark.parametrize("kind", KINDS)
def test_the_sentences_of_both_languages_ask_for_the_same_values(kind):
    fault = fault_of(kind)
    for part in PARTS:
        english, chinese = getattr(fault.english, part), getattr(fault.chinese, part)
        assert values_of(english) == values_of(chinese) <= set(NAMES)
        assert re.search("[\u4e00-\u9fff]", chinese)
        assert not re.search("[\u3000-\u9fff\uff00-\uffef]", english)
        assert chinese[-1] == "。" or chinese.endswith("：{error}")
        assert english[-1] == "." or english.endswith(": {error}")


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_is_whole(kind):
    fault = fault_of(kind)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", kind)
    assert fault.kind == kind
    assert fault.severity in SEVERITIES
    assert fault.engine in ENGINES
    assert not fault.general or fault_of(fault.general).general == ""


def test_a_kind_stands_in_one_row_of_one_file():
    rows = [fault.kind for file in FAMILIES for fault in file.FAULTS]
    assert len(rows) == len(set(rows)) == len(FAULTS)


def test_a_patch_is_written_for_kinds_of_the_table_only():
    assert set(WRITTEN) <= set(KINDS)


@pytest.mark.parametrize("pieces", [("x / 2", "x"), ("self", "cls")], ids=["no such piece", "several"])
def test_an_example_replaces_a_piece_that_stands_in_its_template_once(pieces):
    with pytest.raises(
        ValueError, match=f"SELF must hold '{pieces[0]}' once; it holds it {SELF.text.count(pieces[0])}"
    ):
        SELF(pieces)


def test_an_example_needs_the_line_of_its_finding():
    with pytest.raises(ValueError, match=r"The example must hold 'torch.no'"):
        SELF(("scores.softmax(dim=-1)", "scores"), at="torch.no")


def test_a_fault_and_its_special_case_at_one_place_are_reported_once():
    place = Span("a.py", "f", 3)
    first, second, other = (Suspect(kind, place) for kind in ("input-ignored", "input-mixed", "scale-missing"))
    assert merged([first, second, other]) == [first, other]


def test_a_step_of_no_known_formula_is_reported_only_where_nothing_is_wrong():
    step, fault = Suspect("differs-from-every-formula", Span("a.py", "f", 3)), Suspect("raises", Span("a.py", "f", 5))
    assert step.severity == "warning"
    assert merged([step]) == [step]
    assert merged([step, fault]) == [fault]
