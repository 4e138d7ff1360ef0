"""Maps of a sequence that is spread over ranks: whole, and the same bits, on every rank."""

import copy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

import headwise as hw
from headwise.distributed.exchange import counted
from headwise.distributed.spread import Spread, spread
from headwise.errors import ArgumentError, StaleMapError
from headwise.maps import AttentionMap
from headwise.pages.encode_maps import Carried, carry
from headwise.testing import assert_within_budget
from tests.distributed.calls import MASKS, RULES, Attending, Case
from tests.distributed.ranks import on_ranks
from tests.distributed.readings import assert_readings, readings
from tests.maps.oracle import Dense, doubled
from tests.optional import require

# ranks, layout and way of each call
RUNS = [(2, "zigzag", "ring"), (3, "striped", "gather"), (4, "contiguous", "heads")]


def watched(
    case: Case,
    layout: "str | hw.distributed.Layout",
    way: str = "auto",
    padding: float | None = None,
    keys: str | None = None,
) -> tuple[Spread, AttentionMap]:
    """The spread of a rank, and the one map that a watch sees of a call; padding: what the first keys hold.

    keys: the layout of a source, None: every rank holds it whole.
    """
    rules, module, tensors = case.rules(), Attending(), case.tensors()
    if padding is not None:
        tensors[1][1, :, :6] = padding
    held = spread(case.length, dist.group.WORLD, mask=None if case.source else rules["mask"], layout=layout)
    source = held if case.source is None else keys and spread(case.source, dist.group.WORLD, layout=keys)
    q, (k, v) = held.local(tensors[0], 2), (t if source is None else source.local(t, 2) for t in tensors[1:3])
    over = held if source is held else held.with_keys(source)
    with torch.no_grad(), hw.watch(module) as seen:
        module(q, k, v, spread=over, way=way, **rules)
    assert (list(seen), dict(seen.unseen)) == ([""], {})
    return held, seen[""]


@cache
def in_one_process(case: Case) -> tuple[Dense, Dense]:
    """The dense weights in float64, and in the dtype of the case."""
    q, k, _, _ = case.tensors()
    given = {"q": q, "k": k, **{name: value for name, value in case.rules().items() if value is not None}}
    return Dense(**doubled(given)), Dense(**given)


def assert_one_map(
    case: Case, ranks: int, layout: "str | hw.distributed.Layout", way: str, keys: str | None = None
) -> None:
    found = on_ranks(ranks, lambda rank: readings(watched(case, layout, way, keys=keys)[1]))
    assert_readings(found, *in_one_process(case), (case, ranks, layout, way))


@pytest.mark.parametrize(
    # two runs of each mask, all of them in turn
    ("mask", "run"),
    [(mask, RUNS[(n + m) % 3]) for n, mask in enumerate(MASKS) for m in (0, 1)],
    ids=str,
)
def test_every_reading_is_that_of_one_process(mask: str, run: tuple[int, str, str]) -> None:
    assert_one_map(Case(mask, "all of them"), *run)


def test_a_spread_of_one_rank_is_a_map_too() -> None:
    assert_one_map(Case("a rule", "all of them"), 1, "contiguous", "auto")


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule != "all of them"])
def test_every_rule_reaches_the_map(rule: str) -> None:
    assert_one_map(Case("padding", rule, heads=(6, 2)), 3, "zigzag", "queries")


@pytest.mark.parametrize("keys", [None, "striped"])
@pytest.mark.parametrize(("mask", "rule"), [("documents", "all of them"), ("padding", "additive")])
def test_every_reading_of_cross_attention_is_that_of_one_process(mask: str, rule: str, keys: str | None) -> None:
    assert_one_map(Case(mask, rule, length=11, source=17), 3, "zigzag", "auto", keys)


