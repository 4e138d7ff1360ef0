"""Edits of models that training wraps: ranks, shards, low-rank weights, functional calls, threads."""

import copy
import threading

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

import headwise as hw
from headwise.errors import ArgumentError
from tests.watching import families

pytestmark = pytest.mark.needs("transformers")
PLACE, HEAD, ROUNDS = "layers.1", 3, 7


@pytest.fixture
def model():
    return families.build("llama", "sdpa").double()


def run(model):
    return families.first(model(input_ids=families.tokens()))


def without_head(model, head=HEAD, call=run):
    with hw.intervene(model) as edits:
        edits.find(PLACE).zero(heads=head)
        return call(model)


def gradients(model, out):
    """Those of a scalar, by the parameter's name in the model itself."""
    out.square().sum().backward()
    return {name.removeprefix("module."): p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.fixture
def one_rank(tmp_path):
    """A group of this process alone."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def test_a_model_of_ddp_gives_the_output_and_gradients_of_its_own(model, one_rank):
    wrapped = nn.parallel.DistributedDataParallel(copy.deepcopy(model), find_unused_parameters=True)
    assert not torch.equal(without_head(model), run(model))
    model.zero_grad()
    wanted = gradients(model, without_head(model))
    given = gradients(wrapped, without_head(wrapped))
    assert given.keys() == wanted.keys()
    for name, gradient in wanted.items():
        torch.testing.assert_close(given[name], gradient, rtol=0, atol=0)


def test_a_sharded_model_gives_the_output_of_its_own(model, one_rank):
    wanted = without_head(model)
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
    for layer in [*model.modules()]:
        if type(layer).__name__.endswith("DecoderLayer"):
            fully_shard(layer, mesh=mesh)
    assert torch.equal(without_head(fully_shard(model, mesh=mesh)), wanted)


class LowRank(nn.Module):
    """A projection with a low-rank change (Hu et al. 2021, arXiv:2106.09685), kept beside it."""

    def __init__(self, base):
        super().__init__()
        generator = torch.Generator().manual_seed(base.out_features)
        self.base = base
        self.down = nn.Parameter(torch.randn(2, base.in_features, generator=generator, dtype=base.weight.dtype))
        self.up = nn.Parameter(torch.randn(base.out_features, 2, generator=generator, dtype=base.weight.dtype))

    def forward(self, x):
        return self.base(x) + x @ self.down.mT @ self.up.mT


def test_low_rank_weights_beside_a_model_are_as_those_merged_into_it(model):
    merged = copy.deepcopy(model)
    for name, module in [*model.named_modules()]:
        if name.endswith(("q_proj", "v_proj", "o_proj")):
            beside = LowRank(module)
            model.get_submodule(name.rpartition(".")[0]).register_module(name.rpartition(".")[2], beside)
            with torch.no_grad():
                merged.get_submodule(name).weight += beside.up @ beside.down
    assert not torch.allclose(without_head(merged), run(merged))
    torch.testing.assert_close(without_head(model), without_head(merged), rtol=1e-10, atol=1e-10)


def test_a_functional_call_with_other_weights_is_changed_too(model):
    other = {name: p * 1.25 for name, p in model.named_parameters()}
    changed = copy.deepcopy(model)
    changed.load_state_dict(other, strict=False)

    def call(model):
        return families.first(torch.func.functional_call(model, other, (), {"input_ids": families.tokens()}))

    assert torch.equal(without_head(model, call=call), without_head(changed))


def test_threads_change_their_own_runs_only(model):
    plain, wanted = run(model), [without_head(model, head) for head in range(2)]
    told, together = {}, threading.Barrier(3)

    def runs(name, call, right):
        # each thread has its own setting
        torch.set_num_threads(1)
        together.wait()
        told[name] = [torch.equal(call(), right) for _ in range(ROUNDS)]

    threads = [
        threading.Thread(target=runs, args=(head, lambda head=head: without_head(model, head), wanted[head]))
        for head in range(2)
    ]
    threads.append(threading.Thread(target=runs, args=("plain", lambda: run(model), plain)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert told == {name: [True] * ROUNDS for name in (0, 1, "plain")}


class Handing(nn.Module):
    """A model that leaves its second layer to another thread."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids):
        return self.in_another(self.model, input_ids)

    @staticmethod
    def in_another(model, input_ids):
        told = []

        def call():
            try:
                told.append(model(input_ids=input_ids))
            except ArgumentError as error:
                told.append(error)

        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        if isinstance(told[0], Exception):
            raise told[0]
        return told[0]


def test_what_a_run_leaves_to_another_thread_is_refused(model):
    with pytest.raises(ArgumentError, match=r'"model.layers.1" cannot be changed: it ran in another thread'):
        without_head(Handing(model))
