"""The simulator of a spread counts what its masks and sizes say, and prints and draws it."""

import math

import pytest
import torch

import headwise as hw
from benchmarks import spread as command
from benchmarks.spread import Question, amount, main, table
from headwise.distributed.costs import LayerSize, Machine

SIZE = LayerSize(query=6, key=3, width=16, itemsize=2)
MACHINE = Machine(flops=1e9, bandwidth=1e6, latency=1e-3)


def at(ranks: int, length: int = 4096) -> Question:
    return Question(length, ranks, SIZE, MACHINE)


def row(rows: list, layout: str, way: str):
    return next(each for each in rows if (each.layout, each.way) == (layout, way))


def test_a_causal_zigzag_is_even_and_receives_what_it_has_not():
    rows, ideal = table(at(4), hw.causal())
    found = row(rows, "zigzag", "gather")
    token = 2 * 3 * 16 * 2
    assert found.imbalance == pytest.approx(1.0)
    # the rank with the last run needs all that it does not hold
    assert found.forward_bytes == (4096 - 1024) * token
    assert found.backward_bytes == (4096 - 1024) * 2 * token
    assert found.transfer == pytest.approx((found.forward_bytes + found.backward_bytes) / 1e6)
    assert found.seconds == pytest.approx(found.compute + found.transfer + 2e-3)
    assert found.compute == pytest.approx(ideal)
    # tiles of 128: half of them and half of the diagonal
    assert ideal == pytest.approx(2 * 7 * 6 * 16 * (4096**2 + 4096 * 128) / 2 / 4 / 1e9)
    assert row(rows, "contiguous", "gather").imbalance > 1.6


def test_a_ring_holds_two_blocks_and_hides_what_it_moves():
    rows, _ = table(at(4), hw.causal())
    ring, gather = row(rows, "zigzag", "ring"), row(rows, "zigzag", "gather")
    assert ring.forward_bytes == gather.forward_bytes
    # keys and values come again for the backward pass
    assert ring.backward_bytes == gather.forward_bytes + gather.backward_bytes
    assert ring.memory - at(4).held_bytes == 2 * 1024 * SIZE.token_bytes
    assert ring.seconds == pytest.approx(max(ring.compute, ring.transfer + 3 * 3 * 1e-3))


def test_a_window_moves_less_than_a_twelfth_of_a_ring():
    rows, _ = table(at(8, 32768), hw.causal() & hw.window(before=2047))
    assert 12 * row(rows, "contiguous", "gather").forward_bytes <= at(8, 32768).ring_bytes


@pytest.mark.parametrize(("ranks", "share"), [(2, 3), (3, 2), (4, 2)])
def test_heads_are_shared_out_and_no_more_ranks_than_there_are(ranks, share):
    found = row(table(at(ranks), None)[0], "any", "heads")
    assert found.imbalance == pytest.approx(share * ranks / 6)
    key_heads = math.ceil(3 / ranks)
    assert found.forward_bytes == pytest.approx(4096 * (ranks - 1) / ranks * 2 * (share + key_heads) * 16 * 2)
    assert row(table(at(7), None)[0], "any", "heads").why_not == "7 ranks, but 6 query heads"


def test_the_command_prints_a_table_and_draws_a_picture(capsys, tmp_path):
    path = tmp_path / "spread.png"
    arguments = ["--ranks", "64", "--length", "16384", "--mask", "causal() & window(before=1023)", "--query", "48"]
    assert main([*arguments, "--picture", str(path)]) == 0
    printed = capsys.readouterr().out
    first, header, best, *_ = printed.splitlines()
    assert first.startswith("16384 tokens, 64 ranks, causal() & window(before=1023); 48/8 heads of 128")
    assert header.split()[:3] == ["layout", "runs", "way"]
    assert best.split()[0] == "contiguous"
    assert "64 ranks, but 48 query heads" in printed
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("mask", "said"),
    [
        ("causal(", "was never closed"),
        ("windows(3)", "windows"),
        ("3", "it gives a int"),
        ("keys(torch.ones(1, 5) > 0)", "Lk=256"),
    ],
)
def test_a_mask_that_is_none_is_refused_in_one_sentence(mask, said, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--ranks", "2", "--length", "256", "--mask", mask])
    assert stopped.value.code == 2
    assert said in capsys.readouterr().err


def test_no_mask_is_said_by_its_word():
    assert command.mask_of("none") is None
    assert command.mask_of("documents(torch.arange(8) // 3)") == hw.documents(torch.arange(8) // 3)
    assert command.mask_of("hw.causal() & hw.window(before=3)") == hw.causal() & hw.window(before=3)


def test_amounts_have_three_digits():
    assert [amount(1.344e9, "B"), amount(12, "B"), amount(0.02211, "s"), amount(3e-5, "s")] == [
        "1.34 GB", "12 B", "22.1 ms", "30 us",
    ]  # fmt: skip
