"""A layer whose heads are split lives with the rest of torch: FSDP2, compile, checkpointing, hooks, and with maps."""

import copy
import pickle

import torch
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import parallelize_module
from torch.utils.checkpoint import checkpoint

import headwise as hw
from headwise.distributed.reduction import summed
from tests.distributed.processes import on_processes
from tests.distributed.ranks import on_ranks
from tests.distributed.split import CASES, D, E, inputs, split, whole


def _sharded(_: int, layer: bytes) -> bytes:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    part = pickle.loads(layer)
    parallelize_module(part, mesh["tp"], hw.distributed.plan(part))
    fully_shard(part, mesh=mesh["dp"])
    sample = mesh["dp"].get_local_rank()
    part(inputs()["x"][sample : sample + 1].double(), mask=hw.causal()).square().sum().backward()
    # the mean over dp, where one process takes the sum of both samples
    return pickle.dumps({name: 2 * whole(p.grad) for name, p in part.named_parameters()})


def test_fully_shard_over_another_dimension_gives_the_gradients_of_one_process() -> None:
    layer = CASES["rms"].build().double()
    ended = on_processes(4, _sharded, pickle.dumps(layer))
    layer(inputs()["x"].double(), mask=hw.causal()).square().sum().backward()
    assert [each.error for each in ended] == [None] * 4
    for each in ended:
        came = pickle.loads(each.result)
        assert list(came) == [name for name, _ in layer.named_parameters()]
        for name, p in layer.named_parameters():
            torch.testing.assert_close(came[name], p.grad)


def _compiled(_: int) -> bool:
    part, x = split(CASES["rotary"].build(), 2), inputs()["x"].requires_grad_()
    program = torch.compile(part, fullgraph=True, backend="aot_eager")
    made = []
    for run in (part, program):
        out = run(x, mask=hw.causal())
        made.append((out.detach(), *torch.autograd.grad(out.sum(), x)))
    return all(torch.equal(a, b) for a, b in zip(*made, strict=True))


def test_it_compiles_into_one_graph_with_the_same_bits() -> None:
    assert [(each.result, each.error) for each in on_processes(2, _compiled)] == [(True, None)] * 2


def _checkpointed(_: int) -> bool:
    part = split(hw.MultiHeadAttention(E, 12, head_dim=D, dropout=0.5), 2)
    made = []
    for is_kept in (True, False):
        torch.manual_seed(3)
        x = inputs()["x"].requires_grad_()
        out = part(x) if is_kept else checkpoint(part, x, use_reentrant=False)
        out.square().sum().backward()
        made.append(x.grad)
    return torch.equal(*made)


def test_a_checkpoint_draws_the_same_dropout_again() -> None:
    assert [(each.result, each.error) for each in on_processes(2, _checkpointed)] == [(True, None)] * 2


def _watched(_: int, layer: hw.MultiHeadAttention) -> Tensor:
    part = split(layer, 2)
    with torch.no_grad(), hw.watch(part) as seen:
        part(inputs()["x"], mask=hw.causal())
    return seen[""].local.entropy()


def test_the_local_map_of_a_rank_is_that_of_its_heads() -> None:
    layer = CASES["sink"].build()
    with torch.no_grad(), hw.watch(layer) as seen:
        layer(inputs()["x"], mask=hw.causal())
    torch.testing.assert_close(torch.cat(on_ranks(2, _watched, layer), dim=1), seen[""].entropy())


def test_what_a_hook_keeps_of_a_projection_is_not_written_over() -> None:
    def task(_: int, layer: hw.MultiHeadAttention) -> None:
        part, kept = split(layer, 2), []
        part.out_proj.register_forward_hook(lambda module, given, out: kept.append((out, out.detach().clone())))
        part.q_proj.register_full_backward_hook(lambda module, of, given: kept.append((of[0], of[0].clone())))
        part(inputs()["x"].requires_grad_()).square().sum().backward()
        assert [torch.equal(now, then) for now, then in kept] == [True, True]

    on_ranks(2, task, CASES["12 heads"].build())


def test_a_sum_of_what_nobody_else_has_is_made_where_it_is() -> None:
    def task(rank: int) -> None:
        mesh = init_device_mesh("cpu", (2,))
        for is_fresh in (True, False):
            t = torch.full((3, 5), rank + 1.0)
            whole = summed(t, mesh, is_fresh=is_fresh)
            assert (whole.data_ptr() == t.data_ptr()) == is_fresh
            assert torch.equal(whole, torch.full((3, 5), 3.0))

    on_ranks(2, task)


def test_a_second_derivative_of_a_split_layer_is_that_of_the_whole() -> None:
    def second(layer: hw.MultiHeadAttention) -> Tensor:
        x = inputs()["x"].double().requires_grad_()
        (first,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
        return torch.autograd.grad(first.square().sum(), x)[0]

    layer = CASES["12 heads"].build().double()
    for found in on_ranks(2, lambda rank: second(split(layer, 2))):
        torch.testing.assert_close(found, second(layer))


def test_a_hook_on_a_projection_sees_the_heads_of_its_rank() -> None:
    def shapes(_: int, layer: hw.MultiHeadAttention) -> list[tuple[int, ...]]:
        part, came = split(copy.deepcopy(layer), 2), []
        part.q_proj.register_forward_hook(lambda module, given, out: came.append(tuple(out.shape)))
        part(inputs()["x"])
        return came

    assert on_ranks(2, shapes, CASES["12 heads"].build()) == [[(2, 9, 6 * D)]] * 2
