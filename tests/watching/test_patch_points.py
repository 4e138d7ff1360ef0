"""What is replaced while anyone watches is replaced once, and put back after the last, in whatever order."""

import gc
import itertools
import threading
import weakref

import pytest
import torch
from torch import nn

from headwise.watching import watch
from headwise.watching.patch_points import PatchPoint, replaced
from tests.watching.models import Mixed, made, x
from tests.watching.test_watcher import state


@pytest.mark.needs("transformers")
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_watches_of_several_models_end_in_any_order(order):
    before, models, y = state(), [made(Mixed) for _ in range(3)], x()
    wanted = [model(y) for model in models]
    watches = [watch(model) for model in models]
    seen = [each.__enter__() for each in watches]
    for model, out in zip(models, wanted, strict=True):
        assert torch.equal(model(y), out)
    for n in order:
        watches[n].__exit__(None, None, None)
        for model, out in zip(models, wanted, strict=True):
            assert torch.equal(model(y), out)
    assert state() == before
    for n, each in enumerate(seen):
        assert len(each.calls("own")) == 1 + order.index(n)


@pytest.mark.needs("transformers")
def test_threads_that_watch_at_once_leave_nothing_behind_and_see_their_own():
    before, y, found, kept = state(), x(), [], []
    start = threading.Barrier(4)

    def run():
        model = made(Mixed)
        start.wait()
        for _ in range(12):
            with watch(model) as seen:
                model(y)
            found.append((list(seen), dict(seen.unseen)))
        kept.append(weakref.ref(seen["own"]))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert found == [(["own", "attn"], {})] * 48
    assert state() == before
    del threads, each
    gc.collect()
    assert [ref() for ref in kept] == [None] * 4


def test_a_watch_that_is_dropped_ends():
    before, model = nn.MultiheadAttention.forward, made(Mixed)
    dropped = watch(model)
    dropped.__enter__()
    assert nn.MultiheadAttention.forward is not before
    del dropped
    gc.collect()
    assert nn.MultiheadAttention.forward is before


def test_what_another_has_put_on_top_stays_and_ours_is_used_again():
    class Owner:
        def function(self):
            return 3

    original, heard = Owner.function, []

    def listener(call):
        heard.append(call.arguments()["self"])
        return call.result()

    spot, it = PatchPoint.add(Owner, "function", listener, replaced), Owner()
    ours = Owner.function
    Owner.function = lambda self: ours(self) + 1
    assert it.function() == 4
    spot.remove(listener)
    assert it.function() == 4
    assert heard == [it]
    Owner.function = ours
    again = PatchPoint.add(Owner, "function", listener, replaced)
    assert again is spot
    again.remove(listener)
    assert Owner.function is original
