"""Whether a module gives the outputs and the gradients of a formula."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call

from headwise.testing import assert_within_budget

Weights = dict[str, Tensor]
Formula = Callable[..., Tensor]


def randn(*sizes: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Normal numbers that depend on the sizes and the seed alone."""
    return torch.randn(sizes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def assert_agrees(module: nn.Module, formula: Formula, inputs: list[Tensor], *rest: object) -> None:
    """The module's outputs and its gradients, for inputs and weights, are those of formula(weights, *inputs, *rest).

    inputs: float64; the module computes in the dtype of its weights, and so does plain PyTorch beside it.
    """
    names = [name for name, _ in module.named_parameters()]
    dtype = next(module.parameters()).dtype
    exact_leaves = [*inputs, *(weight.detach().double() for weight in module.parameters())]
    count = len(inputs)

    def ours(*leaves: Tensor) -> Tensor:
        weights = dict(zip(names, leaves[count:], strict=True))
        out: Tensor = functional_call(module, weights, (*leaves[:count], *rest))
        return out

    def theirs(*leaves: Tensor) -> Tensor:
        return formula(dict(zip(names, leaves[count:], strict=True)), *leaves[:count], *rest)

    exact = _with_gradients(theirs, exact_leaves)
    plain = _with_gradients(theirs, [leaf.to(dtype) for leaf in exact_leaves])
    actual = _with_gradients(ours, [leaf.to(dtype) for leaf in exact_leaves])
    for got, wanted, measure in zip(actual, exact, plain, strict=True):
        assert_within_budget(got, wanted, measure)


def _with_gradients(call: Callable[..., Tensor], leaves: list[Tensor]) -> list[Tensor]:
    leaves = [leaf.detach().clone().requires_grad_() for leaf in leaves]
    out = call(*leaves)
    slopes = randn(*out.shape, seed=9).float().to(out.dtype)
    found = torch.autograd.grad(out, leaves, slopes, allow_unused=True, materialize_grads=True)
    # in one row: a key's bias moves nothing, so alone its gradient would be nothing but rounding
    return [out.detach(), torch.cat([gradient.flatten() for gradient in found])]
