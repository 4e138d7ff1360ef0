"""Layers whose heads are split over ranks: the cases, and what one process and each rank make of them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import parallelize_module
from torch.utils._python_dispatch import TorchDispatchMode

import headwise as hw

B, L, LK, E, D, EK, EV = 2, 9, 7, 10, 4, 6, 8
Call = Callable[[hw.MultiHeadAttention, dict[str, Tensor]], Tensor]


class Case(NamedTuple):
    """A layer by its arguments, and how it is called with the inputs of `inputs`."""

    heads: int = 12
    given: dict[str, Any] = {}  # noqa: RUF012  # never written to
    call: Call = lambda layer, t: layer(t["x"], mask=hw.causal())

    def build(self) -> hw.MultiHeadAttention:
        width = {} if isinstance(self.given.get("score"), hw.Additive) else {"head_dim": D}
        layer = hw.MultiHeadAttention(E, self.heads, **{**width, **self.given})
        generator = torch.Generator().manual_seed(5)
        with torch.no_grad():
            for p in layer.parameters():
                p.copy_(torch.randn(p.shape, generator=generator) * 0.4)
        return layer


class Made(NamedTuple):
    """What a call gave: its output, and every gradient by the name of its input or parameter."""

    out: Tensor
    gradients: dict[str, Tensor]


def inputs() -> dict[str, Tensor]:
    """Queries x, keys and values of other widths, a bias of each head and one of all."""
    generator = torch.Generator().manual_seed(3)
    sizes = {"x": (B, L, E), "key": (B, LK, EK), "value": (B, LK, EV), "bias": (B, 12, L, L), "one": (L, L)}
    return {name: torch.randn(size, generator=generator) for name, size in sizes.items()}


def made(layer: hw.MultiHeadAttention, call: Call, dtype: torch.dtype) -> Made:
    """The output of a call and all gradients of a loss that weighs every entry differently."""
    given = {name: t.to(dtype).requires_grad_() for name, t in inputs().items()}
    out = call(layer, given)
    (out.square() * torch.linspace(0.5, 1.5, out.numel(), dtype=dtype).view(out.shape)).sum().backward()
    leaves = {**given, **dict(layer.named_parameters())}
    return Made(out.detach(), {name: whole(t.grad) for name, t in leaves.items() if t.grad is not None})


def whole(t: Tensor) -> Tensor:
    """A tensor of all ranks."""
    return t.full_tensor() if isinstance(t, DTensor) else t


def split(layer: hw.MultiHeadAttention, ranks: int) -> hw.MultiHeadAttention:
    """A copy of the layer, with its heads split over the ranks of the default group."""
    mesh = init_device_mesh("cpu", (ranks,), mesh_dim_names=("tp",))
    again = copy.deepcopy(layer)
    return parallelize_module(again, mesh["tp"], hw.distributed.plan(again))


def made_by_rank(_: int, ranks: int, layer: hw.MultiHeadAttention, call: Call) -> Made:
    """What one of so many ranks makes of a call."""
    return made(split(layer, ranks), call, torch.float32)


def seen_by_head(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return (i - j) % (h + 2) == 0


def _each_head() -> hw.Mask:
    dense = torch.rand(B, 12, L, L, generator=torch.Generator().manual_seed(2)) > 0.4
    return hw.allowed(dense)


CROSS = {"kdim": EK, "vdim": EV}
CASES = {
    "12 heads": Case(),
    "Hk=4": Case(given={"num_kv_heads": 4}),
    "Hk=3": Case(given={"num_kv_heads": 3}),
    "Hk=2": Case(given={"num_kv_heads": 2}),
    "Hk=1": Case(given={"num_kv_heads": 1}),
    "10 heads, Hk=5": Case(10, {"num_kv_heads": 5, "position": hw.RelativeBias(num_buckets=8, max_distance=20)}),
    "7 heads": Case(7, {"position": hw.Alibi(), "score": hw.DotProduct(sink="learned")}),
    "rotary": Case(given={"position": hw.Rotary(), "num_kv_heads": 2}),
    "alibi": Case(given={"position": hw.Alibi()}),
    "relative": Case(given={"position": hw.RelativeBias(num_buckets=8, max_distance=20)}),
    "rms": Case(given={"qk_norm": "rms", "num_kv_heads": 2}),
    "layer": Case(given={"qk_norm": "layer"}),
    "l2": Case(given={"qk_norm": "l2"}),
    "sink": Case(given={"score": hw.DotProduct(sink="learned")}),
    "zero sink, softcap, scale": Case(given={"score": hw.DotProduct(sink="zero", softcap=5.0, scale=0.3)}),
    "additive": Case(given={"score": hw.Additive(5), "num_kv_heads": 4}),
    "additive, 7 heads": Case(7, {"score": hw.Additive(5)}),
    "no bias, widths": Case(given={"bias": False, "v_head_dim": 6, "out_dim": 16}),
    "cross": Case(given=CROSS, call=lambda layer, t: layer(t["x"], t["key"], t["value"])),
    "cross, one width": Case(given={"kdim": EK}, call=lambda layer, t: layer(t["x"], t["key"])),
    "memory": Case(
        given={**CROSS, "num_kv_heads": 2},
        call=lambda layer, t: layer(t["x"], layer.memory(t["key"], t["value"], mask=hw.lengths([7, 3]))),
    ),
    "mask of heads": Case(call=lambda layer, t: layer(t["x"], mask=_each_head() & hw.window(before=6, after=2))),
    "rule of heads": Case(call=lambda layer, t: layer(t["x"], mask=hw.rule(seen_by_head) | ~hw.causal())),
    "bias of heads": Case(call=lambda layer, t: layer(t["x"], attn_bias=t["bias"])),
    "bias of all": Case(
        given={"position": hw.Alibi()}, call=lambda layer, t: layer(t["x"], attn_bias=t["one"], mask=hw.causal())
    ),
    "positions": Case(
        given={"position": hw.Rotary()},
        call=lambda layer, t: layer(t["x"], mask=hw.causal(), positions=torch.arange(L).flip(0)),
    ),
    "unbatched": Case(call=lambda layer, t: layer(t["x"][0], mask=hw.keys(torch.tensor([[True] * 5 + [False] * 4])))),
}


def decoded(layer: hw.MultiHeadAttention, dtype: torch.dtype, kind: dict[str, int], mask: hw.Mask) -> Tensor:
    """The outputs of one sequence, some tokens at a time, over a cache of this kind."""
    cache, x = layer.cache(**kind), inputs()["x"].to(dtype)
    with torch.no_grad():
        return torch.cat([layer(x[:, t : t + 3], mask=mask, cache=cache) for t in range(0, L, 3)], dim=1)


def decoded_by_rank(_: int, ranks: int, layer: hw.MultiHeadAttention, kind: dict[str, int], mask: hw.Mask) -> Any:
    """What one of so many ranks decodes."""
    return decoded(split(layer, ranks), torch.float32, kind, mask)


class Counted(TorchDispatchMode):
    """Counts the sums over ranks while it is on."""

    def __init__(self) -> None:
        super().__init__()
        self.sums = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.sums += "all_reduce" in str(func)
        return func(*args, **(kwargs or {}))


def sums_of_a_step(_: int, ranks: int, case: Case) -> int:
    """How many sums over ranks a forward and backward pass of the layer takes; inputs but x need no gradient."""
    layer, given = split(case.build(), ranks), inputs()
    given["x"].requires_grad_()
    given["key"].requires_grad_()
    given["value"].requires_grad_()
    with Counted() as counted:
        case.call(layer, given).sum().backward()
    return counted.sums
