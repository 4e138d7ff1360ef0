"""The table of rates is whole, work is counted as it is done, and "auto" takes the least estimate."""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

import headwise as hw
from headwise.ops import blockwise, calibration, causal_cost, costs, repeated_calls
from headwise.ops.backends import choose
from headwise.ops.call import Call, checked
from headwise.ops.strips import Total

DTYPES = ("float32", "bfloat16", "float16")
WAYS = [
    costs.way(backend, "" if backend == "sdpa" else rules, is_differentiated=has_backward, lengths=lengths)
    for backend, rules, has_backward, lengths in itertools.product(
        costs.MEASURED, ("", "scores", "dropout"), (False, True), ("", costs.FEW_QUERIES, costs.SHORT)
    )
    # a call with dropout is priced with its backward pass
    if has_backward or rules != "dropout" or backend == "sdpa"
]


def call_of(Lq: int, Lk: int, *, Hk: int = 2, dtype: torch.dtype = torch.float32, **rules: Any) -> Call:
    q, k, v = (torch.zeros(3, H, L, D, dtype=dtype) for H, L, D in ((4, Lq, 8), (Hk, Lk, 8), (Hk, Lk, 6)))
    return checked(q, k, v, **rules)


def rates_in_favour(of: str) -> Any:
    """A table in which one backend takes a second a call, and the others two."""

    def rates(dtype: torch.dtype, way: str) -> Sequence[float]:
        return [1.0 if way.startswith(of) else 2.0, *[0.0] * (len(costs.FEATURES) - 1)]

    return rates


def test_the_table_has_every_rate_of_every_level() -> None:
    assert set(costs.table()) >= {"x86_64 avx2", "x86_64 avx512 bf16"}
    for by_dtype in costs.table().values():
        assert set(by_dtype) == set(DTYPES)
        for by_way in by_dtype.values():
            # a level that was measured before short sequences had rates of their own reads those of any length
            assert set(by_way) in (set(WAYS), {way for way in WAYS if not way.endswith(costs.SHORT)})
            for rates in by_way.values():
                assert len(rates) == len(costs.FEATURES)
                assert all(math.isfinite(rate) and rate >= 0 for rate in rates)
                # time grows with the size of a call
                assert any(rates[3:])


def test_work_is_what_each_backend_computes() -> None:
    torch.set_num_threads(1)
    call = call_of(5, 7, mask=hw.lengths([2, 7, 1]))
    pairs, q, k = 3 * 4 * 5 * 7, 3 * 4 * 5 * 8, 3 * 2 * 7 * (8 + 6)
    rows = 3 * 4 * 5
    assert costs.work_of("sdpa", call) == (1, 1, 0, q + 2 * k, rows, pairs * 14, pairs, pairs, pairs)
    # what the mask hides is set to 0 in a copy
    assert costs.work_of("reference", call) == (1, 1, 0, q + 3 * k, rows, pairs * 14, pairs, pairs, pairs)
    # v is narrower than q, which torch's kernel does not take: the mask is asked of few pairs
    assert costs.work_of("blockwise", call, Total(2, 90, 30, 50)) == (1, 1, 2, q + k, rows, 90 * 14, 90, 30, 90)
    same = checked(call.q, call.k, call.k, mask=call.mask)
    assert costs.work_of("blockwise", same, Total(2, 90, 30, 50))[5:] == (90 * 16, 90, 50, 90)
    assert costs.work_of("sdpa", call_of(5, 7)) == (1, 0, 0, q + 2 * k, rows, pairs * 14, pairs, 0, pairs)
    # 16 keys fill whole vectors, and 17 do not
    assert [costs.work_of("sdpa", call_of(5, Lk))[-1] for Lk in (16, 17)] == [0, 3 * 4 * 5 * 17]
    torch.set_num_threads(2)
    assert costs.work_of("sdpa", call)[:5] == (1, 1, 0, (q + 2 * k) / 2, rows / 2)
    # its operations number by number are too small for two threads
    assert costs.work_of("reference", call)[4:] == (rows, pairs * 7, pairs, pairs, pairs)
    torch.set_num_threads(1)


@pytest.mark.parametrize("L", [1, 31, 200, 513, 1100])
def test_a_causal_call_of_torch_skips_blocks_beyond_the_diagonal(L: int) -> None:
    rows = next(rows for least, rows in causal_cost.ROWS if least <= L)
    seen = torch.zeros(L, L, dtype=torch.bool)
    for start in range(0, L, rows):
        for column in range(0, L, causal_cost.COLUMNS):
            seen[start : start + rows, column : column + causal_cost.COLUMNS] = column < min(start + rows, L)
    assert causal_cost.causal_pairs(L) == int(seen.sum())
    assert costs.work_of("sdpa", call_of(L, L, mask=hw.causal()))[6] * torch.get_num_threads() == 12 * int(seen.sum())


