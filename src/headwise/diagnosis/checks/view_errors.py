"""View errors: why a view raised: the tensor is not contiguous, or it takes the queries' length for the keys'."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from torch import Tensor

from headwise.dataflow import Run
from headwise.diagnosis.measured_lengths import own_size
from headwise.diagnosis.suspects import Suspect
from headwise.recording import Operation, site_of

__all__ = ["asked_sizes", "view_suspect"]


def view_suspect(done: Run, operation: Operation, error: str, said: dict[str, object]) -> Suspect | None:
    """What is wrong with a view that raised. said: what is known of the error."""
    asked = asked_sizes(operation)
    shape = operation.inputs[0].shape
    count = prod(shape)
    if "view size is not compatible" in error or "Use .reshape" in error:

        def reshaped(*args: Any, **_: Any) -> Any:
            given = args[1:]
            is_like = len(given) == 1 and isinstance(given[0], Tensor)
            return args[0].reshape(given[0].shape) if is_like else args[0].reshape(*given)

        return Suspect("view-noncontiguous", operation.span, {site_of(operation): reshaped}, said=said)
    queries, keys = done.sizes.get("L"), done.sizes.get("S")
    if queries is None or keys is None or not asked:
        return None
    for place, size in enumerate(asked):
        if size != queries:
            continue
        changed = [keys if at == place else each for at, each in enumerate(asked)]
        if prod(changed) == count or (-1 in changed and count % -prod(changed) == 0):
            return Suspect(
                "key-uses-query-length", operation.span,
                {site_of(operation): _resized(place)}, said={**said, "_place": place},
                home=own_size(done, operation, place),
            )  # fmt: skip
    return None


def _resized(place: int) -> Callable[..., Any]:
    """A view that leaves one of its sizes open."""

    def right(*args: Any, **options: Any) -> Any:
        given = list(args[1:]) if not (len(args) == 2 and isinstance(args[1], tuple | list)) else list(args[1])
        given = given or list(options.get("shape", options.get("size", ())))
        known = prod(each for at, each in enumerate(given) if at != place and each != -1)
        if -1 not in given:
            given[place] = -1
        else:
            # the other open size is that of the heads: the length stays where it was
            size = args[0].shape[place] if place < args[0].ndim else 0
            given[place] = size if size and args[0].numel() % (known * size) == 0 else args[0].numel() // known
        return args[0].reshape(given)

    return right


def asked_sizes(operation: Operation) -> list[int]:
    """The sizes that a view asks for."""
    given = [value for name, value in operation.arguments.items() if name.isdigit() and int(name) > 0]
    if len(given) == 1 and isinstance(given[0], tuple | list):
        given = list(given[0])
    return [each for each in given if isinstance(each, int)]
