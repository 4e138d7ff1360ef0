"""Documented axes: the shapes that docstrings and comments give arguments, and the calls that have them."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from headwise.calls.argument_axes import entry_of
from headwise.calls.argument_use import role_of
from headwise.calls.built_modules import own_numbers
from headwise.calls.constructor_arguments import Draft, drafts
from headwise.calls.documented_numbers import WIDE, counts, numbered, truths_of
from headwise.calls.embedded_arguments import embedded
from headwise.calls.function_trees import written
from headwise.calls.mask_forms import masks, visible
from headwise.calls.mask_usage import Meaning, said_meaning
from headwise.calls.roles import call_role, init_role
from headwise.calls.shape_words import (
    BATCH,
    SUM,
    comments,
    docstrings,
    kind_of,
    shape_alone,
    shapes_in,
)
from headwise.calls.source_hints import Reading
from headwise.source import ones_of

__all__ = ["HEADS", "INPUTS", "SIDES", "WIDTH", "docstring_axes", "documented_calls"]

NAME = re.compile(r"[^\W\d]\w*")
FEWEST = 2
WIDTH = frozenset({
    "c", "d", "e", "dim", "dims", "d_model", "embed_dim", "embedding_dim", "hidden", "hidden_size", "hidden_dim",
    "channels", "in_channels", "n_channels", "num_channels",
    "feat", "features", "model_dim", "emb", "width", "feat_dim", "size", "n_feat",
})  # fmt: skip
HEAD_WIDTH = frozenset({"d_head", "head_dim", "dim_head", "d_k", "dk", "hd", "dh", "head_size"})
HEADS = frozenset({"heads", "n_heads", "num_heads", "num_head", "n_head", "nhead", "nh"})
LENGTHS = frozenset({
    "t", "l", "s", "n", "seq", "seq_len", "time", "length", "tokens", "frames", "steps", "len", "qlen", "q_len", "klen",
    "k_len", "tgt_len", "src_len", "seqlen",
})  # fmt: skip
# what is translated, and what it is translated to, as arguments are called
LANGUAGES = (("src", "source"), ("tgt", "trg", "target"))
# the third side of a volume; d is one beside another word for features
DEPTHS = frozenset({"t", "d", "depth", "frames", "time"})
# the height and the width of an image
SIDES = {"h": "h", "w": "w", "height": "h", "width": "w", "x": "h", "y": "w"}
CHANNELS = ("in_chans", "in_channels", "channels", "num_channels", "n_channels", "c")
WORD = re.compile(r"[^\W\d]\w*")
# two axes of one size
EQUAL = re.compile(r"(?<![*+/-])(?<![*+/-] )\b([^\W\d]\w*) ?== ?([^\W\d]\w*)\b(?! ?[*+/-])")
# what stands before such words where they hold of some calls alone
CONDITION = re.compile(r"(?:\b(?:if|when|unless|only|where|while)\b|若|当|仅|如果)[^.;\n]*$", re.IGNORECASE)
WAYS = 2
# what an argument holds that is true or false
TRUE = {"below": "2", "dtype": "bool"}
INPUTS = ("query", "key", "value")
# what token numbers are below, and where a table is smaller than that
BELOW = ("5", "3")


def docstring_axes(target: Any, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The names of the axes of each argument whose shape the docstring of a class or of its forward gives."""
    spoken = shapes_in(docstrings(target), names)
    return {name: parts for name, parts in spoken.items() if len(parts) >= FEWEST and all(map(NAME.fullmatch, parts))}


