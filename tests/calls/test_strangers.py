"""What a stranger's parameters and arguments are, where names or layouts mislead."""

import pytest

from headwise.calls.finder import find
from headwise.errors import InputError
from tests.calls.styles import strangers


def found(target, **given):
    return find(target, namespace=vars(strangers), **given)


def best(target):
    return found(target).plans[0]


def test_room_for_a_batch_is_a_size_of_its_own():
    plan = best(strangers.StreamingCache)
    assert plan.init == {
        "dim": "H*d", "n_heads": "H", "max_seq_len": "max_seq_len", "largest_batch": "largest_batch",
    }  # fmt: skip
    assert all(plan.sizes(probe)["largest_batch"] >= plan.sizes(probe)["B"] for probe in range(4))


def test_the_window_of_a_convolution_is_no_width_and_what_is_pooled_is_an_image():
    plan = best(strangers.ChannelWeights)
    assert plan.init == {}
    assert plan.call["x"] == ["B", "D", "h", "w"]


def test_two_languages_are_tokens_of_two_vocabularies():
    plan = best(strangers.TwoLanguages)
    assert plan.call["src"] == {"_ids": ["B", "S"], "below": "src_vocab_size"}
    assert plan.call["trg"] == {"_ids": ["B", "L"], "below": "tgt_vocab_size"}


def test_a_parameter_that_is_compared_with_words_is_given_one_of_them():
    assert best(strangers.NamedMethod).init["method"] == "dot"


def test_a_mask_that_is_kept_under_another_name_has_its_meaning():
    assert best(strangers.KeptMask).call["_mask"]["means"] == "attend"


def test_axes_that_are_asked_for_one_by_one_tell_the_layout():
    assert best(strangers.SizesOneByOne).call["w"] == ["L", "B", "D"]


def test_a_name_is_that_of_the_head_width_only_where_it_holds_it():
    assert {each.name: each.said for each in best(strangers.ReusedName).symbols}["d"] == ""


def test_without_a_word_of_images_four_axes_are_rows_of_tokens():
    plan = best(strangers.MediaLatents)
    assert (plan.call["x"], plan.call["latents"]) == (["B", "N", "S", "D"], ["B", "N", "L", "D"])


def test_slopes_are_one_for_each_product():
    call = best(strangers.with_slopes).call
    assert (call["q"], call["slopes"]) == (["B", "L", "d"], ["B"])


@pytest.mark.parametrize("target", [strangers.seen_back, strangers.with_slopes])
def test_what_fails_with_longer_keys_is_the_call_that_ran_and_no_other(target):
    done = found(target)
    (failure,) = done.failures
    shapes = {name: [axis.replace("S", "L") for axis in shape] for name, shape in failure.plan.call.items()}
    plain = next(each for each in done.plans if not each.mask)
    assert {name: shape[:-1] for name, shape in shapes.items()} == {n: s[:-1] for n, s in plain.call.items()}


def test_a_class_whose_instances_cannot_be_called_is_refused():
    with pytest.raises(InputError, match="NotCalled makes nothing that can be called"):
        found(strangers.NotCalled)


@pytest.mark.parametrize("shape", [["B", -1, "D"], ["B", 0, 3]])
def test_a_size_below_one_is_refused(shape):
    with pytest.raises(InputError, match="whole numbers from 1 on"):
        found(strangers.ReusedName, call={"x": shape})


def test_a_parameter_that_is_also_a_number_of_the_file_may_have_to_be_that_number():
    plan = best(strangers.LectureBlock)
    assert plan.init == {"n_embd": "D", "n_head": "H"}
    assert {name: plan.sizes(1)[name] for name in "DHd"} == {"D": 48, "H": 6, "d": 8}


def test_a_call_that_is_given_is_tried_whatever_layouts_are_known():
    (failure,) = found(strangers.MediaLatents, call={"x": ["L"], "latents": ["D"]}).failures
    assert (failure.plan.call["x"], failure.plan.call["latents"]) == (["L"], ["D"])


def test_one_letter_with_a_small_number_is_how_often_layers_are_stacked():
    plan = best(strangers.Stacked)
    assert plan.init.get("N") == 2


def test_tokens_of_a_model_are_not_those_of_padding():
    plan = best(strangers.Stacked)
    tokens = plan.arguments(plan.sizes(0))[1]["tokens"]
    assert int(tokens.min()) > 0


def test_a_mask_that_must_be_given_is_tried_with_as_many_queries_as_there_are():
    plan = best(strangers.MustBeMasked)
    assert (plan.call["query"], plan.mask) == (["B", "L", "D"], "key_pad")
    assert plan.init["n_local_heads"] == "Hkv"


def test_channels_stand_before_tokens_and_are_divided_by_the_groups_of_a_norm():
    plan = best(strangers.ChannelsAndTokens)
    assert plan.call["x"] == ["B", "D", "L"]
    assert all(plan.sizes(probe)["D"] % 8 == 0 for probe in range(-1, 4))


def test_a_width_is_of_heads_where_it_is_divided_by_theirs_and_an_image_is_of_windows():
    plan = best(strangers.HeadsByWidth)
    assert plan.init == {"dim": "H*d", "dim_head": "d", "window_size": "window_size"}
    assert {each.name: each.equals for each in plan.symbols if each.name in "hw"} == {
        "h": "n*window_size", "w": "m*window_size",
    }  # fmt: skip


def test_the_size_of_a_table_bounds_the_numbers_of_tokens_whatever_it_is_called():
    assert best(strangers.Items).call["seq"] == {"_ids": ["B", "L"], "below": "n_items"}


def test_a_switch_that_is_called_a_mask_keeps_its_default():
    plan = best(strangers.LookAhead)
    assert (plan.mask, plan.call) == ("", {"x": ["B", "L", "D"]})
    assert plan.init["example_length"] == "L"


def test_pairs_have_features_and_a_mask_in_another_language():
    plan = best(strangers.Edges)
    assert plan.init["num_cabezas"] == "H"
    assert plan.call["edge_features"][:3] == ["B", "L", "L"]
    assert plan.mask == "mascara"


def test_an_argument_that_is_read_as_two_gets_two_tables():
    assert best(strangers.PairOfTables).call["freqs"] == {"_tuple": [["1", "L", "1", "d//2"], ["1", "L", "1", "d//2"]]}


def test_items_that_are_called_alike_are_as_many_and_the_batch_is_first_where_the_code_turns_it():
    plan = best(strangers.Bought)
    items = {"_ids": ["B", "L"], "below": "item_num"}
    assert plan.call == {"log_items": items, "pos_items": items, "neg_items": items}


def test_the_height_and_width_of_an_image_are_windows_although_a_constructor_has_all_of_them_by_default():
    plan = best(strangers.Shifted)
    sides = {"_tuple": ["resolution_h", "resolution_w"]}
    assert plan.init == {"dim": "H*d", "resolution": sides, "num_heads": "H", "window_size": "window_size"}
    assert plan.call["x"] == ["B", "h", "w", "D"]
    assert {each.name: each.equals for each in plan.symbols if each.name.startswith("resolution")} == {
        "resolution_h": "n*window_size", "resolution_w": "m*window_size",
    }  # fmt: skip