@pytest.mark.parametrize("name", costs.MEASURED)
def test_auto_takes_the_least_estimate(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "rates", rates_in_favour(name))
    call = call_of(5, 7, mask=hw.window(keys=3))
    assert choose(call, "auto").name == name
    table = hw.backends(call.q, call.k, call.v[..., :8], mask=call.mask)
    assert table.seconds == {each: 1.0 if each == name else 2.0 for each in costs.MEASURED}
    lines = dict(line.split(maxsplit=1) for line in str(table).splitlines())
    assert lines[name] == "runs, in about 1 s"
    assert {lines[each] for each in costs.MEASURED if each != name} == {"could run, in about 2 s"}


def test_strips_that_ask_no_mask_are_priced_as_torchs_kernel_and_by_the_strip(monkeypatch: pytest.MonkeyPatch) -> None:
    def rates(dtype: torch.dtype, way: str) -> Sequence[float]:
        if way.startswith("sdpa"):
            return (3.0, 900.0, 0.0, 0.0, 0.0, 0.0, 1.0, 10.0, 3.0)
        return (5.0, 11.0, 7.0, 0.0, 0.0, 0.0, 50.0, 90.0, 2.0)

    monkeypatch.setattr(costs, "rates", rates)
    same = checked(*(torch.zeros(1, 1, L, 8) for L in (200, 300, 300)))
    pairs = 60_000 / torch.get_num_threads()
    asked = 1_000 / torch.get_num_threads()
    assert costs.estimate("blockwise", same, Total(2, 60_000, 0, 0)) == 5 + 2 * 7 + (1 + 3) * pairs
    assert (
        costs.estimate("blockwise", same, Total(2, 60_000, 500, 1_000))
        == 5 + 11 + 2 * 7 + (50 + 2) * pairs + 90 * asked
    )
    # drops are not torch's, and halves are multiplied in float32, which torch's kernel of halves does not
    for call in (Call(same.q, same.k, same.v, dropout=0.5), Call(same.q.half(), same.k.half(), same.v.half())):
        assert costs.estimate("blockwise", call, Total(2, 60_000, 0, 0)) == 5 + 2 * 7 + (50 + 2) * pairs


def test_few_queries_are_up_to_64() -> None:
    assert [costs.lengths_of(call_of(Lq, 900)) for Lq in (1, 64, 65)] == [costs.FEW_QUERIES, costs.FEW_QUERIES, ""]


def test_short_sequences_are_up_to_128_keys_and_read_other_rates_where_a_level_has_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert [costs.lengths_of(call_of(L, L)) for L in (3, 128, 129)] == [costs.SHORT, costs.SHORT, ""]
    assert costs.lengths_of(call_of(3, 128)) == costs.FEW_QUERIES
    whole, here = {"sdpa forward": [1.0] * len(costs.FEATURES)}, costs.nearest()
    for by_way, first in ((whole, 1.0), (whole | {f"sdpa forward {costs.SHORT}": [2.0] * len(costs.FEATURES)}, 2.0)):
        monkeypatch.setattr(costs, "table", lambda by_way=by_way: {here: {"float32": by_way}})
        costs.rates.cache_clear()
        assert costs.rates(torch.float32, f"sdpa forward {costs.SHORT}")[0] == first
        assert costs.rates(torch.float64, f"sdpa forward {costs.SHORT}")[0] == 2 * first
    costs.rates.cache_clear()


def test_weights_no_more_than_the_inputs_carry_no_margin_with_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    def rates(dtype: torch.dtype, way: str) -> Sequence[float]:
        seconds = {"reference": 0.88, "sdpa": 1.0}.get(way.split()[0], 9.0)
        return [seconds, *[0.0] * (len(costs.FEATURES) - 1)]

    monkeypatch.setattr(costs, "rates", rates)
    monkeypatch.setattr(calibration, "factor", lambda *_: 1.0)
    for L, has_graph, name in ((12, True, "reference"), (12, False, "sdpa"), (40, True, "sdpa")):
        call = call_of(L, L, Hk=4)
        for t in call.tensors:
            t.requires_grad_(has_graph)
        assert choose(call, "auto").name == name, (L, has_graph)


