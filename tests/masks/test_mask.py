"""Masks of every kind, joined in every way, allow what their definitions say."""

import copy
import pickle

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.utils import _pytree as pytree

import headwise as hw
from headwise.errors import MaskError
from tests.masks import oracle
from tests.masks.trees import OPEN_LEAVES, SHAPES, Shape, build, checkers, dense, scenes, trees

NAMES = {name: getattr(hw, name) for name in hw.__all__ if name.islower() and hw._HOME[name] == "masks"}


@settings(max_examples=400)
@given(scenes())
def test_allowed_is_what_the_definitions_say(scene):
    s, tree = scene
    assert dense(build(tree), s).tolist() == oracle.allowed(tree, s)


@given(st.data(), st.sampled_from(SHAPES))
def test_and_or_and_not_are_pointwise(data, s):
    left, right = (build(data.draw(trees(s, depth=2))) for _ in range(2))
    assert torch.equal(dense(left & right, s), dense(left, s) & dense(right, s))
    assert torch.equal(dense(left | right, s), dense(left, s) | dense(right, s))
    assert torch.equal(dense(~left, s), ~dense(left, s))


@given(st.data(), st.sampled_from(SHAPES))
def test_de_morgan(data, s):
    left, right = (build(data.draw(trees(s, depth=2))) for _ in range(2))
    assert torch.equal(dense(~(left & right), s), dense(~left | ~right, s))
    assert torch.equal(dense(~(left | right), s), dense(~left & ~right, s))


@given(scenes(leaves=OPEN_LEAVES))
def test_a_printed_mask_pastes_back(scene):
    mask = build(scene[1])
    # tensors of more than 64 elements are shown by their shape
    assume("<" not in repr(mask))
    assert eval(repr(mask), {**NAMES, "torch": torch}) == mask


def test_a_printed_mask_keeps_its_brackets():
    a, b, c = hw.causal(), hw.prefix(2), hw.window(keys=3)
    assert repr(a & b & c) == "causal() & prefix(n=2) & window(before=2, after=0)"
    assert repr(a & (b & c)) == "causal() & (prefix(n=2) & window(before=2, after=0))"
    assert repr(a | (b | c)) == "causal() | (prefix(n=2) | window(before=2, after=0))"
    assert repr(~(a | b) & c) == "~(causal() | prefix(n=2)) & window(before=2, after=0)"


@given(scenes())
def test_pickling_and_copying_give_an_equal_mask(scene):
    mask = build(scene[1])
    assert pickle.loads(pickle.dumps(mask)) == mask
    assert copy.deepcopy(mask) == mask


@given(scenes())
def test_a_mask_is_a_tree_of_tensors(scene):
    mask = build(scene[1])
    leaves, spec = pytree.tree_flatten(mask)
    assert all(isinstance(leaf, torch.Tensor) for leaf in leaves)
    assert pytree.tree_unflatten(leaves, spec) == mask
    assert [leaf for _, leaf in pytree.tree_flatten_with_path(mask)[0]] == leaves
    # the same tree whatever it holds: vmap and export fill it with numbers
    assert pytree.tree_structure(pytree.tree_unflatten([0] * len(leaves), spec)) == spec


@given(scenes())
def test_masks_of_equal_parts_are_equal_and_hash_alike(scene):
    first, second = build(scene[1]), build(scene[1])
    assert first == second
    assert hash(first) == hash(second)
    assert first != ~first


@given(scenes(), st.data())
def test_no_mask_equals_one_with_another_tensor(scene, data):
    mask = build(scene[1])
    leaves, spec = pytree.tree_flatten(mask)
    assume(leaves)
    index = data.draw(st.integers(0, len(leaves) - 1))
    leaves[index] = ~leaves[index]
    assert pytree.tree_unflatten(leaves, spec) != mask


@settings(max_examples=200)
@given(scenes(leaves=("keys", "lengths", "causal", "allowed")))
def test_a_key_outside_the_padding_is_hidden_from_every_query(scene):
    s, tree = scene
    mask = build(tree)
    padding = mask.padding(s.Lk)
    assert padding is None or not dense(mask, s)[~padding[:, None, None].expand(s)].any()


