"""What the doctor says of classes a learner may write: warnings that name numbers, notes of what is so on purpose."""

import inspect

import pytest
import torch
import torch.nn as nn

from headwise.diagnosis.entry_point import doctor
from headwise.errors import ArgumentError
from headwise.testing import SoundnessError, assert_sound
from tests.diagnosis.correct.scores import T5, MuP, Plain
from tests.diagnosis.written import HEAD, attend, found_in, line_of


class Learner(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.d_k = d_model / n_heads
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x, blocked=None):
        B, L, D = x.shape
        q, k, v = (w(x).reshape(B, L, self.n_heads, -1).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        scores = q @ k.transpose(-2, -1) / self.d_k**0.5
        if blocked is not None:
            scores = scores.masked_fill(blocked, -1e9)
        return self.wo((scores.softmax(dim=-1) @ v).transpose(1, 2).reshape(B, L, D))


class Undivided(nn.Module):
    def __init__(self, num_hiddens, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(num_hiddens, num_hiddens) for _ in range(4))

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = (w(x).reshape(b, n, self.num_heads, -1).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        weights = (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(dim=-1)
        return self.wo((weights @ v).transpose(1, 2).reshape(b, n, c))


class Gated(Plain):
    def weights(self, scores):
        return torch.sigmoid(scores)


class InPlace(Plain):
    def weights(self, scores):
        weights = scores.softmax(-1)
        weights += 0.0
        return weights


def said(target, severity, **options):
    return [each for each in doctor(target, **options).findings if each.severity == severity]


MASK = {"x": ["B", "L", "D"], "_mask": {"argument": "blocked", "shape": ["B", 1, 1, "L"], "means": "blocked"}}


def test_warnings_name_the_numbers_and_stand_on_their_lines():
    half, divided = said(Learner, "warning", call=MASK)
    assert half.kind == "mask-half-overflow"
    assert half.what == "In float16 this line raises: -1e9 is outside the range of float16."
    assert half.source.strip() == "scores = scores.masked_fill(blocked, -1e9)"
    assert divided.what.startswith("The constructor accepts a d_model that n_heads does not divide, such as 34 with 3;")
    assert divided.fix == "Check d_model % n_heads == 0 in __init__."
    assert divided.source.strip() == "self.d_k = d_model / n_heads"
    assert divided.evidence.startswith("d_model=34, n_heads=3 → RuntimeError: shape")


def test_a_constructor_that_divides_nothing_is_pointed_at_itself():
    (warning,) = said(Undivided, "warning")
    assert warning.source.strip() == "def __init__(self, num_hiddens, num_heads):"


@pytest.mark.parametrize(
    ("target", "kind", "part"),
    [
        (T5, "scale-as-t5", "as in T5"),
        (MuP, "scale-as-mup", "as in μP"),
        (Gated, "softmax-alternative", "come from sigmoid instead of a softmax"),
    ],
)
def test_what_is_unusual_on_purpose_is_a_note(target, kind, part):
    found = doctor(target)
    assert found.verdict == "sound"
    (note,) = (each for each in found.findings if each.severity == "note")
    assert note.kind == kind
    assert part in note.what


def test_a_usual_class_has_no_note():
    assert said(Plain, "note") == []


@pytest.mark.parametrize(("comment", "count"), [("", 1), ("  # mask: True = hidden", 0)])
def test_a_mask_whose_true_hides_is_a_note_where_nothing_says_so(tmp_path, comment, count):
    source = "import torch\nfrom torch import nn\n\n\n" + inspect.getsource(Learner).replace("blocked", "mask")
    (tmp_path / "learner.py").write_text(source.replace("mask=None):", f"mask=None):{comment}"), encoding="utf-8")
    notes = said(f"{tmp_path / 'learner.py'}:Learner", "note")
    assert [each.kind for each in notes] == ["mask-polarity"] * count
    assert all(each.what.startswith("True masks a key in mask, as in nn.MultiheadAttention") for each in notes)
    assert all("masked_fill(mask" in each.source for each in notes)


def test_a_change_in_place_that_breaks_the_backward_is_told_as_one():
    (fault,) = said(InPlace, "fault")
    assert fault.kind == "inplace-breaks-backward"
    assert fault.what == "An in-place operation changes a tensor that the backward pass needs."
    assert fault.source.strip() == "weights += 0.0"


def test_assert_sound_wants_the_arguments_of_the_constructor_by_name():
    with pytest.raises(ArgumentError, match="by name"):
        assert_sound(InPlace, init={"dim": 8})


def test_assert_sound_says_what_the_doctor_says():
    with pytest.raises(
        SoundnessError, match=r"(?s)InPlace: faulty.*fault: inplace-breaks-backward.*\^\^\^.*Why: .*Fix: "
    ):
        assert_sound(InPlace)


def test_a_plain_tensor_that_a_module_is_moved_without_is_noted():
    body = """
    s = (q @ k.mT * self.part ** -0.5).masked_fill({hidden}[:long, :long], float("-inf"))
    y = s.softmax(-1) @ v
    """
    made = "{kept}torch.ones(99, 99, dtype=torch.bool).triu(1){end}"
    ways = {
        "kept": ("self.late = ", "", "self.late"),
        "brought along": ("self.late = ", "", "self.late.to(x.device)"),
        "a buffer": ('self.register_buffer("late", ', ")", "self.late"),
    }
    said = {}
    for name, (kept, end, hidden) in ways.items():
        source = HEAD + attend(made.format(kept=kept, end=end), body.format(hidden=hidden))
        found = found_in(source.replace("self.part = ", "assert not width % num_heads; self.part = "))
        assert found.verdict == "sound"
        said[name] = [(each.kind, each.severity, each.line == line_of(source, "late")) for each in found.findings]
    assert said == {"kept": [("buffer-unregistered", "note", True)], "brought along": [], "a buffer": []}
