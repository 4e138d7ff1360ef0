"""The table of backends, who would run a call, and one sentence for each of the others on why not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from headwise.errors import ArgumentError, BackendError
from headwise.ops import blockwise, flex, reference, sdpa
from headwise.ops.call import Call


@dataclass(frozen=True)
class Backend:
    """A way to compute a call.

    why_not: one sentence where it cannot compute the call exactly, else "". why_slower: one sentence where it can, but
    another is faster, else "". run: computes.
    """

    name: str
    why_not: Callable[[Call], str]
    why_slower: Callable[[Call], str]
    run: Callable[[Call], Tensor]

    def passed_over(self, call: Call) -> str:
        """Why "auto" does not take it; "" where it does, if nobody before it is taken."""
        return self.why_not(call) or self.why_slower(call)


# "auto" takes the first that has nothing against the call
TABLE: tuple[Backend, ...] = (
    Backend("blockwise", blockwise.why_not, blockwise.why_slower, blockwise.run),
    Backend("sdpa", sdpa.why_not, lambda call: "", sdpa.run),
    Backend("flex", flex.why_not, lambda call: flex.UNMEASURED, flex.run),
    Backend("reference", lambda call: "", lambda call: "", reference.run),
)


@dataclass(frozen=True)
class Choice:
    """Which backend would run a call, and why each of the others would not."""

    chosen: str
    reasons: dict[str, str]
    note: str = ""

    def __str__(self) -> str:
        width = max(len(name) for name in self.reasons)
        rows = [f"{name:<{width}}  {self._said(name)}" for name in self.reasons]
        return "\n".join([*rows, *([self.note] if self.note else [])])

    __repr__ = __str__

    def _said(self, name: str) -> str:
        if name == self.chosen:
            return "runs"
        return self.reasons[name] or f"could run, but {self.chosen} comes first"


def choose(call: Call, name: str) -> Backend:
    """The backend that runs this call: the one named, or BackendError with its reason; "auto": the first able one."""
    if name == "auto":
        return next(backend for backend in TABLE if not backend.passed_over(call))
    for backend in TABLE:
        if backend.name == name:
            reason = backend.why_not(call)
            if reason:
                raise BackendError(f'backend="{name}" cannot run this call: {reason}; use backend="auto"')
            return backend
    listed = ", ".join(f'"{backend.name}"' for backend in TABLE)
    raise ArgumentError(f'backend must be "auto", {listed}; got "{name}"')


def report(call: Call, name: str = "auto") -> Choice:
    """What `choose` would say of every backend."""
    reasons = {backend.name: backend.passed_over(call) for backend in TABLE}
    note = "" if call.mask is None else "a key hidden from some queries must be finite; hidden from all, it may be NaN"
    return Choice(choose(call, name).name, reasons, note)
