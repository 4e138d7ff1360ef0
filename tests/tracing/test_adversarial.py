"""Where sizes coincide or mislead no axis gets a wrong name or a wrong order, and what is mixed is said to be mixed."""

import pytest

from headwise.tracing.probe_runs import probed
from tests.tracing.reading import golden, listing, loaded, plan_of

FILES = ("adversarial", "adversarial_more", "adversarial_writing", "adversarial_meeting")


@pytest.mark.parametrize(
    ("file", "entry"),
    [pytest.param(file, entry, id=entry["target"]) for file in FILES for entry in golden(file)],
)
def test_no_axis_gets_a_wrong_name_or_a_wrong_order(file, entry):
    found = probed(plan_of(entry, loaded(file)))
    assert found.problems == ()
    assert listing(found.steps) == entry["steps"]
    scrambled = any(shape.is_scrambled for step in found.steps for shape in step.outputs)
    assert scrambled == entry.get("scrambled", False)
