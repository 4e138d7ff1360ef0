"""Second derivatives of torch's fused kernels, which know their first one only: taken from the definition."""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import Tensor

from headwise.errors import BackendError
from headwise.masks.tensor_versions import check_unchanged, versions
from headwise.ops import reference
from headwise.ops.call import Call

Gradients = tuple[Tensor | None, ...]


class SecondDerivative:
    """What is attached to the node of a call of torch's kernel, so that its gradients can be differentiated again.

    They are then computed anew by the definition. rules: of the call, beside its q, k and v, which the node has saved.
    """

    def __init__(self, rules: dict[str, Any]) -> None:
        with torch.inference_mode(False):
            # as the hooks of a tensor are attached to the node that made it, by one call into torch: a handle for each
            # call of attention would cost a tenth of a call of 16 tokens
            self.anchor = torch.empty(0, requires_grad=True)
        # which does not hold the anchor: what lies in a cycle outlives the call
        self.anchor._backward_hooks = {0: _Recomputation(rules)}

    def attach(self, out: Tensor) -> bool:
        """Attach it to the node that made `out`; False: that is none of torch's fused kernel."""
        node = out.grad_fn
        if node is None or not hasattr(type(node), "_saved_query"):
            return False
        node._register_hook_dict(self.anchor)
        return True


class _Recomputation:
    """A hook that has the gradients of a node recomputed. rules: as of SecondDerivative."""

    def __init__(self, rules: dict[str, Any]) -> None:
        self.rules, self.versions = rules, versions(rules["mask"])

    def __call__(self, gradient: Tensor) -> None:
        """Have this pass recompute the gradients, where the one that comes in is differentiated.

        Other passes over the same graph, in other threads, meet the hook too, and leave it alone.
        """
        if not torch.is_grad_enabled():
            return
        node: Any = torch._C._current_autograd_node()
        thread = threading.get_ident()

        def recompute(inputs: Gradients, outputs: Gradients) -> Gradients | None:
            if thread != threading.get_ident() or not torch.is_grad_enabled():
                return None
            handle.remove()
            check_unchanged(self.versions)
            needed = [gradient is not None for gradient in inputs[:3]]
            saved = node._saved_query, node._saved_key, node._saved_value
            return *_by_definition(saved, needed, self.rules, outputs[0]), *inputs[3:]

        handle = node.register_hook(recompute)


def _by_definition(
    saved: tuple[Tensor, Tensor, Tensor], needed: list[bool], rules: dict[str, Any], gradient: Tensor | None
) -> list[Tensor | None]:
    """Gradients of q, k and v with a graph of their own, None where one is not needed."""
    if rules["dropout"]:
        raise BackendError(
            f"a second derivative through dropout={rules['dropout']} needs the very same drops, which torch's fused "
            'kernel does not keep: use backend="reference"'
        )
    # views: q, k and v may come from one another, and a gradient ends where it is asked for
    tensors = q, k, v = tuple(t.view_as(t) for t in saved)
    with torch.autocast(q.device.type, enabled=False):
        again = reference.run(Call(q, k, v, **rules))
    wanted = [t for t, is_needed in zip(tensors, needed, strict=True) if is_needed]
    made = iter(torch.autograd.grad(again, wanted, gradient, create_graph=True))
    return [next(made) if is_needed else None for is_needed in needed]


class TwiceDifferentiable(torch.autograd.Function):
    """Hands `out` on; where a second derivative is wanted, its gradient is that of the definition, recomputed."""

    @staticmethod
    def forward(ctx: Any, out: Tensor, q: Tensor, k: Tensor, v: Tensor, rules: dict[str, Any]) -> Tensor:
        ctx.save_for_backward(q, k, v)
        ctx.rules, ctx.versions = rules, versions(rules["mask"])
        return out.view_as(out)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        if not torch.is_grad_enabled():
            return gradients[0], None, None, None, None
        check_unchanged(ctx.versions)
        # a checkpoint unpacks what was saved once
        saved = ctx.saved_tensors
        needed = [t.requires_grad for t in saved]
        return None, *_by_definition(saved, needed, ctx.rules, gradients[0]), None
