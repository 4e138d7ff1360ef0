"""What is written down of each patient holds at sizes that no probe run has: even, odd, composite, and all the same."""

import re

import pytest
import torch

from headwise.calls import evaluated
from headwise.recording import record
from tests.tracing.reading import golden, loaded, patients, plan_of

FILES = ("adversarial", "adversarial_more", "adversarial_writing")
ENTRIES = [pytest.param(name, golden(name), id=name) for name in patients()]
ENTRIES += [pytest.param(file, entry, id=entry["target"]) for file in FILES for entry in golden(file)]
# "(L H)": what is in brackets and has no sign between
MIXED = re.compile(r"\([^()]* [^()]*\)")
# for the free symbols in turn
SIZES = {"odd": (9, 3, 15, 21), "even": (4, 6, 10, 12), "mixed": (6, 9, 4, 5), "equal": (4,)}


def sizes_of(symbols, few):
    """A size for each symbol: those of `few` in turn, at least what it must be, and even where it must be."""
    out = {}
    for at, each in enumerate(symbols):
        if each.equals:
            out[each.name] = evaluated(each.equals, out)
        else:
            size = max(few[at % len(few)], each.least)
            out[each.name] = size + size % 2 if each.even else size
    return out


def fits(text, shape, sizes):
    """Whether a shape in symbols is the shape that came; what it leaves open ("?", mixed axes) is not asked."""
    axes = text.strip("[]").split(", ") if text != "[]" else []
    asked = [MIXED.sub("?", axis) for axis in axes]
    return len(axes) == len(shape) and all(
        "?" in axis or evaluated(axis, sizes) == size for axis, size in zip(asked, shape, strict=True)
    )


def tensors_of(output):
    """The shapes in an "output"."""
    return [each if each.endswith("]") else f"{each}]" for each in output.removesuffix(" ×n").split("], ") if each]


@pytest.mark.parametrize("few", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize(("name", "entry"), ENTRIES)
def test_names_hold_at_sizes_that_were_never_probed(name, entry, few):
    plan = plan_of(entry, loaded(name))
    sizes = sizes_of(plan.symbols, few)
    target = plan.build(sizes)
    args, options = plan.arguments(sizes)
    with torch.no_grad():
        done = record(lambda: target(*args, **options))
    rows = {}
    for row in entry["steps"]:
        rows.setdefault((row["line"], row["column"], row["op"]), []).append(tensors_of(row["output"]))
    met = set()
    for operation in done.operations:
        place = operation.span.line, operation.span.column, operation.name
        shapes = [t.shape for t in operation.outputs]
        fitting = [
            at
            for at, texts in enumerate(rows.get(place, []))
            if len(texts) == len(shapes) or len(texts) == 1 < len(shapes)
            if all(fits(texts[min(n, len(texts) - 1)], shape, sizes) for n, shape in enumerate(shapes))
        ]
        assert fitting, (place, shapes, rows.get(place))
        met |= {(place, at) for at in fitting}
    assert done.failure is None
    assert met == {(place, at) for place, own in rows.items() for at in range(len(own))}
