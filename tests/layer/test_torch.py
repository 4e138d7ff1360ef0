"""What torch offers around a module works on the layer: compile, export, autocast, copies, hooks, other projections."""

import copy
import io
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

import headwise as hw
from headwise.testing import assert_within_budget, exact_attention, plain_attention
from tests.cases import tensors
from tests.layer.test_layer import CONFIGURATIONS, E, pair

MASKS: dict[str, Callable[[], Any]] = {
    "no mask": lambda: None,
    "causal": lambda: hw.causal(),
    "padding": lambda: hw.causal() & hw.lengths([7, 4, 0]),
    "window": lambda: hw.window(before=1, after=1),
    "a rule": lambda: hw.rule(lambda b, h, i, j: (i + j + h) % 2 == 0),
}


# with each mask several configurations: that any two go together is shown uncompiled, in test_layer.py
COMPILED = [(name, list(MASKS)[at % len(MASKS)]) for at, name in enumerate(CONFIGURATIONS)]


@pytest.mark.parametrize(("name", "mask"), COMPILED)
def test_compiled_whole_it_gives_the_same_numbers_and_gradients(name: str, mask: str) -> None:
    layer, exact = pair(**CONFIGURATIONS[name])
    torch.compiler.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    x, given = torch.randn(3, 7, E), MASKS[mask]()
    eager, got = layer(x, mask=given), compiled(x, mask=given)
    want = exact(x.double(), mask=given)
    assert_within_budget(got.detach(), want.detach(), eager.detach())
    gradients = [torch.autograd.grad(y.square().sum(), layer.q_proj.weight)[0] for y in (eager, got)]
    wide = torch.autograd.grad(want.square().sum(), exact.q_proj.weight)[0]
    assert_within_budget(gradients[1], wide, gradients[0])


@pytest.mark.needs("inductor")
def test_inductor_gives_the_same_numbers() -> None:
    layer, exact = pair(position=hw.Rotary(), num_kv_heads=2)
    torch.compiler.reset()
    compiled = torch.compile(layer, fullgraph=True)
    x, given = torch.randn(3, 7, E), MASKS["padding"]()
    eager = layer(x, mask=given).detach()
    assert_within_budget(compiled(x, mask=given).detach(), exact(x.double(), mask=given).detach(), eager)


