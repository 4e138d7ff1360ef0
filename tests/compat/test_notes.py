"""The layers of the notes bear the notes' names and keys, give the numbers of their formulas, and lack their faults."""

import inspect
import math

import pytest
import torch
from torch import Tensor, nn

import headwise as hw
from headwise.compat import notes
from headwise.compat.notes import NOTES, note_000, note_002, note_003, note_004
from headwise.errors import ArgumentError, MaskError, ShapeError
from tests.compat.agreement import Weights, assert_agrees, randn
from tests.examples import ROOT

B, H, LQ, LK, WIDTH = 2, 3, 5, 7, 12
ROWS = {note.number: note for note in NOTES}
MAKE = {
    "000": lambda **more: note_000.MultiHeadAttention(WIDTH, H, **more),
    "002": lambda **more: note_002.MultiHeadAttention(WIDTH, H, **more),
    "003": lambda **more: note_003.MultiHeadAttention(WIDTH, WIDTH, WIDTH, WIDTH, H, 0.5, **more),
    "004": lambda **more: note_004.MultiHeadedAttention(H, WIDTH, **more),
}


def inputs() -> list[Tensor]:
    return [randn(B, LQ, WIDTH, seed=1), randn(B, LK, WIDTH, seed=2), randn(B, LK, WIDTH, seed=3)]


