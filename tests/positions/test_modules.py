"""What the three modules of positions share: nothing that is done to a model changes their numbers."""

import copy
import io
import pickle

import pytest
import torch
from torch import Tensor, nn

from headwise.positions import Alibi, RelativeBias, Rotary, YarnScaling
from headwise.positions.constants import FixedNumbers, kept_dtype
from tests.positions.rotations import assert_same, heads

H, L, D = 3, 5, 12
FAR = torch.arange(100_001, 100_001 + L)
ROTARIES = {
    "half": Rotary(scaling=YarnScaling(4.0, 64)),
    "interleaved": Rotary(pairing="interleaved", dim=8),
}
BIASES = {"alibi": Alibi(), "relative": RelativeBias(num_buckets=8, max_distance=20)}
MODULES = {**{name: spec.build(D) for name, spec in ROTARIES.items()}, **{n: s.build(H) for n, s in BIASES.items()}}
every_module = pytest.mark.parametrize("name", MODULES)
# the first forward-mode call of a process makes torch script its own decompositions
quiet_forward_mode = pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")


def built(name: str, **where: object) -> FixedNumbers:
    """The module anew."""
    return ROTARIES[name].build(D, **where) if name in ROTARIES else BIASES[name].build(H, **where)


def inputs(name: str, length: int = L) -> tuple[Tensor, Tensor]:
    """What the module is called with: heads and positions, or positions twice."""
    positions = torch.arange(100_001, 100_001 + length)
    return (heads(2, H, length, D, dtype=torch.float32) if name in ROTARIES else positions - 3), positions


def round_trip(module: nn.Module) -> nn.Module:
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


CHANGES = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda module: pickle.loads(pickle.dumps(module)),
    "torch.save": round_trip,
    "to cpu": lambda module: module.to("cpu"),
    "double": lambda module: module.double().float(),
    "eval": lambda module: module.eval(),
    "in a sequence": lambda module: nn.Sequential(module).requires_grad_(False)[0],
    "to_empty and load": lambda module: loaded(module.to_empty(device="cpu"), MODULES["relative"]),
    "to meta and back": lambda module: loaded(module.to("meta").to_empty(device="cpu"), MODULES["relative"]),
}


def loaded(module: nn.Module, source: nn.Module) -> nn.Module:
    module.load_state_dict(source.state_dict() if module.state_dict() else {})
    return module


