"""What is derived from a mask is kept with it, and made anew when a tensor of the mask changes."""

import copy
import gc
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import headwise as hw
from headwise.errors import MaskError
from headwise.masks.derived_tensors import (
    MOST_BYTES,
    MOST_BYTES_COMPARED,
    MOST_COMPARED,
    MOST_RESULTS,
    derived,
    room,
    table,
)
from tests.cases import MASKS, Shape, tensors

EVEN = Shape(Lq=7, D=8, Dv=8)


def keep_mask() -> hw.Mask:
    return hw.keys(torch.arange(7)[None].expand(2, 7) < torch.tensor([[7], [4]]))


def first_tensor(mask: hw.Mask) -> Tensor:
    leaves = torch.utils._pytree.tree_leaves(mask)
    return next(leaf for leaf in leaves if isinstance(leaf, Tensor))


TENSORS: dict[str, Callable[[], hw.Mask]] = {
    "keys": keep_mask,
    "lengths": lambda: hw.lengths(torch.tensor([7, 4])),
    "documents": lambda: hw.documents(torch.arange(7)[None].repeat(2, 1) // 3),
    "prefix": lambda: hw.prefix(torch.tensor([2, 5])),
    "allowed": lambda: hw.allowed(torch.ones(7, 7, dtype=torch.bool).tril()),
    "algebra": lambda: ~(hw.causal() & keep_mask()) | hw.prefix(1),
}
CHANGES: dict[str, Callable[[Tensor], Any]] = {
    "in place": lambda t: t.copy_(changed(t)),
    "by .data": lambda t: t.data.copy_(changed(t)),
    "by numpy": lambda t: t.numpy().__setitem__(..., changed(t).numpy()),
}


def changed(t: Tensor) -> Tensor:
    return ~t if t.dtype is torch.bool else t.flip(-1)


@pytest.mark.parametrize("backend", ["auto", "blockwise", "reference"])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", TENSORS)
def test_a_tensor_that_changes_is_noticed(kind: str, change: str, backend: str) -> None:
    q, k, v = tensors(EVEN)
    mask = TENSORS[kind]()
    before = hw.attention(q, k, v, mask=mask, backend=backend)
    CHANGES[change](first_tensor(mask))
    after = hw.attention(q, k, v, mask=mask, backend=backend)
    fresh = hw.attention(q, k, v, mask=copy.deepcopy(mask), backend=backend)
    assert torch.equal(after, fresh)
    assert not torch.equal(after, before)


def test_a_result_is_made_once_and_shared_by_equal_masks_of_numbers() -> None:
    made = []

    def make() -> int:
        made.append(1)
        return len(made)

    for mask in (hw.causal() & hw.window(before=3), hw.causal() & hw.window(before=3)):
        assert derived(mask, "a test", make) == 1
    assert derived(hw.causal() & hw.window(before=4), "a test", make) == 2
    padding = keep_mask()
    assert [derived(padding, "a test", make) for _ in range(2)] == [3, 3]
    assert derived(keep_mask(), "a test", make) == 4


def test_a_function_may_read_anything_so_nothing_is_kept() -> None:
    limits = [2]
    q, k, v = tensors(EVEN)
    mask = hw.causal() & hw.rule(lambda b, h, i, j: j < limits[0])
    hw.attention(q, k, v, mask=mask)
    limits[0] = 5
    assert torch.equal(hw.attention(q, k, v, mask=mask), hw.attention(q, k, v, mask=hw.causal() & hw.prefix(5)))
    assert table(mask) is None


def test_copies_and_pickles_carry_the_mask_alone() -> None:
    q, k, v = tensors(EVEN)
    mask = keep_mask()
    hw.attention(q, k, v, mask=mask)
    assert "_table" in vars(mask)
    for again in (copy.copy(mask), copy.deepcopy(mask), pickle.loads(pickle.dumps(mask))):
        assert "_table" not in vars(again)
        assert again == mask
        assert repr(again) == repr(mask)


def test_a_table_forgets_its_oldest_results() -> None:
    mask = keep_mask()
    for n in range(MOST_RESULTS + 3):
        derived(mask, n, int)
    kept = table(mask)
    assert kept is not None
    assert list(kept.results) == list(range(3, MOST_RESULTS + 3))


def test_a_result_that_is_kept_again_takes_no_room_of_another() -> None:
    # as when two threads have derived it at the same time
    kept = table(keep_mask())
    assert kept is not None
    for n in (*range(MOST_RESULTS), 5):
        kept.add(n, n, 1)
    assert sorted(kept.results) == list(range(MOST_RESULTS))


def test_what_takes_a_read_of_a_device_is_kept_with_a_mask_there_until_it_changes() -> None:
    keep = torch.ones(2, 7, dtype=torch.bool, device="meta")
    mask, count = hw.causal() & hw.keys(keep), 0

    def make() -> int:
        nonlocal count
        count += 1
        return count

    assert [derived(mask, "read", make, is_read=True) for _ in range(3)] == [1, 1, 1]
    keep.logical_not_()
    assert [derived(mask, "read", make, is_read=True) for _ in range(2)] == [2, 2]
    # what takes no read is made anew, and so is what a tensor of inference mode gives, which counts no changes
    assert [derived(mask, "no read", make) for _ in range(2)] == [3, 4]
    with torch.inference_mode():
        other = hw.keys(torch.ones(2, 7, dtype=torch.bool, device="meta"))
    assert [derived(other, "read", make, is_read=True) for _ in range(2)] == [5, 6]
    assert [derived(hw.rule(lambda b, h, i, j: i > j), "read", make, is_read=True) for _ in range(2)] == [7, 8]


def test_tensors_too_large_to_compare_are_not_kept() -> None:
    mask = hw.documents(torch.zeros(2, MOST_COMPARED // 2 + 1, dtype=torch.int64))
    assert table(mask) is None


def test_what_is_kept_holds_no_tensor_of_a_mode() -> None:
    q, k, v = tensors(EVEN)
    # a window that no other test knows, since masks of equal numbers share what they derive
    for mask in (hw.causal() & hw.window(before=5, after=4), keep_mask() & hw.causal()):
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            hw.attention(*(mode.from_tensor(t) for t in (q, k, v)), mask=mask, backend="reference")
        torch.func.vmap(lambda t: hw.attention(t[None], k[:1], v[:1], mask=hw.causal() & hw.window(before=5, after=4)))(
            q
        )
        with torch.inference_mode():
            want = hw.attention(q, k, v, mask=mask)
            assert not derived(mask, "a test", lambda: torch.ones(3)).is_inference()
        given = [t.clone().requires_grad_() for t in (q, k, v)]
        out = hw.attention(*given, mask=mask)
        assert torch.equal(out.detach(), want)
        out.sum().backward()
        assert all(t.grad is not None for t in given)


@pytest.mark.parametrize("kind", ["padding and causal", "window"])
def test_compiled_calls_do_not_see_what_is_kept(kind: str) -> None:
    torch.compiler.reset()
    q, k, v = tensors(EVEN)
    mask = MASKS[kind](EVEN)
    want = hw.attention(q, k, v, mask=mask)
    count = 0

    def counted(graph: Any, inputs: Any) -> Any:
        nonlocal count
        count += 1
        return graph

    compiled = torch.compile(lambda *t: hw.attention(*t, mask=mask, backend="sdpa"), backend=counted, fullgraph=True)
    first = compiled(q, k, v)
    hw.attention(q, k, v, mask=mask)
    assert torch.allclose(compiled(q, k, v), first)
    assert torch.allclose(first, want, atol=1e-5)
    assert count == 1


def test_all_masks_together_keep_so_many_bytes_and_no_more():
    begun = room.used
    masks = [keep_mask() for _ in range(5)]
    for mask in masks:
        for number in range(3):
            derived(mask, number, lambda: torch.zeros(MOST_BYTES // 8, dtype=torch.uint8))
    assert MOST_BYTES * 3 / 4 <= room.used <= MOST_BYTES
    # the oldest are gone
    assert [len(table(mask).results) for mask in masks] == [0, 0, 2, 3, 3]
    del masks, mask
    gc.collect()
    assert room.used <= begun
    derived(keep_mask(), "too large", lambda: torch.zeros(MOST_BYTES + 1, dtype=torch.uint8))
    assert room.used <= begun


@pytest.mark.parametrize("backend", ["sdpa", "blockwise"])
def test_a_mask_that_changes_before_a_backward_that_reads_it_is_refused(backend: str) -> None:
    q, k, v = (t.requires_grad_() for t in tensors(EVEN))
    keep = torch.arange(7)[None].expand(2, 7) < torch.tensor([[7], [4]])
    keep = keep.clone()
    out = hw.attention(q, k, v, mask=hw.keys(keep), backend=backend)
    torch.autograd.grad(out.sum(), q, create_graph=True)
    keep.fill_(True)
    said = r"a mask must stay as it was .* torch\.bool tensor \(2, 7\) was changed in place 1 times"
    with pytest.raises(MaskError, match=said):
        torch.autograd.grad(out.sum(), q, create_graph=True)


def test_a_tensor_whose_axes_change_places_is_noticed() -> None:
    mask = hw.allowed(torch.tensor([[True, False, True, True]]))
    q = torch.randn(1, 1, 4, 8)
    before = hw.attention(q, q, q, mask=mask)
    mask.t.t_()
    after = hw.attention(q, q, q, mask=mask)
    assert not torch.equal(before, after)


@pytest.mark.parametrize(
    "of",
    [
        lambda t: t,
        # no whole number of words, and none from a whole number on
        lambda t: t[:-1, :-1].contiguous(),
        lambda t: t.flatten()[3 : 3 + 128 * 200].view(128, 200),
        lambda t: t.mT,
        lambda t: t[:, ::2],
    ],
    ids=["whole words", "other bytes", "from within a word", "turned", "every second"],
)
@pytest.mark.parametrize("place", [(0, 0), (127, 99), (-1, -1)])
def test_one_entry_of_a_large_tensor_that_changes_is_noticed(of: Callable[[Tensor], Tensor], place: tuple[int, int]):
    dense = of(torch.rand(256, 256, generator=torch.Generator().manual_seed(0)) < 0.5)
    assert dense.numel() > MOST_BYTES_COMPARED
    kept = table(mask := hw.allowed(dense))
    assert kept is not None
    assert kept.is_current()
    # past what torch counts
    dense.data[place] = ~dense[place]
    assert not kept.is_current()
    assert table(mask) is not kept
