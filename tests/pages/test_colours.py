"""Two scales on which more is always seen as more, by every kind of eye."""

import itertools
import re

import pytest
import torch

from headwise.pages.colours import COUNT, OUTSIDE, bright, deep
from tests.pages.script_source import SOURCE

# how linear red, green and blue reach eyes without one kind of cone: Machado, Oliveira and Fernandes 2009, table 1
EYES = {
    "all cones": [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}


def seen_by(eye, colours):
    """Linear red, green and blue of colours as an eye sees them."""
    values = torch.tensor(colours, dtype=torch.float64) / 255
    linear = torch.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
    return (linear @ torch.tensor(EYES[eye], dtype=torch.float64).T).clamp(0, 1)


def lightness(colours, eye):
    """CIE L* of colours as an eye sees them."""
    luminance = seen_by(eye, colours) @ torch.tensor([0.2126, 0.7152, 0.0722], dtype=torch.float64)
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


def place(colours, eye):
    """CIE L*, a* and b* of colours as an eye sees them, under D65."""
    to_xyz = torch.tensor(
        [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]], dtype=torch.float64
    )
    xyz = seen_by(eye, colours) @ to_xyz.T / to_xyz.sum(1)
    x, y, z = torch.where(xyz > 0.008856, xyz ** (1 / 3), 7.787 * xyz + 16 / 116).unbind(-1)
    return torch.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], -1)


# a difference of 2.3 is just seen where two colours touch
@pytest.mark.parametrize("eye", EYES)
@pytest.mark.parametrize(("theme", "scale"), [("light", deep), ("dark", bright)])
def test_what_is_no_weight_is_told_from_every_weight_by_every_eye(theme, scale, eye):
    weights = place(scale(), eye)
    kinds = {kind: place(colour, eye) for kind, colour in OUTSIDE[theme].items()}
    for kind, where in kinds.items():
        assert float((weights - where).norm(dim=-1).min()) > 7, kind
    for one, other in itertools.combinations(kinds.values(), 2):
        assert float((one - other).norm()) > 7


def test_the_script_has_the_same_colours():
    script = (SOURCE / "colours.js").read_text(encoding="utf-8")
    found = [tuple(map(int, each)) for each in re.findall(r"(?:masked|empty|nan): \[(\d+), (\d+), (\d+)\]", script)]
    assert found == [colour for kinds in OUTSIDE.values() for colour in kinds.values()]