@every_module
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_no_change_of_the_module_changes_a_bit(name, change):
    changed = change(copy.deepcopy(MODULES[name]))
    assert torch.equal(changed(*inputs(name)), MODULES[name](*inputs(name)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("name", ["half", "interleaved", "alibi"])
def test_a_cast_leaves_fixed_numbers_alone(name, dtype):
    cast = nn.Sequential(copy.deepcopy(MODULES[name])).to(dtype)[0]
    assert torch.equal(cast(*inputs(name)), MODULES[name](*inputs(name)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_a_cast_rounds_learned_weights_and_nothing_else(dtype):
    cast = copy.deepcopy(MODULES["relative"]).to(dtype)
    assert torch.equal(cast(*inputs("relative")), MODULES["relative"](*inputs("relative")).to(dtype))


@every_module
def test_the_state_dict_holds_what_is_learned(name):
    assert list(MODULES[name].state_dict()) == (["weight"] if name == "relative" else [])
    assert list(MODULES[name].buffers()) == []


@every_module
def test_a_module_made_on_the_meta_device_is_whole_once_its_weights_are(name):
    with torch.device("meta"):
        in_context = built(name)
    for empty in (in_context, built(name, device="meta")):
        weights = {key: value.clone() for key, value in MODULES[name].state_dict().items()}
        empty.load_state_dict(weights, assign=True)
        empty.to("cpu")
        assert torch.equal(empty(*inputs(name)), MODULES[name](*inputs(name)))


@every_module
def test_a_module_on_the_meta_device_gives_shapes(name):
    empty = built(name, device="meta")
    x, positions = inputs(name)
    assert empty(x.to("meta"), positions.to("meta")).shape == MODULES[name](x, positions).shape


@pytest.mark.parametrize("name", ROTARIES)
def test_a_rotary_made_in_inference_mode_can_train_after_it(name):
    with torch.inference_mode():
        rotary = built(name)
    (x, positions), along = inputs(name), heads(2, H, L, D, dtype=torch.float32, seed=1)
    gradients = [torch.autograd.grad(m(x.requires_grad_(), positions), x, along)[0] for m in (rotary, MODULES[name])]
    assert torch.equal(*gradients)


@every_module
def test_compiles_whole_for_any_length(name):
    torch.compiler.reset()
    compiled = torch.compile(MODULES[name], backend="aot_eager", fullgraph=True, dynamic=True)
    for length in (L, 2 * L, 3 * L):
        assert_same(compiled(*inputs(name, length)), MODULES[name](*inputs(name, length)))


@every_module
@pytest.mark.parametrize("strict", [False, True], ids=["not strict", "strict"])
def test_exports_with_a_length_left_open(name, strict):
    length = torch.export.Dim("length")
    shapes = ({2 if name in ROTARIES else 0: length}, {0: length})
    program = torch.export.export(MODULES[name], inputs(name), dynamic_shapes=shapes, strict=strict)
    given = inputs(name, 3 * L)
    assert_same(program.module()(*given), MODULES[name](*given))


@every_module
def test_vmap_over_rows_equals_the_batch(name):
    rows = torch.stack((FAR, FAR + 7, FAR - 100_000))
    first = heads(3, H, L, D, dtype=torch.float32) if name in ROTARIES else rows - 2
    together = MODULES[name](first, rows)
    assert_same(torch.vmap(MODULES[name])(first, rows).reshape(together.shape), together)
    shared = torch.stack([MODULES[name](first[0], row) for row in rows])
    assert_same(torch.vmap(MODULES[name], in_dims=(None, 0))(first[0], rows), shared)


@quiet_forward_mode
@pytest.mark.parametrize("name", ROTARIES)
def test_gradients_of_every_kind_are_those_of_a_rotation(name):
    x, positions = heads(1, 2, 3, D), torch.arange(40, 43)
    x.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: MODULES[name](x, positions), x, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(lambda x: MODULES[name](x, positions) ** 2, x, check_fwd_over_rev=True)


@quiet_forward_mode
@pytest.mark.parametrize("name", ROTARIES)
def test_the_derivative_along_a_direction_is_the_direction_turned(name):
    x, positions = heads(2, H, L, D), FAR
    along = heads(2, H, L, D, seed=1)
    _, tangent = torch.func.jvp(lambda x: MODULES[name](x, positions), (x,), (along,))
    assert_same(tangent, MODULES[name](along, positions))


@quiet_forward_mode
def test_gradients_of_every_kind_reach_the_learned_bias():
    table = BIASES["relative"].build(H, dtype=torch.float64)

    def bias(weight):
        return torch.func.functional_call(table, {"weight": weight}, inputs("relative")) ** 2

    weight = table.weight.detach().clone().requires_grad_()
    assert torch.autograd.gradcheck(bias, weight, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(bias, weight, check_fwd_over_rev=True)


@pytest.mark.parametrize("name", ROTARIES)
def test_autocast_leaves_dtype_and_bits_alone(name):
    x, positions = inputs(name)
    for given in (x, x.bfloat16()):
        with torch.autocast("cpu", torch.bfloat16):
            turned = MODULES[name](given, positions)
        assert turned.dtype == given.dtype
        assert torch.equal(turned, MODULES[name](given, positions))


@every_module
def test_the_tree_prints_what_was_asked_for(name):
    spec = ROTARIES.get(name)
    wanted = {
        "alibi": "AlibiBias(num_heads=3)",
        "relative": "RelativeBiasTable(num_heads=3, num_buckets=8, max_distance=20, bidirectional=True)",
    }.get(name, f"RotaryEmbedding({spec!r}, head_dim=12)")
    assert repr(MODULES[name]) == wanted


def test_float64_gives_way_where_a_device_has_none():
    assert kept_dtype(torch.float64, torch.device("mps")) == torch.float32
    assert kept_dtype(torch.float64, torch.device("cuda")) == torch.float64
    assert kept_dtype(torch.int64, torch.device("mps")) == torch.int64
