"""Drop-ins say in one sentence what is wrong with a size or an input, where torch would speak of matrices."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from headwise.compat import annotated, d2l, keras
from headwise.compat.notes import note_000, note_002, note_004
from headwise.errors import ArgumentError, ShapeError
from tests.compat.agreement import randn

B, LQ, LK, WIDTH = 2, 5, 7, 12
Call = Callable[[Tensor, Tensor], object]


def built_keras() -> torch.nn.Module:
    layer = keras.MultiHeadAttention(3, 4)
    layer.build((B, LQ, WIDTH), (B, LK, WIDTH))
    return layer


CALLS: dict[str, tuple[str, Call]] = {
    "d2l": ("queries", lambda q, k: d2l.MultiHeadAttention(WIDTH, WIDTH, WIDTH, WIDTH, 3, 0.0)(q, k, k, None)),
    "d2l's additive one": ("queries", lambda q, k: d2l.AdditiveAttention(WIDTH, WIDTH, 8, 0.0)(q, k, k, None)),
    "annotated": ("query", lambda q, k: annotated.MultiHeadedAttention(3, WIDTH)(q, k, k)),
    "note 000": ("q", lambda q, k: note_000.MultiHeadAttention(WIDTH, 3)(q, k, k)),
    "note 002": ("X", lambda q, k: note_002.MultiHeadAttention(WIDTH, 3)(q)),
    "note 004": ("query", lambda q, k: note_004.MultiHeadedAttention(3, WIDTH)(q, k, k)),
    "keras": ("query", lambda q, k: built_keras()(q, k)),
}


@pytest.mark.parametrize("given", [None, [[1.0]], torch.zeros(B, LQ, WIDTH).numpy()], ids=["None", "list", "array"])
@pytest.mark.parametrize("name", [*CALLS, "keras' Attention", "d2l's dot products", "the function attention"])
def test_what_is_no_tensor_is_refused_by_its_name(name: str, given: object) -> None:
    alone: dict[str, tuple[str, Call]] = {
        "keras' Attention": ("query", lambda q, k: keras.Attention()([q, k])),
        "d2l's dot products": ("queries", lambda q, k: d2l.DotProductAttention(0.0)(q, k, k)),
        "the function attention": ("query", lambda q, k: annotated.attention(q, k, k)),
    }
    argument, call = (CALLS | alone)[name]
    with pytest.raises(ArgumentError, match=f"^{argument} must be a tensor, but {type(given).__name__} came"):
        call(given, randn(B, LK, WIDTH).float())  # type: ignore[arg-type]


@pytest.mark.parametrize("name", CALLS)
def test_an_input_of_another_width_is_refused_with_the_width_it_should_have(name: str) -> None:
    argument, call = CALLS[name]
    call(randn(B, LQ, WIDTH).float(), randn(B, LK, WIDTH).float())
    with pytest.raises(ShapeError, match=rf"^{argument} must be \(.*=12\), but came as \(2, 5, 9\)"):
        call(randn(B, LQ, 9).float(), randn(B, LK, WIDTH).float())


def test_a_lazy_layer_takes_any_width_once() -> None:
    layer = d2l.MultiHeadAttention(WIDTH, 3, 0.0)
    layer(randn(B, LQ, 9).float(), randn(B, LK, 8).float(), randn(B, LK, 7).float(), None)
    with pytest.raises(ShapeError, match=r"^keys must be \(B=2, L, width=8\), but came as \(2, 7, 9\)"):
        layer(randn(B, LQ, 9).float(), randn(B, LK, 9).float(), randn(B, LK, 7).float(), None)


@pytest.mark.parametrize("dropout", ["a", None, True, -0.5, 1.5, float("nan")])
def test_a_dropout_that_is_no_chance_is_refused(dropout: object) -> None:
    for make in (
        lambda: d2l.DotProductAttention(dropout),  # type: ignore[arg-type]
        lambda: annotated.MultiHeadedAttention(3, 12, dropout),  # type: ignore[arg-type]
        lambda: note_000.MultiHeadAttention(12, 3, dropout),  # type: ignore[arg-type]
        lambda: keras.MultiHeadAttention(3, 4, dropout=dropout),  # type: ignore[arg-type]
    ):
        with pytest.raises(ArgumentError, match=rf"must lie in 0\.\.1; got {dropout!r}"):
            make()


@pytest.mark.parametrize("heads", ["3", 3.0, True, 0, -1])
def test_heads_that_are_no_count_are_refused(heads: object) -> None:
    for name, make in (
        ("num_heads", lambda: d2l.MultiHeadAttention(12, heads, 0.0)),  # type: ignore[call-overload]
        ("h", lambda: annotated.MultiHeadedAttention(heads, 12)),  # type: ignore[arg-type]
        ("num_heads", lambda: note_002.MultiHeadAttention(12, heads)),  # type: ignore[arg-type]
        ("num_heads", lambda: keras.MultiHeadAttention(heads, 4)),  # type: ignore[arg-type]
    ):
        with pytest.raises(ArgumentError, match=f"^{name} counts heads or features.* got {name}={heads!r}"):
            make()


def test_the_functions_of_the_books_refuse_what_they_cannot_split() -> None:
    with pytest.raises(ShapeError, match=r"num_heads=4 must divide the width of X, but it came as \(2, 3, 10\)"):
        d2l.transpose_qkv(torch.zeros(2, 3, 10), 4)
    with pytest.raises(ShapeError, match=r"num_heads=4 must divide the first axis of X, but it came as \(10, 3, 2\)"):
        d2l.transpose_output(torch.zeros(10, 3, 2), 4)
    with pytest.raises(ShapeError, match=r"X must be \(B, L, num_hiddens\), but came as \(3, 10\)"):
        d2l.transpose_qkv(torch.zeros(3, 10), 5)
    with pytest.raises(ArgumentError, match=r"scores must be floating, but torch\.int64 came"):
        d2l.masked_softmax(torch.zeros(2, 3, 4, dtype=torch.int64), None)
    with pytest.raises(ArgumentError, match=r"dropout is called with the weights, but 0\.5 came: give nn\.Dropout"):
        annotated.attention(*[torch.zeros(2, 3, 4)] * 3, dropout=0.5)  # type: ignore[arg-type]