@pytest.mark.parametrize("position", [hw.Alibi(), hw.RelativeBias(max_distance=20)], ids=["ALiBi", "T5"])
def test_a_bias_of_positions_is_in_maps_outputs_and_files_whole(position: Any, tmp_path: Path) -> None:
    torch.manual_seed(1)
    layer, x, bias = hw.MultiHeadAttention(12, 4, position=position), torch.randn(2, 23, 12), torch.randn(23, 23)

    def seen_of(own: nn.Module, t: Tensor, held: Spread | None = None) -> hw.watching.Seen:
        with torch.no_grad(), hw.watch(own) as seen:
            own(t, mask=hw.causal(), attn_bias=bias.to(t.dtype), spread=held)
            for p in own.parameters():
                # a step of training, after which the map is still that of the call
                p.add_(1.0)
        return seen

    def task(rank: int) -> tuple[Tensor, Tensor, Tensor]:
        held = spread(23, dist.group.WORLD, layout="zigzag")
        seen = seen_of(copy.deepcopy(layer), held.local(x), held)
        seen.save(tmp_path / "maps")
        return seen[""].dense(), seen.outputs("")[0], hw.load_maps(tmp_path / "maps")[""].dense()

    found = on_ranks(3, task)
    plain, exact = seen_of(copy.deepcopy(layer), x), seen_of(copy.deepcopy(layer).double(), x.double())
    for weights, outputs, loaded in found:
        assert torch.equal(weights, found[0][0])
        assert torch.equal(outputs, found[0][1])
        assert_within_budget(weights, exact[""].dense(), plain[""].dense())
        assert_within_budget(outputs, exact.outputs("")[0], plain.outputs("")[0])
        torch.testing.assert_close(loaded, weights)


def test_a_rank_may_have_no_token() -> None:
    layout = hw.distributed.Layout("mine", (torch.arange(0), torch.tensor([1, 2, 5, 6]), torch.tensor([0, 3, 4])))
    case = Case("causal", "sink", length=7)
    assert_one_map(case, 3, layout, "auto")
    assert on_ranks(3, lambda rank: watched(case, layout)[1].local.shape[2]) == [0, 4, 3]


def test_a_key_that_is_padding_changes_nothing_on_any_rank() -> None:
    with_nan, without = (
        on_ranks(3, lambda rank, padding=padding: readings(watched(Case("padding"), "zigzag", padding=padding)[1]))
        for padding in (float("nan"), 1.0)
    )
    for found, want in zip(with_nan, without, strict=True):
        for name, t in want.items():
            assert torch.equal(found[name], t), name


def test_half_precision_is_read_in_float32() -> None:
    case = Case("documents", "scale and softcap", dtype=torch.bfloat16)
    q, k, _, _ = case.tensors()
    wide = {"q": q.float(), "k": k.float(), **case.rules()}
    found = on_ranks(2, lambda rank: readings(watched(case, "striped")[1]))
    assert_readings(found, Dense(**doubled(wide)), Dense(**wide), case)


def test_the_rows_of_a_rank_are_an_ordinary_map() -> None:
    def task(rank: int) -> bool:
        held, m = watched(Case("window", "bias"), "zigzag")
        rows, weights, logits = held.tokens, m.dense(), m.logits[0, 1]
        assert type(m.local) is AttentionMap
        assert torch.equal(m.local.entropy(), m.entropy()[:, :, rows])
        assert torch.equal(m.local.logits[0, 1], logits[rows])
        return torch.equal(m.local.dense(), weights[:, :, rows])

    assert on_ranks(3, task) == [True] * 3
    alone = hw.attention_map(*Case().tensors()[:2])
    assert alone.local is alone


