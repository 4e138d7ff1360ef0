"""What PyTorch's own tests ask of nn.MultiheadAttention and of the layers around it holds for the drop-in too."""

import copy
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

from headwise.compat.torch import MultiheadAttention
from headwise.errors import ArgumentError, ConversionError
from headwise.testing import assert_within_budget
from tests.compat.agreement import randn
from tests.compat.torch.pairs import LQ, B, E, H, inputs, pair
from tests.compat.torch.test_multi_head import WRONG

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
STRICT = pytest.mark.parametrize("strict_torch", [False, True], ids=["headwise", "strict"])


def by_hand(layer: nn.MultiheadAttention, query: Tensor, key: Tensor, blocked: Tensor | None) -> tuple[Tensor, Tensor]:
    """Outputs (B, L, E) and weights (B, H, L, S) in float64, sample by sample and head by head."""
    w_q, w_k, w_v = (w.double() for w in layer.in_proj_weight.chunk(3))
    b_q, b_k, b_v = (b.double() for b in layer.in_proj_bias.chunk(3))
    D, outputs, maps = layer.head_dim, [], []
    for n, (x, y) in enumerate(zip(query.double(), key.double(), strict=True)):
        heads, rows = [], []
        for h in range(layer.num_heads):
            part = slice(h * D, (h + 1) * D)
            q, k, v = ((t @ w.T + b)[:, part] for t, w, b in ((x, w_q, b_q), (y, w_k, b_k), (y, w_v, b_v)))
            for extra, learned in ((0, layer.bias_k), (1, layer.bias_v)):
                if learned is not None:
                    row = learned.double().reshape(1, -1)[:, part]
                    k, v = (torch.cat([k, row]), v) if extra == 0 else (k, torch.cat([v, row]))
            if layer.add_zero_attn:
                k, v = (torch.cat([t, t.new_zeros(1, D)]) for t in (k, v))
            scores = q @ k.T / D**0.5
            if blocked is not None:
                scores[:, : len(y)].masked_fill_(blocked[n], float("-inf"))
            rows.append(scores.softmax(-1))
            heads.append(rows[-1] @ v)
        outputs.append(torch.cat(heads, -1) @ layer.out_proj.weight.double().T + layer.out_proj.bias.double())
        maps.append(torch.stack(rows))
    return torch.stack(outputs).detach(), torch.stack(maps).detach()


@STRICT
@pytest.mark.parametrize("flags", [{}, {"add_bias_kv": True}, {"add_zero_attn": True}], ids=str)
@pytest.mark.parametrize("is_masked", [False, True])
def test_outputs_and_weights_are_those_written_out_by_hand(
    is_masked: bool, flags: dict[str, Any], strict_torch: bool
) -> None:
    theirs, _, ours = pair(batch_first=True, strict_torch=strict_torch, **flags)
    query, key = (t.float() for t in inputs(ours)[:2])
    blocked = None
    options: dict[str, Any] = {"average_attn_weights": False}
    if is_masked:
        options["key_padding_mask"] = torch.arange(7) >= torch.tensor([7, 4, 2])[:, None]
        options["attn_mask"] = torch.ones(LQ, 7, dtype=torch.bool).triu(3)
        blocked = options["key_padding_mask"][:, None] | options["attn_mask"]
    exact = by_hand(ours, query, key, blocked)
    for got, wanted, plain in zip(
        ours(query, key, key, **options), exact, theirs(query, key, key, **options), strict=True
    ):
        assert_within_budget(got.detach(), wanted, plain.detach())


@STRICT
@pytest.mark.parametrize("wrong", WRONG)
def test_what_torch_refuses_is_refused_in_its_words_in_eval_too(wrong: str, strict_torch: bool) -> None:
    theirs, _, ours = pair(strict_torch=strict_torch)
    given = dict(zip(("query", "key", "value"), (t.float() for t in inputs(ours)), strict=True)) | WRONG[wrong]
    with torch.no_grad():
        with pytest.raises((AssertionError, RuntimeError)) as told:
            theirs.eval()(**given)
        with pytest.raises(told.type) as said:
            ours.eval()(**given)
    assert str(said.value) == str(told.value)


@STRICT
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("batch_first", [False, True])
def test_outputs_have_the_shape_and_the_dtype_of_the_query(
    batch_first: bool, dtype: torch.dtype, strict_torch: bool
) -> None:
    ours = MultiheadAttention(E, H, batch_first=batch_first, strict_torch=strict_torch).to(dtype)
    x = randn(LQ, B, E, dtype=dtype)
    out, weights = ours(x, x, x)
    assert (out.shape, out.dtype, weights.dtype) == (x.shape, dtype, dtype)


