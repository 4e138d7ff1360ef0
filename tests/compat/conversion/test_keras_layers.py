"""Layers of Keras: their kernels become Linears, proved against the layer itself."""

import pytest
import torch

import headwise as hw
from headwise.errors import ConversionError
from tests.compat.keras.oracle import keras_on_torch

pytestmark = pytest.mark.needs("keras")


def built(kind, *widths, **options):
    """A layer of Keras with random weights for queries, values and keys of these widths."""
    layer = getattr(keras_on_torch().layers, kind)(**options)
    layer(*(torch.randn(2, 4 + (n > 0), width) for n, width in enumerate(widths)))
    for n, weight in enumerate(layer.weights):
        weight.assign(torch.randn(*weight.shape, generator=torch.Generator().manual_seed(n)))
    return layer


LAYERS = {
    "one width": ("MultiHeadAttention", (8, 8), {"num_heads": 3, "key_dim": 5}),
    "every width": (
        "MultiHeadAttention",
        (8, 10, 9),
        {"num_heads": 3, "key_dim": 5, "value_dim": 7, "output_shape": 11},
    ),
    "no bias": ("MultiHeadAttention", (8, 6), {"num_heads": 2, "key_dim": 5, "use_bias": False}),
    "grouped": ("GroupQueryAttention", (8, 8), {"head_dim": 5, "num_query_heads": 6, "num_key_value_heads": 2}),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_keras_layer_is_proved_against_itself_and_given_back(name):
    kind, widths, options = LAYERS[name]
    layer = built(kind, *widths, **options)
    before = [weight.value.clone() for weight in layer.weights]
    done = hw.compat.convert(layer)
    assert (done.report.convention, done.report.proved, done.report.against) == ("keras", True, "the module")
    assert done.report.largest < 1e-11
    assert all(torch.equal(old, weight.value) for old, weight in zip(before, layer.weights, strict=True))
    back = hw.compat.to_state_dict(done.layer, "keras")
    theirs = {"/".join(weight.path.split("/")[-2:]): weight.value for weight in layer.weights}
    assert back.keys() == theirs.keys()
    assert all(torch.equal(back[key], theirs[key]) for key in theirs)


@pytest.mark.parametrize("name", LAYERS)
def test_weights_by_their_paths_are_proved_against_the_formula(name):
    kind, widths, options = LAYERS[name]
    layer = built(kind, *widths, **options)
    weights = {weight.path: weight.value.detach() for weight in layer.weights}
    report = hw.compat.convert(weights).report
    assert (report.convention, report.proved, report.against) == ("keras", True, "the formula")


def test_what_the_layer_has_not_is_refused():
    with pytest.raises(ConversionError, match=r"gate/kernel \(8, 3, 5\), but the gate multiplies the output"):
        hw.compat.convert(built("MultiHeadAttention", 8, 8, num_heads=3, key_dim=5, use_gate=True))
    with pytest.raises(ConversionError, match="never built: call it once"):
        hw.compat.convert(keras_on_torch().layers.MultiHeadAttention(num_heads=3, key_dim=5))
    layer = built("MultiHeadAttention", 8, 8, num_heads=3, key_dim=5)
    with pytest.raises(ConversionError, match=r"num_heads must be the 3 of query/kernel, but 4 came"):
        hw.compat.convert(layer, num_heads=4)


def test_a_window_is_left_to_the_mask_and_the_report_says_which():
    layer = built("MultiHeadAttention", 8, 8, num_heads=3, key_dim=5, sliding_window=3)
    done = hw.compat.convert(layer)
    assert done.report.mask == "hw.window(before=2, after=2)"
    x = torch.randn(2, 9, 8)
    ours = done.layer(x, mask=hw.window(before=2, after=2))
    torch.testing.assert_close(ours, layer(x, x), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", LAYERS)
def test_the_drop_in_for_keras_is_proved_against_itself_and_given_back(name):
    kind, widths, options = LAYERS[name]
    theirs = getattr(hw.compat.keras, kind)(**options)
    theirs(*(torch.randn(2, 4 + (n > 0), width) for n, width in enumerate(widths)))
    done = hw.compat.convert(theirs)
    assert (done.report.convention, done.report.proved, done.report.against) == ("keras_linears", True, "the module")
    assert done.report.largest < 1e-11
    back = hw.compat.to_state_dict(done.layer, "keras_linears")
    assert back.keys() == theirs.state_dict().keys()
    assert all(torch.equal(back[key], weight) for key, weight in theirs.state_dict().items())


def test_the_window_of_the_drop_in_is_left_to_the_mask_and_kept_where_it_came_from():
    theirs = hw.compat.keras.MultiHeadAttention(num_heads=3, key_dim=5, sliding_window=3).eval()
    x = torch.randn(2, 9, 8)
    wanted = theirs(x, x)
    done = hw.compat.convert(theirs)
    assert (done.report.mask, theirs.sliding_window) == ("hw.window(before=2, after=2)", 3)
    torch.testing.assert_close(done.layer(x, mask=hw.window(before=2, after=2)), wanted)


def test_a_drop_in_with_a_gate_or_an_output_of_several_axes_is_refused():
    x = torch.randn(2, 9, 8)
    gated = hw.compat.keras.MultiHeadAttention(num_heads=3, key_dim=5, use_gate=True)
    gated(x, x)
    with pytest.raises(ConversionError, match=r"gate.weight \(15, 8\), but the gate multiplies the output"):
        hw.compat.convert(gated)
    square = hw.compat.keras.MultiHeadAttention(num_heads=3, key_dim=5, output_shape=(2, 3))
    square(x, x)
    with pytest.raises(ConversionError, match=r"output_shape must be one width, but \(2, 3\) came"):
        hw.compat.convert(square)
