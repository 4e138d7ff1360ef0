"""Documented numbers: which arguments hold whole numbers, counts, or what is true or false, by the words about them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from headwise.calls.roles import call_role
from headwise.calls.shape_words import SHAPE

__all__ = ["WIDE", "counts", "numbered", "truths_of"]

# how the name of another width ends
WIDE = re.compile(r"(?:hid|hidden|dim|width|channels|features|units)(?:_times_\d+)?$")
# what stands behind the shape of whole numbers
WHOLE = SHAPE + r"[^\n:]{{0,12}}\b(?:ids?|tokens?|types?|degrees?|ind(?:ex|ices)|path|long|int(?:eger)?s?|categor\w+)\b"
# or before it
INTEGERS = r"\b{name}\b\W{{1,3}}(?:long|int(?:eger)?s?)\b"
# behind the shape of what is true or false
TRUTHS = r"\b{name}\b\W[^\n;:]{{0,40}}\bbool"
# and behind that of one number for each sample, which counts its tokens
COUNTED = SHAPE + r"[^\n]{{0,24}}\b(?:lengths?|number|count|valid|sizes?)\b"


def counts(text: str, names: Collection[str]) -> set[str]:
    """The arguments of which it is said that they count the tokens of each sample."""
    return {each for each in names if re.search(COUNTED.format(name=re.escape(each)), text, re.IGNORECASE)}


def truths_of(text: str, names: Collection[str]) -> set[str]:
    """The arguments of which it is said that they hold what is true or false."""
    return {name for name in names if re.search(TRUTHS.format(name=re.escape(name)), text)}


def numbered(text: str, shapes: Mapping[str, Sequence[Any]]) -> set[str]:
    """The arguments that hold whole numbers, by the words about them, by a name without features, or one for each
    sample.
    """
    return {
        name for name, shape in shapes.items()
        if any(re.search(form.format(name=re.escape(name)), text, re.IGNORECASE) for form in (WHOLE, INTEGERS))
        or (call_role(name) == "ids" and not (shape[-1:] == ["D"] or WIDE.search(str(shape[-1]))))
        or (list(shape) == ["B"] and call_role(name) == "")
    }  # fmt: skip