def documented_calls(
    target: Any,
    called: Sequence[inspect.Parameter],
    built: Sequence[inspect.Parameter],
    reading: Reading | None = None,
) -> Iterator[dict[str, Any]]:
    """The calls, as `--call` takes them, whose arguments have the shapes that docstrings and comments of a class tell.

    called: the arguments; of those without a default the first must be told and one more, and others are given where
    they are told. built: the parameters of its constructor, whose names axes may have. reading: what the code tells of
    its masks.
    """
    text = "\n".join((docstrings(target), *comments(target)))
    axes = shapes_in(text, [each.name for each in called])
    if axes:
        unsaid = [param.name for param in called if param.default is param.empty and param.name not in axes]
        axes |= _of_parts(target, unsaid)
    elif [each.default for each in called] == [inspect.Parameter.empty] and len(alone := shape_alone(text)) > WAYS:
        axes = {called[0].name: alone}
    first = {parts[0] for parts in axes.values() if len(parts) > 1}
    axes = {name: parts for name, parts in axes.items() if len(parts) > 1 or parts[0] in first | BATCH}
    every = [parameter.name for parameter in called if parameter.default is parameter.empty]
    # an argument that has the name of an axis is the size of it
    words = {word for parts in axes.values() for part in parts for word in WORD.findall(part)}
    sizes = [name for name in every if name in words and name not in axes]
    needed = [name for name in every if name in axes]
    if not needed or needed[0] != every[0] or len(needed) + len(sizes) < min(len(every), FEWEST):
        return
    axes |= {name: (name,) for name in sizes}
    shapes = _symbols(_equalised(axes, text), built, reading, own_numbers(target))
    numbers_of_axes = {name: shapes.pop(name)[0] for name in sizes}
    roles = {each.name: role_of(each) for each in called}
    for names in dict.fromkeys((tuple(name for name in roles if name in shapes), tuple(needed))):
        looked_up = embedded({tree.name: tree for _, tree in reversed(written(target, {}))}, "forward", names)
        numbers = numbered(text, {name: shapes[name] for name in names}) | looked_up
        counted, truths = counts(text, [name for name in numbers if shapes.get(name) == ["B"]]), truths_of(text, names)
        # one number for each sample that is no length says nothing of tokens
        bare = {name for name in numbers - counted if shapes[name] == ["B"] and roles[name] == "mask"}
        spoken = {name for name, role in roles.items() if role in ("mask", "lengths", "adjacency")} | counted
        # whole numbers that only their use tells of, as hops where some are asked for, are no mask
        spoken -= {name for name in numbers - counted if call_role(name) == ""}
        spoken |= {name for name in truths if shapes[name] == ["B", "L"] and ones_of(entry_of(text.splitlines(), name))}
        masked = [name for name in names if name in spoken - bare]
        for call in _calls_with(target, {name: shapes[name] for name in names}, masked, counted, reading):
            shaped = {name for name, value in call.items() if isinstance(value, list)}
            whole = numbers & shaped
            for below in BELOW if whole else BELOW[:1]:
                ids = {name: {"_ids": call[name], "below": below} for name in whole}
                bools = (truths & shaped) - set(masked)
                yield {**call, **ids, **{name: {"_ids": call[name], **TRUE} for name in bools}, **numbers_of_axes}


