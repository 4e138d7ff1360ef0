"""What torch offers around nn.MultiheadAttention works on the drop-in: compile, copies, transforms, autocast, watch."""

import copy
import io
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune

import headwise as hw
from headwise.compat.torch import MultiheadAttention
from headwise.errors import ConversionError
from headwise.testing import assert_within_budget
from tests.compat.agreement import randn
from tests.compat.torch.pairs import LQ, B, E, H, pair

PADDING = torch.arange(LQ) >= torch.tensor([5, 3, 0])[:, None]
BLOCKED = torch.ones(LQ, LQ, dtype=torch.bool).triu(1)
CALLS: dict[str, dict[str, Any]] = {
    "no mask": {},
    "padding": {"key_padding_mask": PADDING},
    "both and causal": {"key_padding_mask": PADDING, "attn_mask": BLOCKED, "is_causal": True},
    "floating": {"attn_mask": randn(LQ, LQ, seed=3).float(), "key_padding_mask": PADDING, "need_weights": False},
}


def x_of(*sizes: int) -> Tensor:
    return randn(*(sizes or (B, LQ, E)), seed=1).float()


MORE_KEYS = {"add_bias_kv": True, "add_zero_attn": True}


@pytest.mark.parametrize(("given", "flags"), [*((name, {}) for name in CALLS), ("both and causal", MORE_KEYS)])
def test_compiled_whole_it_gives_the_same_numbers_and_gradients(given: str, flags: dict[str, Any]) -> None:
    ours = pair(batch_first=True, **flags).ours
    torch.compiler.reset()
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager")

    def results(layer: Any) -> list[Tensor]:
        x = x_of().requires_grad_()
        found = [t for t in layer(x, x, x, **CALLS[given]) if t is not None]
        return [*found, *torch.autograd.grad(sum(t.square().sum() for t in found), [x, ours.in_proj_weight])]

    for got, wanted in zip(results(compiled), results(ours), strict=True):
        torch.testing.assert_close(got, wanted)


@pytest.mark.needs("inductor")
def test_inductor_gives_the_same_numbers() -> None:
    ours = pair(batch_first=True).ours
    torch.compiler.reset()
    compiled = torch.compile(ours, fullgraph=True)
    x = x_of()
    got, wanted = (m(x, x, x, **CALLS["both and causal"]) for m in (compiled, ours))
    torch.testing.assert_close(got, wanted)


def test_exported_with_dynamic_sizes_it_gives_the_same_numbers() -> None:
    ours = pair(batch_first=True).ours.eval()
    batch, length = torch.export.Dim("B", min=2, max=64), torch.export.Dim("L", min=2, max=64)

    class Padded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attn = ours

        def forward(self, x: Tensor, padding: Tensor) -> tuple[Tensor, Tensor]:
            return self.attn(x, x, x, key_padding_mask=padding, is_causal=True)

    shapes = {"x": {0: batch, 1: length}, "padding": {0: batch, 1: length}}
    program = torch.export.export(Padded(), (x_of(), PADDING), dynamic_shapes=shapes)
    x, padding = x_of(4, 9, E), torch.arange(9) >= torch.tensor([9, 4, 1, 7])[:, None]
    torch.testing.assert_close(program.module()(x, padding), Padded()(x, padding))


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_script_and_trace_are_refused_in_one_sentence() -> None:
    ours = pair(batch_first=True).ours
    for scripted in (ours, nn.Sequential(ours), nn.TransformerEncoder(_holding(ours), 1)):
        with pytest.raises(ConversionError, match=r"torch\.jit\.script cannot hold .* use torch\.compile"):
            torch.jit.script(scripted)
    with pytest.raises(ConversionError, match=r"torch\.jit\.trace cannot hold"):
        torch.jit.trace(ours, (x_of(), x_of(), x_of()))


def _holding(ours: MultiheadAttention) -> nn.TransformerEncoderLayer:
    layer = nn.TransformerEncoderLayer(E, H, batch_first=True)
    layer.self_attn = ours
    return layer


