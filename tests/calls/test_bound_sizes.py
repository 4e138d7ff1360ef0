"""Sizes that hang together: windows that must divide an image, tables that are as long as it, shares of a head."""

import pytest

from headwise.calls.finder import find
from tests.calls.styles import windowed


def best(target, **given):
    return find(target, namespace=vars(windowed), **given).plans[0]


def sizes_of(plan, *names):
    return [plan.sizes(-1)[name] for name in names]


def test_windows_of_any_name_divide_both_sides_of_an_image():
    plan = best(windowed.Tiles)
    height, width, side = sizes_of(plan, "h", "w", "patchwork")
    assert (height % side, width % side) == (0, 0)
    assert side < height != width > side
    assert plan.init["dim_head"] == "d"


def test_windows_are_shifted_by_half_of_one():
    side, shift = sizes_of(best(windowed.Shifts), "window_size", "shift_size")
    assert shift == side // 2 > 0


@pytest.mark.parametrize("window", [[2, 4], [3, 5]])
def test_a_window_that_a_person_gives_has_a_class_token_where_its_table_has_one(window):
    plan = best(windowed.Table, init={"dim": 24, "num_heads": 3, "window_size": window})
    assert sizes_of(plan, "L") == [window[0] * window[1] + 1]


def test_pairs_of_tokens_have_as_many_rows_as_columns():
    assert best(windowed.Pairs).call["z"] == ["B", "L", "L", "D"]


def test_a_share_of_a_head_is_less_than_all_of_it():
    assert best(windowed.Partly).init["turned_pct"] == 0.5


def test_positions_that_keys_must_have_are_as_long_as_these():
    assert best(windowed.Placed).call == {"x": ["B", "L", "D"], "memory": ["B", "S", "D"], "pos": ["B", "S", "D"]}


def test_a_shape_that_a_part_tells_of_its_argument_is_that_of_the_whole():
    plan = best(windowed.Step)
    assert plan.call["hidden"] == [1, "B", "dec_dim"]
    assert (plan.call["encoder_outputs"][0], plan.call["encoder_outputs"][2]) == ("B", "enc_dim")


def test_tokens_of_an_image_stand_behind_as_many_as_the_class_has_before_them():
    length, height, width = sizes_of(best(windowed.Registers), "L", "h", "w")
    assert length == 5 + height * width
    assert height != width


def test_a_width_that_must_be_divided_by_four_is_of_even_heads_and_even_widths():
    plan = best(windowed.Quartered)
    assert all(plan.sizes(probe)["D"] % 4 == 0 for probe in range(4))
    assert any(plan.sizes(probe)["H"] != 8 for probe in range(4))


def test_a_size_of_a_constructor_is_a_multiple_of_the_one_that_must_divide_it():
    length, patch = sizes_of(best(windowed.Patches), "seq_len", "patch_len")
    assert length % patch == 0
    assert length > patch > 1


def test_channels_of_a_convolution_stand_before_the_tokens():
    assert best(windowed.Spectra).call == {"x": ["B", "80", "L"]}


def test_a_window_that_is_one_number_by_default_is_one_whatever_a_class_inside_takes():
    plan = best(windowed.Scalar)
    height, width, side = sizes_of(plan, "input_resolution_h", "input_resolution_w", "window_size")
    assert plan.init["window_size"] == "window_size"
    assert (height % side, width % side) == (0, 0)


def test_heads_by_default_divide_no_width_but_their_own():
    plan = best(windowed.Grouped)
    assert max(plan.sizes(probe)["d"] for probe in range(4)) < 24
    assert all(plan.sizes(probe)["D"] == plan.sizes(probe)["H"] * plan.sizes(probe)["d"] for probe in range(4))


def test_channels_of_a_norm_are_as_many_as_a_class_has_by_default():
    assert best(windowed.Normed).call["x"] == ["B", "32", "h", "w"]


def test_an_input_that_stands_beside_others_is_as_wide_as_what_is_left_of_the_weights():
    assert best(windowed.Beside).call == {"places": ["B", "L", 3], "feats": ["B", "L", "feat_dim"]}
