"""A layer, and a model of transformers, whose sequence is spread over ranks: the numbers of one process."""

import copy
import functools
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.exc import Unsupported
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

import headwise as hw
from headwise.distributed.spread import spread
from headwise.errors import ArgumentError, CacheError, MaskError, ShapeError
from headwise.testing import assert_within_budget
from tests.distributed.ranks import on_ranks
from tests.optional import require

LENGTH, WIDTH = 23, 12
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "grouped heads, rotary": {"num_kv_heads": 2, "head_dim": 6, "position": hw.Rotary()},
    "ALiBi, sink": {"position": hw.Alibi(), "score": hw.DotProduct(sink="learned")},
    "relative bias, softcap": {"position": hw.RelativeBias(), "score": hw.DotProduct(softcap=3.0, sink="zero")},
    "additive": {"score": hw.Additive(5), "num_kv_heads": 2},
    "norms, no bias": {"qk_norm": "rms", "bias": False, "v_head_dim": 5, "out_dim": 7},
}
MASKS = {
    "none": None,
    "causal, padded": hw.causal() & hw.keys(torch.arange(LENGTH) >= torch.tensor([[0], [4]])),
    "window": hw.window(keys=6),
}


def _made(options: dict[str, Any], dtype: torch.dtype) -> hw.MultiHeadAttention:
    layer = hw.MultiHeadAttention(WIDTH, 4, **options)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for p in layer.parameters():
            p.copy_(torch.randn(p.shape, generator=generator) * 0.5)
    return layer.to(dtype)


