"""Keys that are attended to where they stand and where they arrive: the numbers, the bytes and the derivatives."""

import pytest
import torch
import torch.distributed as dist

import headwise as hw
from headwise.distributed import gathered
from headwise.distributed.attention import attention
from headwise.distributed.exchange import counted
from headwise.distributed.layouts import Layout, contiguous, striped, zigzag
from headwise.distributed.spread import spread
from tests.distributed.calls import LAYOUTS, MASKS, Case, assert_one_set_of_numbers
from tests.distributed.ranks import on_ranks


@pytest.fixture(autouse=True)
def few_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sequences of a few tokens are read in pieces too."""
    monkeypatch.setattr(gathered, "FEWEST_NUMBERS", 0)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The ranks' calls that are attended to in pieces, one entry each."""
    seen: list[int] = []
    run = gathered.run
    monkeypatch.setattr(gathered, "run", lambda call, job: (seen.append(job.length), run(call, job))[1])
    return seen


@pytest.mark.parametrize("ranks", [2, 3, 4, 7])
def test_numbers_are_those_of_one_process_under_every_mask(ranks, runs):
    for number, mask in enumerate(MASKS):
        assert_one_set_of_numbers(ranks, Case(mask, widths=(11, 11)), LAYOUTS[number % len(LAYOUTS)], "gather")
    assert len(runs) == ranks * len(MASKS)


@pytest.mark.parametrize(("mask", "layout"), [("causal", "zigzag"), ("window", "contiguous")])
def test_numbers_of_long_sequences_are_those_of_one_process(mask, layout, runs):
    # a rank's runs are long enough for a causal square and what is before it
    assert_one_set_of_numbers(2, Case(mask, length=2051, batch=1, widths=(11, 11)), layout, "gather")
    assert runs


def test_rules_that_kernels_of_torch_do_not_have_join_the_keys_first(runs):
    assert_one_set_of_numbers(2, Case("causal", "sink", widths=(11, 11)), "zigzag", "gather")
    assert_one_set_of_numbers(2, Case("causal"), "zigzag", "gather")
    assert runs == []


def test_few_keys_are_joined_first(runs, monkeypatch):
    case = Case("causal", widths=(11, 11))
    numbers = case.batch * case.heads[1] * case.length * 11
    for fewest in (numbers, numbers + 1):
        monkeypatch.setattr(gathered, "FEWEST_NUMBERS", fewest)
        assert_one_set_of_numbers(2, case, "zigzag", "gather")
    assert len(runs) == 2


def test_columns_in_too_many_pieces_are_joined_first(runs, monkeypatch):
    assert gathered.pieces_of([torch.arange(400)] * 2, striped(400, 2)) is None
    monkeypatch.setattr(gathered, "MOST_PIECES", 8)
    assert_one_set_of_numbers(2, Case("causal", widths=(11, 11)), "striped", "gather")
    assert runs == []


def test_pieces_name_what_comes_of_each_rank_in_the_order_of_the_columns():
    first, second = gathered.pieces_of([torch.tensor([0, 1, 2, 4, 5, 7]), torch.arange(0)], zigzag(8, 2))
    assert first == ((0, slice(0, 2)), (1, slice(0, 3)), (0, slice(2, 3)))
    assert second == ()


@pytest.mark.parametrize("needed", ["q", "k", "v", "qk", "kv"])
def test_gradients_of_some_tensors_move_no_more_than_theirs(needed):
    generator = torch.Generator().manual_seed(3)
    whole = [torch.randn(1, 2, 12, 4, generator=generator) for _ in range(4)]

    def task(rank):
        here = spread(12, dist.group.WORLD, layout="contiguous")
        given = [here.local(t, dim=2).requires_grad_(name in needed) for name, t in zip("qkv", whole[:3], strict=True)]
        with counted() as traffic:
            out = attention(*given, spread=here, way="gather")
            forward = traffic.bytes
            out.backward(here.local(whole[3], dim=2))
        return {name: t.grad for name, t in zip("qkv", given, strict=True)}, here.tokens, forward, traffic.bytes

    given = [t.clone().requires_grad_() for t in whole[:3]]
    hw.attention(*given).backward(whole[3])
    for found, tokens, forward, both in on_ranks(3, task):
        # 4 tokens to each of two ranks, of two heads of 4 features of 4 bytes
        assert (forward, both - forward) == (2 * 4 * 2 * 4 * 4 * 2, 2 * 4 * 2 * 4 * 4 * len(set(needed) - {"q"}))
        for name, t in zip("qkv", given, strict=True):
            assert (found[name] is not None) == (name in needed)
            if name in needed:
                torch.testing.assert_close(found[name], t.grad[:, :, tokens])


def test_a_second_derivative_is_that_of_one_process():
    generator = torch.Generator().manual_seed(5)
    whole = [torch.randn(1, 2, 13, 4, generator=generator, dtype=torch.float64) for _ in range(3)]

    def second(q, k, v, **more):
        out = hw.attention(q, k, v, mask=hw.causal()) if not more else attention(q, k, v, mask=hw.causal(), **more)
        first = torch.autograd.grad(out.square().sum(), (q, k, v), create_graph=True)
        return torch.autograd.grad(sum(t.square().sum() for t in first), (q, k, v))

    def task(rank):
        here = spread(13, dist.group.WORLD, layout="zigzag", mask=hw.causal())
        given = [here.local(t, dim=2).requires_grad_() for t in whole]
        return second(*given, spread=here, way="gather"), here.tokens

    exact = second(*(t.clone().requires_grad_() for t in whole))
    for found, tokens in on_ranks(2, task):
        for t, wanted in zip(found, exact, strict=True):
            torch.testing.assert_close(t, wanted[:, :, tokens])


def test_what_is_not_finite_stays_in_its_head_and_hidden_from_all_in_none():
    q, k, v = (torch.ones(1, 2, 12, 4) for _ in range(3))
    v[0, 0, 2] = torch.nan
    mask = hw.causal() & hw.keys(torch.arange(12)[None] != 7)
    k[0, 1, 7] = torch.inf

    def task(rank):
        here = spread(12, dist.group.WORLD, layout="contiguous")
        given = [here.local(t, dim=2).requires_grad_() for t in (q, k, v)]
        out = attention(*given, spread=here, way="gather", mask=mask)
        out[:, 1].sum().backward()
        return out.detach().isnan().any(-1), [t.grad[:, 1].isfinite().all() for t in given], here.tokens

    for is_nan, are_finite, tokens in on_ranks(3, task):
        assert is_nan[0, 0, tokens >= 2].all()
        assert not is_nan[0, 1].any()
        assert all(are_finite)


def test_a_rank_without_tokens_or_keys_gets_nothing():
    layout = Layout("own", (torch.arange(3), torch.arange(0), torch.arange(3, 7)))

    def task(rank):
        here = spread(7, dist.group.WORLD, layout=layout)
        given = [torch.ones(2, 2, len(here.tokens), 4).requires_grad_() for _ in range(3)]
        out = attention(*given, spread=here, way="gather", mask=hw.lengths([0, 5]))
        out.sum().backward()
        return out.detach(), [t.grad for t in given]

    for out, gradients in on_ranks(3, task):
        assert not out[0].any()
        assert bool((out[1] == 1.0).all())
        assert all(not t[0].any() for t in gradients)


def test_layouts_of_few_runs_are_read_where_they_stand():
    for layout in (contiguous(4096, 8), zigzag(4096, 8)):
        assert gathered.pieces_of([torch.arange(4096)] * 8, layout) is not None