def _of_parts(target: Any, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The axes that other classes of the same file give to their arguments of these names, the first that does."""
    own = kind_of(target)
    module = sys.modules.get(str(getattr(own, "__module__", "")))
    if module is None or not names:
        return {}
    kinds = [value for value in vars(module).values() if isinstance(value, type) and value is not own]
    axes: dict[str, tuple[str, ...]] = {}
    for kind in (kind for kind in kinds if kind.__module__ == module.__name__):
        for name, shape in shapes_in("\n".join((docstrings(kind), *comments(kind))), names).items():
            axes.setdefault(name, shape)
    return axes


def _equalised(axes: Mapping[str, Sequence[str]], text: str) -> dict[str, list[str]]:
    """The axes of each argument, under one name those that words say are of one size: `I == J`."""
    said = [pair for pair in EQUAL.finditer(text) if CONDITION.search(text[: pair.start()].rpartition("\n")[2]) is None]
    first = {pair[2]: pair[1] for pair in said}
    return {name: [first.get(part, part) for part in parts] for name, parts in axes.items()}


def _calls_with(
    target: Any,
    shapes: Mapping[str, list[Any]],
    masked: Sequence[str],
    counted: Collection[str],
    reading: Reading | None,
) -> Iterator[dict[str, Any]]:
    """The calls with arguments of these shapes: of several masks that of the keys is tried, the others hide nothing."""
    main = next((name for name in masked if "S" in shapes[name]), next(iter(masked), ""))
    for mask in _means(target, main, reading, is_counted=main in counted)[:WAYS] if main else [{}]:
        call: dict[str, Any] = {name: shape for name, shape in shapes.items() if name not in masked}
        for name in masked:
            if name != main:
                call[name] = visible(shapes[name], _means(target, name, reading, is_counted=name in counted)[0])
        if main:
            call["_mask"] = {"argument": main, **mask, "shape": shapes[main]}
        yield call


def _symbols(
    axes: Mapping[str, Sequence[str]], built: Sequence[inspect.Parameter], reading: Reading | None, own: dict[str, int]
) -> dict[str, list[Any]]:
    """The shapes in symbols and numbers. An axis that has the name of a parameter is of the size that it is given; of a
    module that is at hand, of the number of an attribute. own: these.
    """
    words = {part.lower() for parts in axes.values() for part in parts}
    batch = _batch_words(axes, words)
    draft = next(iter(drafts(built, reading or Reading())), Draft({}))
    defaults = {parameter.name: parameter.default for parameter in built if type(parameter.default) is int}
    given = {**defaults, **own, **draft.init}
    width = draft.symbols["D"].equals if "D" in draft.symbols else ""
    inputs = [parts for name, parts in axes.items() if call_role(name) in ("", *INPUTS)]
    inner = _inner(axes)
    # what stands behind the tokens of inputs and nowhere else is a width, whatever it is called
    has_features = max(map(len, inputs), default=0) > 2
    widths = {parts[-1] for parts in inputs if has_features and len(parts) > 1} - inner
    # of states and of actions, of which each has features of its own
    many = {parts[-1] for parts in inputs if len(parts) > 2} - inner
    lengths, counted, summed = _translated(axes, batch), _counted(axes), _summed(axes)
    of_heads, depths = _of_heads(axes), _depths(axes)

    def symbol(part: str) -> Any:
        low = part.lower()
        if part.isdigit():
            return int(part)
        if SUM.fullmatch(part):
            return WORD.sub(lambda word: str(symbol(word[0])), part)
        name, _, times = part.partition("_times_")
        if times and (base := symbol(name)) in ("B", "D", "H", "d"):
            return f"{times}*{base}"
        if (size := _size_of(part, given)) is not None:
            return "D" if size == width else size
        is_image = set(SIDES.values()) <= {SIDES.get(word) for word in words}
        if low in SIDES and is_image:
            # an image that a class is built for is the one that comes
            built_for = (name for name, size in draft.init.items() if init_role(name) == "image" and type(size) is str)
            return next(built_for, SIDES[low])
        if part in depths and is_image and (low != "d" or words & (WIDTH - {"d"})):
            return "t"
        if low in CHANNELS and is_image and (count := next((given[name] for name in CHANNELS if name in given), None)):
            return count
        if low == "h" and part in widths:  # hidden features, and no heads
            return "D"
        for name, among in (("B", batch), ("D", WIDTH), ("H", {*HEADS, "h"}), ("d", HEAD_WIDTH)):
            if low == "h" and name == "H" and part not in of_heads:
                continue
            if low in among and not (name == "D" and part in counted):
                return name
        is_told = low not in LENGTHS or (part in many and len(many) > 1)
        is_width = WIDE.search(low) or (part in widths and is_told and len(inputs) > 1)
        if is_width and part not in counted:
            # a letter may stand for something else
            return low if len(low) > 1 else f"{low}_dim"
        if part not in lengths:
            lengths.append(part)
        at = lengths.index(part)
        return low if at > 1 or (at and part in summed) else ("L", "S")[at]

    return {name: [symbol(part) for part in parts] for name, parts in axes.items()}


def _batch_words(axes: Mapping[str, Sequence[str]], words: set[str]) -> Collection[str]:
    """The words for the batch: with no other one for it, N is, or the first axis that several arguments have alike."""
    first = {parts[0].lower() for parts in axes.values()}
    alike = first if len(axes) > 1 and len(first) == 1 and not first & LENGTHS else set()
    return BATCH if words & BATCH else BATCH | ({"n"} if "n" in words else alike)


def _inner(axes: Mapping[str, Sequence[str]]) -> set[str]:
    """The words that stand before another, and those of what has no features, as masks and token numbers."""
    bare = (parts for name, parts in axes.items() if call_role(name) in ("mask", "lengths", "ids"))
    return {part for parts in axes.values() for part in parts[:-1]} | {part for parts in bare for part in parts}


def _of_heads(axes: Mapping[str, Sequence[str]]) -> set[str]:
    """The words of inputs with more axes than samples, tokens and features, beside which heads stand."""
    return {part for parts in axes.values() if len(parts) > len("BLD") for part in parts}


def _summed(axes: Mapping[str, Sequence[str]]) -> set[str]:
    """The words in sums and products that are an axis of the one argument that has several axes; none of more."""
    shapes = [parts for parts in axes.values() if len(parts) > 1]
    parts = shapes[0] if len(shapes) == 1 else ()
    return {word for part in parts if SUM.fullmatch(part) for word in WORD.findall(part)}


def _depths(axes: Mapping[str, Sequence[str]]) -> set[str]:
    """The words for the third side of a volume, which stands before its height."""
    pairs = [pair for parts in axes.values() for pair in pairwise(parts)]
    return {first for first, second in pairs if first.lower() in DEPTHS and SIDES.get(second.lower()) == "h"}


def _translated(axes: Mapping[str, Sequence[str]], batch: Collection[str]) -> list[str]:
    """The length of what is translated to, of the queries, in whatever order both come; none where nothing is."""
    sources, targets = ([parts for name, parts in axes.items() if name.startswith(side)] for side in LANGUAGES)
    return [part for parts in targets if sources for part in parts if part.lower() not in batch][:1]


def _counted(axes: Mapping[str, Sequence[str]]) -> set[str]:
    """The words of widths that count places: what stands before another such word, as in (batch, features, dim), or
    before what all inputs end in.
    """
    inputs = [tuple(parts) for parts in axes.values() if len(parts) > 2]
    ends = {parts[-1] for parts in inputs}
    is_shared = len(inputs) > 1 and len(ends) == 1 and not ends & SIDES.keys()
    wide = {parts for parts in inputs
            if is_shared or (WIDE.search(parts[-1].lower()) and parts[-1].lower() not in SIDES)}  # fmt: skip
    last = {parts: parts[-1] for parts in map(tuple, axes.values())
            if parts[-1].lower() in WIDTH - SIDES.keys() or parts in wide}  # fmt: skip
    return {part for parts, width in last.items() for part in parts[:-1] if part != width}


def _size_of(part: str, given: Mapping[str, Any]) -> Any:
    """The size of the parameter that an axis has the name of; None: there is none. The case of a single letter counts:
    in another it may stand for something else.
    """
    size = given.get(part, given.get(part.lower()) if len(part) > 1 else None)
    return size if type(size) is int or isinstance(size, str) else None


def _means(target: Any, name: str, reading: Reading | None, *, is_counted: bool) -> list[dict[str, Any]]:
    """What a mask may mean and hold, the likeliest first: as words say, else as the code uses it."""
    if is_counted or call_role(name) == "lengths":
        return [{"means": "lengths", **({"share": True} if reading and name in reading.shares else {})}]
    reading = reading or Reading()
    if polarity := said_meaning(target, name):
        reading = replace(reading, means={**reading.means, name: Meaning(polarity)})
    ways = ({key: mask[key] for key in ("means", "dtype") if key in mask} for mask in masks(name, reading, keys="S"))
    return [dict(way) for way in dict.fromkeys(tuple(way.items()) for way in ways)]