@pytest.mark.parametrize("strict_torch", [False, True])
def test_copies_pickles_and_saved_modules_are_the_same_layer(strict_torch: bool) -> None:
    ours = pair(batch_first=True, add_bias_kv=True, strict_torch=strict_torch).ours
    file = io.BytesIO()
    torch.save(ours, file)
    file.seek(0)
    x = x_of()
    wanted = ours(x, x, x)
    for again in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours)), torch.load(file, weights_only=False)):
        assert type(again) is MultiheadAttention
        assert again.strict_torch is strict_torch
        assert all(torch.equal(got, want) for got, want in zip(again(x, x, x), wanted, strict=True))


def test_an_old_pickle_without_its_newer_fields_is_read_as_torch_reads_it() -> None:
    state = vars(pair().ours) | {}
    del state["_qkv_same_embed_dim"], state["_strict_torch"]
    old = MultiheadAttention.__new__(MultiheadAttention)
    old.__setstate__(state)
    assert (old._qkv_same_embed_dim, old.strict_torch) == (True, False)
    x = x_of()
    assert torch.equal(old(x, x, x)[0], pair().ours(x, x, x)[0])


def test_a_state_dict_that_lacks_a_key_is_refused_or_loaded_as_by_torch() -> None:
    theirs, _, ours = pair()
    state = theirs.state_dict()
    del state["in_proj_bias"]
    for module in (theirs, ours):
        assert module.load_state_dict(state, strict=False).missing_keys == ["in_proj_bias"]
        with pytest.raises(RuntimeError, match="in_proj_bias"):
            module.load_state_dict(state)


@pytest.mark.parametrize("need_weights", [True, False])
def test_vmap_gives_what_one_call_each_gives(need_weights: bool) -> None:
    ours = pair(batch_first=True).ours
    stacked, padding = torch.stack([x_of(), -x_of()]), torch.stack([PADDING, ~PADDING])

    def call(x: Tensor, mask: Tensor) -> Tensor:
        out, weights = ours(x, x, x, key_padding_mask=mask, need_weights=need_weights, is_causal=True)
        return out if weights is None else weights @ out

    got = torch.func.vmap(call)(stacked, padding)
    torch.testing.assert_close(got, torch.stack([call(*each) for each in zip(stacked, padding, strict=True)]))
    alone = torch.func.vmap(lambda x: ours(x, x, x)[0])(x_of())
    torch.testing.assert_close(alone, ours(x_of(), x_of(), x_of())[0])


