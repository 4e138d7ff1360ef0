"""A layer whose sequence is spread lives with the rest of torch: DDP, FSDP2, autocast, checkpoints, accumulation."""

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed import checkpoint as saving
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.parallel import parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import headwise as hw
from headwise.errors import ArgumentError
from headwise.testing import assert_within_budget
from tests.distributed.processes import Ended, on_processes
from tests.distributed.ranks import on_ranks
from tests.distributed.split import whole

LENGTH, WIDTH, OUT = 16, 12, 5
# tokens that are real: of two samples, of which the first is short
REAL = torch.arange(LENGTH) >= torch.tensor([[6], [0]])
MASK = hw.causal() & hw.window(before=8)
COUNT = int(REAL.sum())


class Two(nn.Module):
    """Two layers, one of few key/value heads, and a projection; called with what its layers are."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.first = hw.MultiHeadAttention(WIDTH, 4, num_kv_heads=2, position=hw.Rotary(), qk_norm="rms", head_dim=4)
        self.second = hw.MultiHeadAttention(WIDTH, 4, position=hw.Alibi(), score=hw.DotProduct(sink="learned"))
        self.out = nn.Linear(WIDTH, OUT)
        self.is_checkpointed = False

    def forward(self, x: Tensor, keep: Tensor, **given: Any) -> Tensor:
        mask = MASK & hw.keys(keep)
        for layer in (self.first, self.second):
            if self.is_checkpointed:
                x = x + checkpoint(layer, x, mask=mask, use_reentrant=False, **given)
            else:
                x = x + layer(x, mask=mask, **given)
        return self.out(x)


def _batch() -> Tensor:
    return torch.randn(2, LENGTH, WIDTH, generator=torch.Generator().manual_seed(3))


def _loss(out: Tensor, keep: Tensor) -> Tensor:
    """The sum over real tokens, divided by how many the whole batch has on all ranks."""
    return (out.float() if out.dtype == torch.bfloat16 else out).square().sum(-1)[keep].sum() / COUNT


def _gradients(model: nn.Module) -> dict[str, Tensor]:
    return {name.removeprefix("module."): whole(p.grad) for name, p in model.named_parameters()}


def _alone(dtype: torch.dtype) -> dict[str, Tensor]:
    model = Two().to(dtype)
    _loss(model(_batch().to(dtype), REAL), REAL).backward()
    return _gradients(model)


def _read(ended: list[Ended]) -> list[Any]:
    assert [each.error for each in ended] == [None] * len(ended)
    return [pickle.loads(each.result) for each in ended]


def _sharded(rank: int) -> bytes:
    """Gradients over a mesh of 2 samples and 2 parts of a sequence, by how the step is made."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "cp"))
    sample, found = mesh["dp"].get_local_rank(), {}
    taken = hw.distributed.spread(LENGTH, mesh["cp"], mask=MASK, layout="zigzag")
    x, keep = _batch()[sample : sample + 1].double(), REAL[sample : sample + 1]
    every = mesh["dp", "cp"]._flatten("dp_cp")
    for how in ("argument", "with", "checkpointed", "accumulated", "mixed precision"):
        model = Two()
        model.is_checkpointed = how == "checkpointed"
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        given = {"mp_policy": policy} if how == "mixed precision" else {}
        model = model if given else model.double()
        mine = taken.local(x if not given else x.float())
        for module in (model.first, model.second, model):
            fully_shard(module, mesh=every, **given)
        # fully_shard divides by its ranks, where the sum is wanted
        if how in ("argument", "mixed precision"):
            (4 * _loss(model(mine, keep, spread=taken), taken.local(keep))).backward()
        elif how in ("with", "checkpointed"):
            with taken:
                (4 * _loss(model(mine, keep), taken.local(keep))).backward()
        else:
            for weight in (3, 1):
                model.set_requires_gradient_sync(weight == 1)
                (weight * _loss(model(mine, keep, spread=taken), taken.local(keep))).backward()
        found[how] = _gradients(model)
    return pickle.dumps(found)


def test_fully_shard_over_samples_and_tokens_gives_the_gradients_of_one_process() -> None:
    exact, plain = _alone(torch.float64), _alone(torch.bfloat16)
    for found in _read(on_processes(4, _sharded)):
        halves = found.pop("mixed precision")
        for gradients in found.values():
            assert gradients.keys() == exact.keys()
            for name, t in gradients.items():
                torch.testing.assert_close(t, exact[name])
        for name, t in halves.items():
            assert t.dtype == torch.float32
            if name.endswith("k_proj.bias"):
                # nothing but rounding, since every key of a row moves alike
                continue
            assert_within_budget(t.bfloat16(), exact[name], plain[name])


