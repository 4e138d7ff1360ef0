"""Axis words: what a person's code calls the axes of inputs that have more than samples, tokens and features."""

from __future__ import annotations

import keyword
import re

from headwise.calls import Plan, spoken_axes

__all__ = ["axis_words"]

# the axes of an input that has samples, tokens and features
MOST = 3
# an axis of heads, or of what they have: tokens of such inputs are queries and keys
HEADS = frozenset({"H", "Hkv", "d", "dv"})
# a word of more than two letters
WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{2,}")
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
    lists = {name: shape for name, shape in plan.call.items() if isinstance(shape, list) and len(shape) > MOST}
    shapes = {name: shape for name, shape in lists.items() if not HEADS & set(map(str, shape))}
    spoken = spoken_axes(plan.target, list(shapes))
    symbols = {each.name for each in plan.symbols}
    # the tokens of a graph
    out = {"L": "nodes"} if {"L", "edges"} <= symbols and "nodes" not in symbols else {}
    for name, words in spoken.items():
        for axis, word in zip(shapes[name], words, strict=False) if len(words) == len(shapes[name]) else ():
            is_name = WORD.fullmatch(word) is not None and not keyword.iskeyword(word)
            # a letter that stands for another thing in a plan says nothing here
            if axis in PLACES and (word == axis or (is_name and word not in {*symbols, *out.values()})):
                out.setdefault(axis, word)
    return out
