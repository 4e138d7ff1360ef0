"""When and how the weights of Keras' drop-ins are made: dtypes, casts before the first call, loading before it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from headwise.compat import keras as ours
from headwise.compat.keras import from_keras
from headwise.errors import ArgumentError, ConversionError
from headwise.testing import assert_within_budget
from tests.compat.agreement import randn
from tests.compat.keras.oracle import keras_on_torch

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")
Q, V = randn(2, 5, 8, seed=1), randn(2, 7, 8, seed=2)
LAYERS: dict[str, Callable[..., nn.Module]] = {
    "MultiHeadAttention": lambda **options: ours.MultiHeadAttention(2, 3, **options),
    "GroupQueryAttention": lambda **options: ours.GroupQueryAttention(3, 4, 2, **options),
    "AdditiveAttention": ours.AdditiveAttention,
}
MOVES: dict[str, tuple[Callable[[nn.Module], nn.Module], torch.dtype]] = {
    "half": (lambda m: m.half(), torch.float16),
    "double": (lambda m: m.double(), torch.float64),
    "float": (lambda m: m.float(), torch.float32),
    "to a dtype": (lambda m: m.to(torch.bfloat16), torch.bfloat16),
    "twice": (lambda m: m.double().to("cpu").float(), torch.float32),
    "inside a model": (lambda m: nn.Sequential(m).double()[0], torch.float64),
}


def call(layer: nn.Module, q: Tensor, v: Tensor) -> Tensor:
    out: Tensor = layer(q, v) if hasattr(layer, "names") else layer([q, v])
    return out


def made(layer: Any) -> nn.Module:
    """The layer with its weights, made without a query."""
    layer.build(*([(2, 5, 8)] * 2 if hasattr(layer, "names") else [8]))
    whole: nn.Module = layer
    return whole


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("name", LAYERS)
def test_a_cast_before_the_first_call_is_kept(name: str, move: str) -> None:
    moved, dtype = MOVES[move]
    called, built = moved(LAYERS[name]()), made(moved(LAYERS[name]()))
    assert call(called, Q.to(dtype), V.to(dtype)).dtype is dtype
    for layer in (called, built):
        assert {weight.dtype for weight in layer.parameters()} == {dtype}


@pytest.mark.parametrize("name", LAYERS)
def test_without_a_word_the_first_query_says_the_dtype_and_a_move_leaves_it_open(name: str) -> None:
    for dtype in (torch.float64, torch.bfloat16):
        layer = LAYERS[name]().to("cpu")
        assert call(layer, Q.to(dtype), V.to(dtype)).dtype is dtype
    called, built = LAYERS[name]().to("meta"), made(LAYERS[name]().to("meta"))
    assert call(called, Q.to("meta"), V.to("meta")).device.type == "meta"
    for layer in (called, built):
        assert {weight.device.type for weight in layer.parameters()} == {"meta"}


def test_an_input_in_another_dtype_than_the_weights_is_refused_but_under_autocast() -> None:
    layer = ours.MultiHeadAttention(2, 3, dtype=torch.float32)
    with pytest.raises(ArgumentError, match=r"query must be in the dtype of the weights, torch\.float32, but "):
        layer(Q, V)
    with pytest.raises(ArgumentError, match=r"value must be in the dtype .* torch\.float16 came"):
        layer(Q.float(), V.half())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(Q.half(), V.float()).dtype is torch.bfloat16
    with pytest.raises(ArgumentError, match=r"first query, which must be floating, but torch\.int64 came"):
        ours.MultiHeadAttention(2, 3)(Q.long(), V.long())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["MultiHeadAttention", "GroupQueryAttention", "AdditiveAttention"])
def test_halves_of_keras_go_there_and_back(name: str, dtype: str) -> None:
    layers, half = keras_on_torch().layers, getattr(torch, dtype)
    sizes: dict[str, tuple[int, ...]] = {"MultiHeadAttention": (2, 3), "GroupQueryAttention": (3, 4, 2)}
    theirs = getattr(layers, name)(*sizes.get(name, ()), dtype=dtype)
    q, v = Q.to(half), V.to(half)
    options = {"return_attention_scores": True}
    given = [[q, v]] if name == "AdditiveAttention" else [q, v]
    theirs(*given)
    layer: Any = from_keras(theirs)
    assert {weight.dtype for weight in layer.parameters()} == {half}
    exact: Any = LAYERS[name](dtype=torch.float64)
    exact.load_keras_weights([np.asarray(array, dtype=np.float64) for array in layer.keras_weights()])
    wide = [[q.double(), v.double()]] if name == "AdditiveAttention" else [q.double(), v.double()]
    for got, wanted, plain in zip(
        layer(*given, **options), exact(*wide, **options), theirs(*given, **options), strict=True
    ):
        assert got.dtype is plain.dtype is half
        assert_within_budget(got.detach(), wanted.detach(), plain.detach())
    before = [np.asarray(array, dtype=np.float32) for array in theirs.get_weights()]
    theirs.set_weights(layer.keras_weights())
    after = [np.asarray(array, dtype=np.float32) for array in theirs.get_weights()]
    assert all(np.array_equal(*pair) for pair in zip(before, after, strict=True))


@pytest.mark.parametrize("name", LAYERS)
def test_weights_loaded_before_the_first_call_keep_their_dtype(name: str) -> None:
    source: Any = LAYERS[name](dtype=torch.float64)
    wanted = call(source, Q, V)
    by_arrays, by_state = LAYERS[name](), LAYERS[name]()
    by_arrays.load_keras_weights(source.keras_weights())  # type: ignore[operator]
    by_state.load_state_dict(source.state_dict())
    narrow = LAYERS[name]().float()
    narrow.load_state_dict(source.state_dict())
    assert torch.equal(call(by_arrays, Q, V), wanted)
    assert torch.equal(call(by_state, Q, V), wanted)
    assert call(narrow, Q.float(), V.float()).dtype is torch.float32


@pytest.mark.parametrize("name", LAYERS)
def test_a_state_dict_that_lacks_the_weights_does_not_load_in_silence(name: str) -> None:
    key = "scale" if name == "AdditiveAttention" else "query.weight"
    assert key in LAYERS[name]().load_state_dict({}, strict=False).missing_keys
    with pytest.raises(RuntimeError, match=key):
        nn.ModuleDict({"attn": LAYERS[name]()}).load_state_dict({})
    ours.AdditiveAttention(use_scale=False).load_state_dict({})


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (lambda: ours.MultiHeadAttention(2, 3).keras_weights(), "MultiHeadAttention has no weights yet: call it once"),
        (lambda: ours.MultiHeadAttention(2, 3).load_keras_weights(5), "must be a list of arrays, .* but int came"),
        (lambda: ours.AdditiveAttention().load_keras_weights([[1.0]]), r"must be a list of arrays.* but list came"),
    ],
)
def test_weights_that_are_none_are_refused(use: Callable[[], object], words: str) -> None:
    with pytest.raises(ConversionError, match=words):
        use()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"output_shape": 0}, "got output_shape=0"),
        ({"output_shape": (3, -1)}, "got output_shape=-1"),
        ({"output_shape": "ab"}, "got output_shape='ab'"),
        ({"sliding_window": True}, "sliding_window counts keys, .* got True"),
        ({"attention_axes": "x"}, r"attention_axes must name axes of 1\.\.1 .* but came as x"),
        ({"attention_axes": ("x",)}, "attention_axes must name axes"),
    ],
)
def test_shapes_and_axes_that_are_no_numbers_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        ours.MultiHeadAttention(2, 3, **options)(Q, V)
