"""An edit is timed where it changes the output, and effects where there is one of each head."""

import pytest
import torch

from benchmarks import effects
from benchmarks.harness import ADDED_MEGABYTES, TIMES, WrongNumbersError

pytestmark = pytest.mark.needs("transformers", "minilm", "safetensors")


@pytest.fixture
def short(monkeypatch):
    """Everything at 8 tokens."""
    monkeypatch.setattr(effects, "TOKENS", 8)
    monkeypatch.setattr(effects, "LONG", 64)
    return {case.name: case for case in effects.effects()}


def test_every_case_passes_its_check_beside_its_target(short):
    assert [case.check() for case in short.values()] == [None] * 6
    assert {name: (case.quantity, case.target) for name, case in short.items()} == {
        "one head zeroed": (TIMES, 1.15),
        "one head blocked": (TIMES, 1.15),
        "effects, estimated": (TIMES, 4.0),
        "effects, by zero": (TIMES, 1.1),
        "memory, one head zeroed": (ADDED_MEGABYTES, 300.0),
        "memory, one head blocked": (ADDED_MEGABYTES, 300.0),
    }


def test_effects_stand_beside_one_forward_and_beside_one_of_each_head(short, monkeypatch):
    passes = []
    monkeypatch.setattr(effects, "_forward", lambda model, ids: passes.append(ids.shape))
    short["effects, estimated"].theirs()
    assert passes == [(1, 8)]
    short["effects, by zero"].theirs()
    assert passes == [(1, 8)] * 73


def test_an_edit_that_changes_nothing_is_refused():
    case = effects.edited(
        "one head as it is", lambda edits: edits.find("layer.3").temperature(1.0, heads=[1]), tokens=8
    )
    with pytest.raises(WrongNumbersError, match="ours leaves the output as it is"):
        case.check()


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (torch.ones(6, 11), r"effects of \(6, 11\), but heads are \(6, 12\)"),
        (torch.zeros(6, 12), "effects that are 0 or not finite"),
        (torch.full((6, 12), float("nan")), "effects that are 0 or not finite"),
    ],
    ids=["a head short", "nothing", "nan"],
)
def test_effects_that_are_none_are_refused(found, sentence, monkeypatch):
    class Found:
        estimated = found

    monkeypatch.setattr(effects, "head_effects", lambda *inputs, **options: Found)
    with pytest.raises(WrongNumbersError, match=sentence):
        effects.estimated(tokens=8).check()
