"""Two scales on which more is always seen as more, by every kind of eye."""

import pytest
import torch

from headwise.pages.colours import COUNT, bright, deep

# how linear red, green and blue reach eyes without one kind of cone: Machado, Oliveira and Fernandes 2009, table 1
EYES = {
    "all cones": [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}


def lightness(colours, eye):
    """CIE L* of colours as an eye sees them."""
    values = torch.tensor(colours, dtype=torch.float64) / 255
    linear = torch.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
    seen = (linear @ torch.tensor(EYES[eye], dtype=torch.float64).T).clamp(0, 1)
    luminance = seen @ torch.tensor([0.2126, 0.7152, 0.0722], dtype=torch.float64)
    return torch.where(luminance > 0.008856, 116 * luminance ** (1 / 3) - 16, 903.3 * luminance)


@pytest.mark.parametrize("eye", EYES)
@pytest.mark.parametrize("scale", [bright, deep])
def test_lightness_runs_one_way_for_every_eye(scale, eye):
    # steps of 16 colours: single bytes are rounded
    seen = lightness(scale(), eye)[::16]
    steps = seen.diff() if scale is bright else -seen.diff()
    assert float(steps.min()) > 0.5


@pytest.mark.parametrize("scale", [bright, deep])
def test_lightness_is_even(scale):
    steps = lightness(scale(), "all cones")[::32].diff().abs()
    assert float(steps.max() / steps.min()) < 1.6
    assert len(set(scale())) > 0.95 * COUNT
