"""Every step of every table is undone by its inverse, and the permutations are the ones their names say."""

import pytest
import torch

from headwise.compat.conversion import weight_steps
from headwise.compat.conversion.registry import conventions
from headwise.compat.conversion.weight_tables import WeightLayout
from headwise.layer.sizes import make_widths
from tests.sizes import SIZES

WIDTHS = make_widths(
    24, SIZES["Hq"], num_kv_heads=SIZES["Hk"], head_dim=SIZES["D"] + 1, v_head_dim=SIZES["Dv"], kdim=24, vdim=24,
    out_dim=17,
)  # fmt: skip
LAYOUTS = [
    WeightLayout(WIDTHS),
    WeightLayout(WIDTHS, "half", 12),
    WeightLayout(WIDTHS, "interleaved", 12),
    WeightLayout(WIDTHS, "half", 8),
]


def ours(name):
    w, projection = WIDTHS, name.partition("_")[0]
    rows, columns = {
        "q": (w.Hq * w.D, w.E), "k": (w.Hk * w.D, w.key), "v": (w.Hk * w.Dv, w.value), "out": (w.out, w.Hq * w.Dv),
    }.get(projection, (0, 0))  # fmt: skip
    if name == "position.weight":
        return torch.randn(8, w.Hq)
    if name == "sink":
        return torch.randn(w.Hq)
    if "norm" in name:
        return torch.randn(w.D)
    return torch.randn(rows, columns) if name.endswith("weight") else torch.randn(rows)


@pytest.mark.parametrize("name", [each.name for each in conventions()])
def test_what_is_written_reads_back_as_it_was(name):
    table = next(each.table for each in conventions() if each.name == name)
    for layout in LAYOUTS:
        for row in table.rows:
            parts = tuple(map(ours, row.names))
            theirs = parts
            for step in reversed(row.steps):
                theirs = step.write(theirs, layout)
            assert len(theirs) == 1
            assert theirs[0].is_contiguous()
            # a layer that pairs otherwise than the convention is written in its pairing, and read as such
            if any(step.sentence.startswith("features paired") for step in row.steps) and layout.pairing:
                continue
            back = theirs
            for step in row.steps:
                back = step.read(back, layout)
            for part, again in zip(parts, back, strict=True):
                torch.testing.assert_close(again, part)


def test_tile_order_puts_the_heads_of_a_group_side_by_side():
    # six query heads over three key heads: theirs reads h % 3, ours h // 2
    layout = WeightLayout(
        make_widths(12, 6, num_kv_heads=3, head_dim=1, v_head_dim=1, kdim=None, vdim=None, out_dim=None)
    )
    theirs = torch.arange(6.0)
    (moved,) = weight_steps.BLOCK_ROWS.read((theirs,), layout)
    assert moved.tolist() == [0, 3, 1, 4, 2, 5]
    assert [head % 3 for head in moved.long().tolist()] == [head // 2 for head in range(6)]


def test_interleaved_features_are_sorted_into_halves():
    layout = WeightLayout(
        make_widths(12, 1, num_kv_heads=1, head_dim=8, v_head_dim=8, kdim=None, vdim=None, out_dim=None)
    )
    interleaved = torch.arange(8.0)
    (half,) = weight_steps.paired("half").write((interleaved,), layout._replace(pairing="interleaved", turned=6))
    # the last two do not turn
    assert half.tolist() == [0, 2, 4, 1, 3, 5, 6, 7]
    (back,) = weight_steps.paired("interleaved").write((half,), layout._replace(pairing="half", turned=6))
    assert torch.equal(back, interleaved)
    for said in (None, "half"):
        assert torch.equal(weight_steps.paired("half").write((half,), layout._replace(pairing=said, turned=6))[0], half)


def test_the_inverse_of_adding_one_takes_one_off_and_gradients_see_neither():
    layout, weight = LAYOUTS[0], torch.randn(5)
    torch.testing.assert_close(
        weight_steps.ONE_MORE.write(weight_steps.ONE_MORE.read((weight,), layout), layout)[0], weight
    )
    gemma = next(each.table for each in conventions() if each.name == "gemma3")
    rows = {row.theirs: ours(row.names[0]) for row in gemma.rows}
    del rows["q_proj.bias"], rows["k_proj.bias"], rows["v_proj.bias"], rows["o_proj.bias"]
    read = gemma.to_headwise(rows, layout, gradients=True)
    assert torch.equal(read["q_norm.weight"], rows["q_norm.weight"])
    assert torch.equal(gemma.to_headwise(rows, layout)["q_norm.weight"], rows["q_norm.weight"] + 1)
