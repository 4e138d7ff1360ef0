"""HeadShare: the heads of a layer that one rank computes, and its parameters as they are read for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard
from torch.func import functional_call
from torch.nn.modules.module import _has_any_global_hook as has_global_hooks

from headwise.distributed.dropout import shared_seed
from headwise.distributed.layouts import Layout
from headwise.distributed.rank_axis import RankAxis
from headwise.distributed.reduction import first_only, shared, summed
from headwise.errors import ArgumentError, ShapeError
from headwise.layer.local_heads import Share
from headwise.layer.sizes import Widths
from headwise.masks import Mask
from headwise.masks.head_subset import some_heads
from headwise.ops.dropout import drawn_seed
from headwise.ops.shared_axis import SharedHeads, heads_active
from headwise.positions import AlibiBias

__all__ = ["HeadShare", "head_share"]


PROJECTIONS = ("q_proj", "k_proj", "v_proj", "out_proj")


class ParameterPart(NamedTuple):
    """What of a parameter belongs to a rank: along `dim`, some heads, each of `width` entries; dim None: all of it.

    is_split: whether a rank holds its part only. is_last: added once to what is summed over ranks.
    """

    dim: int | None = None
    heads: Sequence[int] = ()
    width: int = 1
    is_split: bool = False
    is_last: bool = False

    @property
    def placement(self) -> Placement:
        return Shard(self.dim) if self.is_split and self.dim is not None else Replicate()


@dataclass(frozen=True)
class HeadShare(Share):
    """The query heads first..past of `whole`, and those of `whole_kv` key/value heads that they read; see `head_share`.

    parts: of each parameter of the layer, by its full name there, what belongs to this rank.
    """

    first: int
    past: int
    whole: int
    whole_kv: int
    mesh: DeviceMesh
    parts: dict[str, ParameterPart]

    @property
    def first_head(self) -> int:
        return self.first

    def enter(self, t: Tensor, layer: nn.Module) -> Tensor:
        if isinstance(t, DTensor):
            raise ArgumentError(
                f"a layer whose heads are split over ranks takes plain tensors, the same on all of them, but a DTensor "
                f"with {t.placements} came: give t.full_tensor(), or use_local_output=True before"
            )
        return shared(t, self.mesh, is_fresh=_are_unhooked(layer))

    def leave(self, t: Tensor, layer: nn.Module) -> Tensor:
        return summed(t, self.mesh, is_fresh=_are_unhooked(layer))

    def call(self, name: str, module: nn.Module, *inputs: Any) -> Tensor:
        own = {each: self.parameter(f"{name}.{each}", t) for each, t in module.named_parameters()}
        if type(module) is nn.Linear and not torch.compiler.is_compiling() and _is_unhooked(module):
            # what functional_call comes to
            return nn.functional.linear(inputs[0], own["weight"], own.get("bias"))
        out: Tensor = functional_call(module, own, inputs) if own else module(*inputs)
        # its slopes are constants, of all heads
        return out[:, self.first : self.past] if isinstance(module, AlibiBias) else out

    def parameter(self, name: str, t: Tensor) -> Tensor:
        part = self.parts.get(name)
        if part is None or not isinstance(t, DTensor):
            raise ArgumentError(
                f"the parameters of a layer whose heads are split over ranks are those that its plan split, but {name} "
                "came after: change the layer first, then give it to parallelize_module"
            )
        local: Tensor = t.to_local(grad_placements=[part.placement])
        if part.is_split:
            return local
        if part.is_last:
            return first_only(local, self.mesh)
        local = shared(local, self.mesh)
        if part.dim is None:
            return local
        rows = [head * part.width + row for head in part.heads for row in range(part.width)]
        return local.index_select(part.dim, torch.tensor(rows, device=local.device))

    def mask(self, mask: Mask | None) -> Mask | None:
        return some_heads(mask, (self.first, self.past, self.whole))

    def bias(self, bias: Tensor | None) -> Tensor | None:
        if bias is None:
            return None
        if bias.ndim == 4 and bias.shape[1] not in (1, self.whole):
            raise ShapeError(
                f"attn_bias must be (Lq, Lk) or broadcast to (B, Hq={self.whole}, Lq, Lk), but came as "
                f"{tuple(bias.shape)}: give every axis its size or 1"
            )
        # its gradient comes from the heads of all ranks
        bias = shared(bias, self.mesh)
        return bias[:, self.first : self.past] if bias.ndim == 4 and bias.shape[1] > 1 else bias

    def generator(self, device: torch.device) -> torch.Generator:
        # ranks are seeded alike as a rule, and must not drop the same pairs of different heads
        seed = int(torch.randint(0, 2**31, (), device="cpu"))
        return torch.Generator(device).manual_seed(seed * self.mesh.size() + self.mesh.get_local_rank())

    def seed(self, device: torch.device) -> Tensor:
        return shared_seed(drawn_seed(None, device), self.mesh.get_group(), "dropout of a layer whose heads are split")

    def attend(self, run: Callable[..., Tensor], *tensors: Tensor, **rules: Any) -> Tensor:
        # only a watch asks of which heads a call is, and none hears compiled code
        if torch.compiler.is_compiling() or not torch._C._len_torch_function_stack():
            return run(*tensors, **rules)
        with heads_active(SharedHeads(self._axis(), self.whole_kv)):
            return run(*tensors, **rules)

    def _axis(self) -> RankAxis:
        ranks = self.mesh.size()
        heads = tuple(torch.arange(*_heads_of(rank, ranks, self.whole)) for rank in range(ranks))
        call = f"a reading of the map of {self.whole} heads"
        return RankAxis(Layout("heads", heads), self.mesh.get_local_rank(), self.mesh.get_group(), call)

    def __deepcopy__(self, memo: dict[int, Any]) -> HeadShare:
        return self


def head_share(w: Widths, mesh: DeviceMesh) -> HeadShare:
    """The share of this rank in a layer of these widths: an equal one where the ranks divide its heads.

    Parameters are split where the ranks divide their heads. Elsewhere each rank holds them whole, and reads its part.
    """
    ranks, rank = mesh.size(), mesh.get_local_rank()
    first, past = _heads_of(rank, ranks, w.Hq)
    kv_heads = [head * w.Hk // w.Hq for head in range(first, past)]
    served = sorted(set(kv_heads))
    # groups of unequal size are no grouped heads: there, each query head gets a key/value head of its own
    kv = served if len({kv_heads.count(head) for head in served}) == 1 else kv_heads
    is_even = w.Hq % ranks == 0
    q = range(first, past)
    of_q, of_k, of_v = (
        ParameterPart(0, heads, width, is_even and every % ranks == 0)
        for heads, width, every in ((q, w.D, w.Hq), (kv, w.D, w.Hk), (kv, w.Dv, w.Hk))
    )
    parts = {f"{which}.{key}": ParameterPart() for which in ("q_norm", "k_norm") for key in ("weight", "bias")}
    for which, part in (("q_proj", of_q), ("k_proj", of_k), ("v_proj", of_v)):
        parts[f"{which}.weight"] = parts[f"{which}.bias"] = part
    parts["out_proj.weight"], parts["out_proj.bias"] = ParameterPart(1, q, w.Dv, is_even), ParameterPart(is_last=True)
    parts["position.weight"] = ParameterPart(1, q, 1, is_even)
    parts["sink"] = parts["score_weight"] = ParameterPart(0, q, 1, is_even)
    return HeadShare(len(q), len(kv), first, past, w.Hq, w.Hk, mesh, parts)


def _are_unhooked(layer: nn.Module) -> bool:
    """Whether nobody else has what the projections of a layer give, or the gradients of what they read."""
    if torch.compiler.is_compiling():
        return False
    has_modes = torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack()
    return not has_modes and all(_is_unhooked(layer.get_submodule(name)) for name in PROJECTIONS)


def _is_unhooked(module: nn.Module) -> bool:
    """Whether a call of a module is its forward alone."""
    own = (module._forward_pre_hooks, module._forward_hooks, module._backward_pre_hooks, module._backward_hooks)
    return not any(own) and not has_global_hooks()


def _heads_of(rank: int, ranks: int, heads: int) -> tuple[int, int]:
    """The first query head of a rank, and the one after its last."""
    return heads * rank // ranks, heads * (rank + 1) // ranks
