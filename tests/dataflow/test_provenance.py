"""Marks follow entries through any movement and product; contractions know what they sum over."""

import pytest
import torch

from headwise.dataflow.contractions import contraction
from headwise.dataflow.provenance import numbered, place_of, sample_of, source_of, tokens
from headwise.diagnosis import Diagnosis, difference, fixed
from headwise.diagnosis.result import Finding
from headwise.source import Edit


def test_tokens_say_their_source_sample_place_and_feature():
    marks = tokens((2, 3, 5), ("sample", "place", "feature"), source=4)
    t = marks.arrays["t"]
    assert source_of(t).unique().tolist() == [4]
    assert sample_of(t)[1, 0, 0] == 1
    assert place_of(t)[0, 2, 0] == 2
    assert marks.arrays["f"][0, 0].tolist() == [0, 1, 2, 3, 4]


def test_axes_of_one_role_count_together():
    marks = tokens((2, 3, 5, 7), ("sample", "feature", "place", "feature"), source=0)
    assert marks.arrays["f"].unique().numel() == 21


@pytest.mark.parametrize(
    ("function", "args", "summed", "out"),
    [
        ("torch.matmul", (torch.zeros(2, 3, 5, 7), torch.zeros(2, 3, 7, 11)), 7, (2, 3, 5, 11)),
        ("torch.Tensor.__matmul__", (torch.zeros(5, 7), torch.zeros(7, 11)), 7, (5, 11)),
        ("torch.nn.functional.linear", (torch.zeros(2, 5, 7), torch.zeros(11, 7)), 7, (2, 5, 11)),
        ("torch.einsum", ("bhid,bjd->bhij", torch.zeros(2, 3, 5, 7), torch.zeros(2, 11, 7)), 7, (2, 3, 5, 11)),
        ("torch.baddbmm", (torch.zeros(1), torch.zeros(2, 5, 7), torch.zeros(2, 7, 11)), 7, (2, 5, 11)),
    ],
)
def test_a_contraction_knows_what_it_sums_over(function, args, summed, out):
    joint = contraction(function, args, {})
    sizes = dict(zip(joint.left, joint.a.shape, strict=True))
    assert [sizes[each] for each in joint.summed] == [summed]
    assert torch.einsum(f"{joint.left},{joint.right}->{joint.out}", joint.a, joint.b).shape == out


def test_a_repeated_letter_is_no_contraction_of_two():
    assert contraction("torch.einsum", ("ii,ij->j", torch.zeros(3, 3), torch.zeros(3, 5)), {}) is None


FINDING = Finding(
    "scale-floor-division", "fault", 2, 2, 4, "s = q @ k // 8", "what", "why", "fix", True, "", "a.py", 14,
    "q @ k // 8", "s = q @ k / 8", (Edit(2, 10, 2, 12, "/"),),
)  # fmt: skip


def test_a_patch_replaces_its_code_and_nothing_else():
    text = "q, k = 1, 2\ns = q @ k // 8\n"
    after = fixed(text, [FINDING])
    assert after == "q, k = 1, 2\ns = q @ k / 8\n"
    assert "-s = q @ k // 8" in difference(text, after, "a.py", "a.fixed.py")


def test_a_patch_with_no_edits_changes_nothing():
    text = "q, k = 1, 2\ns = q @ k // 8\n"
    assert fixed(text, [Finding(**{**FINDING.__dict__, "edits": ()})]) == text


def test_a_diagnosis_comes_back_from_its_plain_data():
    found = Diagnosis("a.py:A", "faulty", (FINDING,), {"self": True, "mask": False})
    assert Diagnosis.from_dict(found.to_dict()) == found
    assert found.to_dict()["schema"] == 1
    assert "fault: scale-floor-division" in str(found)
    assert "^^^^^^^^^^" in str(found)


def test_more_tokens_than_a_thousand_are_of_their_own_sample():
    marks = tokens((2, 1300, 1), ("sample", "place", "feature"), 3).arrays["t"][..., 0]
    assert torch.equal(sample_of(marks), torch.arange(2)[:, None].expand(2, 1300))
    assert torch.equal(place_of(marks), torch.arange(1300).expand(2, 1300))
    assert source_of(marks).unique().tolist() == [3]


def test_a_head_and_a_feature_make_one_number_however_many_there_are():
    found = numbered(torch.tensor([0, 0, 1, -1]), torch.tensor([1, 30_000, 0, 2])).tolist()
    assert found[0] < found[1] < found[2]
    assert found[3] == -1
