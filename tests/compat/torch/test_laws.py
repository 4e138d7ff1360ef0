"""Where torch's numbers depend on the way they are computed, the drop-in's do not."""

import itertools

import pytest
import torch
from torch import Tensor

import headwise as hw
from headwise.errors import ShapeError
from headwise.testing import assert_within_budget
from tests.compat.agreement import randn
from tests.compat.torch.pairs import FLAGS, LK, LQ, B, E, H, called, inputs, masks, pair

# torch says at the first nested tensor of a process that they are a prototype
pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
MODES = list(itertools.product((True, False), repeat=3))


def in_all_modes(layer: torch.nn.Module, given: list[Tensor], **options: object) -> list[Tensor]:
    """The outputs of a layer in train and eval, with and without weights, with and without gradients."""
    outputs = []
    for training, need_weights, grad in MODES:
        layer.train(training)
        with torch.set_grad_enabled(grad):
            outputs.append(layer(*given, need_weights=need_weights, **options)[0].detach())
    return outputs


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("flags", FLAGS)
def test_eight_modes_give_one_output(flags: str, is_causal: bool) -> None:
    ours = pair(**FLAGS[flags]).ours
    given = [t.float() for t in inputs(ours)]
    for each in masks(row="any"):
        options = {name: t.float() if t is not None and t.is_floating_point() else t for name, t in each.items()}
        first, *others = in_all_modes(ours, given, is_causal=is_causal, **options)
        assert first.isfinite().all()
        assert all(torch.equal(other, first) for other in others)


@pytest.mark.parametrize("kind", ["bool", "floating"])
def test_a_sample_of_padding_only_gives_the_bias_of_out_proj_where_torch_gives_nan(kind: str) -> None:
    theirs, _, ours = pair(batch_first=True)
    x, padding = randn(B, LQ, E).float(), torch.zeros(B, LQ, dtype=torch.bool)
    padding[1], padding[2, 3:] = True, True
    if kind == "floating":
        padding = torch.zeros(B, LQ).masked_fill(padding, float("-inf"))
    for got in in_all_modes(ours, [x, x, x], key_padding_mask=padding):
        assert torch.equal(got[1], ours.out_proj.bias.detach().expand(LQ, E))
    assert {bool(out[1].isnan().any()) for out in in_all_modes(theirs, [x, x, x], key_padding_mask=padding)} == {
        True,
        False,
    }
    weights = ours(x, x, x, key_padding_mask=padding)[1]
    assert torch.equal(weights[1], torch.zeros(LQ, LQ))
    assert weights[2, :, 3:].abs().max() == 0
    assert torch.allclose(weights[2].sum(-1), torch.ones(LQ))


@pytest.mark.parametrize("flags", ["plain", "other widths", "no bias"])
@pytest.mark.parametrize("which", ["output", "weights"])
def test_an_empty_row_has_a_gradient_of_zero_and_leaves_the_others_theirs(which: str, flags: str) -> None:
    modules = pair(**FLAGS[flags])
    attn_mask = torch.zeros(LQ, LK, dtype=torch.bool)
    attn_mask[2] = True
    for mask in (attn_mask, torch.zeros(LQ, LK).masked_fill(attn_mask, float("-inf"))):
        leaves = [t.float().requires_grad_() for t in inputs(modules.ours)]
        result = modules.ours(*leaves, attn_mask=mask)[which == "weights"]
        gradients = torch.autograd.grad(result.square().sum(), leaves, create_graph=True, allow_unused=True)
        found = [g for g in gradients if g is not None]
        assert all(g.isfinite().all() for g in found)
        row = found[0][:, 2] if modules.ours.batch_first else found[0][2]
        assert torch.equal(row, torch.zeros_like(row))
        second = torch.autograd.grad(sum(g.square().sum() for g in found), leaves, allow_unused=True)
        assert all(g.isfinite().all() for g in second if g is not None)