def _inputs(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(4)
    # of large scores torch's fused kernel gives gradients that are up to 6 times as far off as the definition's
    x = 0.5 * torch.randn(2, LENGTH, WIDTH, generator=generator)
    return x.to(dtype), torch.randn(2, LENGTH, 1, generator=generator).to(dtype)


def _results(layer: torch.nn.Module, x: Tensor, weight: Tensor, **given: Any) -> dict[str, Tensor]:
    """The output, and the gradients of the input and of every parameter."""
    x = x.clone().requires_grad_()
    out = layer(x, **given)
    (out * weight).sum().backward()
    return {"out": out.detach(), "x": x.grad, **{name: p.grad for name, p in layer.named_parameters()}}


def _joined(parts: list[tuple[Tensor, dict[str, Tensor]]]) -> dict[str, Tensor]:
    """What ranks have of the sequence, in its order, and the sum of their gradients of parameters."""
    order = torch.cat([tokens for tokens, _ in parts]).argsort()
    return {
        name: torch.cat([found[name] for _, found in parts], 1)[:, order] if name in ("out", "x")
        else torch.stack([found[name] for _, found in parts]).sum(0)
        for name in parts[0][1]
    }  # fmt: skip


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("option", OPTIONS)
def test_a_layer_gives_the_numbers_of_one_process(option: str, mask: str) -> None:
    ranks = 2 + (list(OPTIONS).index(option) + list(MASKS).index(mask)) % 3
    x, weight = _inputs(torch.float32)

    def task(rank: int) -> tuple[Tensor, dict[str, Tensor]]:
        taken = spread(LENGTH, mask=MASKS[mask], layout="zigzag")
        layer = _made(OPTIONS[option], torch.float32)
        given: dict[str, Any] = {"mask": MASKS[mask]}
        mine, its = taken.local(x), taken.local(weight)
        if rank == 0:
            return taken.tokens, _results(layer, mine, its, spread=taken, **given)
        with taken:
            return taken.tokens, _results(layer, mine, its, **given)

    found = _joined(on_ranks(ranks, task))
    exact = _results(_made(OPTIONS[option], torch.float64), *_inputs(torch.float64), mask=MASKS[mask])
    plain = _results(_made(OPTIONS[option], torch.float32), x, weight, mask=MASKS[mask])
    for name, got in found.items():
        assert_within_budget(got, exact[name], plain[name])


class _Largest(TorchDispatchMode):
    """The most numbers that an operation gives while it is on."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.numbers = max([self.numbers, *(t.numel() for t in tree_leaves(out) if isinstance(t, Tensor))])
        return out


@pytest.mark.parametrize("way", ["heads", "queries", "ring"])
def test_a_bias_of_positions_has_the_numbers_of_one_process_by_every_way(way: str) -> None:
    options, (x, weight) = OPTIONS["relative bias, softcap"], _inputs(torch.float32)
    bias = torch.randn(LENGTH, 1, generator=torch.Generator().manual_seed(5))

    def task(_: int) -> tuple[Tensor, dict[str, Tensor]]:
        taken, layer = spread(LENGTH, layout="striped"), _made(options, torch.float32)
        named = _named(taken, functools.partial(taken.attention, way=way))
        return taken.tokens, _results(layer, taken.local(x), taken.local(weight), spread=named, attn_bias=bias)

    found = _joined(on_ranks(3, task))
    exact = _results(_made(options, torch.float64), *_inputs(torch.float64), attn_bias=bias.double())
    plain = _results(_made(options, torch.float32), x, weight, attn_bias=bias)
    for name, got in found.items():
        assert_within_budget(got, exact[name], plain[name])


@pytest.mark.parametrize("way", ["gather", "heads", "queries", "ring"])
def test_a_rank_makes_the_biases_of_its_own_part_of_the_map(way: str) -> None:
    position, length, ranks, heads = hw.RelativeBias(max_distance=20), 64, 4, 4

    def task(_: int) -> int:
        taken, layer = spread(length, layout="zigzag"), hw.MultiHeadAttention(WIDTH, heads, position=position)
        x = torch.randn(1, length // ranks, WIDTH)
        run = functools.partial(taken.attention, way=way)
        with _Largest() as largest:
            layer(x, spread=_named(taken, run)).sum().backward()
        return largest.numbers

    assert max(on_ranks(ranks, task)) <= heads * length * length // ranks


def _named(taken: Any, run: Any) -> Any:
    """A spread whose calls go one way."""
    named = copy.copy(taken)
    object.__setattr__(named, "attention", run)
    return named


def test_a_spread_of_one_process_is_the_layer() -> None:
    layer, x = _made(OPTIONS["grouped heads, rotary"], torch.float32), _inputs(torch.float32)[0]
    whole = layer(x, mask=hw.causal())
    with spread(LENGTH, mask=hw.causal()):
        assert torch.equal(layer(x, mask=hw.causal()), whole)


def test_what_a_spread_layer_cannot_take_is_refused() -> None:
    layer, x, taken = _made({}, torch.float32), _inputs(torch.float32)[0], spread(LENGTH)
    with pytest.raises(ShapeError, match=r"23 tokens of this rank, of 23 in all, but came with L=20"):
        layer(x[:, :20], spread=taken)
    with pytest.raises(ArgumentError, match="a cache holds the keys of one process"):
        layer(x, spread=taken, cache=layer.cache())
    with pytest.raises(ShapeError, match=r"positions of tokens must be \(23,\) or \(B=2, 23\), but came as \(20,\)"):
        layer(x, spread=taken, positions=torch.arange(20))


@pytest.mark.parametrize("window", [None, 7])
def test_a_model_of_transformers_gives_the_numbers_of_one_process(window: int | None) -> None:
    require("transformers")
    import transformers

    hw.compat.huggingface.register()
    config = transformers.MistralConfig(
        vocab_size=31, hidden_size=16, intermediate_size=11, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, sliding_window=window,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.AutoModel.from_config(config, attn_implementation="headwise").eval()
    ids = torch.randint(31, (2, LENGTH))
    mask = hw.documents(torch.arange(LENGTH)[None] // 13)

    def task(rank: int) -> Tensor:
        taken = spread(LENGTH, mask=mask, layout="zigzag")
        # of a spread with keys of another, a decoder alone takes its own tokens
        with torch.no_grad(), taken if window is None else taken.with_keys(None):
            out = model(taken.local(ids), position_ids=taken.positions[None], use_cache=False).last_hidden_state
            return taken.whole(out)

    found = on_ranks(3, task)
    with torch.no_grad():
        dense = (mask & hw.causal() & (hw.window(keys=window) if window else hw.causal())).allowed(LENGTH, LENGTH)
        whole = dense.expand(2, 1, LENGTH, LENGTH)
        plain = model(ids, attention_mask=whole).last_hidden_state
        exact = model.double()(ids, attention_mask=whole).last_hidden_state
    for got in found:
        assert_within_budget(got, exact, plain)
        assert torch.equal(got, found[0])


def test_a_model_that_says_nothing_of_its_positions_is_refused() -> None:
    require("transformers")
    import transformers

    hw.compat.huggingface.register()
    config = transformers.LlamaConfig(
        vocab_size=31, hidden_size=16, intermediate_size=11, num_hidden_layers=1, num_attention_heads=4
    )
    model = transformers.AutoModel.from_config(config, attn_implementation="headwise").eval()
    ids = torch.randint(31, (2, LENGTH))

    def task(rank: int) -> None:
        taken = spread(LENGTH, layout="striped")
        mine, i = taken.local(ids), taken.positions[None]
        with torch.no_grad(), taken:
            with pytest.raises(ArgumentError, match=r"position_ids=spread.positions\[None\]"):
                model(mine, use_cache=False)
            keep = torch.arange(mine.shape[1]).expand(mine.shape) > 1
            with pytest.raises(MaskError, match=r"attention_mask \(2, \d+\) pads"):
                model(mine, attention_mask=keep, position_ids=i, use_cache=False)
            with pytest.raises(CacheError, match=r"of 23, and no cache"):
                model(ids, position_ids=torch.arange(LENGTH)[None], use_cache=False)

    on_ranks(2, task)


def test_attention_of_local_tokens_is_refused_inside_of_with() -> None:
    x, taken = torch.randn(2, LENGTH, WIDTH), spread(LENGTH)
    theirs = hw.compat.torch.MultiheadAttention(WIDTH, 2, batch_first=True)
    q = torch.randn(2, 2, LENGTH, 4)
    with taken:
        for call in (lambda: hw.attention(q, q, q), lambda: theirs(x, x, x)):
            with pytest.raises(ArgumentError, match=r"hw.attention inside of `with spread:` .* 23 tokens alone, of 23"):
                call()
        assert hw.distributed.attention(q, q, q, spread=taken).shape == q.shape
    assert hw.attention(q, q, q).shape == q.shape


def test_a_checkpoint_outside_of_with_is_refused() -> None:
    layer, x, taken = _made({}, torch.float32), _inputs(torch.float32)[0].requires_grad_(), spread(LENGTH)
    with taken:
        out = checkpoint(lambda t: layer(t, mask=hw.causal()), x, use_reentrant=True)
    with pytest.raises(ArgumentError, match="outside of the `with spread:` that was around it"):
        out.sum().backward()
    again = checkpoint(lambda t: layer(t, mask=hw.causal(), spread=taken), x, use_reentrant=True)
    again.sum().backward()
    assert x.grad is not None
    # a later call in no spread is one of one process
    assert torch.equal(layer(x.detach(), mask=hw.causal()), again)


def test_a_compiled_layer_refuses_what_it_cannot_read() -> None:
    layer, x = _made({}, torch.float32), _inputs(torch.float32)[0]
    compiled = torch.compile(layer, fullgraph=True, backend="eager")
    want = layer(x, mask=hw.causal())
    assert torch.equal(compiled(x, mask=hw.causal()), want)
    with spread(LENGTH), pytest.raises(Unsupported, match="cannot read the `with spread:` around it"):
        compiled(x, mask=hw.causal())
    assert torch.equal(compiled(x, mask=hw.causal()), want)


def test_a_model_whose_rows_sit_elsewhere_is_refused() -> None:
    require("transformers")
    import transformers

    hw.compat.huggingface.register()
    config = transformers.LlamaConfig(
        vocab_size=31, hidden_size=16, intermediate_size=11, num_hidden_layers=1, num_attention_heads=4
    )
    model = transformers.AutoModel.from_config(config, attn_implementation="headwise").eval()
    i = torch.stack([torch.arange(LENGTH), torch.arange(LENGTH) % 5])
    with torch.no_grad(), spread(LENGTH), pytest.raises(ArgumentError, match="others reached attention"):
        model(torch.randint(31, (2, LENGTH)), position_ids=i, use_cache=False)
