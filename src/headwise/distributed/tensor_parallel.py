"""Tensor parallelism: a plan that gives each rank some heads of every layer of a model."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.distributed.tensor.parallel import ParallelStyle

from headwise.distributed.head_shard import PROJECTIONS, HeadShare, head_share
from headwise.errors import ArgumentError
from headwise.layer import MultiHeadAttention

__all__ = ["Heads", "plan"]


class Heads(ParallelStyle):
    """Some heads of a MultiHeadAttention to each rank: a style for torch's `parallelize_module`, as `plan` gives it.

    Every option of the layer is split, also where the ranks do not divide the heads. Inputs are plain tensors, the
    same on all ranks, and so are outputs; masks and attn_bias are those of all heads. The numbers are those of one
    process, and so are all gradients, on every rank; dropout differs, since it drops other pairs on other numbers of
    ranks, unless the call has a spread. A step sums twice over the ranks, the output forward and the gradient of the
    input backward; once more for each further input (key, value, memory) and for each parameter that all ranks hold
    whole: norms, and projections of key/value heads, or of query heads, that the ranks do not divide.

    Parameters keep their names and become DTensors, so that torch.distributed.checkpoint saves and loads them on any
    number of ranks. The projections must be plain nn.Linear modules; their hooks see this rank's heads, and `hw.watch`
    all of them.
    Shoeybi et al. 2019, arXiv:1909.08053, sec. 3.

    >>> Heads()
    Heads()
    """

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        if not isinstance(module, MultiHeadAttention):
            raise ArgumentError(
                f"Heads() splits a MultiHeadAttention, but {type(module).__name__} came: take the names of "
                "hw.distributed.plan(model)"
            )
        if device_mesh.ndim != 1:
            raise ArgumentError(
                f"heads are split over one dimension of a mesh, but it has {device_mesh.ndim}, "
                f'{device_mesh.mesh_dim_names}: give one, such as mesh["tp"]'
            )
        if device_mesh.size() > module.widths.Hq:
            raise ArgumentError(
                f"each rank needs a head, but num_heads={module.widths.Hq} is less than the {device_mesh.size()} ranks "
                "of the mesh: give one of fewer"
            )
        _check_plain(module)
        share = head_share(module.widths, device_mesh)
        self._distribute(module, share)
        module._share = share
        return module

    def _distribute(self, layer: MultiHeadAttention, share: HeadShare) -> None:
        """Make every parameter of the layer a DTensor, under its name."""
        for path, t in list(layer.named_parameters()):
            if isinstance(t, DTensor):
                # a table of positions that another layer has shared with this one
                continue
            owner, _, name = path.rpartition(".")
            placements = [share.parts[path].placement]
            spread = distribute_tensor(t.detach(), share.mesh, placements, src_data_rank=self.src_data_rank)
            layer.get_submodule(owner).register_parameter(name, nn.Parameter(spread, requires_grad=t.requires_grad))

    def __repr__(self) -> str:
        return "Heads()"


def plan(model: nn.Module) -> dict[str, ParallelStyle]:
    """Which modules of a model are split over ranks, by name: `Heads()` for each of its attention layers.

    For torch's `parallelize_module(model, mesh["tp"], plan(model))`; join it with styles of torch for the other
    modules. ArgumentError where there is no layer to split, or where another kind of attention of headwise's or
    torch's is among the modules: convert it first.

    >>> import headwise as hw
    >>> plan(torch.nn.ModuleDict({"attn": hw.MultiHeadAttention(8, 2), "out": torch.nn.Linear(8, 8)}))
    {'attn': Heads()}
    """
    if not isinstance(model, nn.Module):
        raise ArgumentError(f"plan takes an nn.Module, but {type(model).__name__} came: give the model itself")
    others = [f"{name or 'the model'} ({type(module).__name__})" for name, module in _others(model)]
    if others:
        raise ArgumentError(
            f"plan splits MultiHeadAttention, but {', '.join(others)} came: make each one with "
            "hw.compat.convert(module) first"
        )
    layers = {name: module for name, module in model.named_modules() if isinstance(module, MultiHeadAttention)}
    if not layers:
        raise ArgumentError(f"plan splits MultiHeadAttention, but {type(model).__name__} holds none: nothing is split")
    return {name: Heads() for name in layers}


def _others(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Attention with parameters of its own that is no MultiHeadAttention."""
    for name, module in model.named_modules():
        is_ours = type(module).__module__.startswith("headwise.compat.") and any(True for _ in module.parameters())
        if isinstance(module, nn.MultiheadAttention) or is_ours:
            yield name, module


def _check_plain(layer: MultiHeadAttention) -> None:
    """Raise ArgumentError unless every parameter is the layer's own, and is split for the first time."""
    if isinstance(layer._share, HeadShare):
        raise ArgumentError(
            f"a layer is split once, but this one is split over {layer._share.mesh.size()} ranks already"
        )
    for name in PROJECTIONS:
        projection = getattr(layer, name)
        if type(projection) is not nn.Linear:
            raise ArgumentError(
                f"{name} must be an nn.Linear to be split over ranks, but is {type(projection).__name__}: put on what "
                "wraps it in one process only, or merge it into the weight"
            )