def test_only_keys_move_and_each_statistic_once() -> None:
    case = Case("window", "no rule", length=64)
    (B, Hq, L, D), Hk = case.tensors()[0].shape, case.heads[1]

    def task(rank: int) -> list[int]:
        held, m = watched(case, "contiguous")
        moved = []
        for read in (
            lambda: repr(m), lambda: m.local, lambda: m.entropy(), lambda: (m.lse, m.max_logit(), m.received()),
            lambda: m.statistics(topk=2), lambda: (m.topk(2), m.tiles()), lambda: m[0, 1, 10], lambda: m[0, 1, 10:12],
        ):  # fmt: skip
            with counted() as traffic:
                read()
            moved.append(traffic.bytes)
        assert held.tokens.tolist() == list(range(32 * rank, 32 * rank + 32))
        return moved

    first, second = on_ranks(2, task)
    # the second rank needs the 4 keys before its own; each rank sends four numbers a row, and the sums of half of the
    # columns in float64, there and back; a row is sent by its owner
    whole, largest, agree = B * Hq * (32 * 4 * 4 + 2 * L // 2 * 8), B * Hq * 32 * 2 * (4 + 8), 8
    assert second == [0, agree, agree + whole, 0, agree + largest, 0, agree, agree]
    assert first == [0, second[1] + 4 * B * Hk * D * 4, *second[2:6], agree + L * 4, agree + 2 * L * 4]


@pytest.mark.parametrize("mask", ["causal", "lengths, one of them 0"])
def test_a_page_holds_what_that_of_one_process_does(mask: str) -> None:
    case = Case(mask, "scale and softcap", length=40)
    q, k, _, _ = case.tensors()
    alone = carry(hw.attention_map(q, k, **case.rules()), sample=1, block=3, exact=(0, 7, 39))

    def task(rank: int) -> tuple[Carried, str]:
        _, m = watched(case, "striped")
        return carry(m, sample=1, block=3, exact=(0, 7, 39)), hw.look(m).html()

    (first, page), (second, other) = on_ranks(2, task)
    assert page == other
    for found in (first, second):
        assert (found.lengths, found.block, found.hidden) == (alone.lengths, alone.block, alone.hidden)
        assert (found.is_causal, found.empty, found.nan) == (alone.is_causal, alone.empty, alone.nan)
        # a weight beside the border of two codes may have either
        assert (found.codes.int() - alone.codes.int()).abs().max() <= 1
        for row, weights in alone.exact.items():
            assert_within_budget(found.exact[row], weights.double(), weights)
        for name in ("entropy", "mean_entropy", "received", "distance"):
            assert_within_budget(getattr(found, name), getattr(alone, name).double(), getattr(alone, name))


def test_a_watch_keeps_what_it_is_asked_to_and_leaves_the_output() -> None:
    case = Case("causal")

    def task(rank: int) -> tuple[Tensor, bool]:
        module, rules = Attending(), case.rules()
        held = spread(case.length, dist.group.WORLD, mask=rules["mask"], layout="zigzag")
        q, k, v, _ = (held.local(t, dim=2) for t in case.tensors())
        with torch.no_grad(), hw.watch(module, keep=lambda m: m.received()) as seen:
            out = module(q, k, v, spread=held, **rules)
        return seen[""], torch.equal(out, module(q, k, v, spread=held, **rules))

    (first, is_same), (second, is_same_too) = on_ranks(2, task)
    assert (is_same, is_same_too) == (True, True)
    assert torch.equal(first, second)
    exact, plain = (dense.weights.sum(-2) for dense in in_one_process(case))
    assert_within_budget(first, exact, plain)


def test_a_model_of_two_layers_is_seen_by_name_and_rolled_out() -> None:
    torch.manual_seed(1)
    layers = [hw.MultiHeadAttention(12, 6, num_kv_heads=2, head_dim=4, position=hw.Rotary(), score=score)
              for score in (hw.DotProduct(sink="learned"), hw.DotProduct(softcap=2.0))]  # fmt: skip
    states, x = [layer.state_dict() for layer in layers], torch.randn(2, 23, 12)
    mask = hw.causal() & hw.window(keys=9)

    def build(dtype: torch.dtype) -> nn.Module:
        made = [hw.MultiHeadAttention(12, 6, num_kv_heads=2, head_dim=4, position=hw.Rotary(), score=layer.score)
                for layer in layers]  # fmt: skip
        for layer, state in zip(made, states, strict=True):
            layer.load_state_dict(state)
        return nn.ModuleList(made).to(dtype)

    def seen_of(dtype: torch.dtype, held: Spread | None = None) -> hw.watching.Seen:
        model, t = build(dtype), x.to(dtype) if held is None else held.local(x)
        with torch.no_grad(), hw.watch(model) as seen:
            for layer in model:
                # given, and by the `with` around it
                if held is None or layer is model[0]:
                    t = t + layer(t, mask=mask, spread=held)
                else:
                    with held:
                        t = t + layer(t, mask=mask)
        assert (list(seen), dict(seen.unseen)) == (["0", "1"], {})
        return seen

    def task(rank: int) -> dict[str, Tensor]:
        seen = seen_of(torch.float32, spread(23, dist.group.WORLD, mask=mask, layout="striped"))
        shares = {str(token): hw.rollout(seen, token=token) for token in (3, -1)}
        return {**shares, **{name: m.entropy() for name, m in seen.items()}}

    found = on_ranks(3, task)
    exact, plain = seen_of(torch.float64), seen_of(torch.float32)
    for token in (3, -1):
        for each in found:
            assert torch.equal(each[str(token)], found[0][str(token)])
        assert_within_budget(found[0][str(token)], hw.rollout(exact, token=token), hw.rollout(plain, token=token))
    for name in ("0", "1"):
        assert_within_budget(found[0][name], exact[name].entropy(), plain[name].entropy())


def test_a_model_of_transformers_is_seen_whole() -> None:
    require("transformers")
    import transformers

    hw.compat.huggingface.register()
    config = transformers.MistralConfig(
        vocab_size=31, hidden_size=16, intermediate_size=11, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, sliding_window=7,
    )  # fmt: skip
    torch.manual_seed(0)
    state = transformers.AutoModel.from_config(config).state_dict()
    ids = torch.randint(31, (2, 23))

    def model() -> nn.Module:
        made = transformers.AutoModel.from_config(config, attn_implementation="headwise").eval()
        made.load_state_dict(state)
        return made

    def task(rank: int, held: Spread, own: nn.Module) -> dict[str, Tensor]:
        held = spread(23, dist.group.WORLD, layout="zigzag")
        with torch.no_grad(), hw.watch(own) as seen, held:
            own(held.local(ids), position_ids=held.positions[None], use_cache=False)
        assert not seen.unseen
        return {name: m.entropy() for name, m in seen.items()}

    models = [model(), model()]
    found = on_ranks(2, lambda rank: task(rank, spread(23), models[rank]))
    with torch.no_grad(), hw.watch(models[0]) as plain:
        models[0](ids, use_cache=False)
    with torch.no_grad(), hw.watch(models[1].double()) as exact:
        models[1](ids, use_cache=False)
    assert list(found[0]) == list(plain) == ["layers.0.self_attn", "layers.1.self_attn"]
    for name, got in found[0].items():
        assert torch.equal(got, found[1][name])
        assert_within_budget(got, exact[name].entropy(), plain[name].entropy())


def test_what_a_map_of_ranks_cannot_do_is_refused() -> None:
    def task(rank: int) -> dict[str, str]:
        case, module = Case("causal"), Attending()
        held, m = watched(case, "contiguous")
        q, k, v, _ = (held.local(t, dim=2).requires_grad_() for t in case.tensors())
        with hw.watch(module, grad=True) as with_grad:
            module(q, k, v, spread=held)
        with torch.no_grad(), hw.watch(module) as twice:
            module(q, k, v, spread=held)
            module(q, k, v, spread=held)
        with pytest.raises(ArgumentError, match=r"2 calls .* of a whole sequence that ranks share"):
            twice.joined("")
        with torch.no_grad():
            k.add_(1.0)
        with pytest.raises(StaleMapError, match=rf"k \(2, 3, {len(held.tokens)}, 11\) must stay .*version 1, not 0"):
            twice.calls("")[0].entropy()
        with pytest.raises(ArgumentError, match="device=meta came"):
            m.to("meta")
        with pytest.raises(
            ArgumentError, match=r"SharedMap\(\(2, 6, 29, 29\), float32, cpu, mask=causal\(\), 1[45] of"
        ):
            m.__reduce__()
        with pytest.raises(ArgumentError, match=f"must fit in max_bytes=99 .* takes {2 * 6 * 29 * 29 * 4} bytes"):
            m.dense(max_bytes=99)
        assert m.to("cpu") is m.cpu() is m.detach() is m
        return dict(with_grad.unseen)

    why = "its call takes a form that a map has not: a map that ranks share has no way back to q and k: "
    assert on_ranks(2, task) == [{"": f"{why}watch without grad=True"}] * 2


@pytest.mark.parametrize("position", [hw.Alibi(), hw.RelativeBias()])
def test_a_map_keeps_the_positions_of_its_call(position: hw.Alibi | hw.RelativeBias) -> None:
    layer, x = hw.MultiHeadAttention(12, 4, position=position), torch.randn(2, 8, 12)
    positions, held = torch.arange(8) * 2, spread(8)
    with torch.no_grad(), hw.watch(layer) as seen:
        layer(x, positions=positions, spread=held)
        want = seen.calls("")[0].dense()
        layer(x, positions=positions, spread=held)
    positions.copy_(positions.flip(0) ** 2)
    assert torch.equal(seen.calls("")[1].dense(), want)
