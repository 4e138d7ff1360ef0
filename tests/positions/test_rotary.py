"""The laws of rotary embeddings, against their formula in float64."""

import math
import pickle
from dataclasses import FrozenInstanceError

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headwise.errors import ArgumentError, ShapeError
from headwise.positions import LinearScaling, Llama3Scaling, NTKScaling, Rotary, YarnScaling
from headwise.testing import assert_within_budget
from tests.positions.rotations import ROTARIES, B, D, H, L, assert_same, complex_rotation, fifty_digit_tables, heads

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
NAMES = {scaling.__name__: scaling for scaling in (LinearScaling, Llama3Scaling, NTKScaling, YarnScaling)}

specs = st.sampled_from(list(ROTARIES.values()))
places = st.lists(st.integers(-1_000_000, 1_000_000), min_size=L, max_size=L).map(torch.tensor)
shifts = st.integers(-1_000_000, 1_000_000)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("spec", ROTARIES.values(), ids=ROTARIES)
@pytest.mark.parametrize("start", [0, 131_072, -131_072])
def test_equals_the_complex_formula_but_for_one_rounding(spec, dtype, start):
    x, positions = heads(dtype=dtype), torch.arange(start, start + 3 * L, 3)
    exact = complex_rotation(x, positions, spec)
    assert_within_budget(spec.build(D)(x, positions), exact, exact.to(dtype))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("spec", ROTARIES.values(), ids=ROTARIES)
def test_narrow_numbers_are_turned_in_float32_and_rounded_once(spec, dtype):
    x, positions, rotary = heads(dtype=dtype), torch.arange(L) + 50_000, spec.build(D)
    assert torch.equal(rotary(x, positions), rotary(x.float(), positions).to(dtype))


@pytest.mark.parametrize("start", [0, 1_000_000], ids=["near", "far"])
def test_in_float64_the_tables_are_as_right_as_float64_can_be(start):
    positions = torch.arange(start, start + 7 * L, 7)
    cos, sin = Rotary().build(D).tables(positions, torch.float64)
    exact_cos, exact_sin = fifty_digit_tables(positions.tolist(), 10000, D)
    # the largest angle, in radians, is itself only so exact
    spacing = math.ulp(positions.max().item())
    assert (cos - exact_cos.repeat(1, 2)).abs().max() <= 2 * spacing
    assert (sin - torch.cat((-exact_sin, exact_sin), dim=-1)).abs().max() <= 2 * spacing


@pytest.mark.parametrize("spec", ROTARIES.values(), ids=ROTARIES)
def test_a_float64_tensor_is_turned_in_float64(spec):
    x, positions = heads(), torch.arange(L)
    exact = complex_rotation(x, positions, spec)
    assert_within_budget(spec.build(D)(x, positions), exact, exact)


@given(specs, places)
def test_the_length_of_a_head_is_kept_or_multiplied_by_the_amplitude(spec, positions):
    x = heads(dtype=torch.float32)
    amplitude = 1.0 if spec.scaling is None else spec.scaling.amplitude
    exact = x.double().norm(dim=-1) * amplitude
    assert_within_budget(spec.build(D)(x, positions).double().norm(dim=-1).float(), exact, exact.float())


@given(specs, shifts)
def test_scores_depend_only_on_the_distance(spec, shift):
    q, k = heads(seed=1, dtype=torch.float32), heads(seed=2, dtype=torch.float32)
    positions, rotary = torch.arange(L), spec.build(D)

    def scores(turn, places):
        return turn(q, places).double() @ turn(k, places).double().transpose(-1, -2)

    exact = scores(lambda x, places: complex_rotation(x, places, spec), positions)
    near, moved = scores(rotary, positions), scores(rotary, positions + shift)
    assert_within_budget(moved.float(), exact, near.float())


@given(st.sampled_from([2, 4, 10, 12]), places)
def test_the_pairings_differ_by_the_order_of_features_alone(dim, positions):
    x = heads()
    order = torch.cat((torch.arange(dim).view(-1, 2).t().flatten(), torch.arange(dim, D)))
    half = Rotary(dim=dim).build(D)(x[..., order], positions)
    interleaved = Rotary(dim=dim, pairing="interleaved").build(D)(x, positions)
    assert_same(half, interleaved[..., order])


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float64], ids=str)
@pytest.mark.parametrize("name", [name for name in ROTARIES if name != "yarn"])
def test_position_zero_changes_not_a_bit(name, dtype):
    x = heads(dtype=dtype)
    assert torch.equal(ROTARIES[name].build(D)(x, torch.zeros(L, dtype=torch.long)), x)


@given(st.sampled_from([2, 4, 8, 10]), st.sampled_from(["half", "interleaved"]), st.sampled_from(DTYPES), places)
def test_features_beyond_dim_keep_every_bit(dim, pairing, dtype, positions):
    x = heads(dtype=dtype)
    x[0, 0, 0, -1], x[0, 0, 1, -1] = float("nan"), -0.0
    turned = Rotary(dim=dim, pairing=pairing).build(D)(x, positions)
    assert torch.equal(turned[..., dim:].view(torch.int16), x[..., dim:].view(torch.int16))
    assert not turned[..., :dim].isnan().any()