def test_the_padding_of_masks_joined_by_and_is_what_each_of_them_lets_through():
    keep = torch.tensor([[True, False, True, True], [False, True, True, True]])
    mask = hw.causal() & hw.keys(keep) & hw.lengths([4, 3])
    assert mask.padding(4).tolist() == [[True, False, True, True], [False, True, True, False]]
    assert (hw.keys(keep) | hw.lengths([1, 1])).padding(4).tolist() == [[True, False, True, True], [True] * 4]
    assert (~hw.keys(keep)).padding(4).tolist() == (~keep).tolist()
    # the next query may see more
    assert hw.lengths(torch.tensor([[0, 3, 1], [2, 1, 0]])).padding(4) is None
    assert (hw.causal() | hw.keys(keep)).padding(4) is None
    assert hw.causal().padding(4) is None


@given(scenes(leaves=OPEN_LEAVES), st.data())
def test_reordering_a_mask_picks_its_samples(scene, data):
    s, tree = scene
    index = torch.tensor(data.draw(st.lists(st.integers(0, s.B - 1), min_size=1, max_size=4)))
    mask = build(tree)
    assert torch.equal(dense(mask.reorder(index), s._replace(B=len(index))), dense(mask, s)[index])


def test_a_rule_cannot_be_reordered():
    with pytest.raises(MaskError, match=r"rule\(checkers\) may read the sample's index.*torch.tensor\(\[1, 0\]\)"):
        (hw.causal() & hw.rule(checkers)).reorder(torch.tensor([1, 0]))


@given(scenes(leaves=OPEN_LEAVES))
def test_a_mask_moves_to_another_device_with_all_its_tensors(scene):
    s, tree = scene
    mask = build(tree).to("meta")
    assert all(leaf.is_meta for leaf in pytree.tree_leaves(mask))
    moved = mask.allowed(s.Lq, s.Lk, batch=s.B, heads=s.H, device="meta")
    assert moved.is_meta
    assert moved.shape == build(tree).allowed(s.Lq, s.Lk, batch=s.B, heads=s.H).shape
    assert mask.device == torch.device("meta" if pytree.tree_leaves(mask) else "cpu")


def test_a_mask_without_tensors_is_on_the_default_device():
    with torch.device("meta"):
        assert (hw.causal() & hw.window(keys=2)).allowed(2, 3).is_meta
    assert hw.causal().allowed(2, 3, device="meta").is_meta


def test_a_tensor_on_another_device_is_refused():
    mask = hw.causal() & hw.keys(torch.ones(2, 7, dtype=torch.bool, device="meta"))
    with pytest.raises(
        MaskError, match=r'device of the call, cpu, but one is on meta: move them with mask.to\("cpu"\)'
    ):
        mask.allowed(5, 7, device="cpu")


def test_samples_and_heads_are_counted_by_the_tensors_of_the_mask():
    s = Shape()
    heads = hw.allowed(torch.ones(1, s.H, s.Lq, s.Lk, dtype=torch.bool))
    mask = (hw.causal() & hw.lengths([3, 4])) | ~heads.at(torch.arange(s.Lq), torch.arange(s.Lk))
    assert (mask.batch, mask.heads) == (s.B, s.H)
    assert mask.allowed(s.Lq, s.Lk).shape == s
    assert mask.tiles(s.Lq, s.Lk, block=(2, 2)).shape == (s.B, s.H, 3, 4)
    assert (hw.causal().batch, hw.causal().heads) == (1, 1)
    assert hw.keys(torch.ones(0, s.Lk, dtype=torch.bool)).batch == 0


def test_samples_and_heads_are_drawn_one_below_the_other():
    keep = torch.tensor([[True, True, False], [False, True, True]])
    assert (hw.causal() & hw.keys(keep)).draw(2, 3) == "##.\n##.\n\n.#.\n.##"
    assert hw.allowed(keep[None, :, None]).draw(1, 3) == "##.\n\n.##"


