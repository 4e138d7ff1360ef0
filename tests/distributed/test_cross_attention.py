"""Cross-attention over ranks: queries of a spread sequence, keys of another one, or keys that each rank holds whole."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import headwise as hw
from headwise.distributed.exchange import counted
from headwise.distributed.spread import spread
from headwise.errors import ArgumentError, BackendError, DistributedError, ShapeError
from headwise.testing import assert_within_budget
from tests.distributed.calls import CROSS_MASKS, LAYOUTS, Case, assert_one_set_of_numbers
from tests.distributed.ranks import on_ranks

L, S, E, SOURCE_WIDTH = 11, 17, 12, 7
RULES = ("no rule", "all of them", "additive")


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("way", ["gather", "heads", "queries", "ring"])
def test_every_way_gives_the_numbers_of_one_process(way: str, ranks: int) -> None:
    for number, mask in enumerate(CROSS_MASKS):
        rule, layouts = RULES[(number + ranks) % 3], (LAYOUTS[number % 3], LAYOUTS[(number + ranks) % 3])
        assert_one_set_of_numbers(ranks, Case(mask, rule, length=L, source=S), layouts[0], way, layouts[1])
    # a source that is shorter than the ranks are many
    assert_one_set_of_numbers(ranks, Case("no mask", length=L, source=2, batch=16), "zigzag", way, "contiguous")


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_keys_that_each_rank_holds_whole_give_the_numbers_of_one_process(ranks: int) -> None:
    for number, mask in enumerate(CROSS_MASKS):
        case = Case(mask, RULES[(number + ranks) % 3], length=L, source=S)
        assert_one_set_of_numbers(ranks, case, LAYOUTS[number % 3], "auto")


def test_two_runs_are_bit_equal_and_padding_of_another_rank_changes_nothing() -> None:
    case = Case("padding", "additive", length=L, source=S)

    def task(rank: int, way: str, keys: str | None, padding: float) -> dict[str, Tensor]:
        q, k, v, go = case.tensors()
        k[1, :, S - 6 :], v[1, :, S - 6 :] = padding, padding
        queries = spread(L, layout="zigzag")
        source = None if keys is None else spread(S, layout=keys)
        mine = [queries.local(q, 2), *((t if source is None else source.local(t, 2)) for t in (k, v))]
        mine = [t.clone().requires_grad_() for t in mine]
        out = hw.distributed.attention(*mine, spread=queries.with_keys(source), way=way, **case.rules())
        out.backward(queries.local(go, 2))
        return {"out": out.detach(), **{name: t.grad for name, t in zip("qkv", mine, strict=True)}}

    for way, keys in (("gather", None), ("gather", "striped"), ("heads", "zigzag"), ("ring", "striped")):
        first, second, poisoned = (on_ranks(3, task, way, keys, padding) for padding in (1.0, 1.0, torch.nan))
        for a, b, c in zip(first, second, poisoned, strict=True):
            assert all(torch.equal(a[name], b[name]) and torch.equal(a[name], c[name]) for name in a), (way, keys)


POSITIONS = (torch.arange(L) * 2 + torch.tensor([[1], [0]]), torch.arange(S) % 9)
PADDED = hw.keys(torch.arange(S) < torch.tensor([[S], [S - 6]]))
Given = dict[str, Any]
# the options of a layer, and what it is called with beside query, key and value
LAYERS: dict[str, tuple[Given, Given]] = {
    "grouped heads, two widths": ({"num_kv_heads": 2, "head_dim": 6, "kdim": SOURCE_WIDTH}, {"mask": PADDED}),
    "ALiBi": ({"position": hw.Alibi(), "kdim": SOURCE_WIDTH}, {"mask": hw.causal()}),
    "relative bias and a bias": ({"position": hw.RelativeBias(max_distance=20), "kdim": SOURCE_WIDTH}, {"has_bias": 1}),
    "relative bias at positions": (
        {"position": hw.RelativeBias(max_distance=20), "kdim": SOURCE_WIDTH},
        {"mask": PADDED & hw.window(before=6, after=3), "positions": POSITIONS},
    ),
    "rotary at positions": (
        {"position": hw.Rotary(), "head_dim": 6, "kdim": SOURCE_WIDTH}, {"mask": hw.causal(), "positions": POSITIONS},
    ),
    "additive": ({"score": hw.Additive(5), "kdim": SOURCE_WIDTH}, {"mask": PADDED}),
    "a memory": ({"bias": False, "v_head_dim": 5, "kdim": SOURCE_WIDTH}, {"is_memory": 1}),
}  # fmt: skip


def _layer(name: str) -> hw.MultiHeadAttention:
    layer, generator = hw.MultiHeadAttention(E, 4, **LAYERS[name][0]), torch.Generator().manual_seed(3)
    with torch.no_grad():
        for p in layer.parameters():
            p.copy_(torch.randn(p.shape, generator=generator) * 0.5)
    return layer


def _results(
    name: str,
    dtype: torch.dtype,
    of_queries: Callable[[Tensor], Tensor],
    of_keys: Callable[[Tensor], Tensor],
    **more: Any,
) -> dict[str, Tensor]:
    """The output and all gradients of a layer, of some queries and some keys."""
    layer, given = _layer(name).to(dtype), dict(LAYERS[name][1])
    generator = torch.Generator().manual_seed(4)
    x, source, weight, bias = (
        torch.randn(size, generator=generator) for size in ((2, L, E), (2, S, SOURCE_WIDTH), (2, L, 1), (1, 4, L, S))
    )
    leaves = {"x": of_queries(x), "source": of_keys(source)}
    if given.pop("has_bias", 0):
        leaves["bias"] = bias
    leaves = {n: t.to(dtype).requires_grad_() for n, t in leaves.items()}
    is_memory, key = given.pop("is_memory", 0), leaves["source"]
    if "bias" in leaves:
        given["attn_bias"] = leaves["bias"]
    out = layer(leaves["x"], layer.memory(key, mask=PADDED) if is_memory else key, **given, **more)
    (out * of_queries(weight).to(dtype)).sum().backward()
    leaves |= dict(layer.named_parameters())
    return {"out": out.detach(), **{n: t.grad for n, t in leaves.items()}}


@pytest.mark.parametrize("keys", [None, "striped"])
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_gives_the_numbers_of_one_process(name: str, keys: str | None) -> None:
    ranks = 2 + list(LAYERS).index(name) % 3

    def task(rank: int) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        target, source = spread(L, layout="zigzag"), spread(S, layout=keys or "contiguous")
        over = target.with_keys(None if keys is None else source)
        of_keys = (lambda t: t) if keys is None else source.local
        if rank == 0:
            return target.tokens, source.tokens, _results(name, torch.float32, target.local, of_keys, spread=over)
        with over:
            return target.tokens, source.tokens, _results(name, torch.float32, target.local, of_keys)

    tokens, of_source, parts = zip(*on_ranks(ranks, task), strict=True)
    exact, plain = (_results(name, dtype, nn.Identity(), nn.Identity()) for dtype in (torch.float64, torch.float32))
    for which, want in exact.items():
        mine = [part[which] for part in parts]
        if which in ("out", "x"):
            got = torch.cat(mine, 1)[:, torch.cat(tokens).argsort()]
        elif which == "source" and keys is not None:
            got = torch.cat(mine, 1)[:, torch.cat(of_source).argsort()]
        else:
            got = torch.stack(mine).sum(0)
        assert_within_budget(got, want, plain[which])


@pytest.mark.parametrize("rule", ["no rule", "additive"])
def test_dropout_drops_the_same_pairs_on_any_number_of_ranks(rule: str) -> None:
    case = Case("causal", rule, length=L, source=S)

    def task(rank: int, keys: str | None, seed: int = 6) -> Tensor:
        q, k, v, _ = case.tensors()
        queries, source = spread(L, layout="striped"), None if keys is None else spread(S, layout=keys)
        k, v = (t if source is None else source.local(t, 2) for t in (k, v))
        # rank 0 draws for all
        drops = {"dropout": 0.4, "generator": torch.Generator().manual_seed(seed + rank)}
        over = queries.with_keys(source)
        return queries.whole(
            hw.distributed.attention(queries.local(q, 2), k, v, spread=over, **case.rules(), **drops), 2
        )

    want = task(0, None)
    assert not torch.allclose(task(0, None, seed=7), want)
    for ranks, keys in ((2, None), (3, "zigzag"), (4, "striped")):
        for out in on_ranks(ranks, task, keys):
            torch.testing.assert_close(out, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("keys", [None, "striped"])
def test_a_layer_without_a_key_is_self_attention_inside_of_a_pair(keys: str | None) -> None:
    layer, x = hw.MultiHeadAttention(E, 4, position=hw.Alibi()), torch.randn(2, L, E)
    whole = layer(x, mask=hw.causal()).detach()

    def task(rank: int) -> Tensor:
        taken = spread(L, layout="zigzag")
        mine = taken.local(x)
        with torch.no_grad(), taken.with_keys(None if keys is None else spread(S, layout=keys)):
            batched = taken.whole(layer(mine, mask=hw.causal()))
            return torch.cat([batched[:1], taken.whole(layer(mine[0], mask=hw.causal()), dim=0)[None]])

    for out in on_ranks(3, task):
        torch.testing.assert_close(out, whole[:1].expand(2, -1, -1), rtol=1e-5, atol=1e-5)


def test_a_copy_of_the_key_has_the_meaning_of_the_key() -> None:
    layer, x = hw.MultiHeadAttention(E, 4, position=hw.Alibi()), torch.randn(2, 12, E)

    def task(rank: int) -> None:
        target, source = spread(12, layout="zigzag"), spread(12, layout="contiguous")
        mine, rules = target.local(x), {"spread": target.with_keys(source), "mask": hw.causal()}
        with torch.no_grad():
            with pytest.raises(ArgumentError, match="of one length, 12, in two layouts, zigzag and contiguous"):
                layer(mine, mine, mine, **rules)
            # the same tokens in one layout: both are self-attention
            rules["spread"] = target.with_keys(spread(12, layout="zigzag"))
            assert torch.equal(layer(mine, mine, mine, **rules), layer(mine, mine.clone(), mine.clone(), **rules))
            torch.testing.assert_close(layer(mine, mine.clone(), **rules), target.local(layer(x, mask=hw.causal())))

    on_ranks(2, task)


class TestRefusals:
    @pytest.mark.parametrize("copied", [False, True])
    @pytest.mark.parametrize("ranks", [1, 2])
    def test_a_key_over_a_plain_spread_is_refused(self, ranks: int, copied: bool) -> None:
        layer, x = hw.MultiHeadAttention(E, 4), torch.randn(2, L, E)
        told = r"spread of 11 tokens.*leave key= out for self-attention, or say spread\.with_keys\(source\)"

        def task(rank: int) -> None:
            taken = spread(L)
            mine = taken.local(x)
            key = mine.clone() if copied else mine
            for given in ((mine, key, key), (mine[0], key[0]), (mine, layer.memory(key))):
                with pytest.raises(ArgumentError, match=told):
                    layer(*given, spread=taken)
                with taken, pytest.raises(ArgumentError, match=told):
                    layer(*given)
            with pytest.raises(ArgumentError, match=told):
                layer(mine, key, positions=torch.arange(L), spread=taken)

        on_ranks(ranks, task)

    def test_a_key_that_may_be_the_query_is_refused_inside_of_a_pair(self) -> None:
        layer, x, source = hw.MultiHeadAttention(E, 4), torch.randn(2, 12, E), torch.randn(2, 12, E)

        def task(rank: int) -> None:
            target, other = spread(12, layout="zigzag"), spread(12, layout="striped")
            mine = target.local(x)
            with target.with_keys(None):
                for key, given in ((mine.clone(), {}), (mine, {"spread": target.with_keys(None)})):
                    with pytest.raises(ArgumentError, match="key holds 6 tokens, as many as a rank holds of the query"):
                        layer(mine, key, **given)
                layer(mine, source)
            with (
                target.with_keys(other),
                pytest.raises(ArgumentError, match="of one length, 12, in two layouts, zigzag and striped"),
            ):
                layer(mine, mine)

        on_ranks(2, task)

    def test_whole_keys_of_two_lengths_are_told(self) -> None:
        layer, x, source = hw.MultiHeadAttention(E, 4), torch.randn(2, L, E), torch.randn(2, 13, E)

        def task(rank: int) -> None:
            taken, other = spread(L), spread(13)
            with pytest.raises(DistributedError, match="rank 0 has Lk=7 and rank 1 has Lk=6"):
                layer(taken.local(x), other.local(source), spread=taken.with_keys(None))

        on_ranks(2, task)

    def test_tokens_and_ranks_that_do_not_fit_are_counted(self) -> None:
        layer, x, source = hw.MultiHeadAttention(E, 4), torch.randn(2, L, E), torch.randn(2, S, E)
        over = spread(L).with_keys(spread(16))
        with pytest.raises(ShapeError, match="k must hold the 16 tokens of rank 0, of 16 on 1 ranks, but holds 17"):
            layer(x, source, spread=over)
        with pytest.raises(ArgumentError, match=r"over the same ranks, or None, but 17 came"):
            spread(L).with_keys(17)  # type: ignore[arg-type]

    def test_whole_keys_need_no_other_way(self) -> None:
        q, k = torch.randn(2, 4, L, 8), torch.randn(2, 4, S, 8)
        over = spread(L).with_keys(None)
        told = str(hw.distributed.ways(q, k, k, spread=over))
        assert told.splitlines()[0] == "gather   runs: the busiest rank receives 0 bytes in 1 step"
        assert told.count("every rank holds the keys whole, so that none need move") == 3

        def task(rank: int) -> None:
            taken = spread(L)
            with pytest.raises(BackendError, match=r'way="ring" cannot run this call: every rank holds the keys whole'):
                hw.distributed.attention(taken.local(q, 2), k, k, spread=taken.with_keys(None), way="ring")

        on_ranks(2, task)

    def test_rules_of_dot_products_are_refused_beside_a_weight(self) -> None:
        q = torch.randn(2, 4, L, 8)
        with pytest.raises(ArgumentError, match="softcap= is a rule of dot products, but weight= came"):
            hw.distributed.attention(q, q, q, spread=spread(L), weight=torch.ones(8), softcap=2.0)


def test_only_the_keys_that_a_mask_lets_a_rank_attend_to_move() -> None:
    mask = hw.documents(torch.arange(12)[None] // 4, torch.arange(18)[None] // 6)

    def task(rank: int) -> int:
        over = spread(12, layout="contiguous").with_keys(spread(18, layout="contiguous"))
        with counted() as traffic:
            hw.distributed.attention(torch.ones(1, 2, 4, 4), *[torch.ones(1, 2, 6, 4)] * 2, spread=over, mask=mask)
        return traffic.bytes

    assert on_ranks(3, task) == [0, 0, 0]


def test_a_second_derivative_passes_through_whole_keys() -> None:
    case = Case("causal", length=L, source=S, dtype=torch.float64)

    def twice(rank: int, ranks: int) -> Tensor:
        q, k, v, _ = case.tensors()
        queries = spread(L, layout="zigzag") if ranks > 1 else spread(L)
        q, k, v = (t.requires_grad_() for t in (queries.local(q, 2), k, v))
        out = hw.distributed.attention(q, k, v, spread=queries.with_keys(None), mask=hw.causal())
        (first,) = torch.autograd.grad(out.square().sum(), q, create_graph=True)
        return torch.autograd.grad(first.square().sum(), k)[0]

    torch.testing.assert_close(sum(on_ranks(2, twice, 2)), twice(0, 1))