@given(specs, places, places)
def test_a_row_of_positions_for_each_sample_turns_each_as_if_alone(spec, first, second):
    x, rotary = heads(dtype=torch.float32), spec.build(D)
    together = rotary(x, torch.stack((first, second)))
    assert_same(together, torch.cat((rotary(x[:1], first), rotary(x[1:], second))))


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float64], ids=str)
@pytest.mark.parametrize("whole", [torch.int64, torch.int32, torch.uint8], ids=str)
def test_dtype_and_shape_are_kept_whatever_the_positions_are_counted_in(dtype, whole):
    x, rotary = heads(dtype=dtype), Rotary().build(D)
    turned = rotary(x, torch.arange(L, dtype=whole))
    assert (turned.dtype, turned.shape) == (dtype, x.shape)
    assert torch.equal(turned, rotary(x, torch.arange(L)))


def test_a_transposed_view_is_turned_as_its_copy():
    x, rotary = heads(B, L, H, D, dtype=torch.float32).transpose(1, 2), ROTARIES["interleaved"].build(D)
    assert_same(rotary(x, torch.arange(L)), rotary(x.contiguous(), torch.arange(L)))


@pytest.mark.parametrize("sizes", [(0, H, L, D), (B, H, 0, D), (B, H, 1, D)], ids=str)
@pytest.mark.parametrize("spec", ROTARIES.values(), ids=ROTARIES)
def test_no_samples_no_tokens_and_one_token_are_legal(spec, sizes):
    x, positions = heads(*sizes), torch.arange(sizes[2]) + 9
    exact = complex_rotation(x, positions, spec)
    assert_within_budget(spec.build(D)(x, positions), exact, exact)


def test_tables_serve_any_number_of_heads():
    rotary, positions = Rotary().build(D), torch.tensor([[4, 5, 6], [0, 1, 2]])
    q, k = heads(B, 6, 3, D, dtype=torch.float32), heads(B, 2, 3, D, dtype=torch.float32)
    cos, sin = rotary.tables(positions, q.dtype)
    assert torch.equal(rotary.rotate(q, cos, sin), rotary(q, positions))
    assert torch.equal(rotary.rotate(k, cos, sin), rotary(k, positions))


@pytest.mark.parametrize("spec", ROTARIES.values(), ids=ROTARIES)
def test_a_spec_pastes_back_pickles_compares_and_is_frozen(spec):
    assert eval(repr(spec), {"Rotary": Rotary, **NAMES}) == spec
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert spec != Rotary(base=1234.5)
    with pytest.raises(FrozenInstanceError, match="base"):
        spec.base = 1.0


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"dim": 7}, "dim must be even and at least 2, got dim=7"),
        ({"dim": 0}, "dim must be even and at least 2, got dim=0"),
        ({"base": 0.0}, "base > 0, got base=0.0"),
        ({"base": -3.0}, "base > 0, got base=-3.0"),
        ({"base": float("nan")}, "base > 0, got base=nan"),
        ({"pairing": "neox"}, '"half" .* "interleaved" .*; got \'neox\''),
        ({"scaling": 4.0}, "LinearScaling, NTKScaling, YarnScaling, Llama3Scaling or None, got 4.0"),
    ],
    ids=str,
)
def test_a_spec_that_cannot_be_meant_is_refused(given, sentence):
    with pytest.raises(ArgumentError, match=sentence):
        Rotary(**given)


def test_a_head_that_does_not_fit_is_refused():
    with pytest.raises(ArgumentError, match="head_dim=13 is not even"):
        Rotary().build(13)
    with pytest.raises(ArgumentError, match="dim=14 must be at most head_dim=12"):
        Rotary(dim=14).build(12)
    assert Rotary(dim=12).build(13)(heads(B, H, L, 13), torch.arange(L)).shape == (B, H, L, 13)


@pytest.mark.parametrize(
    ("sizes", "positions", "error", "sentence"),
    [
        ((B, H, L, 10), torch.arange(L), ShapeError, r"D=12 features a head, but came as \(2, 3, 5, 10\)"),
        ((B, H, L, D), torch.arange(1), ShapeError, "x has L=5, but there are positions for L=1"),
        ((1, H, L, D), torch.zeros(4, L).long(), ShapeError, "x has B=1, but there are positions for B=4"),
        ((B, H, L, D), torch.zeros(B, 1, L).long(), ShapeError, r"\(L,\) or \(B, L\), but came as \(2, 1, 5\)"),
        ((B, H, L, D), torch.arange(L) * 0.5, ArgumentError, "whole numbers, but came as torch.float32"),
        ((B, H, L, D), torch.ones(L).bool(), ArgumentError, "whole numbers, but came as torch.bool"),
    ],
    ids=["features", "length", "batch", "rank", "float", "bool"],
)
def test_what_does_not_fit_is_refused_with_its_numbers(sizes, positions, error, sentence):
    with pytest.raises(error, match=sentence):
        Rotary().build(D)(heads(*sizes), positions)
