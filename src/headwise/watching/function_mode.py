"""Function mode: where calls of attention are intercepted, with their exact arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.compiler import is_compiling
from torch.overrides import TorchFunctionMode

from headwise.errors import BackendError
from headwise.masks import as_mask
from headwise.ops.additive import additive_attention
from headwise.ops.attention import attention
from headwise.ops.backends import choose
from headwise.ops.call import autocasts, cast_by_autocast, checked
from headwise.ops.shared_axis import active_heads
from headwise.ops.spread_attention import shared_keys_attention, spread_attention
from headwise.watching.attention_functions import SOFTMAXES
from headwise.watching.hugging_face import unpacked
from headwise.watching.kernels import FUSED, Kernels, of_cpu, of_fused, of_sdpa, sdpa_is_fused, with_lse
from headwise.watching.map_collector import UNREAD, no_map
from headwise.watching.provenance import ASSIGNMENTS, Ran
from headwise.watching.record import CallRecord, unreadable
from headwise.watching.session import Session

__all__ = ["AttentionMode"]


class AttentionMode(TorchFunctionMode):
    """A function mode that reads the arguments of attention, and lets every function run as it is."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session
        # what most functions of a model are: none that is read, and none that begins what is followed
        self._passing: set[Any] = set()

    def __torch_function__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        options = kwargs or {}
        # this runs beside every function
        if (func in self._passing and not self._session.softmaxes.is_following) or is_compiling():
            return func(*args, **options)
        if func in READERS:
            return self._read(func, args, options)
        if func in FUSED:
            return self._read_fused(func, args, options)
        softmaxes = self._session.softmaxes
        if softmaxes.passes(func):
            self._passing.add(func)
        result = func(*args, **options)
        return self._follow(func, args, options, result) if softmaxes.concerns(func, args) else result

    def _read(self, func: Any, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
        session = self._session
        name = session.call_name()
        if name is None or not session.reads(name):
            return func(*args, **options)
        query = args[0] if args else options.get("query", options.get("q"))
        if why := unreadable(query):
            session.collector.miss(name, why)
            return func(*args, **options)
        reader = READERS[func]
        result, lse = _run(func, reader, args, options)
        try:
            record = with_lse(reader.read(args, options), lse)
        except UNREAD as error:
            session.collector.miss(name, no_map(error))
            return result
        full_query = session.huggingface_query
        return session.add(name, record if full_query is None else unpacked(record, full_query), result)

    def _read_fused(self, func: Any, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
        """A fused kernel that was called by itself, as compiled functions do."""
        result = func(*args, **options)
        name = self._session.call_name()
        if name is not None:
            self._session.collector.read(name, lambda: of_fused(func, args, options, lse=result[1]))
        return result

    def _follow(self, func: Any, args: Sequence[Any], options: Mapping[str, Any], result: Any) -> Any:
        """Follow a softmax, outside of all that is known, to a product that it may enter, and give what that gives."""
        session = self._session
        if session.huggingface_query is not None:
            return result
        # what an assignment gives is what it wrote to
        ran = Ran(func, args, options, args[0] if func in ASSIGNMENTS else result)
        try:
            if func not in SOFTMAXES:
                return session.softmaxes.go_on(ran)
            if (name := session.call_name()) is not None:
                session.softmaxes.begin(name, ran)
        except UNREAD as error:
            if (name := session.call_name()) is not None:
                session.collector.miss(name, no_map(error))
        return result


def _of_headwise(args: Sequence[Any], options: Mapping[str, Any]) -> CallRecord:
    arguments = dict(zip(("q", "k", "v"), args, strict=False)) | dict(options)
    q, k, v = cast_by_autocast(arguments["q"], arguments["k"], arguments["v"])
    rules = {name: arguments.get(name) for name in ("attn_bias", "scale", "softcap", "sink", "weight", "distance_bias")}
    return CallRecord(
        q, k, as_mask(arguments.get("mask")), **rules, spread=arguments.get("spread"), heads=active_heads(), v=v,
        dropout=arguments.get("dropout", 0.0),
    )  # fmt: skip


def _of_shared_keys(_args: Sequence[Any], _options: Mapping[str, Any]) -> CallRecord:
    raise BackendError(
        "its keys are distributed over ranks, and this rank's are no map: watch one call on the whole sequence, with "
        "spread= or without a cache"
    )


def _of_additive(args: Sequence[Any], options: Mapping[str, Any]) -> CallRecord:
    arguments = dict(zip(("q", "k", "v", "weight"), args, strict=False)) | dict(options)
    q, k, v = cast_by_autocast(arguments["q"], arguments["k"], arguments["v"])
    return CallRecord(
        q, k, as_mask(arguments.get("mask")), weight=arguments["weight"], heads=active_heads(), v=v,
        dropout=arguments.get("dropout", 0.0),
    )  # fmt: skip


def _headwise_is_fused(args: Sequence[Any], options: Mapping[str, Any]) -> bool:
    arguments = dict(zip(("q", "k", "v"), args, strict=False)) | dict(options)
    backend = arguments.pop("backend", "auto")
    call = checked(arguments.pop("q"), arguments.pop("k"), arguments.pop("v"), **arguments)
    return not autocasts(call.q) and choose(call, backend).name == "sdpa"


class Reader(NamedTuple):
    """How a function's arguments are read, and whether they will run one fused kernel."""

    read: Callable[[Sequence[Any], Mapping[str, Any]], CallRecord]
    is_fused: Callable[[Sequence[Any], Mapping[str, Any]], bool]


def _run(
    func: Any, reader: Reader, args: Sequence[Any], options: Mapping[str, Any]
) -> tuple[Any, Sequence[Tensor | None]]:
    """What a function gives, and the lse of each fused kernel that it ran."""
    if reader is SDPA and (given := of_cpu(args, options)) is not None:
        return given[0], given[1:]
    kernels = Kernels()
    try:
        is_fused = reader.is_fused(args, options)
    except UNREAD:
        # the function itself says what is wrong with its arguments
        is_fused = False
    with kernels if is_fused else nullcontext():
        return func(*args, **options), kernels.lse


SDPA = Reader(lambda args, options: of_sdpa(*args, **options), sdpa_is_fused)
READERS: dict[Any, Reader] = {
    attention: Reader(_of_headwise, _headwise_is_fused),
    spread_attention: Reader(_of_headwise, lambda args, options: False),
    shared_keys_attention: Reader(_of_shared_keys, lambda args, options: False),
    additive_attention: Reader(_of_additive, lambda args, options: False),
    F.scaled_dot_product_attention: SDPA,
    torch.ops.aten.scaled_dot_product_attention: SDPA,
    torch.ops.aten.scaled_dot_product_attention.default: SDPA,
}
