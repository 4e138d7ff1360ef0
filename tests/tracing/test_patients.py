"""Attention in many strangers' styles: each operation on its line and column, each axis by its name."""

import pytest

from headwise.tracing.entry_point import trace
from headwise.tracing.probe_runs import probed
from tests.tracing.reading import FOLDER, golden, listing, loaded, patients, plan_of, without_columns
from tests.tracing.renamed import renamed

# what the person has to say, because the class runs without it and does less
CHOSEN = {
    "llama_like": ("init", "call"),
    "swin_windows": ("init",),
}


@pytest.mark.parametrize("name", patients())
def test_each_step_of_a_patient_is_as_read_by_hand(name):
    entry = golden(name)
    found = probed(plan_of(entry, loaded(name)))
    assert listing(found.steps) == entry["steps"]
    assert found.problems == ()
    assert not any(shape.is_scrambled for step in found.steps for shape in step.outputs)


@pytest.mark.parametrize("name", patients())
def test_a_patient_is_named_alike_when_every_local_variable_misleads(name, tmp_path):
    entry = golden(name)
    text = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    twin = tmp_path / f"{name}.py"
    twin.write_text(renamed(text), encoding="utf-8")
    assert twin.read_text(encoding="utf-8") != text
    found = probed(plan_of(entry, loaded(name, twin)))
    assert without_columns(listing(found.steps)) == without_columns(entry["steps"])


@pytest.mark.parametrize("name", patients())
def test_a_patient_alone_is_enough_to_find_the_same_steps(name):
    entry = golden(name)
    given = {each: entry[each] for each in CHOSEN.get(name, ())}
    found = trace(getattr(loaded(name), entry["target"]), **given)
    assert found.problems == ()
    assert listing(found.steps) == entry["steps"]
