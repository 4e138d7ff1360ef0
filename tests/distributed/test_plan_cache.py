"""Plans of compiled programs go with the spread that they were made for."""

import gc

import headwise as hw
from headwise.distributed import gather, plan_cache


def test_a_plan_of_a_compiled_program_goes_with_its_spread():
    mask, spread = hw.causal() & hw.window(keys=3), hw.distributed.spread(12)
    name = plan_cache._name(gather._planned, mask, spread, 2, 4, 4, 12)
    assert isinstance(getattr(plan_cache._programs, name), gather.GatherPlan)
    del spread
    gc.collect()
    assert not hasattr(plan_cache._programs, name)


def test_plans_of_other_sizes_have_names_of_their_own():
    mask, spread = hw.causal(), hw.distributed.spread(12)
    names = [plan_cache._name(gather._planned, mask, spread, 2, heads, heads, 12) for heads in (4, 2)]
    assert len(set(names)) == 2
    assert all(hasattr(plan_cache._programs, name) for name in names)