def by_heads(weights: Weights, number: str, xs: tuple[Tensor, ...], allowed: Tensor | None) -> Tensor:
    """softmax(q kᵀ / sqrt(d)) v head by head, with the weights of a note's row; allowed (B, 1, H | 1, L, S)."""
    names = ROWS[number].projections

    def linear(name: str, x: Tensor) -> Tensor:
        return x @ weights[f"{name}.weight"].T + weights.get(f"{name}.bias", 0)

    q, k, v = (linear(name, x).chunk(H, dim=-1) for name, x in zip(names, xs, strict=False))
    mixed = []
    for h in range(H):
        scores = q[h] @ k[h].mT / math.sqrt(WIDTH // H)
        if allowed is not None:
            scores = scores.masked_fill(~allowed.expand(B, H, LQ, LK)[:, h], -math.inf)
        mixed.append(torch.softmax(scores, dim=-1) @ v[h])
    return linear(names[3], torch.cat(mixed, dim=-1))


@pytest.mark.parametrize("number", ROWS)
def test_a_layer_bears_the_names_of_its_row(number):
    note, layer = ROWS[number], MAKE[number]()
    assert type(layer).__name__ == note.class_name
    assert type(layer) is getattr(getattr(notes, f"note_{number}"), note.class_name)
    assert tuple(inspect.signature(type(layer)).parameters) == note.takes
    assert tuple(inspect.signature(layer.forward).parameters) == note.forward
    parts = ("weight", "bias") if note.has_bias else ("weight",)
    assert list(layer.state_dict()) == [f"{name}.{part}" for name in note.projections for part in parts]
    assert any(isinstance(module, nn.Dropout) for module in layer.modules()) is note.has_dropout


@pytest.mark.parametrize("number", ["000", "002", "003"])
def test_a_new_layer_begins_with_the_weights_that_the_note_would_draw(number):
    torch.manual_seed(5)
    wanted = [nn.Linear(WIDTH, WIDTH, bias=ROWS[number].has_bias) for _ in range(4)]
    torch.manual_seed(5)
    layer = MAKE[number]()
    for name, linear in zip(ROWS[number].projections, wanted, strict=True):
        assert torch.equal(layer.get_submodule(name).weight, linear.weight)


PADDING = torch.arange(LK)[None, None, None] < torch.tensor([3, 6])[:, None, None, None]
EACH = randn(B, H, LQ, LK, seed=4) > -0.5


@pytest.mark.parametrize(
    "mask", [None, PADDING, EACH, EACH[:1, :1], EACH[0, 0], EACH[0, :1].int(), EACH[0, 0].double()]
)
def test_note_000_gives_its_numbers_once_mended(mask):
    layer = note_000.MultiHeadAttention(WIDTH, H, dropout=0.0)
    allowed = None if mask is None else mask != 0
    assert_agrees(layer, lambda w, q, k, v, _: by_heads(w, "000", (q, k, v), allowed), inputs(), mask)


def test_note_000_takes_a_mask_of_headwise():
    q, k, v = (x.float() for x in inputs())
    layer = MAKE["000"]().eval()
    assert torch.equal(layer(q, k, v, hw.causal()), layer(q, k, v, hw.causal().allowed(LQ, LK)))


def test_note_002_gives_its_numbers():
    assert_agrees(MAKE["002"](), lambda w, x: by_heads(w, "002", (x, x, x), None), inputs()[:1])


@pytest.mark.parametrize("lens", [None, torch.tensor([3, 6])])
def test_note_003_gives_its_numbers(lens):
    layer = MAKE["003"](bias=True).eval()
    allowed = None if lens is None else PADDING
    assert_agrees(layer, lambda w, q, k, v, _: by_heads(w, "003", (q, k, v), allowed), inputs(), lens)
    x = randn(B, LQ, WIDTH)
    assert torch.equal(layer.transpose_output(layer.transpose_qkv(x, 4), 4), x)
    assert torch.equal(layer.transpose_qkv(x), layer.transpose_qkv(x, H))


@pytest.mark.parametrize("mask", [None, PADDING[:, 0], EACH[:, 0].int()])
def test_note_004_gives_its_numbers_once_mended(mask):
    layer = note_004.MultiHeadedAttention(H, WIDTH, dropout=0.0)
    allowed = None if mask is None else (mask != 0)[:, None]
    assert_agrees(layer, lambda w, q, k, v, _: by_heads(w, "004", (q, k, v), allowed), inputs(), mask)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_query_of_note_000_that_may_attend_to_nothing_gets_the_bias_alone(dtype):
    layer = MAKE["000"]().eval().to(dtype)
    mask = torch.ones(LQ, LK)
    mask[1] = 0
    out = layer(*(x.to(dtype) for x in inputs()), mask)
    assert torch.equal(out[:, 1], layer.o_proj.bias.expand(B, -1))
    assert out.isfinite().all()


def test_dropout_works_in_training_only():
    q, k, v = (x.float() for x in inputs())
    layer = MAKE["000"]()
    assert not torch.equal(layer(q, k, v), layer(q, k, v))
    layer.eval()
    assert torch.equal(layer(q, k, v), layer(q, k, v))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: note_000.MultiHeadAttention(512, 7), "num_heads=7 must divide model_dim=512"),
        (lambda: note_002.MultiHeadAttention(768, 0), "1 or more; got num_heads=0"),
        (lambda: note_003.MultiHeadAttention(8, 8, 8, 8, 3, 0.1), "num_heads=3 must divide num_hiddens=8"),
        (lambda: note_004.MultiHeadedAttention(5, 12), "h=5 must divide d_model=12"),
    ],
)
def test_heads_that_do_not_divide_are_refused_when_the_layer_is_made(make, words):
    with pytest.raises(ArgumentError, match=words):
        make()


def test_masks_and_inputs_that_do_not_fit_are_refused():
    q, k, v = (x.float() for x in inputs())
    with pytest.raises(MaskError, match=r"mask must be \(B, h, Lq, Lk\) or \(Lq, Lk\), but came as \(2, 5, 7\)"):
        MAKE["000"]()(q, k, v, torch.ones(B, LQ, LK))
    with pytest.raises(MaskError, match=r"Lq=5, Lk=7"):
        MAKE["000"]()(q, k, v, torch.ones(B, LK))
    with pytest.raises(ShapeError, match=r"X must be \(B, L, hidden_dim=12\), but came as \(5, 12\)"):
        MAKE["002"]()(q[0])
    with pytest.raises(TypeError, match="biass"):
        MAKE["003"](biass=True)


def test_the_page_on_the_notes_lists_every_row():
    page = (ROOT / "docs" / "notes.md").read_text(encoding="utf-8")
    for note in NOTES:
        assert f"## Note {note.number}" in page
        keys = ", ".join(f"`{name}`" for name in note.projections)
        assert f"| {note.number} | `{note.class_name}({', '.join(note.takes)})` | {keys} |" in page
