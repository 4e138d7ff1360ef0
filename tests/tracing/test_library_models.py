"""Attention of transformers, as installed: every operation by its source, its name and its axes, as read by hand."""

import importlib
import json
from pathlib import Path

import pytest

import headwise as hw

# of transformers 5.23: the source of each operation, its name, what it gives
LISTINGS = json.loads(Path(__file__).with_name("library_models.json").read_text(encoding="utf-8"))


@pytest.mark.needs("transformers")
@pytest.mark.parametrize("target", LISTINGS)
def test_attention_of_a_library_is_listed_as_it_was_read(target):
    module, _, name = target.partition(":")
    trace = hw.trace(getattr(importlib.import_module(module), name))
    assert trace.problems == ()
    assert [
        f"{' '.join(step.place.source.split())} | {step.op} | {', '.join(map(str, step.outputs))}"
        for step in trace.steps
    ] == LISTINGS[target]
    assert all(step.place.column is not None for step in trace.steps)