@pytest.mark.parametrize("kind", ["static", "window"])
def test_compiled_steps_of_a_cache_compile_once(kind: str) -> None:
    layer, _ = pair(position=hw.Rotary())
    layer.requires_grad_(False)
    x, window = torch.randn(2, 9, E), hw.window(keys=4)
    torch.compiler.reset()
    graphs = []

    def counted(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph

    step = torch.compile(lambda t, c: layer(t, mask=hw.causal(), cache=c), fullgraph=True, backend=counted)
    cache = layer.cache(length=12, batch=2) if kind == "static" else layer.cache(window=4)
    layer(x[:, :3], mask=hw.causal(), cache=cache)
    got = torch.cat([step(x[:, t : t + 1], cache) for t in range(3, 9)], dim=1)
    want = layer(x, mask=hw.causal() if kind == "static" else window)[:, 3:]
    assert torch.allclose(got, want, atol=1e-5)
    assert len(graphs) == 1


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_exported_with_dynamic_sizes_it_gives_the_same_numbers(name: str) -> None:
    layer, exact = pair(**CONFIGURATIONS[name])
    layer.eval()

    class Padded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attn = layer

        def forward(self, x: Tensor, keep: Tensor) -> Tensor:
            return self.attn(x, mask=hw.causal() & hw.keys(keep))

    B, L = torch.export.Dim("B", min=2, max=64), torch.export.Dim("L", min=2, max=512)
    shapes = {"x": {0: B, 1: L}, "keep": {0: B, 1: L}}
    example = (torch.randn(3, 7, E), torch.ones(3, 7).bool())
    program = torch.export.export(Padded(), example, dynamic_shapes=shapes)
    for b, length in ((3, 7), (2, 19)):
        x, keep = torch.randn(b, length, E), torch.rand(b, length) > 0.3
        want, eager = (m(t, mask=hw.causal() & hw.keys(keep)) for m, t in ((exact, x.double()), (layer, x)))
        assert_within_budget(program.module()(x, keep).detach(), want.detach(), eager.detach())


def test_a_causal_layer_exports_with_an_open_length() -> None:
    layer, exact = pair()

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attn = layer

        def forward(self, x: Tensor) -> Tensor:
            return self.attn(x, mask=hw.causal())

    open_sizes = {"x": {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}}
    program = torch.export.export(Decoder(), (torch.randn(3, 7, E),), dynamic_shapes=open_sizes)
    x = torch.randn(2, 19, E)
    want, eager = exact(x.double(), mask=hw.causal()), layer(x, mask=hw.causal())
    assert_within_budget(program.module()(x).detach(), want.detach(), eager.detach())


@pytest.mark.parametrize("rules", [{}, {"scale": 0.3}, {"mask": hw.causal()}], ids=str)
def test_a_call_compiles_with_every_size_open(rules: dict[str, Any]) -> None:
    torch.compiler.reset()
    compiled = torch.compile(
        lambda q, k: hw.attention(q, k, k, **rules), backend="aot_eager", fullgraph=True, dynamic=True
    )
    for B, Hq, Hk, L, D in ((2, 6, 3, 5, 4), (3, 8, 2, 11, 6)):
        q, k = torch.randn(B, Hq, L, D), torch.randn(B, Hk, L, D)
        eager = hw.attention(q, k, k, **rules)
        assert_within_budget(compiled(q, k), exact_attention(q, k, k, **rules), eager)


def test_a_memory_exports_compiles_and_maps() -> None:
    layer, x, source = hw.MultiHeadAttention(E, 4).requires_grad_(False), torch.randn(3, 5, E), torch.randn(3, 7, E)
    for mask in (None, hw.lengths([7, 4, 1])):
        memory = layer.memory(source, mask=mask)
        want = layer(x, memory)
        program = torch.export.export(layer, (x,), {"key": memory})
        assert torch.allclose(program.module()(x, key=memory), want, atol=1e-6)
        torch.compiler.reset()
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
        assert torch.allclose(compiled(x, memory), want, atol=1e-6)
    memory = layer.memory(source)
    mapped = torch.func.vmap(lambda t: layer(t, memory))(torch.stack([x, -x]))
    assert torch.allclose(mapped[0], layer(x, memory), atol=1e-6)


@pytest.mark.needs("onnxruntime")
@pytest.mark.needs("onnxscript")
def test_onnxruntime_gives_the_same_numbers_with_zeros_for_empty_rows(tmp_path: Path) -> None:
    import onnxruntime

    layer, _ = pair(num_kv_heads=2, position=hw.Rotary())

    class Padded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attn = layer.eval()

        def forward(self, x: Tensor, keep: Tensor) -> Tensor:
            return self.attn(x, mask=hw.causal() & hw.keys(keep))

    x, keep = torch.randn(2, 7, E), torch.arange(7).expand(2, 7) > 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter warns of its own deprecations
        torch.onnx.export(Padded(), (x, keep), dynamo=True, verbose=False).save(tmp_path / "layer.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "layer.onnx")
    inputs = {given.name: t.numpy() for given, t in zip(session.get_inputs(), (x, keep), strict=True)}
    assert torch.allclose(torch.from_numpy(session.run(None, inputs)[0]), Padded()(x, keep), atol=1e-5)


def test_a_second_derivative_under_autocast_keeps_float32_inside() -> None:
    q, k, v = (t.requires_grad_() for t in tensors())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        (outside,) = torch.autograd.grad(hw.attention(q, k, v).float().square().sum(), q)
        (inside,) = torch.autograd.grad(hw.attention(q, k, v).float().square().sum(), q, create_graph=True)
    low = [t.detach().bfloat16().double().requires_grad_() for t in (q, k, v)]
    (exact,) = torch.autograd.grad(exact_attention(*low).square().sum(), low[0])
    assert_within_budget(inside.detach(), exact, outside)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_autocast_gives_its_dtype_within_the_budget_of_plain_code(name: str, dtype: torch.dtype) -> None:
    layer, exact = pair(**CONFIGURATIONS[name])
    x = torch.randn(3, 7, E)
    half = copy.deepcopy(layer).to(dtype)
    with torch.autocast("cpu", dtype=dtype):
        got = layer(x, mask=hw.causal())
    assert got.dtype is dtype
    want, plain = exact(x.double(), mask=hw.causal()), half(x.to(dtype), mask=hw.causal())
    assert_within_budget(got.detach(), want.detach(), plain.detach())


def test_autocast_of_the_function_keeps_a_bias_in_float32() -> None:
    q, k, v = tensors()
    # a bias of 1000.3 is 1000 in bfloat16, and would turn a difference of 0.3 into none
    bias = torch.tensor([1000.0, 1000.3, 0, 0, 0, 0, 0]).expand(5, 7)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = hw.attention(q, k, v, attn_bias=bias)
    low = [t.bfloat16() for t in (q, k, v)]
    plain = plain_attention(*low, attn_bias=bias)
    assert_within_budget(got, exact_attention(*low, attn_bias=bias), plain)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_copies_pickles_and_state_dicts_are_the_same_layer(name: str) -> None:
    layer, _ = pair(**CONFIGURATIONS[name])
    x = torch.randn(3, 7, E)
    want = layer(x, mask=hw.causal())
    assert torch.equal(copy.deepcopy(layer)(x, mask=hw.causal()), want)
    assert torch.equal(pickle.loads(pickle.dumps(layer))(x, mask=hw.causal()), want)
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    fresh = hw.MultiHeadAttention(E, 4, **CONFIGURATIONS[name])
    fresh.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(fresh(x, mask=hw.causal()), want)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_built_on_meta_it_runs_once_it_is_given_memory(name: str) -> None:
    layer, _ = pair(**CONFIGURATIONS[name])
    x = torch.randn(3, 7, E)
    with torch.device("meta"):
        shapes_only = hw.MultiHeadAttention(E, 4, **CONFIGURATIONS[name])
    assert all(p.is_meta for p in shapes_only.parameters())
    assert shapes_only(x.to("meta"), mask=hw.causal()).shape == (3, 7, shapes_only.widths.out)
    real = shapes_only.to_empty(device="cpu")
    real.load_state_dict(layer.state_dict())
    assert torch.equal(real(x, mask=hw.causal()), layer(x, mask=hw.causal()))
    assigned = hw.MultiHeadAttention(E, 4, device="meta", **CONFIGURATIONS[name])
    assigned.load_state_dict(layer.state_dict(), assign=True)
    assert torch.equal(assigned(x, mask=hw.causal()), layer(x, mask=hw.causal()))


def test_a_parametrised_projection_is_the_one_that_counts() -> None:
    layer, x = hw.MultiHeadAttention(E, 4), torch.randn(2, 5, E)

    class Doubled(nn.Module):
        def forward(self, weight: Tensor) -> Tensor:
            return 2 * weight

    other = copy.deepcopy(layer)
    with torch.no_grad():
        other.v_proj.weight.mul_(2)
    parametrize.register_parametrization(layer.v_proj, "weight", Doubled())
    assert torch.allclose(layer(x), other(x))


def test_hooks_fire_and_replaced_projections_are_called() -> None:
    layer, x = hw.MultiHeadAttention(E, 4), torch.randn(2, 5, E)
    fired = []
    for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
        getattr(layer, name).register_forward_hook(lambda *_, name=name: fired.append(name))
    before = layer(x)
    assert fired == ["q_proj", "k_proj", "v_proj", "out_proj"]

    class Adapted(nn.Module):
        """LoRA: the frozen projection, and a learned correction of low rank."""

        def __init__(self, base: nn.Linear) -> None:
            super().__init__()
            self.base = base
            self.down, self.up = nn.Linear(E, 2, bias=False), nn.Linear(2, E, bias=False)
            nn.init.zeros_(self.up.weight)

        def forward(self, x: Tensor) -> Tensor:
            return self.base(x) + self.up(self.down(x))

    layer.v_proj = Adapted(layer.v_proj)
    assert torch.equal(layer(x), before)
    layer(x).sum().backward()
    assert layer.v_proj.up.weight.grad.abs().max() > 0
    with torch.no_grad():
        assert layer(x, cache=layer.cache(length=8, batch=2)).shape == (2, 5, E)


def test_dynamically_quantised_projections_run() -> None:
    class Int8(nn.Module):
        """A weight of 8 bits with one scale a row, as weight-only quantisation keeps it."""

        def __init__(self, linear: nn.Linear) -> None:
            super().__init__()
            scale = linear.weight.abs().amax(1, keepdim=True) / 127
            self.register_buffer("scale", scale)
            self.register_buffer("weight", (linear.weight / scale).round().to(torch.int8))
            self.register_buffer("bias", linear.bias)

        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.linear(x, self.weight.to(x.dtype) * self.scale, self.bias)

    layer, x = hw.MultiHeadAttention(E, 4).requires_grad_(False), torch.randn(2, 5, E)
    before = layer(x, mask=hw.causal())
    for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
        setattr(layer, name, Int8(getattr(layer, name)))
    after = layer(x, mask=hw.causal())
    assert 0 < (after - before).abs().max() < 0.02 * before.abs().max() + 0.02
    cached = torch.cat(
        [layer(x[:, t : t + 1], mask=hw.causal(), cache=c) for c in [layer.cache()] for t in range(5)], 1
    )
    assert torch.allclose(cached, after, atol=1e-5)


def test_parameters_swapped_between_calls_are_those_used() -> None:
    # what FSDP does around each forward: the parameter is another tensor each time
    layer, x = hw.MultiHeadAttention(E, 4), torch.randn(2, 5, E)
    other = hw.MultiHeadAttention(E, 4)
    swapped = torch.func.functional_call(layer, dict(other.named_parameters()), (x,))
    assert torch.equal(swapped, other(x))
    for name, parameter in other.named_parameters():
        owner, _, leaf = name.rpartition(".")
        setattr(layer.get_submodule(owner), leaf, nn.Parameter(parameter.detach().clone()))
    assert torch.equal(layer(x), other(x))


def test_gradients_a_sample_come_from_vmap_over_grad() -> None:
    layer, exact = pair()
    x = torch.randn(4, 5, E)

    def loss(parameters: dict[str, Tensor], one: Tensor) -> Tensor:
        return torch.func.functional_call(layer, parameters, (one,), {"mask": hw.causal()}).square().sum()

    parameters = {name: p.detach() for name, p in layer.named_parameters()}
    found = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, x)["q_proj.weight"]
    for n in range(4):
        want = torch.autograd.grad(exact(x[n].double(), mask=hw.causal()).square().sum(), exact.q_proj.weight)[0]
        plain = torch.autograd.grad(layer(x[n], mask=hw.causal()).square().sum(), layer.q_proj.weight)[0]
        assert_within_budget(found[n], want, plain)


def test_checkpointing_gives_the_same_gradients() -> None:
    from torch.utils.checkpoint import checkpoint

    layer, x = hw.MultiHeadAttention(E, 4), torch.randn(2, 5, E)
    want = torch.autograd.grad(layer(x, mask=hw.causal()).square().sum(), layer.k_proj.weight)[0]
    again = checkpoint(lambda t: layer(t, mask=hw.causal()), x, use_reentrant=False)
    assert torch.equal(torch.autograd.grad(again.square().sum(), layer.k_proj.weight)[0], want)


def test_a_mode_sees_one_operation_and_changes_no_bit() -> None:
    from torch.overrides import TorchFunctionMode

    layer, x, seen = hw.MultiHeadAttention(E, 4), torch.randn(2, 5, E), []

    class Watching(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    want = layer(x, mask=hw.causal())
    with Watching():
        got = layer(x, mask=hw.causal())
    assert torch.equal(got, want)
    assert seen.count(hw.attention) == 1
    assert torch.nn.functional.scaled_dot_product_attention not in seen
