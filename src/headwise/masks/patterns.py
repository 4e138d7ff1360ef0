"""Patterns: the functions that make masks, each checked where it is called."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

import torch
from torch import Tensor

from headwise.errors import MaskError
from headwise.masks.leaves import Allowed, Causal, Documents, Keys, Lengths, Prefix, PrefixEach, Rule, Ruled, Window
from headwise.masks.mask import Mask, show
from headwise.masks.tensor_masks import known_mask, remembered
from headwise.wording.hints import hinted

# the number in an example where none came that can be one
_EXAMPLE = 3
# one for all, so that what is derived from it is found at once
_CAUSAL = Causal()
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def causal() -> Mask:
    """Each query sees itself and everything before it, by position: the last query sits at the last key.

    >>> print(causal().draw(2, 5))
    ####.
    #####
    """
    return _CAUSAL


def _which_window(came: object) -> str:
    n = came if type(came) is int and came > 0 else _EXAMPLE
    around = f"window(before={n}, after={n}) for those around the query"
    return f"say window(keys={n}) for the {n} most recent keys, or {around}"


def _by_place(came: object) -> str:
    if type(came) is int and came > 0:
        counts = sorted({came, came + 1, 2 * came - 1, 2 * came + 1})
        many = f"may mean {', '.join(map(str, counts[:-1]))} or {counts[-1]} keys"
    else:
        many = "does not say which keys"
    return f"window({came!r}) {many}: {_which_window(came)}"


@hinted(dict.fromkeys(("size", "window", "window_size", "n"), _which_window), by_name=_by_place)
def window(*, keys: int | None = None, before: int | None = None, after: int | None = None) -> Mask:
    """Each query sees the keys near it.

    keys: the n most recent keys, the query's own included (causal already). before, after: how many keys before and
    after the query's own, None: 0. The two forms are not mixed.

    >>> print(window(keys=2).draw(4, 4))
    #...
    ##..
    .##.
    ..##
    >>> print(window(before=1, after=1).draw(4, 4))
    ##..
    ###.
    .###
    ..##
    """
    if (keys is None) == (before is None and after is None):
        raise MaskError(
            f"window takes keys=, or before= and after=, and not both; got keys={keys}, before={before}, after={after}"
        )
    for name, n in (("keys", keys), ("before", before), ("after", after)):
        if n is not None:
            _check_count(f"window({name}=)", n)
    if keys is not None and keys < 1:
        raise MaskError(f"window(keys=) counts the query's own key, so it must be 1 or more; got keys={keys}")
    before, after = (keys - 1, 0) if keys is not None else (before or 0, after or 0)
    if before < 0 or after < 0:
        raise MaskError(
            f"window(before=, after=) count keys, so both must be 0 or more; got before={before} and after={after}"
        )
    return Window(before, after)


def keys(keep: Tensor) -> Mask:
    """The keys that may be seen: the padding mask, True = a real token, padded on either side.

    keep: bool (B, Lk).

    >>> print(keys(torch.tensor([[True, True, False]])).draw(2, 3))
    ##.
    ##.
    """
    _check_bool("keys(keep)", keep)
    if keep.ndim != 2:
        raise MaskError(f"keys(keep) must be (B, Lk), but came as {tuple(keep.shape)}: one row to each sample")
    return Keys(keep)


def lengths(n: Tensor | Sequence[int]) -> Mask:
    """The first n keys of each sample, or of each query.

    n: integers (B,), or (B, Lq), in 0..Lk: others raise MaskError where values can be read for nothing, on the CPU and
    not while compiling or exporting; elsewhere more than Lk is all keys, and less than 0 is none.

    >>> print(lengths(torch.tensor([2, 1])).draw(1, 3))
    ##.
    <BLANKLINE>
    #..
    """
    n = _as_tensor("lengths(n)", n)
    _check_integers("lengths(n)", n)
    if n.ndim not in (1, 2):
        raise MaskError(f"lengths(n) must be (B,) or (B, Lq), but came as {tuple(n.shape)}: one length to each sample")
    return Lengths(n)


def documents(ids: Tensor, key_ids: Tensor | None = None) -> Mask:
    """Equal ids see each other: several documents packed into one row, or any other grouping.

    ids: integers (B, Lq), or (Lq,) for all samples. key_ids: the same for the keys, None: as ids, which needs Lq = Lk.

    >>> print(documents(torch.tensor([0, 0, 1])).draw(3, 3))
    ##.
    ##.
    ..#
    """
    query_ids = _rows_of_ids("documents(ids)", ids)
    return Documents(query_ids, None if key_ids is None else _rows_of_ids("documents(key_ids)", key_ids))


def prefix(n: int | Tensor) -> Mask:
    """Keys at positions before n, whoever asks; with `causal() |` it is the mask of a prefix language model.

    n: one number, or (B,) one to each sample. It counts positions, where `lengths` counts the keys of the call.

    >>> print((causal() | prefix(2)).draw(3, 3))
    ##.
    ##.
    ###
    """
    if isinstance(n, Tensor):
        _check_integers("prefix(n)", n)
        n = n[None] if n.ndim == 0 else n
        if n.ndim != 1:
            raise MaskError(f"prefix(n) must be a number or (B,), but came as {tuple(n.shape)}: one to each sample")
        return PrefixEach(n)
    _check_count("prefix(n)", n)
    return Prefix(n)


def allowed(t: Tensor) -> Mask:
    """A bool tensor as a mask, True = may attend.

    t: (Lq, Lk), or 4-D and broadcastable to (B, H, Lq, Lk). Three axes are refused, since libraries read them
    differently; any other dtype is refused, since 0 and 1 may mean "add" as well as "block".

    >>> print(allowed(torch.eye(3, dtype=torch.bool)).draw(3, 3))
    #..
    .#.
    ..#
    """
    _check_bool("a mask", t)
    if t.ndim == 3:
        raise MaskError(
            f"a mask of three axes {tuple(t.shape)} reads as (B, Lq, Lk), as (H, Lq, Lk) or as (B*H, Lq, Lk): "
            "say which with t[:, None], t[None] or t.unflatten(0, (B, H))"
        )
    if t.ndim not in (2, 4):
        raise MaskError(f"a mask must be (Lq, Lk) or (B, H, Lq, Lk), but came as {tuple(t.shape)}: padding is keys(t)")
    return Allowed(t)


def rule(fn: Rule) -> Mask:
    """A function as a mask: fn(b, h, i, j) -> bool, as FlexAttention's mask_mod; asked tile by tile.

    b, h: index of sample and query head. i, j: position of query and key. All are integer tensors that broadcast.
    A mask_mod that counts queries by rows where Lq and Lk differ comes in by `headwise.masks.from_flex`.

    >>> print(rule(lambda b, h, i, j: (i + j) % 2 == 0).draw(2, 4))
    #.#.
    .#.#
    """
    if not callable(fn):
        raise MaskError(f"rule(fn) needs a function of (b, h, i, j), but {show(fn)} came: a tensor goes into allowed()")
    try:
        inspect.signature(fn).bind(None, None, None, None)
    except ValueError:
        # what Python cannot look into is asked as it is
        pass
    except TypeError as error:
        raise MaskError(
            f"rule(fn) calls fn(b, h, i, j), but {show(fn)} does not take four arguments by their place: take b and h "
            "too, used or not"
        ) from error
    return Ruled(fn)


def as_mask(mask: Mask | Tensor | None) -> Mask | None:
    """What `mask=` takes, as a Mask: a Mask, a bool tensor by the rule of `allowed`, or None."""
    if mask is None or isinstance(mask, Mask):
        return mask
    if not isinstance(mask, Tensor):
        raise MaskError(
            f"mask must be a Mask, a bool tensor or None, but {type(mask).__name__} came: make one, as with causal()"
        )
    before = known_mask(mask)
    return remembered(allowed(mask)) if before is None else before


def _check_bool(name: str, t: Tensor) -> None:
    """Refuse what is not a bool tensor, naming how else it could be read."""
    if not isinstance(t, Tensor):
        raise MaskError(f"{name} must be a bool tensor, but {type(t).__name__} came: make it one with torch.tensor()")
    if t.dtype is not torch.bool:
        raise MaskError(
            f"{name} must be bool, but {t.dtype} came, which reads as scores to add or as 0 = blocked: "
            "use attn_bias= for scores, or compare (t != 0) for flags"
        )


def _check_integers(name: str, t: Tensor) -> None:
    """Refuse what is not a tensor of integers that torch can compare with positions."""
    if not isinstance(t, Tensor):
        raise MaskError(f"{name} must be a tensor of integers, but {type(t).__name__} came: use torch.tensor()")
    if t.dtype not in INTEGERS:
        raise MaskError(f"{name} must be integers, but {t.dtype} came: cast with .long() if it counts tokens")


def _as_tensor(name: str, numbers: object) -> Tensor:
    """A tensor as it is, and a list or an array of numbers as one."""
    try:
        return torch.as_tensor(numbers)
    except (TypeError, ValueError, RuntimeError) as error:
        raise MaskError(
            f"{name} must be integers, but {type(numbers).__name__} came: give a tensor or a list of them"
        ) from error


def _check_count(name: str, n: int) -> None:
    """Refuse a number that counts nothing, such as 2.5 or True."""
    if isinstance(n, bool) or not isinstance(n, int | torch.SymInt):
        raise MaskError(f"{name} counts tokens, so it must be an int, but {n!r} came: round it, or give int(n)")


def _rows_of_ids(name: str, ids: Tensor) -> Tensor:
    """Ids as (B, L), where (L,) is the same for all samples."""
    _check_integers(name, ids)
    if ids.ndim not in (1, 2):
        raise MaskError(f"{name} must be (L,) or (B, L), but came as {tuple(ids.shape)}: one id to each token")
    return ids[None] if ids.ndim == 1 else ids