def _trained(model: nn.Module, steps: int, **given: Any) -> Tensor:
    optimizer, taken = torch.optim.AdamW(model.parameters(), lr=0.01), given.get("spread")
    x, keep = _batch(), REAL
    mine, its, ranks = (x, keep, 1) if taken is None else (taken.local(x), taken.local(keep), taken.ranks)
    for _ in range(steps):
        optimizer.zero_grad()
        (ranks * _loss(model(mine, keep, **given), its)).backward()
        optimizer.step()
    out = model(mine, keep, **given).detach()
    return out if taken is None else taken.whole(out)


def _saved(_: int, folder: str) -> bytes:
    """A model with its heads split, its sequence spread and its parameters sharded, after some steps."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("cp", "tp"))
    model = Two()
    parallelize_module(model, mesh["tp"], hw.distributed.plan(model))
    for module in (model.first, model.second, model):
        fully_shard(module, mesh=mesh["cp"])
    taken = hw.distributed.spread(LENGTH, mesh["cp"], mask=MASK, layout="striped")
    out = _trained(model, 3, spread=taken)
    saving.save(model.state_dict(), checkpoint_id=folder)
    return pickle.dumps(out)


def _loaded(_: int, folder: str) -> bytes:
    """The same weights on two ranks, between which the sequence is spread and the parameters are sharded."""
    model, mesh = Two(), init_device_mesh("cpu", (2,), mesh_dim_names=("cp",))
    fully_shard(model, mesh=mesh)
    state = model.state_dict()
    for t in state.values():
        t.zero_()
    saving.load(state, checkpoint_id=folder)
    return pickle.dumps(_trained(model, 0, spread=hw.distributed.spread(LENGTH, mesh, mask=MASK)))


def test_heads_split_tokens_spread_and_parameters_sharded_train_as_one_process_and_load_elsewhere(
    tmp_path: Path,
) -> None:
    trained = _read(on_processes(4, _saved, str(tmp_path)))
    assert all(torch.equal(out, trained[0]) for out in trained)
    torch.testing.assert_close(trained[0], _trained(Two(), 3))
    for out in _read(on_processes(2, _loaded, str(tmp_path))):
        torch.testing.assert_close(out, trained[0])


def _replicated(_: int) -> bytes:
    taken = hw.distributed.spread(LENGTH, mask=MASK, layout="zigzag")
    model = DistributedDataParallel(Two().double())
    x, keep = taken.local(_batch().double()), taken.local(REAL)
    # so does DDP divide; of two backward passes the first is not sent
    with model.no_sync():
        (0.5 * _loss(model(x, REAL, spread=taken), keep)).backward()
    with taken:
        (1.5 * _loss(model(x, REAL), keep)).backward()
    return pickle.dumps(_gradients(model))


def test_ddp_around_a_spread_model_gives_the_gradients_of_one_process() -> None:
    exact = _alone(torch.float64)
    for found in _read(on_processes(2, _replicated)):
        for name, t in found.items():
            torch.testing.assert_close(t, exact[name])


# tokens of which keys are attended to where they stand
MANY = 1100
EAGER = {"fullgraph": True, "backend": "eager"}


def _compiled(_: int) -> bytes:
    taken = hw.distributed.spread(LENGTH, mask=MASK, layout="zigzag")
    layer, mine = Two().first, taken.local(_batch())
    second, keys = Two().second, torch.randn(2, 7, WIDTH, generator=torch.Generator().manual_seed(5))
    q = torch.randn(2, 4, mine.shape[1], 6, generator=torch.Generator().manual_seed(2))
    crossed = taken.with_keys(None)
    calls = {
        "gather": (lambda t: hw.distributed.attention(t, t.cos(), t.sin(), spread=taken, way="gather", mask=MASK), q),
        "heads": (lambda t: hw.distributed.attention(t, t.cos(), t.sin(), spread=taken, way="heads", mask=MASK), q),
        "layer": (lambda t: layer(t, mask=MASK, spread=taken), mine),
        "keys that are whole": (lambda t: second(t, keys, mask=MASK, spread=crossed), mine),
    }
    same = {}
    for name, (call, t) in calls.items():
        made = []
        for run in (call, torch.compile(call, fullgraph=True, backend="aot_eager")):
            t = t.detach().requires_grad_()
            out = run(t)
            made.append((out.detach(), *torch.autograd.grad(out.sum(), t)))
        # a program without gradients calls the exchange without its Function
        with torch.no_grad():
            made = [(*of, run(t)) for of, run in zip(made, (call, torch.compile(call, **EAGER)), strict=True)]
        same[name] = all(torch.equal(a, b) for a, b in zip(*made, strict=True))
    documents = hw.documents(torch.arange(LENGTH) // 9)
    changing = lambda t: hw.distributed.attention(t, t, t, spread=taken, way="gather", mask=documents)  # noqa: E731
    try:
        torch.compile(changing, **EAGER)(q)
    except Exception as error:  # noqa: BLE001  # torch wraps it
        same["refused"] = "plans for its mask once, but documents(" in str(error)
    return pickle.dumps(same)


def test_gather_heads_and_a_layer_compile_into_one_graph_with_the_same_bits() -> None:
    names = ("gather", "heads", "layer", "keys that are whole", "refused")
    assert _read(on_processes(2, _compiled, limit=120.0)) == [dict.fromkeys(names, True)] * 2


def _compiled_of_many_numbers(_: int) -> bytes:
    taken = hw.distributed.spread(MANY, layout="zigzag", mask=hw.causal())
    call = lambda t: hw.distributed.attention(t, t.cos(), t.sin(), spread=taken, way="gather", mask=hw.causal())  # noqa: E731
    made = []
    for run in (call, torch.compile(call, fullgraph=True, backend="aot_eager")):
        t = taken.local(_many(torch.float32), dim=2).requires_grad_()
        out = run(t)
        made.append((taken.whole(out.detach(), dim=2), taken.whole(torch.autograd.grad(out.sum(), t)[0], dim=2)))
    return pickle.dumps(made)


def _many(dtype: torch.dtype) -> Tensor:
    return torch.randn(1, 4, MANY, 16, generator=torch.Generator().manual_seed(2)).to(dtype)


def _plain(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    t = _many(dtype).requires_grad_()
    scores = (t @ t.cos().mT / 4).masked_fill(torch.ones(MANY, MANY).triu(1).bool(), -torch.inf)
    out = scores.softmax(-1) @ t.sin()
    return out.detach(), torch.autograd.grad(out.sum(), t)[0]


def test_gather_of_many_numbers_compiles_to_the_same_numbers_by_other_steps() -> None:
    exact, plain = _plain(torch.float64), _plain(torch.float32)
    for made in _read(on_processes(2, _compiled_of_many_numbers)):
        for both in made:
            for found, its_exact, its_plain in zip(both, exact, plain, strict=True):
                assert_within_budget(found, its_exact, its_plain)
        # attended to where keys stand, and joined in the compiled one: docs/distributed.md says so
        assert any(not torch.equal(a, b) for a, b in zip(*made, strict=True))


def test_autocast_gives_the_numbers_of_one_process_under_autocast() -> None:
    x, layer = _batch(), Two().first

    def made(t: Tensor, **given: Any) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return layer(t, mask=MASK, **given).detach()

    def task(_: int) -> Tensor:
        taken = hw.distributed.spread(LENGTH, mask=MASK, layout="zigzag")
        return taken.whole(made(taken.local(x), spread=taken))

    exact = copy.deepcopy(layer).double()(x.double(), mask=MASK).detach()
    for found in on_ranks(2, task):
        assert found.dtype == torch.bfloat16
        assert_within_budget(found, exact, made(x))


def test_backward_passes_over_halves_of_a_batch_add_up_where_heads_are_split() -> None:
    # made here: threads share torch's generator
    alone = Two().double()

    def task(_: int) -> dict[str, Tensor]:
        mesh, model = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",)), copy.deepcopy(alone)
        parallelize_module(model, mesh["tp"], hw.distributed.plan(model))
        for x, keep in zip(_batch().double().split(1), REAL.split(1), strict=True):
            _loss(model(x, keep), keep).backward()
        return _gradients(model)

    exact = _alone(torch.float64)
    for found in on_ranks(2, task):
        for name, t in found.items():
            torch.testing.assert_close(t, exact[name])


def _in_context_parallel(_: int) -> list[str]:
    mesh = init_device_mesh("cpu", (1,), mesh_dim_names=("cp",))
    x, q, weight = torch.randn(1, LENGTH, WIDTH), torch.randn(1, 2, LENGTH, 4), torch.randn(2, 4)
    layer = hw.MultiHeadAttention(WIDTH, 2, position=hw.Rotary(), score=hw.DotProduct(softcap=3.0))
    calls = [lambda: hw.attention(q, q, q), lambda: hw.additive_attention(q, q, q, weight), lambda: layer(x)]
    said = []
    with context_parallel(mesh, buffers=[x], buffer_seq_dims=[1]):
        for call in calls:
            with pytest.raises(ArgumentError) as raised:
                call()
            said.append(str(raised.value))
    assert layer(x).shape == x.shape
    return said


def test_inside_of_the_context_parallel_of_torch_is_refused_by_name() -> None:
    (said,) = on_ranks(1, _in_context_parallel)
    functions = [
        sentence.split(" inside of torch's context_parallel would take this rank's tokens")[0] for sentence in said
    ]
    assert functions == ["hw.attention", "hw.additive_attention", "hw.attention"]


def test_another_function_in_the_place_of_sdpa_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = torch.nn.functional.scaled_dot_product_attention
    q = torch.randn(1, 2, LENGTH, 4)
    want = hw.attention(q, q, q)
    monkeypatch.setattr(
        torch.nn.functional, "scaled_dot_product_attention", lambda *args, **more: theirs(*args, **more)
    )
    assert torch.equal(hw.attention(q, q, q), want)
