"""Masks go through torch.compile, torch.export, vmap, fake and meta tensors: built inside, or handed in."""

import io

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode
from torch.export import Dim
from torch.utils import _pytree as pytree

import headwise as hw
from headwise.masks.__main__ import chessboard
from tests.sizes import SIZES

B, H, Lq, Lk = (SIZES[axis] for axis in ("B", "Hq", "Lq", "Lk"))


def tensors(seed: int = 0) -> tuple[Tensor, Tensor]:
    """keep (B, Lk) and n (B,)."""
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(B, Lk, generator=generator) < 0.6, torch.randint(0, Lk, (B,), generator=generator)


def every_kind(keep: Tensor, n: Tensor) -> hw.Mask:
    """A mask with every kind of node in it."""
    rows, columns = torch.arange(Lq, device=n.device), torch.arange(Lk, device=n.device)
    near = hw.causal() & hw.window(before=2, after=1) & hw.keys(keep)
    grouped = hw.documents(rows // 2, columns // 3) | hw.prefix(n) | hw.prefix(1)
    counted = hw.lengths(n).__invert__() & hw.lengths(n[:, None].expand(-1, Lq))
    dense = hw.allowed(keep[:, None, None]) & hw.rule(chessboard) & hw.masks.from_flex(chessboard)
    return near | grouped.at(rows + 1, columns) & counted | dense.at(rows, columns, columns=columns.flip(0))


def results(mask: hw.Mask) -> tuple[Tensor, Tensor]:
    """What a mask allows, and its tiles."""
    return mask.allowed(Lq, Lk, heads=H), mask.tiles(Lq, Lk, block=(2, 3), heads=H)


def built_inside(keep: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
    return results(every_kind(keep, n))


def assert_all_equal(got: tuple[Tensor, ...], wanted: tuple[Tensor, ...]) -> None:
    assert [t.tolist() for t in got] == [t.tolist() for t in wanted]


def test_a_mask_built_inside_a_compiled_function():
    compiled = torch.compile(built_inside, fullgraph=True, backend="aot_eager")
    assert_all_equal(compiled(*tensors()), built_inside(*tensors()))
    assert_all_equal(compiled(*tensors(1)), built_inside(*tensors(1)))


def test_a_mask_handed_to_a_compiled_function():
    compiled = torch.compile(results, fullgraph=True, backend="aot_eager")
    for seed in (0, 1):
        assert_all_equal(compiled(every_kind(*tensors(seed))), results(every_kind(*tensors(seed))))


def test_a_mask_of_other_constants_is_compiled_anew():
    compiled = torch.compile(results, fullgraph=True, backend="aot_eager")
    for mask in (hw.window(before=1), hw.window(before=3), hw.prefix(2), hw.prefix(4), hw.causal()):
        assert_all_equal(compiled(mask), results(mask))


def test_lengths_may_change_without_compiling_anew():
    graphs = []

    def counting(graph, inputs):
        graphs.append(graph)
        return graph.forward

    def allowed(keep: Tensor, Lq: int) -> Tensor:
        return (hw.causal() & hw.keys(keep)).allowed(Lq, keep.shape[1])

    compiled = torch.compile(allowed, fullgraph=True, backend=counting, dynamic=True)
    for Lq, Lk in ((5, 7), (9, 11), (6, 13)):
        keep = torch.ones(B, Lk, dtype=torch.bool)
        assert torch.equal(compiled(keep, Lq), allowed(keep, Lq))
    assert len(graphs) == 1


class Built(nn.Module):
    """Builds its mask from tensors."""

    def forward(self, keep: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
        return built_inside(keep, n)


class Handed(nn.Module):
    """Is handed its mask."""

    def forward(self, scores: Tensor, mask: hw.Mask) -> Tensor:
        return scores.masked_fill(~mask.allowed(Lq, Lk), 0.0)


class Growing(nn.Module):
    """Is called at any length."""

    def forward(self, rows: Tensor, keep: Tensor) -> Tensor:
        return (hw.causal() & hw.keys(keep)).allowed(rows.shape[0], keep.shape[1])


@pytest.mark.parametrize("strict", [False, True])
def test_a_mask_built_inside_an_exported_program(strict):
    program = torch.export.export(Built(), tensors(), strict=strict).module()
    assert_all_equal(program(*tensors(1)), built_inside(*tensors(1)))


@pytest.mark.parametrize("strict", [False, True])
def test_a_mask_is_an_input_of_an_exported_program_saved_and_loaded(strict):
    def mask(seed: int) -> hw.Mask:
        keep, n = tensors(seed)
        return (hw.causal() | ~hw.keys(keep)) & hw.window(before=3) | hw.prefix(n) | hw.lengths(n)

    scores = torch.ones(B, 1, Lq, Lk)
    program = torch.export.export(Handed(), (scores, mask(0)), strict=strict)
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    for each in (program, torch.export.load(file)):
        assert torch.equal(each.module()(scores, mask(1)), Handed()(scores, mask(1)))


def test_a_mask_is_exported_for_any_length():
    L, S, N = Dim("L"), Dim("S"), Dim("N")
    shapes = {"rows": {0: L}, "keep": {0: N, 1: S}}
    program = torch.export.export(Growing(), (torch.ones(Lq), tensors()[0]), dynamic_shapes=shapes).module()
    rows, keep = torch.ones(11), torch.rand(3, 13) < 0.5
    assert torch.equal(program(rows, keep), Growing()(rows, keep))


def test_a_mask_is_saved_and_loaded_as_data():
    keep, n = tensors()
    mask = (hw.causal() & hw.keys(keep) | ~hw.lengths(n)).at(torch.arange(Lq), torch.arange(Lk))
    file = io.BytesIO()
    torch.save(mask, file)
    file.seek(0)
    assert torch.load(file, weights_only=True) == mask


def test_the_samples_of_a_padding_mask_can_be_mapped():
    keep, _ = tensors()
    mapped = torch.vmap(lambda row: (hw.causal() & hw.keys(row[None])).allowed(Lq, Lk))(keep)
    assert torch.equal(mapped, (hw.causal() & hw.keys(keep)).allowed(Lq, Lk)[:, 0])


def test_a_mask_of_every_kind_can_be_mapped():
    keep, n = tensors()
    mapped = torch.vmap(lambda row, length: built_inside(row[None], length[None]))(keep, n)
    alone = [built_inside(keep[b, None], n[b, None]) for b in range(B)]
    assert_all_equal(mapped, tuple(torch.stack(each) for each in zip(*alone, strict=True)))


def test_a_mask_can_be_mapped_as_an_argument():
    keep, n = tensors()
    mask = hw.causal() & hw.keys(keep) & hw.window(keys=3) | hw.lengths(n)
    stacked = pytree.tree_map(lambda t: t[:, None], mask)
    mapped = torch.vmap(lambda each: each.allowed(Lq, Lk))(stacked)
    assert torch.equal(mapped, mask.allowed(Lq, Lk)[:, 0])


def test_masks_of_meta_and_fake_tensors_have_the_shapes_of_real_ones():
    wanted = [t.shape for t in built_inside(*tensors())]
    on_meta = [t.to("meta") for t in tensors()]
    assert [t.shape for t in built_inside(*on_meta)] == wanted
    assert all(t.is_meta for t in built_inside(*on_meta))
    with FakeTensorMode() as mode:
        fake = [mode.from_tensor(t) for t in tensors()]
        assert [t.shape for t in built_inside(*fake)] == wanted
        assert every_kind(*fake).padding(Lk) is None
        assert repr(hw.causal() & hw.keys(fake[0])) == "causal() & keys(keep=<bool (2, 7)>)"


def test_a_mask_can_be_printed_while_it_is_mapped():
    keep, _ = tensors()
    seen = []
    torch.vmap(lambda row: (seen.append(repr(hw.keys(row[None]))), row)[1])(keep)
    assert seen == ["keys(keep=<bool (1, 7)>)"]
