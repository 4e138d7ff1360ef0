"""Report: what became of every weight, and how far the converted layer is from its source."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Check", "Report", "Used"]


@dataclass(frozen=True)
class Used:
    """One weight of theirs, what it became, and by which steps."""

    theirs: str
    ours: tuple[str, ...]
    steps: tuple[str, ...] = ()


@dataclass(frozen=True)
class Check:
    """One question put to both, in float64: the largest differences of the answers, and what rounding may make.

    inputs, weights: of the gradients with respect to the inputs and to the weights, None: there are none. limits: of
    the three in order.
    """

    question: str
    outputs: float
    inputs: float | None
    weights: float | None
    limits: tuple[float, float, float]

    @property
    def holds(self) -> bool:
        """Whether all three are within their limits; NaN is not."""
        return all(found is None or found <= limit for found, limit in zip(self.found, self.limits, strict=True))

    @property
    def found(self) -> tuple[float, float | None, float | None]:
        """The three differences."""
        return self.outputs, self.inputs, self.weights


@dataclass(frozen=True)
class Report:
    """What a conversion did and how it was proved; `str` is a table, `to_dict` plain data.

    against: "the module" or "the formula" that the layer was compared with, "" where there was nothing. filled: our
    weights that theirs does not have, and what they were filled with. mask: what the source hides by itself, as code
    to give the layer. notes: what else a reader should know.
    """

    convention: str
    layer: str
    used: tuple[Used, ...]
    ignored: tuple[tuple[str, str], ...]
    filled: tuple[tuple[str, str], ...]
    against: str
    checks: tuple[Check, ...]
    mask: str = ""
    notes: tuple[str, ...] = ()

    @property
    def proved(self) -> bool:
        """Whether the layer was compared with its source and every difference was within its limit."""
        return bool(self.checks) and all(check.holds for check in self.checks)

    @property
    def permutations(self) -> tuple[str, ...]:
        """The steps that were applied, each once."""
        return tuple(dict.fromkeys(step for used in self.used for step in used.steps))

    @property
    def largest(self) -> float:
        """The largest difference of outputs; NaN where nothing was compared."""
        return max((check.outputs for check in self.checks), default=float("nan"))

    @property
    def largest_gradient(self) -> float:
        """The largest difference of gradients; NaN where nothing was compared."""
        all_found = (found for check in self.checks for found in (check.inputs, check.weights) if found is not None)
        return max(all_found, default=float("nan"))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for json, with "schema": 1."""
        return {
            "schema": 1,
            "proved": self.proved,
            "largest": self.largest if self.checks else None,
            "largest_gradient": None if math.isnan(self.largest_gradient) else self.largest_gradient,
            "permutations": list(self.permutations),
            **asdict(self),
        }

    def __str__(self) -> str:
        names = [f"{used.theirs} -> {', '.join(used.ours)}" for used in self.used]
        width = max(map(len, names), default=0)
        lines = [f"{self.convention} -> {self.layer}", ""]
        for name, used in zip(names, self.used, strict=True):
            lines.append(f"  {name:{width}}  {'; '.join(used.steps)}".rstrip())
        lines += [f"  {name}: ignored, {why}" for name, why in self.ignored]
        lines += [f"  {name}: {what}" for name, what in self.filled]
        lines += ["", *self._proof()]
        if self.mask:
            lines.append(f"By itself the source hides what mask={self.mask} hides: give it to each call.")
        lines += [f"Note: {note}." for note in self.notes]
        return "\n".join(lines)

    def _proof(self) -> list[str]:
        if not self.checks:
            return ["Not proved: there is nothing to compare the layer with."]
        width = max(len(check.question) for check in self.checks)
        head = f"  {'':{width}}  {'outputs':>9}  {'d inputs':>9}  {'d weights':>9}"
        rows = [f"  {check.question:{width}}  " + "  ".join(map(_number, check.found)) for check in self.checks]
        verdict = "Proved" if self.proved else "Not equal"
        return [f"{verdict} against {self.against}, in float64; the largest differences:", head, *rows]


def _number(found: float | None) -> str:
    return f"{'-':>9}" if found is None else f"{found:9.1e}"
