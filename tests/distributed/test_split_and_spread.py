"""A layer whose heads are split over one dimension of a mesh, and its sequence spread over the other."""

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import parallelize_module

import headwise as hw
from headwise.testing import assert_within_budget
from tests.distributed.processes import on_processes
from tests.distributed.ranks import on_ranks
from tests.distributed.split import CASES, B, E, seen_by_head, whole

LENGTH = 13
MESHES = {"2 x 2": (2, 2), "2 x 3": (2, 3)}
OF_HEADS = torch.rand(B, 12, LENGTH, LENGTH, generator=torch.Generator().manual_seed(2)) > 0.4
PADDED = hw.causal() & hw.keys(torch.arange(LENGTH) >= torch.tensor([[0], [4]]))
# a layer of tests/distributed/split.py, and the mask that it is called with
CALLS = {
    "padding": ("12 heads", PADDED),
    "repeated key/value heads, rotary": ("rotary", hw.causal()),
    "unequal groups": ("Hk=3", hw.window(before=4)),
    "7 heads, ALiBi, sink": ("7 heads", hw.causal() & hw.documents(torch.arange(LENGTH) // 5)),
    "relative bias": ("relative", None),
    "norms of few key/value heads": ("rms", hw.causal()),
    "additive": ("additive", hw.causal()),
    "softcap": ("zero sink, softcap, scale", hw.causal() | hw.prefix(3)),
    "no bias": ("no bias, widths", hw.window(before=2, after=3)),
    "a mask to each head": ("Hk=4", hw.allowed(OF_HEADS) & hw.window(before=6, after=2)),
    "a rule of heads": ("sink", hw.rule(seen_by_head) | ~hw.causal()),
}


def _made(layer: hw.MultiHeadAttention, dtype: torch.dtype, cp: Any, **given: Any) -> dict[str, Tensor]:
    """The output and every gradient, of this rank's tokens; cp: a spread, None: one process."""
    generator = torch.Generator().manual_seed(3)
    x, bias = torch.randn(B, LENGTH, E, generator=generator), torch.randn(1, 12, LENGTH, LENGTH, generator=generator)
    weight = torch.randn(B, LENGTH, 1, generator=generator)
    mine, its = (t if cp is None else cp.local(t) for t in (x, weight))
    leaves = {"x": mine.to(dtype).requires_grad_()}
    source = torch.randn(B, 7, E, generator=generator).to(dtype).requires_grad_()
    more = ()
    if given.pop("has_source", False):
        # whole on each rank
        more = (source,)
        leaves["source"] = source
    if given.pop("has_bias", False):
        given["attn_bias"] = leaves["attn_bias"] = bias.to(dtype).requires_grad_()
    over = cp.with_keys(None) if cp is not None and more else cp
    out = layer(leaves["x"], *more, spread=over, **given)
    (out.square() * its.to(dtype)).sum().backward()
    leaves |= dict(layer.named_parameters())
    return {"out": out.detach(), **{name: whole(t.grad) for name, t in leaves.items() if t.grad is not None}}


def _on_rank(_: int, sizes: tuple[int, int], layer: hw.MultiHeadAttention, layout: str, given: Any) -> Any:
    mesh = init_device_mesh("cpu", sizes, mesh_dim_names=("cp", "tp"))
    part = copy.deepcopy(layer)
    parallelize_module(part, mesh["tp"], hw.distributed.plan(part))
    taken = hw.distributed.spread(LENGTH, mesh["cp"], mask=given["mask"], layout=layout)
    return taken.tokens, _made(part, torch.float32, taken, **given)


def _joined(parts: list[tuple[Tensor, dict[str, Tensor]]], tp: int) -> dict[str, Tensor]:
    """Those of the whole sequence, of ranks that hold the same tokens bit by bit alike; parameters' summed over cp."""
    for tokens, found in parts:
        (first,) = [other for held, other in parts[::tp] if torch.equal(held, tokens)]
        assert found.keys() == first.keys()
        assert all(torch.equal(t, first[name]) for name, t in found.items())
    alone = parts[::tp]
    order = torch.cat([tokens for tokens, _ in alone]).argsort()
    return {
        name: torch.cat([found[name] for _, found in alone], 1)[:, order]
        if name in ("out", "x")
        else torch.stack([found[name] for _, found in alone]).sum(0)
        for name in alone[0][1]
    }


def assert_one_set_of_numbers(sizes: tuple[int, int], case: str, layout: str, given: Any) -> None:
    layer = CASES[case].build()
    found = _joined(on_ranks(sizes[0] * sizes[1], _on_rank, sizes, layer, layout, given), sizes[1])
    exact = _made(copy.deepcopy(layer).double(), torch.float64, None, **given)
    plain = _made(layer, torch.float32, None, **given)
    assert found.keys() == exact.keys()
    # a bias with its weight, since that of keys has a gradient of 0
    modules = {name: name.removesuffix(".bias").removesuffix(".weight") for name in exact}
    for module in set(modules.values()):
        names = [name for name, of in modules.items() if of == module]
        assert_within_budget(*(torch.cat([each[name].flatten() for name in names]) for each in (found, exact, plain)))


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("call", CALLS)
def test_any_mesh_gives_the_numbers_of_one_process(call: str, mesh: str) -> None:
    case, mask = CALLS[call]
    layout = {"2 x 2": "zigzag", "2 x 3": "striped"}[mesh]
    assert_one_set_of_numbers(MESHES[mesh], case, layout, {"mask": mask})


def test_a_bias_of_all_heads_has_the_gradient_of_one_process() -> None:
    assert_one_set_of_numbers((2, 3), "alibi", "zigzag", {"mask": hw.causal(), "has_bias": True})


@pytest.mark.parametrize("case", ["additive, 7 heads", "10 heads, Hk=5"])
def test_cross_attention_to_whole_keys_has_the_gradients_of_one_process(case: str) -> None:
    assert_one_set_of_numbers((2, 2), case, "zigzag", {"mask": hw.lengths([7, 3]), "has_source": True})


def _dropped(_: int, sizes: tuple[int, int], layer: bytes) -> bytes:
    mesh, part = init_device_mesh("cpu", sizes, mesh_dim_names=("cp", "tp")), pickle.loads(layer)
    parallelize_module(part, mesh["tp"], hw.distributed.plan(part))
    taken = hw.distributed.spread(LENGTH, mesh["cp"], layout="zigzag")
    # ranks but the first have drawn other numbers before, as where each loads its own data
    torch.manual_seed(6 + mesh.get_rank())
    return pickle.dumps(taken.whole(part(taken.local(_tokens()), spread=taken, mask=hw.causal())).detach())


def _tokens() -> Tensor:
    return torch.randn(B, LENGTH, E, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def test_the_same_pairs_of_the_same_heads_are_dropped_on_any_mesh() -> None:
    layer = hw.MultiHeadAttention(E, 12, head_dim=4, dropout=0.4).double()
    alone = hw.distributed.spread(LENGTH)
    torch.manual_seed(6)
    whole = layer(_tokens(), spread=alone, mask=hw.causal())
    torch.manual_seed(7)
    assert not torch.allclose(layer(_tokens(), spread=alone, mask=hw.causal()), whole)
    # processes, since threads share torch's generator
    for sizes in ((1, 2), (2, 3)):
        for ended in on_processes(sizes[0] * sizes[1], _dropped, sizes, pickle.dumps(layer)):
            assert ended.error is None, ended.error
            torch.testing.assert_close(pickle.loads(ended.result), whole)