@STRICT
@pytest.mark.parametrize("each", ["(L, L)", "(B*H, L, L)"])
def test_two_masks_at_once_give_in_eval_what_they_give_in_training(each: str, strict_torch: bool) -> None:
    ours = pair(batch_first=True, strict_torch=strict_torch).ours
    x = randn(B, LQ, E).float()
    attn_mask = torch.ones(LQ, LQ, dtype=torch.bool).triu(1)
    if each != "(L, L)":
        attn_mask = attn_mask.expand(B * H, LQ, LQ)
    padding = torch.arange(LQ) >= torch.tensor([5, 3, 1])[:, None]
    with torch.no_grad():
        trained, evaluated = (
            ours.train(mode)(x, x, x, key_padding_mask=padding, attn_mask=attn_mask, need_weights=False)[0]
            for mode in (True, False)
        )
    torch.testing.assert_close(evaluated, trained)


@STRICT
def test_layers_built_with_it_are_those_built_with_torchs(strict_torch: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: dict[str, Any] = {"nhead": H, "dim_feedforward": 16, "dropout": 0.0, "batch_first": True}

    def built(of: type[nn.MultiheadAttention]) -> nn.Transformer:
        def make(*given: Any, **named: Any) -> nn.MultiheadAttention:
            return of(*given, **named, **({"strict_torch": True} if strict_torch and of is MultiheadAttention else {}))

        monkeypatch.setattr("torch.nn.modules.transformer.MultiheadAttention", make)
        torch.manual_seed(3)
        return nn.Transformer(E, num_encoder_layers=2, num_decoder_layers=2, **sizes)

    theirs, ours = built(nn.MultiheadAttention), built(MultiheadAttention)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert sum(type(m) is MultiheadAttention for m in ours.modules()) == 6
    exact = copy.deepcopy(theirs).double()
    square = nn.Transformer.generate_square_subsequent_mask(LQ).isneginf()
    padding = torch.arange(LQ) >= torch.tensor([5, 3, 1])[:, None]
    masks = {"src_key_padding_mask": padding, "memory_key_padding_mask": padding, "tgt_mask": square}
    source, target = randn(B, LQ, E).float(), randn(B, LQ, E, seed=1).float()
    for training in (True, False):
        for is_causal in (None, True):
            with torch.set_grad_enabled(training), warnings.catch_warnings():
                # none is due: all masks are bool
                warnings.simplefilter("error")
                # but torch's own of its fast path, once a process
                warnings.filterwarnings("ignore", message="The PyTorch API of nested tensors")
                results = [
                    m.train(training)(source.to(dtype), target.to(dtype), tgt_is_causal=is_causal, **masks).detach()
                    for m, dtype in ((ours, torch.float32), (exact, torch.float64), (theirs, torch.float32))
                ]
            assert_within_budget(*results, factor=4.0)


def test_strict_nested_tensors_are_torchs_and_refused_outside_of_its_fast_path() -> None:
    theirs, _, ours = pair(batch_first=True, strict_torch=True)
    x = torch.nested.nested_tensor([randn(4, E).float(), randn(2, E).float()])
    with pytest.raises(AssertionError, match="does not support NestedTensor outside of its fast path"):
        ours.eval()(x, x, x)
    with torch.no_grad():
        got, wanted = (m.eval()(x, x, x)[0].unbind() for m in (ours, theirs))
    assert all(torch.equal(*each) for each in zip(got, wanted, strict=True))


class Holding(nn.Module):
    def __init__(self, attn: nn.MultiheadAttention) -> None:
        super().__init__()
        self.attn = attn

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        out, weights = self.attn(x, x, x, key_padding_mask=padding, is_causal=False)
        joined: Tensor = out + weights.sum()
        return joined


@STRICT
def test_a_graph_of_fx_calls_it_whole_as_it_calls_torchs(strict_torch: bool) -> None:
    theirs, _, ours = pair(batch_first=True, strict_torch=strict_torch)
    x, padding = randn(B, LQ, E).float(), torch.arange(LQ) >= torch.tensor([5, 3, 1])[:, None]
    graphs = [fx.symbolic_trace(Holding(m)) for m in (ours, theirs)]
    assert [[node.op for node in g.graph.nodes] for g in graphs[:1]] == [[node.op for node in graphs[1].graph.nodes]]
    assert torch.equal(graphs[0](x, padding), Holding(ours)(x, padding))
    with pytest.raises(ConversionError, match=r"torch\.fx does not look inside"):
        fx.symbolic_trace(ours)


@pytest.mark.parametrize("name", ["query", "key", "value", "key_padding_mask", "attn_mask"])
def test_what_is_no_tensor_is_refused_by_its_name(name: str) -> None:
    ours = pair().ours
    given: dict[str, Any] = dict(zip(("query", "key", "value"), (t.float() for t in inputs(ours)), strict=True))
    with pytest.raises(ArgumentError, match=f"^{name} must be a tensor, but list came"):
        ours(**given | {name: [1.0]})
