"""The drop-in is nn.MultiheadAttention where that is right: constructor, weights, forward, outputs and gradients."""

import inspect
import warnings
from typing import Any

import pytest
import torch
from torch import nn

from headwise.compat.torch import MultiheadAttention
from headwise.errors import ShapeError
from tests.compat.torch.pairs import FLAGS, LK, LQ, B, E, H, assert_same, called, inputs, masks, pair


@pytest.mark.parametrize("wanted", ["averaged weights", "a head's weights", "no weights"])
@pytest.mark.parametrize("is_batched", [True, False], ids=["batched", "unbatched"])
@pytest.mark.parametrize("flags", FLAGS)
def test_outputs_weights_and_gradients_are_torchs(flags: str, is_batched: bool, wanted: str) -> None:
    modules = pair(**FLAGS[flags])
    given = inputs(modules.ours, is_batched=is_batched)
    options = {"need_weights": wanted != "no weights", "average_attn_weights": wanted == "averaged weights"}
    with warnings.catch_warnings():
        # torch warns of masks of two dtypes
        warnings.simplefilter("ignore", UserWarning)
        for each in masks(is_batched=is_batched):
            assert_same(modules, given, **options, **each)


@pytest.mark.parametrize("flags", FLAGS)
def test_float64_is_torchs_to_the_last_digits(flags: str) -> None:
    theirs, _, ours = pair(dtype=torch.float64, **FLAGS[flags])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for each in masks():
            given = inputs(ours)
            for got, wanted in zip(called(ours, given, **each), called(theirs, given, **each), strict=True):
                torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("need_weights", [True, False])
def test_halves_keep_their_dtype_and_are_no_worse_than_torchs(dtype: torch.dtype, need_weights: bool) -> None:
    modules = pair(dtype=dtype)
    given = [t.to(dtype).double() for t in inputs(modules.ours)]
    assert_same(modules, given, need_weights=need_weights)


@pytest.mark.parametrize("flags", FLAGS)
def test_the_same_seed_gives_the_same_first_weights_under_the_same_names(flags: str) -> None:
    torch.manual_seed(5)
    theirs = nn.MultiheadAttention(E, H, **FLAGS[flags]).state_dict()
    torch.manual_seed(5)
    ours = MultiheadAttention(E, H, **FLAGS[flags]).state_dict()
    assert list(ours) == list(theirs)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_constructor_and_forward_take_what_torchs_take_in_the_same_order() -> None:
    for name in ("__init__", "forward"):
        theirs = inspect.signature(getattr(nn.MultiheadAttention, name)).parameters.values()
        ours = inspect.signature(getattr(MultiheadAttention, name)).parameters.values()
        positional = [p for p in ours if p.kind is p.POSITIONAL_OR_KEYWORD]
        assert [(p.name, p.default) for p in positional] == [(p.name, p.default) for p in theirs]
    assert isinstance(MultiheadAttention(E, H), nn.MultiheadAttention)


def test_attributes_and_merge_masks_are_torchs() -> None:
    theirs, _, ours = pair(batch_first=True)
    names = ("embed_dim", "num_heads", "head_dim", "kdim", "vdim", "dropout", "batch_first", "_qkv_same_embed_dim")
    assert [getattr(ours, name) for name in names] == [getattr(theirs, name) for name in names]
    both = [m.merge_masks(torch.ones(LQ, LQ), torch.ones(B, LQ), torch.ones(B, LQ, E)) for m in (ours, theirs)]
    assert torch.equal(both[0][0], both[1][0])
    assert both[0][1] == both[1][1] == 2


WRONG: dict[str, dict[str, Any]] = {
    "a key without batch": {"key": torch.zeros(LK, E)},
    "a value without batch": {"value": torch.zeros(LK, E)},
    "four axes": {"query": torch.zeros(1, LQ, B, E)},
    "another batch": {"key": torch.zeros(LK, B + 1, E), "value": torch.zeros(LK, B + 1, E)},
    "a value of another length": {"value": torch.zeros(LK + 1, B, E)},
    "another width": {"query": torch.zeros(LQ, B, E + 1)},
    "padding without batch": {"key_padding_mask": torch.zeros(LK, dtype=torch.bool)},
    "padding of queries": {"key_padding_mask": torch.zeros(B, LQ, dtype=torch.bool)},
    "padding of bytes": {"key_padding_mask": torch.zeros(B, LK, dtype=torch.uint8)},
    "a mask of integers": {"attn_mask": torch.zeros(LQ, LK, dtype=torch.int64)},
    "a mask of one axis": {"attn_mask": torch.zeros(LK)},
    "a mask turned": {"attn_mask": torch.zeros(LK, LQ)},
    "a mask for each sample": {"attn_mask": torch.zeros(B, LQ, LK)},
    "a mask of four axes": {"attn_mask": torch.zeros(B, H, LQ, LK)},
    "another dtype": {"query": torch.zeros(LQ, B, E, dtype=torch.float64)},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_torch_refuses_is_refused_in_its_words(wrong: str) -> None:
    theirs, _, ours = pair()
    given = dict(zip(("query", "key", "value"), (t.float() for t in inputs(ours)), strict=True)) | WRONG[wrong]
    with pytest.raises((AssertionError, RuntimeError)) as told:
        theirs(**given)
    with pytest.raises(told.type) as said:
        ours(**given)
    assert str(said.value) == str(told.value)


def test_what_torch_takes_by_chance_is_refused_with_the_sizes() -> None:
    theirs, _, ours = pair()
    nothing = torch.zeros(0, B + 1, E)
    assert theirs(torch.zeros(LQ, B, E), nothing, nothing)[0].shape == (LQ, B, E)
    with pytest.raises(ShapeError, match=r"but \(5, 3, 8\), \(0, 4, 8\) and \(0, 4, 8\) came"):
        ours(torch.zeros(LQ, B, E), nothing, nothing)


@pytest.mark.parametrize("flags", FLAGS)
def test_strict_torch_is_torch_bit_by_bit(flags: str) -> None:
    theirs, _, ours = pair(strict_torch=True, **FLAGS[flags])
    query, key, value = (t.float() for t in inputs(ours))
    for training in (True, False):
        theirs.train(training), ours.train(training)
        for need_weights in (True, False):
            for each in masks(row="any"):
                if {t.dtype for t in each.values() if t is not None} > {torch.bool}:
                    continue
                options = {
                    name: t.float() if t is not None and t.is_floating_point() else t for name, t in each.items()
                }
                with torch.no_grad():
                    results = [m(query, key, value, need_weights=need_weights, **options) for m in (ours, theirs)]
                for got, wanted in zip(*results, strict=True):
                    assert (got is None) == (wanted is None)
                    assert got is None or torch.equal(got.nan_to_num(7.0), wanted.nan_to_num(7.0))


def test_strict_torch_takes_the_fast_path_with_its_nan_and_its_dropout() -> None:
    theirs, _, ours = pair(strict_torch=True, batch_first=True, dropout=0.5)
    x = torch.ones(B, LQ, E)
    torch.manual_seed(1)
    wanted = theirs(x, x, x)
    torch.manual_seed(1)
    got = ours(x, x, x)
    assert torch.equal(got[0], wanted[0])
    assert torch.equal(got[1], wanted[1])
    with torch.no_grad():
        assert ours.eval()(x, x, x, key_padding_mask=torch.ones(B, LQ, dtype=torch.bool))[0].isnan().all()
    assert (ours.strict_torch, pair().ours.strict_torch) == (True, False)
