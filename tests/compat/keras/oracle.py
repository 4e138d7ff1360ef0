"""Keras on the torch backend, as the oracle of the drop-ins: its layers, outputs and gradients."""

import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from headwise.compat.keras import from_keras
from headwise.testing import assert_within_budget
from tests.compat.agreement import randn


def keras_on_torch() -> Any:
    """Keras, imported with the torch backend; the environment is left as it was."""
    before = os.environ.get("KERAS_BACKEND")
    os.environ["KERAS_BACKEND"] = "torch"
    try:
        import keras
    finally:
        if before is None:
            del os.environ["KERAS_BACKEND"]
        else:
            os.environ["KERAS_BACKEND"] = before
    if keras.backend.backend() != "torch":
        raise RuntimeError(f"these tests need Keras on torch, but it was imported on {keras.backend.backend()} before")
    return keras


def built(kind: str, config: dict[str, Any], inputs: list[Tensor], *, seed: int = 0) -> tuple[Any, Any, nn.Module]:
    """A layer of Keras in float64, the same one in float32 with random weights, and ours made of the latter."""
    keras = keras_on_torch()
    exact, plain = (getattr(keras.layers, kind)(**config, dtype=dtype) for dtype in ("float64", "float32"))
    for layer, dtype in ((exact, torch.float64), (plain, torch.float32)):
        _call(layer, [x.to(dtype) for x in inputs], {})
    weights = [0.5 * randn(*w.shape, seed=100 * seed + n).float().numpy() for n, w in enumerate(plain.weights)]
    exact.set_weights(weights)
    plain.set_weights(weights)
    return exact, plain, from_keras(plain)


def assert_is_keras(
    kind: str,
    config: dict[str, Any],
    inputs: list[Tensor],
    *,
    seed: int = 0,
    formula: Callable[..., Any] | None = None,
    **call: Any,
) -> None:
    """Outputs, scores where they are asked for, and gradients for inputs and weights are those of Keras.

    formula: formula(weights)(inputs, **call) is taken for exact; None: Keras itself in float64, which computes in
    float64 only where it returns scores: its fused kernel and its matmul go down to float32. One budget for several
    draws of the weights together: in one of them Keras may be exact by luck.
    """
    found: list[list[list[Tensor]]] = [[], [], []]
    for draw in range(3 if formula is None else 8):
        exact, plain, ours = built(kind, config, inputs, seed=10 * seed + draw)
        found[0].append(_results(ours, _in_order(ours), [x.float() for x in inputs], call))
        found[1].append(_results(plain, [w.value for w in plain.weights], [x.float() for x in inputs], call))
        known = [w.value for w in exact.weights]
        if formula is None:
            both = _results(exact, known, [x.double() for x in inputs], {**call, "return_attention_scores": True})
            found[2].append(both if call.get("return_attention_scores") else both[::2])
        else:
            found[2].append(_results(formula(known), known, [x.double() for x in inputs], call))
    for ours_, plain_, exact_ in zip(*(zip(*draws, strict=True) for draws in found), strict=True):
        assert_within_budget(torch.cat(ours_), torch.cat(exact_), torch.cat(plain_))


def _call(layer: Any, inputs: list[Tensor], call: dict[str, Any]) -> Any:
    takes_list = type(layer).__name__ in ("Attention", "AdditiveAttention", "function")
    return layer(inputs, **call) if takes_list else layer(*inputs, **call)


def _in_order(ours: Any) -> list[Tensor]:
    names = getattr(ours, "names", None)
    return list(ours.parameters()) if names is None else [w for n in names for w in ours.get_submodule(n).parameters()]


def _results(layer: Any, weights: list[Tensor], inputs: list[Tensor], call: dict[str, Any]) -> list[Tensor]:
    """Outputs and scores, and the gradients of each of them in one row, those of kernels as Keras lays them out."""
    leaves = [x.clone().requires_grad_() for x in inputs]
    found = _call(layer, leaves, call)
    results = list(found) if isinstance(found, tuple) else [found]
    is_linear = isinstance(layer, nn.Module) and hasattr(layer, "names")
    for out in tuple(results):
        slopes = randn(*out.shape, seed=9).float().to(out.dtype)
        gradients = torch.autograd.grad(
            out, [*leaves, *weights], slopes, retain_graph=True, allow_unused=True, materialize_grads=True
        )
        row = [g.mT if is_linear and n >= len(leaves) and g.ndim == 2 else g for n, g in enumerate(gradients)]
        results.append(torch.cat([g.flatten() for g in row]))
    return [result.detach() for result in results]
