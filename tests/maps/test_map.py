"""The laws of a map: its numbers are those of the definition, whatever the rules, sizes and dtypes."""

import copy
import pickle

import pytest
import torch

import headwise as hw
from headwise.errors import ArgumentError, ShapeError, StaleMapError
from headwise.maps import additive_map, attention_map
from headwise.testing import assert_within_budget
from tests.cases import MASKS, RULES, SHAPES, Shape, rules, tensors
from tests.maps.oracle import BY_LSE, OF_SCORES, OF_WEIGHTS, Dense, doubled, inputs, made

ONE_SHAPE = SHAPES["all sizes differ"]
LEGAL_SHAPES = sorted(set(SHAPES) - {"no sample", "no query", "one key", "one query"})


def assert_lawful(case, shape=ONE_SHAPE, names=(*OF_WEIGHTS, *OF_SCORES), make=made, **options):
    """Every reading, with the lse known and not, is within the budget that dense torch sets in the same dtype.

    One budget for several draws together: among a few numbers plain torch may be exact by luck.
    """
    draws = [inputs(shape, seed=seed, **options, **case) for seed in range(4)]
    exact, plain = [Dense(**doubled(draw)) for draw in draws], [Dense(**draw) for draw in draws]
    for with_lse in (False, True):
        maps = [make(draw, with_lse=with_lse) for draw in draws]
        for name in names:
            got = torch.cat([_read(name, m) for m in maps])
            want, measure = (torch.cat([_expected(name, dense) for dense in group]) for group in (exact, plain))
            assert_within_budget(got, want, measure)


def _read(name, m):
    return (OF_WEIGHTS | OF_SCORES)[name][0](m)


def _expected(name, dense):
    if name in OF_SCORES:
        return OF_SCORES[name][1](dense)
    return OF_WEIGHTS[name][1](dense.weights_by_lse if name in BY_LSE else dense.weights)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("mask", MASKS)
def test_every_reading_equals_the_definition_in_float64(mask, rule):
    assert_lawful(rules(mask, rule, ONE_SHAPE))


@pytest.mark.parametrize("mask", ["no mask", "causal", "padding", "an empty row", "dense, a head each", "a rule"])
@pytest.mark.parametrize("name", LEGAL_SHAPES)
def test_every_shape_is_legal(name, mask):
    shape = SHAPES[name]
    names = {"dense", "one row", "entropy", "received", "distance", "picture", "lse", "max_logit", "logits"}
    assert_lawful(rules(mask, "no rule", shape), shape, sorted(names))


@pytest.mark.parametrize("mask", ["no mask", "padding and causal", "an empty row", "dense, a head each", "a rule"])
def test_tiles_and_strips_join_without_a_seam(mask, monkeypatch):
    monkeypatch.setattr("headwise.maps.score_tiles.QUERIES", 4)
    monkeypatch.setattr("headwise.maps.score_tiles.KEYS", 8)
    monkeypatch.setattr("headwise.maps.score_tiles.ENTRIES", 64)
    monkeypatch.setattr("headwise.maps.strips.ENTRIES", 64)
    monkeypatch.setattr("headwise.maps.strips.BLOCK", 4)
    monkeypatch.setattr("headwise.maps.statistics.RUN", 4)
    monkeypatch.setattr("headwise.maps.statistics.FEW", 1)
    # blocks of a few rows, on several threads
    for name, number in {"ENTRIES": 200, "ROWS": 8, "GRID": 4, "SMALL": 0}.items():
        monkeypatch.setattr(f"headwise.maps.rows.{name}", number)
    monkeypatch.setattr("torch.get_num_threads", lambda: 3)
    shape = Shape(Lq=21, Lk=19)
    for rule in ("no rule", "all of them"):
        assert_lawful(rules(mask, rule, shape), shape)


