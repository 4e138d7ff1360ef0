"""The table of backends, who would run a call, and one sentence for each of the others on why not."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from headwise.errors import ArgumentError, BackendError
from headwise.ops import blockwise, calibration, costs, flex, reference, sdpa
from headwise.ops.call import Call
from headwise.ops.strips import Total

# what an estimate counts for: to leave torch's kernel must pay, and so must holding every weight; with dropout the
# definition holds what was drawn and what is kept beside them
MARGINS = {"sdpa": 0.9, "reference": 1.05}
DROPOUT_MARGIN = 1.2
UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))


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


# "auto" takes the fastest of those that have nothing against the call; the first, where nothing tells which that is
TABLE: tuple[Backend, ...] = (
    Backend("blockwise", blockwise.why_not, blockwise.why_slower, blockwise.run),
    Backend("sdpa", sdpa.why_not, lambda call: "", sdpa.run),
    Backend("flex", flex.why_not, flex.why_slower, flex.run),
    Backend("reference", lambda call: "", lambda call: "", reference.run),
)


@dataclass(frozen=True)
class Choice:
    """Which backend would run a call, and why each of the others would not.

    seconds: what each backend that could run is estimated to take; empty where there was nothing to compare.
    """

    chosen: str
    reasons: dict[str, str]
    note: str = ""
    seconds: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        width = max(len(name) for name in self.reasons)
        rows = [f"{name:<{width}}  {self._line(name)}" for name in self.reasons]
        return "\n".join([*rows, *([self.note] if self.note else [])])

    __repr__ = __str__

    def _line(self, name: str) -> str:
        if name != self.chosen:
            return self.reasons[name]
        return "runs" + (f", in about {_duration(self.seconds[name])}" if name in self.seconds else "")


def choose(call: Call, name: str) -> Backend:
    """The backend that runs this call: the one named, or BackendError with its reason; "auto": the fastest able one."""
    if name == "auto":
        return fastest(call)[0]
    for backend in TABLE:
        if backend.name == name:
            reason = backend.why_not(call)
            if reason:
                raise BackendError(f'backend="{name}" cannot run this call: {reason}; use backend="auto"')
            return backend
    listed = ", ".join(f'"{backend.name}"' for backend in TABLE)
    raise ArgumentError(f'backend must be "auto", {listed}; got "{name}"')


def fastest(call: Call) -> tuple[Backend, dict[str, float]]:
    """The backend that "auto" takes, and the estimates by which it does: the first able one where there are none."""
    if call.q.device.type == "cuda" and not (flex.why_slower(call) or flex.why_not(call)):
        # asked before torch's kernels, of which to ask makes the mask that is to be spared
        return next(backend for backend in TABLE if backend.name == "flex"), {}
    able = [backend for backend in TABLE if not backend.passed_over(call)]
    # an open length must not be compared: the program would be one for short lengths only
    is_known = call.q.is_cpu and call.weight is None and (call.q.dtype in costs.DTYPES or call.q.dtype is torch.float64)
    if len(able) == 1 or torch.compiler.is_compiling() or torch.compiler.is_exporting() or not is_known:
        return able[0], {}
    # the definition holds every weight: it is measured up to a size only, and comes last beyond
    if math.prod(call.sizes) > costs.MOST_WEIGHTS:
        able = [backend for backend in able if backend.name != "reference"]
    if len(able) == 1:
        return able[0], {}
    seconds: dict[str, float] = {}
    margins = {**MARGINS, "reference": DROPOUT_MARGIN} if call.dropout else dict(MARGINS)
    if costs.is_differentiated(call) and math.prod(call.sizes) <= sum(t.numel() for t in call.tensors):
        # the graph keeps the inputs anyway, and weights that are no more than these cost little memory
        margins["reference"] = 1.0
    for backend in reversed(able):
        scale, total = calibration.factor(backend.name, call), None
        if backend.name == "blockwise":
            # to look up its strips reads the mask, which a call that is too small for one of them is spared
            total = Total(1.0, 0.0, 0.0, 0.0)
            if scale * costs.estimate("blockwise", call, total) < min(seconds.values()):
                total = blockwise.strips_of(call).total
                if costs.is_of_torch(call, total):
                    margins["blockwise"] = margins["sdpa"]
        seconds[backend.name] = scale * costs.estimate(backend.name, call, total)
    # estimates are no closer than that: where they hardly differ, the kernel of torch's runs with and without a graph
    return min(able, key=lambda backend: seconds[backend.name] * margins.get(backend.name, 1.0)), seconds


def report(call: Call, name: str = "auto") -> Choice:
    """What `choose` would say of every backend."""
    chosen, seconds = fastest(call)
    if name != "auto":
        chosen = choose(call, name)
    reasons = {}
    for backend in TABLE:
        reason = backend.passed_over(call)
        if not reason and backend.name in seconds:
            reason = f"could run, in about {_duration(seconds[backend.name])}"
        reasons[backend.name] = reason or f"could run, but {chosen.name} comes first"
    reasons[chosen.name] = ""
    note = "" if call.mask is None else "a key hidden from some queries must be finite; hidden from all, it may be NaN"
    return Choice(chosen.name, reasons, note, seconds)


def _duration(seconds: float) -> str:
    """With two digits and a unit."""
    size, unit = next((size, unit) for size, unit in UNITS if seconds >= size or unit == "us")
    return f"{float(f'{seconds / size:.2g}'):g} {unit}"
