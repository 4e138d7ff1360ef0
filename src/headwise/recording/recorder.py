"""Recorder: runs a callable and records each torch operation with its place in the source; no value changes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from headwise.recording.budget import RECORDED, RECORDING, TAKEN, spend
from headwise.recording.composite_layers import ATTENTION, LAYERS, composites
from headwise.recording.function_names import is_question, name_of
from headwise.recording.fused_steps import steps_of
from headwise.recording.identity import PLAIN, Identities, tensors, versions_of
from headwise.recording.operations import Failure, KernelCall, Operation, Record, TensorSeen
from headwise.recording.random_numbers import seeded
from headwise.source import Span, UserCode, sign_at, span_of

__all__ = ["Observer", "record"]

Observer = Callable[[int, Operation, Callable[..., Any], tuple[Any, ...], Mapping[str, Any]], None]


def record(
    call: Callable[[], Any],
    *,
    model: nn.Module | None = None,
    user_files: Collection[str] = (),
    values: bool = False,
    kernels: bool = False,
    encoders: bool = False,
    in_steps: bool = False,
    observe: Observer | None = None,
) -> Record:
    """The operations that `call` runs; the state of the random numbers is restored afterwards.

    model: whose modules are named, None: none. user_files: files that count as user code although they belong to a
    library. values: keep a copy of every tensor. kernels: keep what torch dispatched for each operation. encoders:
    record the steps inside torch's encoder layers, without their fast path, so that the last bits may differ; else
    each layer is one step. in_steps: record a product that also adds, and one of more than two tensors, as its steps,
    so that the last bits may differ. observe: is called after each operation, unrecorded, with its index, the
    operation, torch's function and its arguments. An error of the call is in `failure`, not raised. Threads that the
    call starts, and compiled or scripted code, are not recorded.

    >>> import torch
    >>> run = record(lambda: torch.ones(2, 3).sum(dim=1) / 3)
    >>> [(each.name, [t.shape for t in each.outputs]) for each in run.operations]
    [('ones', [(2, 3)]), ('sum', [(2,)]), ('/', [(2,)])]
    """
    names = {} if model is None else {module: name for name, module in model.named_modules()}
    recorder = Recorder(
        UserCode(user_files),
        names,
        Identities(values=values),
        wants_kernels=kernels,
        is_in_steps=in_steps,
        observe=observe,
    )
    layers = ATTENTION if encoders else LAYERS
    spend(RECORDING)
    result, failure = None, None
    with seeded(is_on_devices=True):
        try:
            with recorder.listening(layers):
                result = call()
        except Exception as error:  # noqa: BLE001  user code may raise anything; it is returned
            failure = recorder.failure(error)
    return Record(recorder.finished(result), result, failure)


class Recorder(TorchFunctionMode):
    """A function mode that records the operations of user code."""

    def __init__(
        self,
        user_code: UserCode,
        names: Mapping[nn.Module, str],
        identities: Identities,
        *,
        wants_kernels: bool,
        is_in_steps: bool = False,
        observe: Observer | None = None,
    ) -> None:
        super().__init__()
        self.operations: list[Operation] = []
        self._user_code, self._names, self._identities = user_code, names, identities
        self._wants_kernels, self._is_in_steps, self._observe = wants_kernels, is_in_steps, observe
        self._failed: tuple[BaseException, Operation] | None = None
        self._outside: FrameType | None = None
        # the running call of a headwise function, and the index of its step
        self._supplied: tuple[FrameType, int] | None = None
        self._outputs: dict[int, tuple[list[TensorSeen], list[KernelCall]]] = {}

    @contextmanager
    def listening(self, layers: Sequence[type[nn.Module]]) -> Iterator[None]:
        """A block whose operations are recorded. layers: the classes of torch that are one step each."""
        # the callers of this block are not part of the run
        self._outside = sys._getframe(2)
        with ExitStack() as around:
            around.enter_context(composites(self, self.composite, layers))
            around.enter_context(self)
            yield
        self._outside = self._supplied = None

    def __torch_function__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        options = dict(kwargs or {})
        if is_question(func, count=len(args) + len(options)) or torch.compiler.is_compiling():
            return func(*args, **options)
        frame = sys._getframe(1)
        if self._is_in_steps and (steps := steps_of(func, args, options)) is not None:
            return steps(lambda function, *given: self._run(function, given, {}, frame), *args, **options)
        return self._run(func, tuple(args), options, frame)

    def composite(self, name: str, function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """The result of one of torch's own layers, recorded as one step, with this mode off the stack."""
        return self._run(function, args, options, sys._getframe(1), names=(name, f"torch.nn.{name}"))

    def finished(self, result: Any) -> tuple[Operation, ...]:
        """All operations; a call of a headwise function outputs the tensors that are used later, or its last one."""
        for place, (outputs, kernels) in self._outputs.items():
            later = {t.number for operation in self.operations[place + 1 :] for t in operation.inputs}
            later |= {self._identities.number(t) for t in tensors(result)}
            used = {t.number: t for t in outputs if t.number in later}
            kept = tuple(used.values()) or tuple(outputs[-1:])
            self.operations[place] = replace(self.operations[place], outputs=kept, kernels=tuple(kernels))
        return tuple(self.operations)

    def failure(self, error: BaseException) -> Failure:
        """The error that ended the run, with its operation and its place in the source."""
        operation = self._failed[1] if self._failed is not None and self._failed[0] is error else None
        if operation is not None:
            return Failure(error, operation.span, operation)
        span, traceback = None, error.__traceback__
        while traceback is not None:
            if traceback.tb_frame.f_code in self._user_code and traceback.tb_frame is not self._outside:
                span = Span(
                    traceback.tb_frame.f_code.co_filename, traceback.tb_frame.f_code.co_qualname, traceback.tb_lineno
                )
            traceback = traceback.tb_next
        return Failure(error, span, None)

    def _run(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        options: dict[str, Any],
        frame: FrameType | None,
        names: tuple[str, str] | None = None,
    ) -> Any:
        frames = list(self._user_code.frames(frame, self._outside))
        if not frames or self._user_code.is_making(frame, frames[0]):
            return function(*args, **options)
        chain = tuple(span_of(each) for each in reversed(frames))
        supplied = self._user_code.supplied(frame, frames[0])
        if supplied is not None:
            return self._within(supplied, function, args, options, chain)
        names = names or name_of(function, sign_at(frames[0]))
        input_tensors = tuple(tensors((args, options)))
        spend(RECORDED + TAKEN * len(input_tensors))
        inputs, versions = self._identities.snapshots(input_tensors), versions_of(input_tensors)
        kernel_log = _Kernels() if self._wants_kernels else None
        operation = Operation(*names, chain[-1], chain[:-1], self._module(frame), inputs, (), _plain(args, options))
        try:
            with kernel_log or nullcontext():
                result = function(*args, **options)
        except Exception as error:
            self._failed = error, operation
            raise
        outputs = self._identities.snapshots(tensors(result))
        writes = tuple(
            state.number
            for state, before, after in zip(inputs, versions, versions_of(input_tensors), strict=True)
            if before != after
        )
        if outputs or writes or names[0] in ENDS:
            self.operations.append(
                Operation(
                    *names, operation.span, operation.chain, operation.module, inputs, outputs, operation.arguments,
                    writes, tuple(kernel_log.kernels) if kernel_log else (),
                )
            )  # fmt: skip
            if self._observe is not None:
                self._observe(len(self.operations) - 1, self.operations[-1], function, args, options)
        return result

    def _within(
        self,
        frame: FrameType,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        options: dict[str, Any],
        chain: tuple[Span, ...],
    ) -> Any:
        """The result of an operation inside a headwise function: the whole call of that function is one step."""
        if self._supplied is None or self._supplied[0] is not frame:
            code = frame.f_code
            values = [
                frame.f_locals.get(name) for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            ]
            name = code.co_qualname.removesuffix(".forward").rpartition(".")[2]
            inputs = self._identities.snapshots(tensors(values))
            self._supplied = frame, len(self.operations)
            self._outputs[len(self.operations)] = [], []
            self.operations.append(
                Operation(
                    name, ".".join(("headwise", name)), chain[-1], chain[:-1], self._module(frame.f_back), inputs, ()
                )
            )  # fmt: skip
        place = self._supplied[1]
        outputs, kernels = self._outputs[place]
        kernel_log = _Kernels() if self._wants_kernels else None
        try:
            with kernel_log or nullcontext():
                result = function(*args, **options)
        except Exception as error:
            self._failed = error, self.operations[place]
            raise
        outputs.extend(self._identities.snapshots(tensors(result)))
        kernels.extend(kernel_log.kernels if kernel_log else ())
        return result

    def _module(self, frame: FrameType | None) -> str:
        """The full name of the innermost running module; "" outside of all."""
        while frame is not None and frame is not self._outside:
            code = frame.f_code
            first = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
            if isinstance(first, nn.Module) and first in self._names:
                return self._names[first]
            frame = frame.f_back
        return ""


# these turn a tensor into another type, where its dataflow ends
ENDS = frozenset({"item", "tolist", "numpy", "bool", "int", "float", "index", "allclose", "equal"})


class _Kernels(TorchDispatchMode):
    """A mode that lists the operations that torch dispatches in a block."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kernels: list[KernelCall] = []

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        shapes = [tuple(tuple(t.shape) for t in tensors(each)) for each in ((args, kwargs or {}), result)]
        self.kernels.append(KernelCall(func.overloadpacket.__name__, *shapes))
        return result


def _plain(args: tuple[Any, ...], options: dict[str, Any]) -> dict[str, Any]:
    """The arguments without tensors and modules, by position or name."""
    named = {**{str(place): value for place, value in enumerate(args)}, **options}
    return {
        name: value
        for name, value in named.items()
        if type(value) in PLAIN or (not isinstance(value, nn.Module) and next(tensors(value), None) is None)
    }
