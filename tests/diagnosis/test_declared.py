"""Sizes that are declared as numbers change no verdict, no finding and no name of a size."""

import pytest

from headwise.diagnosis.target_diagnosis import diagnosed
from headwise.errors import InputError
from headwise.tracing.entry_point import traced
from tests.diagnosis.declared import WAYS, judged, subjects
from tests.diagnosis.written import loaded_from

# of the 112 classes of the whole grid (python -m tests.diagnosis.declared), evenly
STEP = 19

CODE = """
import math
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.part = heads, width // heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))

    def split(self, t):
        b, n, _ = t.shape
        return t.view(b, n, self.heads, self.part).transpose(1, 2)

    def forward(self, query, key, value, mask=None):
        q, k, v = self.split(self.q(query)), self.split(self.k(key)), self.split(self.v(value))
        s = q @ k.transpose(-2, -1) / math.sqrt({width})
        if mask is not None:
            s = s.masked_fill(~mask{axes}, float("-inf"))
        return self.o((s.softmax(-1) @ v).transpose(1, 2).flatten(2))
"""
RIGHT, WIDE = CODE.format(width="self.part", axes=""), CODE.format(width="query.shape[-1]", axes="")
SHAPES = {"query": [2, 5, 16], "key": [2, 7, 16], "value": [2, 7, 16]}
BUILT = {"width": 16, "heads": 4}
VIEWED = RIGHT.replace("b, n, _ = t.shape", "b, n = t.shape[0], self.long").replace(
    "        q, k, v =", "        self.long = query.shape[1]\n        q, k, v ="
)
PLACED = """
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.place = heads, nn.Parameter(torch.randn(1, 9, width))
        self.qkv, self.o = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        x = x + self.place
        b, n, c = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        w = (q @ k.transpose(-2, -1) * {scale}).softmax(-1)
        return self.o((w @ v).transpose(1, 2).reshape(b, n, c))
"""


def masked(*shape):
    return {**SHAPES, "_mask": {"argument": "mask", "means": "attend", "shape": [*shape]}}


def examined(code, *, init=None, call=None):
    """The diagnosis of the class of a source."""
    target, namespace, file = loaded_from(code, "Attention")
    return diagnosed(target, title="", namespace=namespace, files={file: "code.py"}, init=init, call=call)


def drawn(code, *, init=None, call=None):
    """The trace of the class of a source."""
    target, namespace, file = loaded_from(code, "Attention")
    return traced(target, title="", namespace=namespace, files={file: "code.py"}, texts={}, init=init, call=call)


def faults(found):
    return [(each.kind, each.proved) for each in found.faults]


def texts(found):
    return {str(shape) for step in found.steps for shape in (*step.inputs, *step.outputs)}


@pytest.mark.parametrize("subject", list(subjects())[::STEP], ids=lambda each: each.name)
def test_what_is_declared_changes_no_verdict_no_finding_and_no_name(subject):
    ways = judged(subject)["ways"]
    assert {way: ways[way]["doctor"] for way in WAYS} == dict.fromkeys(WAYS, ways["nothing"]["doctor"])
    assert {way: ways[way]["names"] for way in WAYS} == dict.fromkeys(WAYS, "same")


@pytest.mark.parametrize(
    ("init", "shape"), [(None, (2, 1, 1, 7)), (BUILT, (2, 1, 5, 7)), (BUILT, (2, 4, 5, 7)), (None, (5, 7))]
)
def test_a_mask_whose_shape_is_declared_in_numbers_fits_the_inputs_at_all_sizes(init, shape):
    found = examined(RIGHT, init=init, call=masked(*shape))
    assert (found.verdict, found.faults) == ("sound", ())
    assert found.examined["mask"] == "mask: attend"


def test_a_scale_by_the_model_width_is_found_where_its_root_is_the_head_width():
    for init, call in ((BUILT, None), (BUILT, masked(2, 1, 1, 7))):
        assert faults(examined(WIDE, init=init, call=call)) == [("scale-wrong", True)]


