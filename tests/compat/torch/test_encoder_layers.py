"""Inside torch's transformer layers the drop-in is called on every path, and the layers give what they give."""

import copy
import itertools
import pickle
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor, nn

from headwise.compat.torch.replacement import replace
from headwise.testing import assert_within_budget
from tests.compat.agreement import randn
from tests.compat.torch.pairs import LQ, B, E

WIDE = 16
SQUARE = nn.Transformer.generate_square_subsequent_mask(LQ)
PADDING = torch.arange(LQ) >= torch.tensor([5, 3, 1])[:, None]
CALLS: dict[str, dict[str, Any]] = {
    "no mask": {},
    "causal": {"src_mask": SQUARE, "is_causal": True},
    "bool mask": {"src_mask": SQUARE.isneginf()},
    "padding": {"src_key_padding_mask": PADDING},
    "both": {"src_mask": SQUARE.isneginf(), "src_key_padding_mask": PADDING},
}
# torch says at the first nested tensor of a process that they are a prototype
pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
MODES = list(itertools.product((True, False), repeat=2))


def encoder_layer(**options: Any) -> nn.TransformerEncoderLayer:
    torch.manual_seed(2)
    return nn.TransformerEncoderLayer(E, 2, WIDE, 0.0, batch_first=True, **options)


def three(model: nn.Module) -> tuple[nn.Module, nn.Module, nn.Module]:
    """Ours, torch's in float64, and torch's."""
    ours = copy.deepcopy(model)
    assert replace(ours).swapped
    return ours, copy.deepcopy(model).double(), model


def assert_layers_agree(model: nn.Module, call: Callable[[nn.Module, torch.dtype], Tensor]) -> None:
    """In train and eval, with and without gradients, what ours gives is within the budget of torch's."""
    modules = three(model)
    for training, grad in MODES:
        with torch.set_grad_enabled(grad):
            results = [call(m.train(training), next(m.parameters()).dtype).detach() for m in modules]
        assert_within_budget(*results, factor=4.0)


