"""A check that fails is told, by itself, and ends no other."""

import re

import pytest
import torch
from torch import nn

import headwise as hw
from headwise.calls import finder, wish_search
from headwise.diagnosis import check_runner, laws, repair_loop, target_diagnosis
from headwise.diagnosis.check_runner import CheckRunner
from headwise.diagnosis.checks.layout_repair import layout_suspects
from headwise.diagnosis.examination import Examination

SHAPES = {"query": ["B", "H", "L", "d"], "key": ["B", "H", "S", "d"], "value": ["B", "H", "S", "d"]}
# the checks of laws.py, and under which name each is told
LAWS = {
    "ignored_inputs": "inputs", "dropping_suspects": "dropout", "missing_projection": "parameters",
    "rotating_suspects": "rotation", "without_gradient": "gradients", "changed_arguments": "arguments kept",
    "left_over": "second call", "saving_suspects": "state_dict", "permuting_suspects": "order of keys",
    "sample_leaks": "samples", "edge_suspects": "empty rows", "step_suspects": "step of training",
    "half_suspects": "half", "dividing_suspects": "divisibility", "unusual_notes": "notes",
}  # fmt: skip
FAILED = "no: the check itself failed: ZeroDivisionError: broken for a test, at "


class Plain(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, query, key, value, mask=None):
        """mask: bool, True may be attended."""
        q, k, v = self.split(self.q(query)), self.split(self.k(key)), self.split(self.v(value))
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None], float("-inf"))
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


def sound(query, key, value):
    return torch.softmax(query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5, dim=-1) @ value


def floored(query, key, value):
    return torch.softmax(query @ key.transpose(-2, -1) // query.shape[-1] ** 0.5, dim=-1) @ value


@pytest.fixture(autouse=True)
def a_failing_check_raises():
    """Not here: what is told of it is what is tested."""


@pytest.fixture(scope="module")
def whole():
    return hw.doctor(sound, call=SHAPES)


class Floored(nn.Module):
    def forward(self, query, key, value):
        return floored(query, key, value)


def broken(*_, **__):
    raise ZeroDivisionError("broken for a test")


def test_every_law_that_fails_is_told_alone_and_the_rest_is_examined(monkeypatch):
    for name in LAWS:
        monkeypatch.setattr(laws, name, broken)
    found = hw.doctor(Plain)
    told = {name for name, value in found.examined.items() if str(value).startswith(FAILED)}
    assert told == set(LAWS.values())
    assert found.examined["ideal"] is True
    # what is essential was examined
    assert found.verdict == "sound"


@pytest.mark.parametrize("name", sorted(LAWS))
def test_one_law_that_fails_leaves_the_others_as_they_were(monkeypatch, whole, name):
    monkeypatch.setattr(laws, name, broken)
    found = hw.doctor(sound, call=SHAPES)
    told = {each for each, value in found.examined.items() if str(value).startswith(FAILED)}
    assert told <= {LAWS[name]}
    assert {each: value for each, value in found.examined.items() if each not in told} == {
        each: value for each, value in whole.examined.items() if each not in told
    }


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("layout_suspects", "heads"), ("groups_suspects", "heads"), ("sharing_suspects", "weights"),
        ("order_suspects", "causal"), ("scales_suspects", "scale"),
    ],
)  # fmt: skip
def test_without_a_check_that_is_needed_nothing_is_said_to_be_sound(monkeypatch, name, told):
    monkeypatch.setattr(repair_loop, name, broken)
    found = hw.doctor(sound, call=SHAPES)
    assert found.verdict == "not examined"
    assert str(found.examined[told]).startswith(FAILED)
    assert "failed or came too late" in found.reason


@pytest.mark.parametrize("name", ["layout_suspects", "sharing_suspects", "order_suspects"])
def test_a_fault_is_found_although_another_check_fails(monkeypatch, name):
    monkeypatch.setattr(repair_loop, name, broken)
    found = hw.doctor(floored, call=SHAPES)
    assert [each.kind for each in found.faults] == ["scale-floor-division"]
    assert FAILED in str(found.examined)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("settings", "call"), ("remembered", "cache"), ("goal_of", "ideal"), ("proved", "proof"),
        ("docstring_notes", "documentation"), ("turned_calls", "layout"),
    ],
)  # fmt: skip
def test_what_stands_around_the_checks_is_held_too(monkeypatch, name, told):
    monkeypatch.setattr(target_diagnosis, name, broken)
    found = hw.doctor(floored, call=SHAPES if name != "turned_calls" else None)
    assert str(found.examined[told]).startswith(FAILED)
    assert found.verdict == ("faulty" if name != "settings" else "not examined")


def test_a_failure_names_the_line_of_headwise_in_both_languages(monkeypatch):
    def lost(self, *_, **__):
        raise KeyError("q")

    monkeypatch.setattr(Examination, "free", property(lost))
    english, chinese = "the check itself failed: KeyError: 'q', at ", "检查本身在 "
    for lang, words in (("en", english), ("zh", chinese)):
        found = hw.doctor(sound, call=SHAPES, lang=lang)
        assert words in found.examined["call"]
        assert re.search(r"headwise/diagnosis/\w+\.py:\d+", found.examined["call"])
        assert found.verdict == "not examined"


def test_an_error_that_cannot_speak_is_told_by_its_type():
    class Mute(Exception):
        def __str__(self):
            raise RuntimeError("no words")

    def check():
        raise Mute

    checks = CheckRunner()
    assert checks("scale", "otherwise", check) == "otherwise"
    assert checks.failures["scale"].values["error"] == "Mute"
    assert not checks.is_whole


def test_what_there_is_no_work_left_for_is_told_and_what_a_verdict_needs_is_examined(monkeypatch):
    monkeypatch.setattr(check_runner, "LONGEST", -1)
    found = hw.doctor(floored, call=SHAPES)
    assert [(each.kind, each.proved) for each in found.faults] == [("scale-floor-division", True)]
    assert {found.examined[name] for name in ("laws", "cache", "documentation")} == {
        "no: it would have taken more runs than one examination makes"
    }


def test_what_raises_with_every_call_is_not_searched_a_second_time(monkeypatch):
    searched = []

    def counted(*args, **options):
        searched.append(options["finite"])
        return wish_search.searched(*args, **options)

    monkeypatch.setattr(finder, "searched", counted)

    def raises(query, key, value):
        return query @ key.transpose(-2, -1) @ value.missing

    def unfinite(query, key, value):
        return torch.softmax(query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5, dim=-1) @ value * float("nan")

    hw.doctor(raises)
    assert searched == [True]
    hw.doctor(unfinite)
    assert searched == [True, True, False]


def test_an_examination_is_not_made_again_where_nothing_was_put_right_since(monkeypatch):
    made = []

    def counted(done, rerun):
        made.append(done)
        return layout_suspects(done, rerun)

    monkeypatch.setattr(repair_loop, "layout_suspects", counted)
    assert hw.doctor(Floored, call=SHAPES).findings[0].proved
    # of each plan: what is wrong, nothing more, and no third time to see that it is gone
    assert len(made) == len({id(each) for each in made})
