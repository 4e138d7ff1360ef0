"""Shape words: what docstrings and comments say of the shapes of arguments."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Sequence
from typing import Any

from headwise.source import file_tree, is_installed

__all__ = [
    "BATCH", "BESIDE", "SAID", "SHAPE", "SUM", "comments", "docstrings", "kind_of", "shape_alone", "shapes_in",
]  # fmt: skip

# a shape in brackets on the line of an argument, or of several between commas: two names or more
# more words may stand between where the last of them says that it is a shape
SHAPE = (
    r"\b{name}\b(?:[`*]*, *[`*]*\w+)*(?:[^()\[\]\n]{{0,24}}|[^()\[\]\n]{{0,80}}\bshaped?\b[:=]? *(?:of )?)"
    r"[(\[]([^()\[\]\n]+)[)\]]"
)
# the same, where nothing but a sign and a type stands between
SAID = (
    r"\b{name}\b[`*]*\s*(?:\([^()\n]*\))?\s*(?::|=|-|of shape|has shape)\s*"
    r"(?:(?:float|bool|long|int|[Tt]ensors?|torch\.Tensor|of|shape|images?|tokens?|ids)\W+){{0,4}}[(\[]([^()\[\]\n]+)[)\]]"
)
# a shape without brackets, of an argument and nothing else: names between crosses, or between commas
CROSSED = r"\b{name}\b[`*]*(?:,\s*\w+)*\s*(?::|\s-|\s)\s*(\w+(?:\s+[x×]\s+\w+)+)"
LISTED = (
    r"\b{name}\b[`*]*(?:,\s*\w+)*\s*(?::|\s-)\s*"
    r"((?:\w+(?:\s?[*+-]\s?\w+)?,\s*)+\w+(?:\s?[*+-]\s?\w+)?)\s*(?:$|[;\n(]|\s{{2}})"
)
# the same, where nothing stands between
BESIDE = r"\b{name}\b[`*]* \(([^()\[\]\n]+)\)"
# letters between spaces, as in einsum, of which the last may be a number
SPACED = r"\b{name}\b[`*]*\s*(?::|\s-)\s*((?:[^\W\d]\w? ){{1,4}}(?:[^\W\d]\w?|\d+))\s*(?:$|[.,;\n(]|\s{{2}})"
# the same in a table, whose first column is of the arguments
TABLED = r"(?m)^\s*{name} {{2,}}(?!\w+ [x×] )((?:[^\W\d]\w? ){{1,4}}[^\W\d]\w?)\s*(?:$|[,;\n(]|\s{{2}})"
# names between commas behind that of an argument, and nothing else
FOLLOWING = r"\b{name}\b[`*]* +(\w+(?:, ?\w+)+)\s*(?:$|[;\n(]|\s{{2}})"
BARE = (CROSSED, LISTED, SPACED, TABLED, FOLLOWING)
SEPARATED = re.compile(r",|\s[x×]\s")
# a shape of nothing that is named
ALONE = re.compile(r"\(([^()\n]+)\)")
# a name of an axis, of a word or of several; and how many meanings of a mask are tried
WORDS = re.compile(r"\w+(?: +\w+)*")
# so many times a size
MULTIPLE = re.compile(r"(\d+) ?\* ?([^\W\d]\w*)")
# what is made of sizes
SUM = re.compile(r"\w+(?: ?[*+-] ?\w+)+")
# how many entries a parameter has, as the size of an axis
COUNT_OF = re.compile(r"\blen\((\w+)\)")
# what stands in such brackets beside a shape: the type of an argument, and that it may be left out
TYPES = frozenset({
    "tensor", "torch", "optional", "bool", "int", "float", "long", "str", "list", "tuple", "none", "default", "true",
    "false", "required",
})  # fmt: skip
BATCH = frozenset({"b", "bs", "bsz", "bn", "batch", "batch_size", "nb"})


def shapes_in(text: str, names: Sequence[str], form: str = SHAPE) -> dict[str, tuple[str, ...]]:
    """The axes of each argument, one or more; a name of several words has low lines between them."""
    axes: dict[str, tuple[str, ...]] = {}
    for name in names:
        found = [(match.start(), match.start(1), pattern, match[1]) for pattern in (form, *BARE)
                 for match in re.finditer(pattern.format(name=re.escape(name)), text)]  # fmt: skip
        shapes: list[tuple[bool, list[str]]] = []
        # of one place where a name is, what stands next to it is its shape
        for _, _, pattern, shape in sorted(found, key=lambda match: match[:2]):
            parts = [
                _one_word(part.strip()) for part in _parted(shape.strip(", "), is_spaced=pattern in (SPACED, TABLED))
            ]
            shapes.append((pattern == form, _with_batch(parts) if pattern == form else parts))
        # what no brackets hold is a shape where samples are spoken of
        every = [(is_bracketed, parts) for is_bracketed, parts in shapes if _is_shape(parts)
                 and (is_bracketed or (BATCH | {"n"}) & {part.lower() for part in parts})]  # fmt: skip
        # one word in brackets may be a remark
        told = [parts for _, parts in every if len(parts) > 1 or parts[0].lower() in BATCH]
        if every:
            axes[name] = tuple("_".join(part.split()) for part in (told or [every[0][1]])[0])
    return axes


def shape_alone(text: str) -> tuple[str, ...]:
    """The axes of the first shape of samples in brackets, whatever it is of; empty: there is none."""
    shapes = ([_one_word(part.strip()) for part in SEPARATED.split(shape)] for shape in ALONE.findall(text))
    return next((tuple(parts) for parts in shapes if parts[0].lower() in BATCH and _is_shape(parts)), ())


def _parted(shape: str, *, is_spaced: bool) -> list[str]:
    return shape.split() if is_spaced else SEPARATED.split(shape)


def _is_shape(parts: Sequence[str]) -> bool:
    """Whether parts are names of axes and what is made of them, and none is the type of an argument."""
    is_named = all(WORDS.fullmatch(part) or SUM.fullmatch(part) for part in parts)
    return is_named and not TYPES & {part.lower() for part in parts}


def _one_word(part: str) -> str:
    """The name of an axis; of a multiple of a size, a name of its own; of a sum or a product, how it is made."""
    if (multiple := MULTIPLE.fullmatch(part)) is not None:
        return f"{multiple[2]}_times_{multiple[1]}"
    return part.replace(" ", "") if SUM.fullmatch(part) else part


def _with_batch(parts: list[str]) -> list[str]:
    """The axes, with the batch for a star before two others or more; before one alone it is any number of axes."""
    return ["batch", *parts[1:]] if parts[0] == "*" and len(parts) > 2 else parts


def kind_of(target: Any) -> Any:
    return target if isinstance(target, type) or inspect.isfunction(target) else type(target)


def docstrings(target: Any) -> str:
    kind = kind_of(target)
    forward = vars(kind).get("forward") if isinstance(kind, type) else None
    # what is said of a whole file is said of its classes too
    file = getattr(getattr(forward, "__code__", None), "co_filename", "")
    tree = file_tree(file) if file and not is_installed(file) else None
    texts = (kind.__doc__, getattr(forward, "__doc__", None), tree and ast.get_docstring(tree))
    text = "\n".join(each for each in texts if isinstance(each, str))
    return COUNT_OF.sub(r"number_of_\1", text)


def comments(target: Any) -> Iterator[str]:
    """The comments that stand by themselves in a forward."""
    kind = kind_of(target)
    function = vars(kind).get("forward") if isinstance(kind, type) else kind
    try:
        lines = inspect.getsource(function).splitlines() if inspect.isfunction(function) else []
    except (OSError, TypeError):
        return
    yield from (line.strip().lstrip("# ") for line in lines if line.strip().startswith("#"))