@pytest.mark.parametrize("flags", FLAGS)
def test_is_causal_alone_is_the_mask_of_positions_with_the_added_keys_open(flags: str) -> None:
    theirs, exact, ours = pair(**FLAGS[flags])
    blocked = ~hw.causal().allowed(LQ, LK)
    alone = called(ours, inputs(ours), is_causal=True)
    wanted, plain = (called(each, inputs(ours), attn_mask=blocked) for each in (exact, theirs))
    for got, want, measure in zip(alone[:2], wanted[:2], plain[:2], strict=True):
        assert_within_budget(got, want, measure, factor=4.0)
    assert_within_budget(alone[2], wanted[2], plain[2])


def test_torch_refuses_or_ignores_is_causal_alone_which_is_why_it_holds_here() -> None:
    theirs, _, ours = pair(batch_first=True)
    x = inputs(ours)[0].float()
    with pytest.raises(RuntimeError, match="Need attn_mask if specifying the is_causal hint"):
        theirs.train()(x, x, x, is_causal=True)
    with torch.no_grad():
        assert torch.equal(theirs.eval()(x, x, x, is_causal=True)[0], theirs(x, x, x)[0])


def test_is_causal_and_a_mask_both_hold() -> None:
    theirs, exact, ours = pair(batch_first=True)
    x, blocked = inputs(ours)[0], randn(LQ, LQ, seed=8) > 0.5
    blocked.fill_diagonal_(False)
    both = blocked | ~hw.causal().allowed(LQ, LQ)
    wanted, plain = (called(each, [x, x, x], attn_mask=both) for each in (exact, theirs))
    for given in (blocked, torch.zeros(LQ, LQ, dtype=torch.float64).masked_fill(blocked, float("-inf"))):
        got = called(ours, [x, x, x], attn_mask=given, is_causal=True)
        assert_within_budget(got[0], wanted[0], plain[0])
        assert_within_budget(got[2], wanted[2], plain[2])
        # torch takes is_causal for a hint, and goes by one of the two
        hinted = theirs.train()(*[x.float()] * 3, attn_mask=given.to(torch.bool), is_causal=True, need_weights=False)
        assert not torch.allclose(hinted[0].detach(), got[0])


def test_masks_of_two_dtypes_both_hold_without_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    _, exact, ours = pair()
    given = inputs(ours)
    bias, padding = randn(LQ, LK, seed=3), torch.zeros(B, LK, dtype=torch.bool)
    padding[:, 5:] = True
    added = torch.zeros(B, LK, dtype=torch.float64).masked_fill(padding, float("-inf"))
    got = called(ours, given, attn_mask=bias, key_padding_mask=padding)
    assert not recwarn.list
    wanted = called(exact, given, attn_mask=bias, key_padding_mask=added)
    plain = called(pair().theirs, given, attn_mask=bias, key_padding_mask=added)
    for each in zip(got, wanted, plain, strict=True):
        assert_within_budget(*each, factor=4.0)


def test_a_floating_mask_of_another_dtype_is_added_as_it_is() -> None:
    ours = pair().ours
    given = [t.float() for t in inputs(ours)]
    bias = randn(LQ, LK, seed=3).float()
    assert torch.equal(ours(*given, attn_mask=bias.double())[0], ours(*given, attn_mask=bias)[0])


def test_a_bias_of_another_dtype_than_the_weights_is_used() -> None:
    theirs, _, ours = pair(dtype=torch.float64)
    given = inputs(ours)
    for module in (theirs, ours):
        module.in_proj_bias = torch.nn.Parameter(module.in_proj_bias.float())
        module.out_proj.bias = torch.nn.Parameter(torch.zeros(E, dtype=torch.float64))
    # torch takes such a bias only where the query is not contiguous
    x, y = given[0], given[0].transpose(0, 1).contiguous().transpose(0, 1)
    torch.testing.assert_close(ours(x, x, x), theirs(y, y, y))


