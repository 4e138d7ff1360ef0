"""RoPE scaling: rotary embeddings for contexts longer than those of training."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from headwise.errors import ArgumentError
from headwise.shapes import check_number


def plain_frequencies(*, base: float, dim: int) -> tuple[float, ...]:
    """The angle, in radians a position, of each of the dim / 2 pairs: base^(-2i / dim).

    Su et al. 2021, arXiv:2104.09864, section 3.2.2.

    >>> plain_frequencies(base=10000.0, dim=4)
    (1.0, 0.01)
    """
    return tuple(base ** (-2 * i / dim) for i in range(dim // 2))


@dataclass(frozen=True)
class LinearScaling:
    """Every angle divided by the factor, as if the positions stood closer together.

    factor: how many times further the model is to read, at least 1; else ArgumentError.
    Chen et al. 2023, arXiv:2306.15595, section 2.3.

    >>> LinearScaling(4.0).frequencies(base=10000.0, dim=4)
    (0.25, 0.0025)
    """

    factor: float
    amplitude: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        _check_factor(self, self.factor)

    def frequencies(self, *, base: float, dim: int) -> tuple[float, ...]:
        """The scaled angle of each pair, in radians a position."""
        return tuple(frequency / self.factor for frequency in plain_frequencies(base=base, dim=dim))


@dataclass(frozen=True)
class NTKScaling:
    """A larger base: the fastest pair turns as before, the slowest `factor` times more slowly, the others in between.

    factor: how much more slowly the last pair turns, at least 1; else ArgumentError. It is the same at
    every length.
    bloc97 2023, "NTK-Aware Scaled RoPE"; Peng et al. 2023, arXiv:2309.00071, section 3.1.

    >>> NTKScaling(4.0).frequencies(base=10000.0, dim=4)
    (1.0, 0.0025)
    """

    factor: float
    amplitude: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        _check_factor(self, self.factor)

    def frequencies(self, *, base: float, dim: int) -> tuple[float, ...]:
        """The scaled angle of each pair, in radians a position."""
        if dim < 4:
            raise ArgumentError(
                f"{self} needs dim >= 4, but dim={dim} has a single pair, which no base changes: drop it"
            )
        return plain_frequencies(base=base * self.factor ** (dim / (dim - 2)), dim=dim)


@dataclass(frozen=True)
class YarnScaling:
    """Fast pairs kept, slow pairs divided by the factor, a ramp between them, and cos and sin made larger.

    factor: how many times further the model is to read, at least 1. original_length: the length it was trained at.
    beta_fast, beta_slow: a pair that turns more often than beta_fast within original_length is kept, one that turns
    less often than beta_slow is divided. attention_factor: what cos and sin are multiplied by; None:
    0.1 ln(factor) + 1. Numbers out of range raise ArgumentError.
    Peng et al. 2023, arXiv:2309.00071, sections 3.2 and 3.4; the ramp ends on whole pairs, as in the authors' code.

    >>> YarnScaling(4.0, 4096, attention_factor=1.25).amplitude
    1.25
    """

    factor: float
    original_length: int
    _: KW_ONLY
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None

    def __post_init__(self) -> None:
        _check_factor(self, self.factor)
        _check_length(self, self.original_length)
        check_number("beta_slow", self.beta_slow)
        check_number("beta_fast", self.beta_fast)
        if not 0 < self.beta_slow < self.beta_fast:
            raise ArgumentError(
                f"YarnScaling needs 0 < beta_slow < beta_fast, got beta_slow={self.beta_slow} and "
                f"beta_fast={self.beta_fast}: beta_fast counts the turns of the faster pairs"
            )
        if self.attention_factor is not None:
            check_number("attention_factor", self.attention_factor)
        if self.attention_factor is not None and not self.attention_factor > 0:
            raise ArgumentError(
                f"YarnScaling needs attention_factor > 0, got {self.attention_factor}: None is the paper's value"
            )

    @property
    def amplitude(self) -> float:
        """What cos and sin are multiplied by."""
        return 0.1 * math.log(self.factor) + 1.0 if self.attention_factor is None else self.attention_factor

    def frequencies(self, *, base: float, dim: int) -> tuple[float, ...]:
        """The scaled angle of each pair, in radians a position."""
        if not base > 1:
            raise ArgumentError(
                f"{self} needs base > 1, got base={base}: with it no pair turns more slowly than the first"
            )
        first = max(math.floor(self._pair_turning(self.beta_fast, base, dim)), 0)
        last = min(math.ceil(self._pair_turning(self.beta_slow, base, dim)), dim - 1)
        # a ramp without length would divide by zero
        length = max(last - first, 0.001)
        divided = [min(max((i - first) / length, 0.0), 1.0) for i in range(dim // 2)]
        plain = plain_frequencies(base=base, dim=dim)
        return tuple(f * (1 - d + d / self.factor) for f, d in zip(plain, divided, strict=True))

    def _pair_turning(self, turns: float, base: float, dim: int) -> float:
        return dim * math.log(self.original_length / (2 * math.pi * turns)) / (2 * math.log(base))


@dataclass(frozen=True)
class Llama3Scaling:
    """Fast pairs kept, slow pairs divided by the factor, a blend between them, as Llama 3.1 does.

    factor: how many times further the model is to read, at least 1. low_frequency_factor, high_frequency_factor: a pair
    that turns less often than the first within original_length is divided, one that turns more often than the second is
    kept. original_length: the length the model was trained at. Numbers out of range raise ArgumentError.
    Grattafiori et al. 2024, arXiv:2407.21783, and the `apply_scaling` of Meta's llama-models.

    >>> scaling = Llama3Scaling(8.0, low_frequency_factor=1.0, high_frequency_factor=4.0, original_length=8192)
    >>> scaling.frequencies(base=10000.0, dim=4)[0]
    1.0
    """

    factor: float
    low_frequency_factor: float
    high_frequency_factor: float
    original_length: int
    amplitude: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        _check_factor(self, self.factor)
        _check_length(self, self.original_length)
        check_number("low_frequency_factor", self.low_frequency_factor)
        check_number("high_frequency_factor", self.high_frequency_factor)
        if not 0 < self.low_frequency_factor < self.high_frequency_factor:
            raise ArgumentError(
                f"Llama3Scaling needs 0 < low_frequency_factor < high_frequency_factor, got "
                f"{self.low_frequency_factor} and {self.high_frequency_factor}: give the turns of slow and fast pairs"
            )

    def frequencies(self, *, base: float, dim: int) -> tuple[float, ...]:
        """The scaled angle of each pair, in radians a position."""
        return tuple(frequency * self._share(frequency) for frequency in plain_frequencies(base=base, dim=dim))

    def _share(self, frequency: float) -> float:
        turns = self.original_length * frequency / (2 * math.pi)
        low, high = self.low_frequency_factor, self.high_frequency_factor
        kept = min(max((turns - low) / (high - low), 0.0), 1.0)
        return kept + (1 - kept) / self.factor


RotaryScaling = LinearScaling | NTKScaling | YarnScaling | Llama3Scaling


def _check_factor(scaling: object, factor: float) -> None:
    check_number("factor", factor)
    if not 1 <= factor < math.inf:
        raise ArgumentError(f"{type(scaling).__name__} needs factor >= 1, got {factor}: 1.0 changes nothing")


def _check_length(scaling: object, length: int) -> None:
    check_number("original_length", length)
    if length < 1:
        raise ArgumentError(
            f"{type(scaling).__name__} needs original_length >= 1, got {length}: give the trained length"
        )
