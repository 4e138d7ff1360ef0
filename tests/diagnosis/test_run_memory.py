"""No run of a diagnosis is made twice, and none is taken for another."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from headwise.calls import find
from headwise.dataflow import Manner, attentions
from headwise.diagnosis import run_memory
from headwise.diagnosis.entry_point import doctor
from headwise.diagnosis.plans.small_sizes import small
from headwise.diagnosis.run_memory import RunMemory
from headwise.recording import site_of


class Textbook(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.dropout = nn.Dropout(0.1)

    def forward(self, query, key, value, mask=None):
        q, k, v = (
            layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer, x in ((self.q, query), (self.k, key), (self.v, value))
        )
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e9)
        weights = self.dropout(scores.softmax(-1))
        return self.out((weights @ v).transpose(1, 2).flatten(2))


@pytest.fixture(scope="module")
def plans():
    found = find(Textbook, namespace=globals(), user_files=(__file__,)).plans
    masked = next(plan for plan in found if plan.mask and plan.setting == "cross")
    return next(plan for plan in found if not plan.mask and plan.setting == "cross"), masked


@pytest.fixture
def made(monkeypatch):
    """The runs that a memory makes."""
    runs, run = [], run_memory.run
    monkeypatch.setattr(run_memory, "run", lambda *args, **options: runs.append(run(*args, **options)) or runs[-1])
    return runs


def asked(memory, plan, *args, **options):
    return memory(plan, *(args or [Manner()]), sizes=small(plan), user_files=(__file__,), **options)


def test_a_run_is_made_once_whichever_plan_asks_for_it(plans, made):
    free, masked = plans
    memory, without = RunMemory(), replace(masked, call=dict(free.call), mask="")
    assert asked(memory, free).record is asked(memory, without).record
    assert asked(memory, masked).record is not asked(memory, free).record
    assert asked(memory, free, Manner(seed=1)).record is not asked(memory, free).record
    assert len(made) == 3


def test_a_replacement_changes_only_the_runs_that_its_operation_is_part_of(plans, made):
    free, masked = plans
    memory = RunMemory()
    fill = next(op for op in asked(memory, masked).record.operations if op.name == "masked_fill")
    stand_ins = {site_of(fill): lambda scores, *_: scores}
    again = asked(memory, free, stand_ins=stand_ins)
    assert again.record is asked(memory, free).record
    assert again.stand_ins == stand_ins
    unmasked = asked(memory, masked, stand_ins=stand_ins)
    assert not torch.equal(unmasked.output, asked(memory, masked).output)
    # another function at the same place is another run
    asked(memory, masked, stand_ins={site_of(fill): lambda scores, *_: scores + 1})
    assert len(made) == 4


def test_another_order_of_arguments_gets_other_numbers(plans):
    free, _ = plans
    memory, turned = RunMemory(), replace(free, call=dict(reversed(free.call.items())))
    assert not torch.equal(asked(memory, free).named["query"], asked(memory, turned).named["query"])


def test_runs_with_gradients_and_of_objects_in_memory_are_made_anew(plans, made):
    free, _ = plans
    memory, model = RunMemory(), free.build(small(free))
    for plan, manner in ((free, Manner(gradients=True)), (replace(free, target=model), Manner())):
        assert asked(memory, plan, manner).record is not asked(memory, plan, manner).record
    assert len(made) == 4


def test_a_run_that_memory_does_not_suffice_for_tells_nothing_of_the_code(monkeypatch, plans):
    class Large(nn.Linear):
        def forward(self, x):
            raise RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory")

    def enlarged(target, options):
        target.out = Large(*target.out.weight.shape)

    free, _ = plans
    memory = RunMemory()
    assert asked(memory, free).failure is None
    with pytest.raises(MemoryError, match="alloc_cpu"):
        asked(memory, free, change=enlarged)
    assert memory.kept == []


def test_what_follows_from_a_run_is_found_once_for_all_that_ask_for_the_run(plans):
    free, masked = plans
    memory, without = RunMemory(), replace(masked, call=dict(free.call), mask="")
    calls = []

    def noted(value):
        calls.append(value)
        return value

    assert [asked(memory, plan).fact(noted, 5) for plan in (free, without)] == [5, 5]
    assert calls == [5]
    first, second = (attentions(asked(memory, plan)) for plan in (free, without))
    assert [each.context for each in first] == [each.context for each in second]


def test_a_diagnosis_makes_no_more_runs_than_it_needs(made):
    assert doctor(Textbook).verdict == "sound"
    # each of the four plans and each check made its own: more than 100; that of a width that no head divides, one of
    # them, was made past the memory, and not counted; four are second calls with masks of one shape, six are calls
    # after others with fewer and with more tokens
    assert len(made) <= 81