def in_dtype(options: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    return {n: t.to(dtype) if isinstance(t, Tensor) and t.is_floating_point() else t for n, t in options.items()}


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("given", CALLS)
def test_an_encoder_layer_gives_torchs_numbers_on_every_path(given: str, norm_first: bool) -> None:
    x = randn(B, LQ, E).float()
    layer = encoder_layer(norm_first=norm_first)
    assert_layers_agree(layer, lambda m, dtype: m(x.to(dtype), **in_dtype(CALLS[given], dtype)))


@pytest.mark.parametrize("given", ["no mask", "causal", "padding", "both"])
def test_a_decoder_layer_gives_torchs_numbers(given: str) -> None:
    x, memory = randn(B, LQ, E).float(), randn(B, LQ, E, seed=1).float()
    names = {"src_mask": "tgt_mask", "is_causal": "tgt_is_causal", "src_key_padding_mask": "tgt_key_padding_mask"}
    options = {names[name]: option for name, option in CALLS[given].items()}
    options["memory_key_padding_mask"] = PADDING
    layer = nn.TransformerDecoderLayer(E, 2, WIDE, 0.0, batch_first=True)
    assert_layers_agree(layer, lambda m, dtype: m(x.to(dtype), memory.to(dtype), **in_dtype(options, dtype)))


@pytest.mark.parametrize("given", ["no mask", "bool mask", "padding"])
def test_an_encoder_that_makes_nested_tensors_gives_torchs_numbers(given: str) -> None:
    x = randn(B, LQ, E).float()
    options = dict(CALLS[given])
    if "src_mask" in options:
        options["mask"] = options.pop("src_mask")
    model = nn.TransformerEncoder(encoder_layer(), 2)
    assert_layers_agree(model, lambda m, dtype: m(x.to(dtype), **options))
    with torch.no_grad():
        out = three(model)[0].eval()(x, src_key_padding_mask=PADDING)
    # torch leaves zeros where it took the padding out
    assert torch.equal(out[PADDING], torch.zeros_like(out[PADDING]))


def test_an_encoder_built_from_a_layer_of_ours_is_the_same_encoder() -> None:
    layer = encoder_layer()
    wanted = nn.TransformerEncoder(layer, 2).eval()
    replace(layer)
    model = nn.TransformerEncoder(layer, 2).eval()
    x = randn(B, LQ, E).float()
    with torch.no_grad():
        results = [m(x.double(), src_key_padding_mask=PADDING) for m in (model.double(), wanted.double())]
    torch.testing.assert_close(*results)
    assert model.use_nested_tensor


@pytest.mark.parametrize("made", ["swapped", "copied", "pickled"])
def test_the_fast_path_is_kept_off_and_with_it_its_nan(made: str) -> None:
    theirs = encoder_layer().eval()
    ours = three(theirs)[0]
    ours = {"swapped": lambda: ours, "copied": lambda: copy.deepcopy(ours)}.get(
        made, lambda: pickle.loads(pickle.dumps(ours))
    )()
    x, padding = randn(B, LQ, E).float(), PADDING.clone()
    padding[1] = True
    with torch.no_grad():
        assert theirs(x, src_key_padding_mask=padding)[1].isnan().any()
        assert ours(x, src_key_padding_mask=padding).isfinite().all()
        with mock.patch("torch._transformer_encoder_layer_fwd", return_value=x) as fast:
            ours(x)
            assert not fast.called
            theirs(x)
            assert fast.called


def test_a_mask_of_real_numbers_is_added_where_torchs_fast_path_takes_it_for_a_bool_one() -> None:
    theirs = encoder_layer().eval()
    ours, exact, _ = three(theirs)
    x, bias = randn(B, LQ, E).float(), randn(LQ, LQ, seed=1).float()
    wanted, plain = exact(x.double(), src_mask=bias.double()).detach(), theirs(x, src_mask=bias).detach()
    with torch.no_grad():
        assert_within_budget(ours(x, src_mask=bias), wanted, plain, factor=4.0)
        assert not torch.allclose(theirs(x, src_mask=bias), plain)


def test_strict_torch_leaves_the_fast_path_on() -> None:
    theirs = encoder_layer().eval()
    strict = copy.deepcopy(theirs)
    replace(strict, strict_torch=True)
    x = randn(B, LQ, E).float()
    with torch.no_grad():
        assert torch.equal(strict(x), theirs(x))
        with mock.patch("torch._transformer_encoder_layer_fwd", return_value=x) as fast:
            strict(x)
            assert fast.called


def test_what_the_layer_reads_of_its_attention_stays() -> None:
    theirs = encoder_layer()
    ours = three(theirs)[0]
    for name in ("batch_first", "in_proj_weight", "in_proj_bias", "_qkv_same_embed_dim", "num_heads", "embed_dim"):
        one, other = (getattr(m.self_attn, name) for m in (ours, theirs))
        assert torch.equal(one, other) if isinstance(one, Tensor) else one == other
    assert list(ours.state_dict()) == list(theirs.state_dict())


def test_a_whole_transformer_trains_as_torchs_does() -> None:
    torch.manual_seed(1)
    model = nn.Transformer(E, 2, 1, 1, WIDE, 0.0, batch_first=True)
    source, target = randn(B, LQ, E).float(), randn(B, LQ, E, seed=1).float()
    gradients = []
    for m in three(model):
        dtype = next(m.parameters()).dtype
        out = m(source.to(dtype), target.to(dtype), src_key_padding_mask=PADDING, tgt_mask=SQUARE.to(dtype))
        found = torch.autograd.grad(out.square().sum(), list(m.parameters()))
        gradients.append(torch.cat([g.flatten() for g in found]))
    assert_within_budget(*gradients, factor=4.0)