@pytest.mark.parametrize(("dropout", "name"), [(0.0, "reference"), (0.3, "blockwise")])
def test_with_dropout_the_definition_holds_more_and_must_gain_more(
    dropout: float, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rates(dtype: torch.dtype, way: str) -> Sequence[float]:
        seconds = {"reference": 1.0, "blockwise": 1.1}.get(way.split()[0], 9.0)
        return [seconds, *[0.0] * (len(costs.FEATURES) - 1)]

    monkeypatch.setattr(costs, "rates", rates)
    monkeypatch.setattr(calibration, "factor", lambda *_: 1.0)
    assert choose(call_of(40, 40, dropout=dropout), "auto").name == name


def test_the_choice_reads_no_values(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = ((1, 1), (40, 40), (700, 700))
    for (Lq, Lk), mask in itertools.product(sizes, (None, hw.causal(), hw.window(keys=5))):
        names = set()
        for value in (0.0, math.nan, math.inf):
            q, k = torch.full((1, 2, Lq, 8), value), torch.full((1, 2, Lk, 8), value)
            names.add(hw.backends(q, k, k, mask=mask).chosen)
        assert len(names) == 1


def test_a_small_call_does_not_look_up_what_its_mask_hides(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(blockwise, "strips", lambda *args, **more: asked.append(args))
    t = torch.zeros(1, 2, 9, 8)
    hw.backends(t, t, t, mask=hw.window(keys=3))
    assert asked == []


def test_the_definition_is_not_compared_beyond_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "rates", rates_in_favour("reference"))
    q, k = torch.zeros(1, 1, 2049, 1), torch.zeros(1, 1, 2048, 1)
    assert set(hw.backends(q, k, k).seconds) == {"blockwise", "sdpa"}
    assert set(hw.backends(q[:, :, :2048], k, k).seconds) == set(costs.MEASURED)


class TestCalibration:
    """A machine that is not in the table."""

    @pytest.fixture(autouse=True)
    def unknown(self) -> Iterator[None]:
        # what was read at another level, and what was chosen by it, must not outlive the test
        kept = calibration.factors, costs.nearest, costs.rates
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(costs, "level", lambda: "riscv64 default")
            patch.setattr(repeated_calls.without_mask, "results", {})
            for each in kept:
                each.cache_clear()
            yield
        for each in kept:
            each.cache_clear()

    def test_it_reads_the_nearest_rates(self) -> None:
        assert costs.nearest() == "x86_64 avx2"

    def test_large_calls_are_measured_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv(calibration.VARIABLE, raising=False)
        monkeypatch.setattr(costs, "rates", rates_in_favour("sdpa"))
        asked: list[torch.dtype] = []

        def factors(dtype: torch.dtype) -> dict[str, float]:
            asked.append(dtype)
            return {"sdpa": 1e9, "blockwise": 1.0, "reference": 1e9}

        monkeypatch.setattr(calibration, "factors", factors)
        small, large = torch.zeros(1, 1, 500, 8), torch.zeros(1, 2, 600, 8)
        assert hw.backends(small, small, small).chosen == "sdpa"
        assert asked == []
        assert hw.backends(large, large, large).chosen == "blockwise"
        assert set(asked) == {torch.float32}
        monkeypatch.setenv(calibration.VARIABLE, "0")
        assert hw.backends(large, large, large).chosen == "sdpa"

    def test_factors_are_of_what_was_measured(self) -> None:
        found = calibration.factors(torch.float32)
        assert set(found) == set(costs.MEASURED)
        assert all(0 < each < math.inf for each in found.values())
        before = calibration.factors.cache_info().hits
        assert calibration.factors(torch.float32) is found
        assert calibration.factors.cache_info().hits == before + 1

    def test_nothing_is_measured_where_a_mode_would_hear_it_or_drops_would_depend_on_it(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv(calibration.VARIABLE, raising=False)
        t = torch.zeros(1, 2, 600, 8)
        with FlopCounterMode(display=False) as first:
            hw.attention(t, t, t, mask=hw.window(keys=79))
        with FlopCounterMode(display=False) as second:
            hw.attention(t, t, t, mask=hw.window(keys=79))
        assert first.get_total_flops() == second.get_total_flops()
        with FakeTensorMode():
            fake = torch.empty(1, 2, 600, 8)
            assert hw.attention(fake, fake, fake, softcap=3.0).shape == t.shape
        hw.attention(t, t, t, dropout=0.1)
        assert calibration.factors.cache_info().currsize == 0
        hw.attention(t, t, t, softcap=3.0)
        assert calibration.factors.cache_info().currsize == 1


@pytest.mark.parametrize("L", [100, 300])
@pytest.mark.parametrize("is_reentrant", [True, False])
def test_a_checkpoint_drops_the_same_weights_twice(L: int, is_reentrant: bool) -> None:
    q, k, v = (torch.randn(1, 8, L, 16, requires_grad=True) for _ in range(3))

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return hw.attention(q, k, v, dropout=0.2)

    out = checkpoint(attend, q, k, v, use_reentrant=is_reentrant)
    out.sum().backward()
    assert v.grad is not None
    # the outputs are linear in the values
    assert (v.grad * v).sum().item() == pytest.approx(out.sum().item(), rel=1e-4, abs=1e-3)


def test_an_exported_layer_takes_any_length() -> None:
    L = torch.export.Dim("L", min=2, max=8192)
    layer = hw.MultiHeadAttention(16, 2).eval()
    program = torch.export.export(layer, (torch.randn(2, 9, 16),), dynamic_shapes={"query": {1: L}}, strict=False)
    x = torch.randn(2, 1500, 16)
    assert 2 * 2 * 1500**2 > costs.MOST_WEIGHTS
    assert torch.allclose(program.module()(x), layer(x), atol=1e-5)


def test_torch_without_onednn_multiplies_no_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    costs.level.cache_clear()
    assert "bf16" not in costs.level()
    costs.level.cache_clear()