def test_one_fault_is_one_fault_where_declared_sizes_are_squares_of_each_other():
    # 1/√16 is (1/√4)²: at these sizes a scale by the model width is as if scaled twice
    code = WIDE.replace("/ math.sqrt(query.shape[-1])", "* self.scale").replace(
        "        self.q,", "        self.scale = width**-0.5\n        self.q,"
    )
    assert faults(examined(code, init=BUILT)) == [("scale-wrong", True)]


@pytest.mark.parametrize("asked", [examined, drawn])
@pytest.mark.parametrize("shape", [(2, 1, 1, 9), (5, 2, 1, 7), (7, 5)])
def test_a_mask_whose_numbers_fit_no_axis_of_the_scores_is_refused(shape, asked):
    said = (
        rf"--call gives mask the shape \[{', '.join(map(str, shape))}\], but beside it the call has B=2, H=4, L=5, S=7"
    )
    with pytest.raises(InputError, match=said):
        asked(RIGHT, init=BUILT, call=masked(*shape))


def test_a_mask_that_the_code_itself_lays_over_other_axes_is_its_fault_in_numbers_as_in_letters():
    code = CODE.format(width="self.part", axes="[:, 0]")
    letters = {"query": ["B", "L", "D"], "key": ["B", "S", "D"], "value": ["B", "S", "D"]}
    mask = {"argument": "mask", "means": "attend", "shape": ["B", "1", "1", "S"]}
    numbers = examined(code, call=masked(2, 1, 1, 7))
    assert numbers.verdict == "faulty"
    assert faults(numbers) == faults(examined(code, call={**letters, "_mask": mask}))


def test_a_trace_of_declared_numbers_has_letters_and_shows_the_numbers_as_real_sizes():
    found = drawn(RIGHT, init=BUILT, call=masked(2, 1, 1, 7))
    assert texts(found) >= {"[B, H, L, d]", "[B, H, d, S]", "[B, H, L, S]", "[B, 1, 1, S]", "[B, L, H*d]"}
    assert not any("H*H" in each or "4" in each for each in texts(found))
    assert {each.name: each.size for each in found.symbols} == {"B": 2, "L": 5, "S": 7, "H": 4, "d": 4, "D": 16}


def test_a_declared_width_is_the_real_one_where_its_heads_were_not_declared():
    sizes = {each.name: each.size for each in drawn(RIGHT, call=masked(2, 1, 1, 7)).symbols}
    assert (sizes["D"], sizes["H"] * sizes["d"]) == (16, 16)


def test_where_a_declared_call_fails_the_reason_is_in_letters():
    (problem,) = drawn(VIEWED, init=BUILT, call=SHAPES).problems
    assert "[B, S, D]" in problem.reason
    assert "[B, L, H, d]" in problem.reason


def test_a_size_that_code_insists_on_stays_and_the_others_vary():
    code = PLACED.format(scale="(c // self.heads) ** -0.5")
    said = {"init": BUILT, "call": {"x": [2, 9, 16]}}
    assert examined(code, **said).verdict == "sound"
    assert "[B, L, H*d]" in texts(drawn(code, **said))
    assert not any("H*H" in each for each in texts(drawn(code, **said)))
    assert faults(examined(PLACED.format(scale="c**-0.5"), **said)) == [("scale-wrong", True)]


def test_masks_that_are_not_declared_are_examined_beside_one_that_is():
    code = RIGHT.replace("mask=None):", "mask=None, key_padding_mask=None):").replace(
        "        return self.o(",
        "        if key_padding_mask is not None:  # (B, S), True is padding\n"
        "            s = s.masked_fill(~key_padding_mask[:, None, None], -1e4)\n        return self.o(",
    )
    assert faults(examined(code)) == faults(examined(code, call=masked(2, 1, 5, 7))) == [("mask-inverted", True)]