@pytest.mark.parametrize(("Lq", "Lk"), [(0, 7), (5, 0), (0, 0)])
@pytest.mark.parametrize("B", [0, 1, 2])
def test_an_axis_may_be_empty(B, Lq, Lk):
    ids, key_ids = torch.zeros(B, Lq, dtype=torch.int64), torch.zeros(B, Lk, dtype=torch.int64)
    keep = torch.ones(B, Lk, dtype=torch.bool)
    parts = [
        hw.causal() & hw.keys(keep),
        hw.lengths(ids) | hw.window(keys=2),
        hw.lengths(torch.full((B,), min(1, Lk))) & ~hw.prefix(2),
        hw.documents(ids, key_ids),
        hw.prefix(torch.ones(B, dtype=torch.int64)),
        hw.allowed(torch.ones(B, 3, Lq, Lk, dtype=torch.bool)),
        hw.allowed(keep[:, None, None]),
        hw.rule(checkers).at(ids, key_ids) & hw.keys(keep),
    ]
    for mask in parts:
        assert mask.allowed(Lq, Lk, batch=B, heads=3).expand(B, 3, Lq, Lk).numel() == 0
        assert mask.tiles(Lq, Lk, block=(2, 3), batch=B, heads=3).shape[2:] == (-(-Lq // 2), -(-Lk // 3))
        assert set(mask.draw(Lq, Lk)) <= {"\n"}


def test_no_sample_has_as_many_tiles_as_samples():
    keep = torch.ones(0, 7, dtype=torch.bool)
    assert (hw.causal() & hw.keys(keep)).allowed(5, 7).shape == (0, 1, 5, 7)
    assert (hw.causal() & hw.keys(keep)).tiles(5, 7, block=(2, 3)).shape == (0, 1, 3, 3)


def test_queries_before_the_first_key_see_nothing_by_causal():
    assert hw.causal().draw(4, 2) == "..\n..\n#.\n##"
    assert hw.window(before=1, after=1).draw(4, 2) == "..\n#.\n##\n##"


def test_a_mask_placed_within_a_placed_mask_keeps_its_own_positions():
    inner = hw.causal().at(torch.tensor([1]), torch.tensor([0, 1, 2]))
    outer = inner.at(torch.tensor([9]), torch.tensor([9, 9]), columns=torch.tensor([2, 0]))
    assert outer.draw(1, 2) == ".#"


@pytest.mark.parametrize(
    ("join", "sentence"),
    [
        (lambda mask, t: mask & t, r"joins only with a mask, but Tensor came: wrap a bool tensor with allowed\(\)"),
        (lambda mask, t: mask | None, "joins only with a mask, but NoneType came"),
        (lambda mask, t: mask and mask, r"a mask is neither true nor false: join causal\(\) with others by & \| ~"),
        (lambda mask, t: not mask, "a mask is neither true nor false"),
    ],
    ids=["a tensor", "None", "and", "not"],
)
def test_what_is_no_join_of_masks_is_refused(join, sentence):
    with pytest.raises(MaskError, match=sentence):
        join(hw.causal(), torch.ones(5, 7, dtype=torch.bool))


def test_a_mask_equals_only_a_mask_of_its_kind():
    keep = torch.ones(2, 7, dtype=torch.bool)
    assert hw.causal() != "causal()"
    assert hw.causal() != hw.window(before=0)
    assert hw.keys(keep) != hw.lengths([7, 7])
    assert hw.lengths(torch.tensor([2])) != hw.lengths(torch.tensor([2], dtype=torch.int32))
    assert hw.keys(keep) != hw.keys(keep.to("meta"))
    assert len({hw.causal(), hw.causal(), hw.keys(keep), hw.keys(keep.clone()), hw.prefix(2), hw.prefix(3)}) == 4


def test_a_large_tensor_is_printed_by_its_dtype_and_shape():
    assert repr(hw.keys(torch.ones(2, 33, dtype=torch.bool))) == "keys(keep=<bool (2, 33)>)"
    assert repr(hw.lengths([1]).to("meta")) == "lengths(n=<int64 (1,)>)"
    assert (
        repr(hw.lengths(torch.tensor([4, 2], dtype=torch.int32)))
        == "lengths(n=torch.tensor([4, 2], dtype=torch.int32))"
    )
