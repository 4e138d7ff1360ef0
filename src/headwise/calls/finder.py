"""Finder: how a class, a function or a module is built and called, by trying what its source suggests."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

from headwise.calls.request import Found
from headwise.calls.wish_search import ALL, searched
from headwise.errors import InputError

__all__ = ["find"]


def find(
    target: Any,
    *,
    namespace: Mapping[str, Any],
    init: Mapping[str, Any] | None = None,
    call: Mapping[str, Any] | None = None,
    cross: bool | None = None,
    user_files: Collection[str] = (),
    work: int = ALL,
) -> Found:
    """How a target is built and called.

    target: a class, a function, or a module that is built. namespace: of its file. init, call: what the person says
    of it, as `--init` and `--call`; the rest is found. A number in them is first bound to the size that stands at its
    place, which may vary, and kept in `Plan.real`. cross: only with keys of another length than queries (True), or of
    the same (False); None: both. user_files: the person's own. work: the budget.

    A call whose output holds NaN is taken where all outputs do, or all but those of a single token. What the person
    says and cannot be is an InputError, in one sentence. What cannot be built or run is in `failures`.

    >>> import torch
    >>> find(lambda q, k: q @ k.transpose(-2, -1), namespace={}).plans[0].call
    {'q': ['B', 'L', 'D'], 'k': ['B', 'S', 'D']}
    """
    search = partial(searched, target, namespace=namespace, init=init, call=call, cross=cross, user_files=user_files)
    refused: InputError | None = None
    try:
        usual = search(finite=True, work=work)
    except InputError as error:
        usual, refused = Found((), ()), error
    is_usable = any("L" in str(plan.call) for plan in usual.plans)
    if is_usable or (not usual.has_nan and (usual.plans or usual.failures)):
        return usual
    try:
        with_nan = search(finite=False, work=work // 2)
    except InputError:
        with_nan = usual
    if refused is not None and not with_nan.plans:
        raise refused
    return with_nan if with_nan.plans or not usual.failures else usual
