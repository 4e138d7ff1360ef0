"""Rotary embeddings: queries and keys turned by an angle that grows with their position."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.errors import ArgumentError, ShapeError
from headwise.positions.constants import FixedNumbers
from headwise.positions.distances import check_positions
from headwise.positions.rope_scaling import RotaryScaling, plain_frequencies
from headwise.shapes import check_count, check_number

PAIRINGS = {
    "half": "x[i] with x[i + dim / 2], as in GPT-NeoX and Hugging Face's Llama",
    "interleaved": "x[2i] with x[2i + 1], as in the paper and in GPT-J",
}


@dataclass(frozen=True, kw_only=True)
class Rotary:
    """How queries and keys are turned by their positions, so that a score depends on how far apart they are.

    base: the slowest pair takes about 2π · base positions for a turn. pairing: which two features turn together, "half"
    or "interleaved" (PAIRINGS tells them apart). dim: how many leading features of a head turn, even; None: all.
    scaling: one of the specs of scaling.py; None: none. What cannot be meant raises ArgumentError.
    Su et al. 2021, arXiv:2104.09864, eq. 15 and 34.

    >>> Rotary(base=500000.0)
    Rotary(base=500000.0, pairing='half', dim=None, scaling=None)
    >>> Rotary(pairing="interleaved").build(4)(torch.ones(1, 1, 2, 4), torch.tensor([0, 1]))
    tensor([[[[ 1.0000,  1.0000,  1.0000,  1.0000],
              [-0.3012,  1.3818,  0.9900,  1.0099]]]])
    """

    base: float = 10000.0
    pairing: str = "half"
    dim: int | None = None
    scaling: RotaryScaling | None = None

    def __post_init__(self) -> None:
        check_number("base", self.base)
        if not 0 < self.base < math.inf:
            raise ArgumentError(f"Rotary needs base > 0, got base={self.base}: most models take 10000.0")
        if not isinstance(self.pairing, str) or self.pairing not in PAIRINGS:
            choices = ", ".join(f'"{name}" ({meaning})' for name, meaning in PAIRINGS.items())
            raise ArgumentError(f"Rotary's pairing must be one of {choices}; got {self.pairing!r}: choose one of them")
        if self.dim is not None:
            check_count("dim", self.dim, 0)
        if self.dim is not None and (self.dim < 2 or self.dim % 2):
            raise ArgumentError(f"Rotary's dim must be even and at least 2, got dim={self.dim}: features turn in pairs")
        if self.scaling is not None and not isinstance(self.scaling, RotaryScaling):
            raise ArgumentError(
                f"Rotary's scaling must be LinearScaling, NTKScaling, YarnScaling, Llama3Scaling or None, got "
                f"{self.scaling!r}: give one of them"
            )

    def width(self, head_dim: int) -> int:
        """How many leading features of a head of head_dim turn; ArgumentError where this spec does not fit it.

        >>> Rotary().width(64), Rotary(dim=16).width(64)
        (64, 16)
        """
        if self.dim is None and (head_dim < 2 or head_dim % 2):
            raise ArgumentError(f"features turn in pairs, but head_dim={head_dim} is not even: give Rotary an even dim")
        if self.dim is not None and self.dim > head_dim:
            raise ArgumentError(
                f"Rotary's dim={self.dim} must be at most head_dim={head_dim}: give a smaller dim, or None"
            )
        return head_dim if self.dim is None else self.dim

    def frequencies(self, head_dim: int) -> tuple[float, ...]:
        """The angle of each pair, in radians a position.

        >>> Rotary().frequencies(4)
        (1.0, 0.01)
        """
        dim = self.width(head_dim)
        if self.scaling is None:
            return plain_frequencies(base=self.base, dim=dim)
        return self.scaling.frequencies(base=self.base, dim=dim)

    def build(self, head_dim: int, device: torch.device | str | None = None) -> RotaryEmbedding:
        """The module that turns queries and keys of head_dim features. device: None: torch's default.

        >>> Rotary(dim=4).build(6)
        RotaryEmbedding(Rotary(base=10000.0, pairing='half', dim=4, scaling=None), head_dim=6)
        """
        return RotaryEmbedding(self, head_dim, device=device)


class RotaryEmbedding(FixedNumbers):
    """Turns x (B, H, L, D) by its positions, (L,) or (B, L); the first `spec.dim` features turn, the others stay.

    Angles are float64 whatever the module's dtype, so that far positions stay apart; the arithmetic is x's own, but
    float32 where x is narrower. It has no parameters and nothing in its state_dict.

    >>> x = torch.ones(1, 1, 1, 4)
    >>> Rotary().build(4)(x, torch.tensor([0])).equal(x)
    True
    """

    def __init__(self, spec: Rotary, head_dim: int, *, device: torch.device | str | None = None) -> None:
        frequencies = torch.tensor(spec.frequencies(head_dim), dtype=torch.float64, device="cpu")
        # the sine is odd: a negative angle here saves negating half of every table
        signed = torch.stack((-frequencies, frequencies), dim=-1 if spec.pairing == "interleaved" else 0)
        super().__init__(signed.flatten(), device)
        self.spec = spec
        self.head_dim = head_dim
        self.dim = spec.width(head_dim)
        self._amplitude = 1.0 if spec.scaling is None else spec.scaling.amplitude

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """x (B, H, L, D) turned, in its own dtype. positions (L,) or (B, L), whole numbers; else ArgumentError."""
        cos, sin = self.tables(positions, x.dtype)
        return self.rotate(x, cos, sin)

    def tables(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """cos and signed sin of every angle, to `rotate` any number of tensors of that dtype at these positions.

        positions (L,) -> (L, dim); (B, L) -> (B, 1, L, dim). float64 where dtype is, else float32.

        >>> cos, sin = Rotary().build(4).tables(torch.tensor([0, 1, 2]), torch.bfloat16)
        >>> cos.shape, cos.dtype
        (torch.Size([3, 4]), torch.float32)
        """
        check_positions("positions", positions)
        places = positions[..., None] if positions.ndim == 1 else positions[:, None, :, None]
        angles = places * self.numbers(positions.device)
        cos, sin = angles.cos(), angles.sin()
        if self._amplitude != 1.0:
            cos, sin = cos * self._amplitude, sin * self._amplitude
        wanted = torch.float64 if dtype == torch.float64 else torch.float32
        return cos.to(wanted), sin.to(wanted)

    def rotate(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x (B, H, L, D) turned by the tables of its positions, in its own dtype; ShapeError where they do not fit.

        >>> rotary = Rotary().build(4)
        >>> cos, sin = rotary.tables(torch.tensor([7]), torch.float32)
        >>> q, k = torch.ones(2, 6, 1, 4), torch.ones(2, 3, 1, 4)
        >>> [rotary.rotate(x, cos, sin).shape for x in (q, k)]
        [torch.Size([2, 6, 1, 4]), torch.Size([2, 3, 1, 4])]
        """
        self._check(x, cos)
        turning = (x if self.dim == self.head_dim else x[..., : self.dim]).to(cos.dtype)
        turned = torch.addcmul(self._swapped(turning) * sin, turning, cos).to(x.dtype)
        return turned if self.dim == self.head_dim else torch.cat((turned, x[..., self.dim :]), dim=-1)

    def _swapped(self, x: Tensor) -> Tensor:
        """A copy of x in which the two features of each pair have changed places."""
        if self.spec.pairing == "half":
            return x.roll(self.dim // 2, dims=-1)
        pairs: Tensor = x.unflatten(-1, (-1, 2))
        return pairs.flip(-1).flatten(-2)

    def _check(self, x: Tensor, cos: Tensor) -> None:
        if x.shape[-1] != self.head_dim:
            raise ShapeError(
                f"x must have D={self.head_dim} features a head, but came as {tuple(x.shape)}: build for D"
            )
        if x.shape[-2] != cos.shape[-2]:
            raise ShapeError(
                f"x has L={x.shape[-2]}, but there are positions for L={cos.shape[-2]}: give one position a token"
            )
        if cos.ndim == 4 and cos.shape[0] != x.shape[0] and cos.shape[0] != 1:
            raise ShapeError(
                f"x has B={x.shape[0]}, but there are positions for B={cos.shape[0]}: give one row a sample"
            )

    def extra_repr(self) -> str:
        return f"{self.spec}, head_dim={self.head_dim}"
