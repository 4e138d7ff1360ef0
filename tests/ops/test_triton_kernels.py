"""The Triton kernels give the numbers of the definition; here they are interpreted, on the CPU."""

import pytest
import torch
from torch.utils import _pytree as pytree

import headwise as hw
from headwise.errors import BackendError
from headwise.maps import device_summary, reductions
from headwise.maps.device_summary import summarize
from headwise.ops.call import checked
from tests.cases import MASKS, rules, tensors
from tests.fresh import run_fresh
from tests.maps.oracle import inputs, made
from tests.ops.kernel_laws import (
    GROUPED,
    UNEVEN,
    AdditiveLaws,
    StatisticsLaws,
    additive_inputs,
    by_kernels,
    call_of,
)

pytestmark = [
    pytest.mark.needs("triton"),
    # numpy, which computes interpreted kernels, warns where a device gives -inf or NaN
    pytest.mark.filterwarnings("ignore::RuntimeWarning:triton"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning:numpy"),
]


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """Tiles of 16, the fewest that a dot product takes, so that a small map has several."""
    from headwise.ops.triton_kernels import additive, statistics

    for module in (additive, statistics):
        monkeypatch.setattr(module, "BLOCK", 16)


class TestStatistics(StatisticsLaws):
    device = "cpu"

    def test_one_look_at_a_map_takes_no_pass_of_torchs(self, monkeypatch):
        # as on a device
        monkeypatch.setattr(device_summary, "is_taken", lambda call: True)
        monkeypatch.delattr(reductions, "summarize")
        m = made(inputs(mask=hw.causal()))
        entropy, largest = m.entropy(), m.topk(2)[0]
        monkeypatch.delattr(reductions, "read_rows")
        found = entropy, m.received(), m.max_logit(), m.lse, m.distance()
        assert all(bool(t.isfinite().all()) for t in found)
        torch.testing.assert_close(largest, m.dense().topk(2).values)

    def test_the_table_of_a_mask_is_made_once_for_all_calls_until_it_changes(self, monkeypatch):
        from headwise.ops.triton_kernels import tile_table

        made_for, make = [], tile_table._table
        monkeypatch.setattr(tile_table, "_table", lambda *given: made_for.append(given) or make(*given))
        keep = torch.ones(2, 7, dtype=torch.bool)
        mask, (q, k, _) = hw.causal() & hw.keys(keep), tensors()

        def entropy():
            return summarize(checked(q, k, k, mask=mask)).entropy

        first = entropy()
        assert torch.equal(entropy(), first)
        assert len(made_for) == 1
        keep[0, 0] = False
        assert not torch.equal(entropy(), first)
        assert len(made_for) == 2

    @pytest.mark.parametrize("mask", MASKS)
    def test_a_mask_of_which_the_host_knows_nothing_gives_the_same(self, mask, monkeypatch):
        from headwise.ops.triton_kernels import tile_table

        given = inputs(UNEVEN, **rules(mask, "no rule", UNEVEN))
        wanted = summarize(call_of(given, "cpu"))
        monkeypatch.setattr(tile_table, "host_tiles", lambda *of: None)
        monkeypatch.setattr(tile_table, "derived", lambda mask, key, make, **how: make())
        got = summarize(call_of(given, "cpu"))
        for a, b in zip((*wanted[:4], *wanted.sums), (*got[:4], *got.sums), strict=True):
            torch.testing.assert_close(a, b)

    @pytest.mark.parametrize("mask", MASKS)
    def test_the_table_of_a_mask_reads_no_device(self, mask):
        from headwise.ops.triton_kernels.tile_table import packed_entries, tile_table

        q, k, v = (t.to("meta") for t in tensors(UNEVEN))
        call = checked(q, k, v, mask=pytree.tree_map_only(torch.Tensor, lambda t: t.to("meta"), MASKS[mask](UNEVEN)))
        table = tile_table(call, 16)
        assert table.entries.numel() == packed_entries(call, 16)

    @pytest.mark.parametrize(
        ("changed", "sentence"),
        [
            ({"dtype": torch.float64}, "float32, bfloat16 and float16, but q is torch.float64"),
            ({"device": "meta"}, "on CUDA devices, but q is on meta"),
        ],
    )
    def test_what_the_kernels_cannot_compute_is_refused(self, changed, sentence):
        given = inputs()
        given |= {name: given[name].to(**changed) for name in "qk"}
        with pytest.raises(BackendError, match=sentence):
            summarize(call_of(given, given["q"].device))


class TestAdditive(AdditiveLaws):
    device = "cpu"

    @pytest.mark.parametrize(
        ("changed", "sentence"),
        [
            ({"weight": None}, r"need weight \(Hq, D\), but the call scores by q·k"),
            ({"dropout": 0.25}, "have no dropout, but dropout=0.25"),
            ({"softcap": 2.0}, "have no softcap"),
            ({"sink": torch.zeros(4)}, "have no sink"),
        ],
    )
    def test_what_the_kernels_cannot_compute_is_refused(self, changed, sentence):
        with pytest.raises(BackendError, match=sentence):
            by_kernels({**additive_inputs(GROUPED), **changed}, self.device)


def test_importing_headwise_and_the_reasons_against_the_kernels_does_not_import_triton():
    source = """
import sys, torch, headwise as hw
from headwise.ops.call import checked
from headwise.ops.triton_kernels import why_no_statistics
q = torch.randn(1, 2, 3, 4, dtype=torch.float64)
hw.attention_map(q, q).entropy(), hw.additive_attention(q, q, q, torch.randn(2, 4).double())
print(why_no_statistics(checked(q, q, q)), "triton" in sys.modules)
"""
    assert run_fresh(source) == "the kernels take float32, bfloat16 and float16, but q is torch.float64 False\n"
