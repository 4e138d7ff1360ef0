"""Where no call that was thought of runs, the errors tell what to change; nothing is made to run by chance."""

from headwise.calls.finder import find
from tests.calls.styles import learned


def best(target, **given):
    return find(target, namespace=vars(learned), **given).plans[0]


def test_axes_that_are_unpacked_beside_what_is_no_axis_are_counted_and_bound_to_what_they_meet():
    plan = best(learned.FiveAxes)
    assert len(plan.call["x"]) == 5
    assert plan.call["x"][-1] == "D"
    equals = {each.name: each.equals for each in plan.symbols}
    assert [equals[name] for name in plan.call["x"][2:4]] == ["window_size", "window_size"]


def test_what_shares_a_width_is_the_number_of_heads_whatever_it_is_called():
    plan = best(learned.Untold)
    equals = {each.name: each.equals for each in plan.symbols}
    (width,) = (name for name, own in equals.items() if own == "H*d")
    assert plan.init == {"anzahl": width, "breite": "H"}
    assert {each.name: each.said for each in plan.symbols}["H"] == "breite"


def test_an_argument_that_must_be_a_tensor_is_one():
    assert best(learned.NamedAsNumber).call == {"e": ["B", "L", "D"], "h": ["B", "S", "D"]}


def test_heads_that_a_number_of_the_class_divides_are_multiples_of_it():
    plan = best(learned.OwnGroups)
    assert all(plan.sizes(probe)["H"] % 2 == 0 for probe in range(4))


def test_a_length_is_never_bound_to_a_number_of_heads_so_that_a_wrong_class_runs():
    found = find(learned.HeadsForLength, namespace=vars(learned))
    assert found.plans == ()
    assert "must match" in str(found.failures[0].error)


def test_the_failure_is_of_the_call_that_came_furthest_however_it_was_learned():
    (failure,) = find(learned.Frames, namespace=vars(learned)).failures
    assert (len(failure.plan.call["x"]), failure.plan.call["x"][1]) == (5, "D")
    assert "must match the size of tensor" in str(failure.error)


def test_keys_of_their_own_length_tell_that_the_batch_is_second():
    plan = best(learned.BatchSecond)
    assert (plan.setting, plan.call["query"], plan.call["key"]) == ("cross", ["L", "B", "D"], ["S", "B", "D"])


def test_what_a_person_said_is_not_unlearned():
    (failure,) = find(learned.NamedAsNumber, namespace=vars(learned), call={"h": 3}).failures
    # a number of heads, under the name of its size
    assert failure.plan.call["h"] == "H"


def test_what_is_wrong_however_it_is_called_is_not_made_to_run():
    (failure,) = find(learned.ViewedAcross, namespace=vars(learned)).failures
    assert "view size is not compatible" in str(failure.error)
