"""Axis words: what a person's code calls the axes of inputs that have more than samples, tokens and features."""

from __future__ import annotations

from headwise.calls import Plan, spoken_axes

__all__ = ["axis_words"]

# the axes of an input that has samples, tokens and features
MOST = 3
# what counts along an input, in the letters of a plan
PLACES = frozenset({"L", "S", "n", "m", "t", "h", "w", "N", "M"})


def axis_words(plan: Plan) -> dict[str, str]:
    """The words for lengths of inputs that have more axes than samples, tokens and features, as docstrings or the
    code give them: such axes are no queries and keys yet.

    >>> def pooled(video):
    ...     b, frames, patches, dim = video.shape
    ...     return video.mean(1)
    >>> axis_words(Plan(pooled, "self", {}, {"video": ["B", "L", "S", "D"]}, ()))
    {'L': 'frames', 'S': 'patches'}
    """
    shapes = {name: shape for name, shape in plan.call.items() if isinstance(shape, list) and len(shape) > MOST}
    spoken = spoken_axes(plan.target, list(shapes))
    symbols = {each.name for each in plan.symbols}
    out: dict[str, str] = {}
    for name, words in spoken.items():
        for axis, word in zip(shapes[name], words, strict=False) if len(words) == len(shapes[name]) else ():
            if axis in PLACES and len(word) > 2 and word not in {*symbols, *out.values()}:
                out.setdefault(axis, word)
    return out