def test_a_learned_bias_gets_its_gradient() -> None:
    theirs, exact, ours = pair()
    found = []
    for module in (ours, exact, theirs):
        dtype = module.out_proj.weight.dtype
        bias = randn(B * H, LQ, LK, seed=3).float().to(dtype).requires_grad_()
        out = module(*(t.to(dtype) for t in inputs(module)), attn_mask=bias)[0]
        found.append(torch.autograd.grad(out.square().sum(), bias)[0])
    assert_within_budget(*found)


def test_padding_may_hold_nan() -> None:
    ours = pair(batch_first=True).ours
    query, key, value = (t.float() for t in inputs(ours))
    padding = torch.zeros(B, LK, dtype=torch.bool)
    padding[0, 4:] = True
    wanted = ours(query, key, value, key_padding_mask=padding)
    key, value = (t.masked_fill(padding[..., None], float("nan")) for t in (key, value))
    for mask in (padding, torch.zeros(B, LK).masked_fill(padding, float("-inf"))):
        got = ours(query, key, value, key_padding_mask=mask)
        assert torch.equal(got[0], wanted[0])
        assert torch.equal(got[1], wanted[1])


def test_weights_are_those_before_dropout_and_the_output_drops() -> None:
    ours = pair(batch_first=True, dropout=0.4).ours
    given = [t.float() for t in inputs(ours)]
    quiet = ours.eval()(*given)
    loud = ours.train()(*given)
    assert torch.equal(loud[1], quiet[1])
    assert not torch.allclose(loud[0], quiet[0])
    many = torch.stack([ours(*given, need_weights=False)[0] for _ in range(800)]).detach()
    spread = many.std(0) / len(many) ** 0.5
    assert ((many.mean(0) - quiet[0]).abs() < 5 * spread).all()


def test_the_sequence_may_be_empty_or_the_batch() -> None:
    ours = pair(batch_first=True).ours
    for batch, length in ((0, LQ), (B, 0)):
        x = torch.zeros(batch, length, E)
        out, weights = ours(x, x, x)
        assert out.shape == x.shape
        assert weights.shape == (batch, length, length)
    x, nothing = torch.zeros(B, LQ, E), torch.zeros(B, 0, E)
    assert torch.equal(ours(x, nothing, nothing)[0], ours.out_proj.bias.expand(B, LQ, E))


def test_nested_tensors_give_what_each_sequence_gives_alone() -> None:
    ours = pair(batch_first=True).ours
    rows = [randn(n, E, seed=n).float() for n in (4, 1, 6)]
    x = torch.nested.nested_tensor(rows)
    for is_causal in (False, True):
        out, weights = ours(x, x, x, is_causal=is_causal)
        assert weights.shape == (3, 6, 6)
        for n, row in enumerate(rows):
            alone = ours(row, row, row, is_causal=is_causal)
            L = len(row)
            assert torch.allclose(out.unbind()[n], alone[0], atol=1e-6)
            assert torch.allclose(weights[n, :L, :L], alone[1], atol=1e-6)
            assert weights[n].sum() == weights[n, :L, :L].sum()


@pytest.mark.parametrize("wrong", ["a mask", "another key", "batch last", "jagged"])
def test_other_nested_tensors_are_refused_with_what_to_do(wrong: str) -> None:
    ours = pair(batch_first=wrong != "batch last").ours
    layout = torch.jagged if wrong == "jagged" else torch.strided
    x = torch.nested.nested_tensor([torch.zeros(4, E), torch.zeros(2, E)], layout=layout)
    key = x.clone() if wrong == "another key" else x
    options = {"key_padding_mask": torch.zeros(2, 4, dtype=torch.bool)} if wrong == "a mask" else {}
    with pytest.raises(ShapeError, match=r"but 3-D torch\.\w+ came with batch_first=\w+: pad them"):
        ours(x, key, key, **options)
