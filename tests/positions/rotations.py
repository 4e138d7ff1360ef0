"""Rotary embeddings written another way, in float64, and the specs that the laws are tried on."""

import mpmath
import torch
from torch import Tensor

from headwise.positions import LinearScaling, Llama3Scaling, NTKScaling, Rotary, YarnScaling
from headwise.testing import assert_within_budget

B, H, L, D = 2, 3, 5, 12

ROTARIES = {
    "half": Rotary(),
    "interleaved": Rotary(pairing="interleaved"),
    "half, partial": Rotary(dim=8, base=500.0),
    "interleaved, partial": Rotary(pairing="interleaved", dim=4),
    "linear": Rotary(scaling=LinearScaling(4.0)),
    "ntk": Rotary(scaling=NTKScaling(3.0)),
    "yarn": Rotary(scaling=YarnScaling(4.0, 64)),
    "llama3, interleaved": Rotary(pairing="interleaved", scaling=Llama3Scaling(8.0, 1.0, 4.0, 256)),
}


def heads(*sizes: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    """Random numbers of these sizes; none given: (B, H, L, D)."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(sizes or (B, H, L, D), generator=generator, dtype=torch.float64).to(dtype)


def assert_same(actual: Tensor, wanted: Tensor) -> None:
    """Equal but for the few rounding steps in which loops over other layouts may differ."""
    assert_within_budget(actual, wanted.double(), wanted)


def complex_rotation(x: Tensor, positions: Tensor, spec: Rotary) -> Tensor:
    """x (B, H, L, D) in float64, each pair of features a complex number times e^(i · position · frequency).

    positions (L,) or (B, L). Frequencies and amplitude are the spec's own; the scalings are tested elsewhere.
    """
    frequencies = torch.tensor(spec.frequencies(x.shape[-1]), dtype=torch.float64)
    dim = 2 * len(frequencies)
    amplitude = 1.0 if spec.scaling is None else spec.scaling.amplitude
    angles = positions.double()[..., None, :, None] * frequencies
    turn = torch.polar(torch.full_like(angles, amplitude), angles)
    turning, rest = x.double()[..., :dim], x.double()[..., dim:]
    if spec.pairing == "interleaved":
        turned = torch.complex(turning[..., ::2], turning[..., 1::2]) * turn
        return torch.cat((torch.stack((turned.real, turned.imag), dim=-1).flatten(-2), rest), dim=-1)
    turned = torch.complex(*turning.chunk(2, dim=-1)) * turn
    return torch.cat((turned.real, turned.imag, rest), dim=-1)


def fifty_digit_tables(positions: Tensor, base: int, dim: int) -> tuple[Tensor, Tensor]:
    """cos and sin (L, dim / 2) of the plain frequencies, computed with fifty digits and rounded to float64 once."""
    with mpmath.workdps(50):
        angles = [
            [place * mpmath.power(base, mpmath.mpf(-2 * i) / dim) for i in range(dim // 2)] for place in positions
        ]
        cos = torch.tensor([[float(mpmath.cos(angle)) for angle in row] for row in angles], dtype=torch.float64)
        sin = torch.tensor([[float(mpmath.sin(angle)) for angle in row] for row in angles], dtype=torch.float64)
    return cos, sin