@pytest.mark.parametrize("name", ["no sample", "no query", "no key"])
def test_an_empty_axis_gives_empty_readings(name):
    shape = SHAPES.get(name, Shape(Lk=0))
    q, k, _ = tensors(shape)
    m = attention_map(q, k)
    B, Hq, Lq, Lk = m.shape
    assert m.dense().shape == m[...].shape == (B, Hq, Lq, Lk)
    assert torch.equal(m.entropy(), torch.zeros(B, Hq, Lq))
    assert torch.equal(m.received(), torch.zeros(B, Hq, Lk))
    assert torch.equal(m.distance(), torch.zeros(B, Hq))
    assert torch.equal(m.max_logit(), torch.full((B, Hq), float("-inf")))
    assert torch.equal(m.lse, torch.full((B, Hq, Lq), float("-inf")))
    assert m.check() == 0.0
    assert m.topk(0)[0].shape == (B, Hq, Lq, 0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_numbers_are_those_of_the_rounded_q_and_k_in_float32_or_better(dtype):
    case = rules("padding and causal", "sink", ONE_SHAPE)
    wide, m = torch.promote_types(dtype, torch.float32), made(inputs(dtype=dtype, **case))
    assert m.dtype is m[0].dtype is m.lse.dtype is m.entropy().dtype is wide
    assert_lawful(case, dtype=dtype)


def test_additive_scoring_is_a_rule_like_others():
    def make(given, *, with_lse):
        m = additive_map(**given)
        return additive_map(**given, lse=m.lse) if with_lse else m

    weight = torch.linspace(-1, 2, 66).view(6, 11)
    for mask in (None, hw.causal(), MASKS["an empty row"](ONE_SHAPE)):
        assert_lawful({"weight": weight, "mask": mask}, make=make)
    q, k, _ = tensors()
    assert torch.equal(additive_map(q, k, weight[0])[:], additive_map(q, k, weight[:1].repeat(6, 1))[:])


def test_an_empty_row_has_no_weight_no_entropy_and_an_lse_of_the_sink_or_nothing():
    given = inputs(mask=MASKS["an empty row"](ONE_SHAPE))
    m = made(given)
    assert torch.equal(m[:, :, 2], torch.zeros(2, 6, 7))
    assert torch.equal(m.entropy()[:, :, 2], torch.zeros(2, 6))
    assert bool(m.lse[:, :, 2].isneginf().all())
    sink = torch.arange(6.0)
    assert torch.equal(made({**given, "sink": sink}).lse[:, :, 2], sink.expand(2, 6))
    assert torch.equal(
        made({**given, "mask": torch.zeros(5, 7, dtype=torch.bool)}).max_logit(), torch.full((2, 6), float("-inf"))
    )


@pytest.mark.parametrize("hole", [float("nan"), float("inf")])
@pytest.mark.parametrize("with_grad", [False, True])
def test_padding_may_hold_anything(hole, with_grad):
    keep = torch.ones(2, 7, dtype=torch.bool)
    keep[0, 4:] = False
    given = inputs(mask=hw.keys(keep) & hw.causal())
    holed = {**given, "k": given["k"].masked_fill(~keep[:, None, :, None], hole).requires_grad_(with_grad)}
    for name in (*OF_WEIGHTS, *OF_SCORES):
        assert torch.equal(
            _read(name, made(holed)), _read(name, made({**given, "k": given["k"].requires_grad_(with_grad)}))
        ), name


def test_a_nan_that_is_seen_is_shown():
    given = inputs(mask=hw.causal())
    given["k"][0, 1, 4, 0] = float("nan")
    m, seen = made(given), hw.causal().allowed(5, 7)[:, 4]
    # key head 1 serves query heads 2 and 3
    wanted = torch.zeros(2, 6, 5, dtype=torch.bool)
    wanted[0, 2:4] = seen
    for found in (m.entropy(), m.lse, m[:].sum(-1), m.topk(2)[0].sum(-1)):
        assert torch.equal(found.isnan(), wanted)
    assert m.check() != m.check()


def test_q_and_k_may_lie_in_any_order_in_memory():
    def make(given, *, with_lse):
        strided = {**given, **{name: given[name].transpose(1, 2).contiguous().transpose(1, 2) for name in ("q", "k")}}
        assert not strided["q"].is_contiguous()
        return made(strided, with_lse=with_lse)

    assert_lawful({"mask": hw.causal()}, make=make)


def test_a_kept_result_is_not_changed_through_what_was_handed_out():
    m = made(inputs())
    before = [m.lse.clone(), m.entropy().clone(), m.received().clone(), m.mean_heads().received()]
    for handed in (m.lse, m.entropy(), m.received()):
        handed.zero_()
    for got, want in zip([m.lse, m.entropy(), m.received(), m.mean_heads().received()], before, strict=True):
        assert torch.equal(got, want)


def test_the_mean_of_the_heads_is_read_like_a_map():
    given = inputs(**rules("padding and causal", "sink", ONE_SHAPE))
    exact, plain = (Dense(**g).weights_by_lse.mean(1, keepdim=True) for g in (doubled(given), given))
    for with_lse in (False, True):
        mean = made(given, with_lse=with_lse).mean_heads()
        assert mean.shape == (2, 1, 5, 7)
        assert mean.mean_heads() is mean
        for ours, theirs in OF_WEIGHTS.values():
            assert_within_budget(ours(mean), theirs(exact), theirs(plain))


@pytest.mark.parametrize("name", ["lse", "logits", "max_logit"])
def test_the_mean_of_the_heads_has_no_scores(name):
    mean = made(inputs()).mean_heads()
    with pytest.raises(ArgumentError, match=f"{name}.* belongs to scores"):
        getattr(mean, name)()


def test_the_largest_weights_come_with_their_keys():
    given = inputs(mask=hw.window(keys=2))
    m = made(given)
    values, keys = m.topk(4)
    exact, plain = Dense(**doubled(given)).weights, Dense(**given).weights
    assert_within_budget(values, exact.gather(-1, keys), plain.gather(-1, keys))
    assert torch.equal(values, values.sort(-1, descending=True)[0])
    assert torch.equal(values[..., 2:], torch.zeros(2, 6, 5, 2))
    with pytest.raises(ArgumentError, match=r"0\.\.Lk=7.*got 8"):
        m.topk(8)


@pytest.mark.parametrize(("h", "w"), [(1, 1), (5, 7), (9, 2), (2, 20)])
def test_a_picture_has_the_borders_of_torchs_adaptive_pooling(h, w):
    given = inputs(mask=hw.causal())
    exact, plain, m = Dense(**doubled(given)).weights, Dense(**given).weights, made(given)
    pool = torch.nn.functional
    assert_within_budget(
        m.pooled(h, w), pool.adaptive_avg_pool2d(exact, (h, w)), pool.adaptive_avg_pool2d(plain, (h, w))
    )
    assert_within_budget(
        m.pooled(h, w, how="max"),
        pool.adaptive_max_pool2d(exact, (h, w)),
        pool.adaptive_max_pool2d(plain, (h, w)),
    )


def test_a_picture_of_nothing_is_refused():
    m = made(inputs())
    with pytest.raises(ArgumentError, match="h=0, w=4, Lq=5, Lk=7"):
        m.pooled(0, 4)
    with pytest.raises(ArgumentError, match='"mean" or "max"; got "sum"'):
        m.pooled(3, 4, how="sum")


def test_distance_counts_tokens_back_from_the_query():
    q, k = torch.zeros(1, 1, 3, 4), torch.zeros(1, 1, 5, 4)
    before = torch.tensor([[0, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 1, 0]], dtype=torch.bool)
    assert attention_map(q, k, mask=before).distance().item() == 1.0
    # one query that sees the key after its own, and two that see nothing
    ahead = torch.zeros(3, 5, dtype=torch.bool)
    ahead[0, 3] = True
    assert attention_map(q, k, mask=ahead).distance().item() == -1.0


def test_a_dense_map_above_its_budget_is_refused_with_its_size():
    m = made(inputs())
    with pytest.raises(ArgumentError, match=r"max_bytes=1679 .*takes 1680 bytes .*topk"):
        m.dense(max_bytes=1679)
    assert m.dense(max_bytes=1680).shape == (2, 6, 5, 7)
    long = attention_map(
        torch.empty(1, 1, 1, 4).expand(1, 12, 32768, 4), torch.empty(1, 1, 1, 4).expand(1, 1, 32768, 4)
    )
    for ask in (long.dense, lambda: long[:], lambda: long.logits[0, :2]):
        with pytest.raises(ArgumentError, match=r"max_bytes=1073741824 \(1,024.0 MiB\)"):
            ask()


@pytest.mark.parametrize("name", ["q", "k", "attn_bias", "sink", "mask", "lse"])
def test_a_map_whose_tensor_has_been_changed_says_so(name):
    allowed = torch.ones(5, 7, dtype=torch.bool)
    given = inputs(attn_bias=torch.zeros(5, 7), sink=torch.zeros(6))
    m = attention_map(**given, mask=allowed, lse=torch.zeros(2, 6, 5))
    again = attention_map(**given, mask=allowed, lse=made({**given, "mask": allowed}).lse)
    before = again.entropy()
    given = {**given, "mask": allowed}
    (given[name] if name != "lse" else m._passed_lse).zero_()
    copied = (m.cpu, m.mean_heads, lambda: pickle.dumps(m))
    for ask in (lambda: m[0], m.dense, m.entropy, lambda: m.lse, lambda: m.logits[0], m.check, *copied):
        with pytest.raises(StaleMapError, match=r"must stay as it was.*version 1, not 0"):
            ask()
    if name == "lse":
        assert torch.equal(again.entropy(), before)


def test_an_inference_tensor_is_copied():
    with torch.inference_mode():
        given = inputs(mask=torch.ones(5, 7, dtype=torch.bool))
        m = made(given)
        before = m.dense()
        given["q"].zero_()
        assert torch.equal(m.dense(), before)
        m.entropy()
    leaf = inputs()["q"].requires_grad_()
    assert bool((m.entropy().sum() * leaf.sum()).requires_grad)


def test_it_says_what_it_is():
    q, k, _ = tensors()
    m = attention_map(q, k, mask=hw.causal(), softcap=30.0, sink=torch.zeros(6))
    assert repr(m) == "AttentionMap((2, 6, 5, 7), float32, cpu, mask=causal(), sink, softcap=30.0)"
    assert (len(m), m.ndim, m.device, m.dtype) == (2, 4, torch.device("cpu"), torch.float32)
    m.entropy()
    assert repr(m).endswith("softcap=30.0, lse known)")
    assert repr(m.mean_heads()) == f"HeadMean((2, 1, 5, 7), of={m!r})"
    assert repr(m.logits) == f"Logits(of={m!r})"
    long = attention_map(q, k, mask=torch.ones(2, 6, 5, 7, dtype=torch.bool) & hw.causal().allowed(5, 7))
    assert "\n" not in repr(long)


def test_a_map_without_numbers_still_has_a_shape():
    m = attention_map(torch.empty(2, 6, 5, 11, device="meta"), torch.empty(2, 3, 7, 11, device="meta"))
    assert (m.shape, repr(m)) == ((2, 6, 5, 7), "AttentionMap((2, 6, 5, 7), float32, meta)")
    for ask in (lambda: m[0], m.dense, m.entropy, lambda: m.lse):
        with pytest.raises(ArgumentError, match=r"\(2, 6, 5, 7\) on the meta device"):
            ask()


def test_tiles_are_those_of_the_mask():
    m = made(inputs(mask=hw.causal()))
    assert torch.equal(m.tiles(block=(2, 3)), hw.causal().tiles(5, 7, block=(2, 3)))
    assert made(inputs()).tiles(block=(2, 3)).tolist() == [[[[2] * 3] * 3]]


def test_copies_and_moves_read_the_same():
    given = inputs(**rules("padding and causal", "all of them", ONE_SHAPE))
    given["q"].mul_(1.0)
    m = made(given, with_lse=True)
    for again in (m.cpu(), m.to("cpu"), m.detach(), copy.deepcopy(m), pickle.loads(pickle.dumps(m))):
        assert torch.equal(again.dense(), m.dense())
        assert repr(again) == repr(m)
    assert torch.equal(m.mean_heads().cpu().detach()[0], m.mean_heads()[0])


def test_autocast_rounds_q_and_k_as_attention_does_and_nothing_else():
    given = inputs(mask=hw.causal())
    half = made({**given, "q": given["q"].bfloat16(), "k": given["k"].bfloat16()})
    with torch.autocast("cpu", dtype=torch.bfloat16):
        m = made(given)
        for name in (*OF_WEIGHTS, *OF_SCORES):
            assert torch.equal(_read(name, m), _read(name, half)), name


def test_heads_that_do_not_divide_are_refused():
    with pytest.raises(ShapeError, match="Hk=4 must divide Hq=6"):
        attention_map(torch.zeros(2, 6, 5, 11), torch.zeros(2, 4, 7, 11))


@pytest.mark.parametrize("how", ["mean", "max"])
def test_a_bin_that_is_longer_than_a_block_of_rows_takes_no_more_than_the_block(how, monkeypatch):
    for name, number in {"ENTRIES": 200, "ROWS": 8, "GRID": 4, "SMALL": 0}.items():
        monkeypatch.setattr(f"headwise.maps.rows.{name}", number)
    gathered = []
    where = torch.where

    def counted(*given):
        gathered.append(given[0].shape)
        return where(*given)

    monkeypatch.setattr("headwise.maps.statistics.torch.where", counted)
    q, k, _ = tensors(Shape(Lq=37, Lk=11))
    m = attention_map(q, k)
    pool = torch.nn.functional.adaptive_avg_pool2d if how == "mean" else torch.nn.functional.adaptive_max_pool2d
    torch.testing.assert_close(m.pooled(2, 5, how=how), pool(m.dense(), (2, 5)))
    assert gathered
    assert max(shape[1] for shape in gathered) <= 8


def test_the_lse_of_a_sink_that_is_no_number_is_that_of_torch():
    q, k, _ = tensors(ONE_SHAPE)
    q[0, 0, 1] = float("nan")
    sink = torch.zeros(ONE_SHAPE.Hq)
    sink[:3] = torch.tensor([float("inf"), float("-inf"), float("nan")])
    scores = q @ k.repeat_interleave(ONE_SHAPE.Hq // ONE_SHAPE.Hk, dim=1).mT / ONE_SHAPE.D**0.5
    column = sink[None, :, None, None].expand(*scores.shape[:-1], 1)
    wanted = torch.logsumexp(torch.cat([scores, column], dim=-1), dim=-1)
    # a pass over the rows makes it too
    m = attention_map(q, k, sink=sink)
    m.entropy()
    torch.testing.assert_close(m._summary().sums.lse, wanted, equal_nan=True)