@pytest.mark.parametrize("which", ["output", "weights"])
def test_first_second_and_forward_derivatives_pass_gradcheck(which: str) -> None:
    ours = pair(dtype=torch.float64, batch_first=True, add_zero_attn=True).ours
    x = randn(2, 3, E).requires_grad_()
    padding = torch.tensor([[False, False, True], [True, True, True]])

    def call(x: Tensor) -> Tensor:
        result: Tensor = ours(x, x, x, key_padding_mask=padding, is_causal=True)[which == "weights"]
        return result

    assert torch.autograd.gradcheck(call, x, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(call, x)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("given", CALLS)
def test_autocast_gives_torchs_dtypes_within_the_budget_of_halves(given: str, dtype: torch.dtype) -> None:
    theirs, _, ours = pair(batch_first=True)
    x = x_of()
    with torch.autocast("cpu", dtype=dtype):
        got = [t for t in ours(x, x, x, **CALLS[given]) if t is not None]
        like = [t for t in theirs(x, x, x, need_weights=len(got) == 2) if t is not None]
    assert [t.dtype for t in got] == [t.dtype for t in like] == [dtype] * len(got)
    wide = copy.deepcopy(ours).double()(*[x.double()] * 3, **CALLS[given])
    half = copy.deepcopy(ours).to(dtype)(*[x.to(dtype)] * 3, **CALLS[given])
    for each in zip(got, wide[: len(got)], half[: len(got)], strict=True):
        assert_within_budget(*(t.detach() for t in each))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast_weights_are_those_of_halves_whose_scores_stay_in_float32(dtype: torch.dtype) -> None:
    ours = pair(batch_first=True).ours
    x = 4 * x_of()
    with torch.autocast("cpu", dtype=dtype):
        got = ours(x, x, x, average_attn_weights=False)[1]
    half = copy.deepcopy(ours).to(dtype)
    assert torch.equal(got, half(*[x.to(dtype)] * 3, average_attn_weights=False)[1])


@pytest.mark.parametrize("need_weights", [True, False])
def test_on_meta_it_has_shapes_and_then_memory(need_weights: bool) -> None:
    ours = MultiheadAttention(E, H, device="meta", add_bias_kv=True)
    x = torch.empty(LQ, B, E, device="meta")
    out, weights = ours(x, x, x, need_weights=need_weights, is_causal=True, average_attn_weights=False)
    assert out.shape == (LQ, B, E)
    assert (None if weights is None else weights.shape) == ((B, H, LQ, LQ + 1) if need_weights else None)
    theirs = pair(add_bias_kv=True).theirs
    ours.to_empty(device="cpu").load_state_dict(theirs.state_dict())
    x = x_of(LQ, B, E)
    torch.testing.assert_close(ours(x, x, x), theirs(x, x, x))


def test_parametrized_and_pruned_weights_are_the_ones_used() -> None:
    theirs, _, ours = pair(batch_first=True)
    x = x_of()
    for module in (theirs, ours):
        torch.manual_seed(0)
        parametrizations.orthogonal(module, "in_proj_weight")
        prune.l1_unstructured(module, "in_proj_bias", amount=0.5)
        nn.init.ones_(module.in_proj_bias_orig)
    torch.testing.assert_close(ours(x, x, x), theirs(x, x, x))


def test_hooks_on_out_proj_run_and_it_may_be_replaced() -> None:
    ours = pair(batch_first=True).ours
    x, heard = x_of(), []
    wanted = ours(x, x, x)[0]
    ours.out_proj.register_forward_hook(lambda *_: heard.append(1))
    assert torch.equal(ours(x, x, x)[0], wanted)
    assert heard == [1]
    ours.out_proj = nn.Sequential(ours.out_proj, nn.ReLU())
    assert torch.equal(ours(x, x, x)[0], wanted.relu())
    with pytest.raises(AssertionError, match="3-D but found 2-D"):
        ours(x, x[0], x)


def test_watched_inside_an_encoder_layer_it_shows_the_weights_it_used() -> None:
    layer = nn.TransformerEncoderLayer(E, H, 17, batch_first=True).eval()
    model = nn.Sequential(layer)
    hw.compat.replace(model)
    x, bias = x_of(), randn(LQ, LQ, seed=3).float()
    with torch.no_grad():
        wanted = layer(x, src_mask=bias)
        with hw.watch(model) as seen:
            assert torch.equal(layer(x, src_mask=bias), wanted)
        weights = layer.self_attn(x, x, x, attn_mask=bias, average_attn_weights=False)[1]
    torch.testing.assert_close(seen["0.self_attn"].dense(), weights)


def test_watched_it_computes_the_same_and_shows_its_weights() -> None:
    ours = pair(batch_first=True).ours
    x, bias = x_of(), randn(LQ, LQ, seed=3).float()
    model = nn.ModuleDict({"attn": ours})
    options = {"attn_mask": bias, "key_padding_mask": PADDING, "is_causal": True}
    wanted, weights = ours(x, x, x, average_attn_weights=False, **options)
    with hw.watch(model) as seen:
        got = model["attn"](x, x, x, need_weights=False, **options)[0]
    assert torch.equal(got, wanted)
    torch.testing.assert_close(seen["attn"].dense(), weights)
