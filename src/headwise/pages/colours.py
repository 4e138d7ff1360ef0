"""Colours: two scales, even in lightness and safe for colour-blind eyes, computed from their paths through OKLCH."""

from __future__ import annotations

import math
from functools import cache

__all__ = ["COUNT", "HEADS", "OUTSIDE", "Colour", "bright", "deep"]

Colour = tuple[int, int, int]
COUNT = 256

# the lines of each head, told apart by every kind of eye as far as so many can be: the same as in colours.js
HEADS = (
    "#0077bb", "#ee7733", "#009988", "#cc3311", "#8e5bb5", "#b8860b",
    "#33a5d6", "#d1568f", "#5d8a2a", "#7a5230", "#4457c9", "#6f7580",
)  # fmt: skip

# lightness, chroma and hue in degrees at even distances along each path: lightness runs straight, the hue turns from
# blue to yellow, which every common kind of colour blindness tells apart
BRIGHT = ((0.20, 0.045, 285.0), (0.375, 0.115, 270.0), (0.55, 0.105, 220.0), (0.725, 0.125, 165.0), (0.93, 0.17, 108.0))
DEEP = ((0.985, 0.006, 200.0), (0.82, 0.085, 180.0), (0.64, 0.105, 225.0), (0.455, 0.13, 268.0), (0.265, 0.115, 292.0))


# what has no place on a scale, on light pages and on dark ones; every kind of eye tells them from it
OUTSIDE: dict[str, dict[str, Colour]] = {
    "light": {"masked": (200, 193, 172), "empty": (240, 214, 196), "nan": (205, 60, 20)},
    "dark": {"masked": (49, 47, 57), "empty": (92, 60, 42), "nan": (255, 106, 61)},
}


@cache
def bright() -> tuple[Colour, ...]:
    """From almost black to bright yellow, for dark pages and for figures."""
    return _along(BRIGHT)


@cache
def deep() -> tuple[Colour, ...]:
    """From almost white to deep violet, for light pages and for paper."""
    return _along(DEEP)


def _along(path: tuple[tuple[float, float, float], ...]) -> tuple[Colour, ...]:
    colours = []
    for n in range(COUNT):
        place = n / (COUNT - 1) * (len(path) - 1)
        below = min(int(place), len(path) - 2)
        share = place - below
        # smooth, so that no bend is seen where two pieces meet; the lightness stays straight
        eased = share * share * (3 - 2 * share)
        lightness = path[0][0] + (path[-1][0] - path[0][0]) * n / (COUNT - 1)
        chroma, hue = (
            low + (high - low) * eased for low, high in zip(path[below][1:], path[below + 1][1:], strict=True)
        )
        colours.append(_screen(lightness, chroma, math.radians(hue)))
    return tuple(colours)


def _screen(lightness: float, chroma: float, hue: float) -> Colour:
    """OKLCH -> sRGB bytes; a colour that no screen has loses chroma until one does."""
    while max(linear := _linear(lightness, chroma, hue)) > 1.0001 or min(linear) < -0.0001:
        chroma *= 0.98
    red, green, blue = (round(255 * _gamma(min(max(value, 0.0), 1.0))) for value in linear)
    return red, green, blue


def _linear(lightness: float, chroma: float, hue: float) -> tuple[float, float, float]:
    """OKLab to linear sRGB: Björn Ottosson, A perceptual color space for image processing, 2020."""
    a, b = chroma * math.cos(hue), chroma * math.sin(hue)
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    medium = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    return (
        4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short,
    )


def _gamma(value: float) -> float:
    """IEC 61966-2-1."""
    return 12.92 * value if value <= 0.0031308 else 1.055 * value ** (1 / 2.4) - 0.055
