"""Crashes: why a run raised, and what would let it pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import permutations
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from headwise.calls import call_role, is_of_code, is_of_library, is_of_options, is_wrong_kind
from headwise.dataflow import Run, chain_of, operand_marks, sources_of
from headwise.diagnosis.checks.head_axes import early_merge
from headwise.diagnosis.checks.inputs import redirected
from headwise.diagnosis.checks.mask_origins import mask_of_queries
from headwise.diagnosis.checks.refusals import (
    is_condensed,
    is_of_another_kind,
    is_optional,
    is_refusal,
    name_of,
    takes_one_size,
)
from headwise.diagnosis.checks.transposed_scores import PRODUCTS, transposed_scores
from headwise.diagnosis.checks.undefined_names import attribute_suspect, name_suspect
from headwise.diagnosis.checks.view_errors import asked_sizes, view_suspect
from headwise.diagnosis.examination import Examination
from headwise.diagnosis.patches.movements import keys_transposed, rearranged
from headwise.diagnosis.repair import Repair
from headwise.diagnosis.suspects import Suspect
from headwise.recording import Operation, TensorSeen, site_of

__all__ = ["crash_suspect"]

INPUTS = frozenset({"query", "key", "value"})


def crash_suspect(run: Run, exam: Examination) -> Suspect | None:
    """What the error of a run says; exam: the examination, which a name that is put right is handed to."""
    failure = run.failure
    if failure is None:
        return None
    error = failure.error
    values: dict[str, object] = {"error": failure.words}
    if isinstance(error, NameError):
        is_missing = is_optional(failure.span, name_of(error))
        return None if is_missing else name_suspect(error, failure.span, exam, values)
    if isinstance(error, AttributeError) and (isinstance(error.obj, nn.Module | Tensor) or is_of_library(error.obj)):
        # what was called with a tensor may want something else, and what is read may be there with an option
        is_other = is_of_options(error) or is_of_another_kind(error, run.named.values())
        return None if is_other else attribute_suspect(error, failure, values)
    if failure.operation is not None:
        suspect = transposed_scores(run, failure.operation, exam, values)
        suspect = suspect or _swapped_input(run, failure.operation) or _misfit(run, failure.operation)
        if suspect is None and failure.operation.last in ("matmul", "__matmul__", "bmm"):
            suspect = _product(run, failure.operation, exam, values)
        suspect = suspect or _merge(run, exam, values) or _operation(run, failure.operation, str(error), values)
        if suspect is not None:
            return suspect
    turned = _turned_mask(run, failure.operation, exam) or mask_of_queries(run, failure.operation)
    if turned is not None:
        return turned
    if is_refusal(failure):
        return None
    if _with_mask_only(run, exam):
        return None if is_condensed(run, failure.operation) else Suspect("mask-raises", failure.span, values=values)
    if exam.is_published or not _is_certain(run, failure.operation):
        return None
    kind = "super-init-missing" if "before Module.__init__()" in str(error) else "raises"
    # as many of the largest as there are none: of fewer experts or keys than were meant
    is_few = failure.operation is not None and failure.operation.last in ("topk", "kthvalue")
    guess = "sizes" if is_few or takes_one_size(run, exam) else ""
    return Suspect(kind, failure.span, values=values, guess=guess)


def _merge(run: Run, exam: Examination, values: dict[str, object]) -> Suspect | None:
    """Heads that are merged before the tokens stand in front of them, where the call runs once these change places."""
    merge = early_merge(run, exam.run)
    if merge is None:
        return None
    repair = Repair(merge.stand_ins, rewriting=partial(rearranged, move=merge.move))
    return Suspect("merge-without-transpose", merge.span, repair, values=values)


def _is_certain(run: Run, operation: Operation | None) -> bool:
    """Whether an operation failed on what the code itself computed, and not on what it was called with."""
    error = None if run.failure is None else run.failure.error
    if isinstance(error, Exception) and (is_of_code(error, run.plan) or is_wrong_kind(error, run.plan)):
        return True
    if isinstance(error, TypeError):
        # of another kind than the code takes may be what it was called with
        return False
    if operation is None or not operation.inputs or _is_of_guessed_width(run, operation):
        return False
    if operation.last == "embedding" and any(_is_as_called(run, tensor) for tensor in operation.inputs):
        # what looks up rows takes whole numbers, and was not called with any
        return False
    others = [name for name in run.named if name != run.plan.mask][1:]
    if any(call_role(name.partition(".")[0]) not in INPUTS for name in others):
        # nothing says what shape such an argument has
        return False
    return all(tensor.requires_grad or run.marks_at(tensor) is not None for tensor in operation.inputs)


def _is_of_guessed_width(run: Run, failed: Operation) -> bool:
    """Whether a projection was given an input whose width no layer took before: the width of the call is a guess."""
    if failed.last != "linear" or len(failed.inputs) < 2:
        return False
    marks = run.marks_at(failed.inputs[0])
    if marks is None or any(entry.joint is not None for entry in chain_of(run, len(run.seen), failed.inputs[0].number)):
        return False
    taken = (each for entry in run.seen if _has_weights(entry.operation) for each in entry.given)
    return not any(each is not None and each.kind == "token" and sources_of(each) & sources_of(marks) for each in taken)


def _is_as_called(run: Run, t: TensorSeen) -> bool:
    """Whether a floating-point tensor is what the run was called with, and nothing was computed of it."""
    is_whole = t.value is None or not t.value.is_floating_point()
    return not is_whole and run.marks_at(t) is not None and not chain_of(run, len(run.seen), t.number)


def _has_weights(operation: Operation) -> bool:
    """Whether an operation takes weights with its features: a projection or a norm."""
    return operation.last in ("linear", "layer_norm", "rms_norm")


def _turned_mask(run: Run, operation: Operation | None, exam: Examination) -> Suspect | None:
    """A mask that would fit the scores if its last two axes changed places: it lies along the queries."""
    if not run.plan.mask or operation is None:
        return None
    marks = [run.marks.get(tensor.number) for tensor in operation.inputs]
    scores = next((at for at, each in enumerate(marks) if each is not None and each.kind == "pair"), None)
    others = [at for at, each in enumerate(marks) if each is None and len(operation.inputs[at].shape) > 1]
    if scores is None or len(others) != 1:
        return None
    shape, wanted = operation.inputs[others[0]].shape, operation.inputs[scores].shape
    turned = (*shape[:-2], shape[-1], shape[-2])
    if not _fits(turned, wanted) or _fits(shape, wanted):
        return None
    stand_ins = {site_of(operation): _with_turned(operation.function, shape)}
    repeated = exam.run(stand_ins)
    if repeated.failure is not None and repeated.failure.span == operation.span:
        return None
    values: dict[str, object] = {"error": ""}
    return Suspect("mask-axis", operation.span, Repair(stand_ins, is_local=True), values=values)


def _fits(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Whether a shape can be laid over another without making it larger."""
    pairs = zip(reversed(shape), reversed(wanted), strict=False)
    return len(shape) <= len(wanted) and all(a in (1, b) for a, b in pairs)


def _with_turned(name: str, shape: tuple[int, ...]) -> Callable[..., Any]:
    """An operation of torch whose operand of a shape has its last two axes in the other order."""
    last = name.rpartition(".")[2]

    def turned(value: Any) -> Any:
        return value.transpose(-1, -2) if isinstance(value, Tensor) and tuple(value.shape) == shape else value

    def right(*args: Any, **options: Any) -> Any:
        first, *rest = (turned(argument) for argument in args)
        function = getattr(first, last, None) or getattr(torch, last)
        return function(*rest, **{key: turned(each) for key, each in options.items()})

    return right


def _with_mask_only(run: Run, exam: Examination) -> bool:
    return bool(run.plan.mask) and exam.run(plan=exam.free).failure is None


def _operation(run: Run, operation: Operation, error: str, values: dict[str, object]) -> Suspect | None:
    last = operation.last
    if last in ("view", "reshape", "_unsafe_view", "unflatten", "view_as"):
        return view_suspect(run, operation, error, values)
    return None


def _swapped_input(run: Run, failed: Operation) -> Suspect | None:
    """A key or a value that is made from the queries' input, although there is another for it."""
    if "S" not in run.sizes or len(run.argument_marks) < 2:
        return None
    queries, *others = run.argument_marks
    # an argument whose name does not say that it holds tokens may be anything
    others = [name for name in others if call_role(name) in INPUTS]
    if not others:
        return None
    mine = run.sources[queries]
    candidates: list[tuple[str, int, int]] = []
    for entry in run.seen:
        marks = operand_marks(entry)
        if entry.joint is not None and all(
            m is not None and m.kind == "token" and sources_of(m) == {mine} for m in marks
        ):  # fmt: skip
            number = entry.inputs[[t is entry.joint.b for t in entry.tensors].index(True)].number
            candidates.append((others[0], entry.at, number))
    kinds = {operand.number: run.marks_at(operand) for operand in failed.inputs}
    for place, tensor in enumerate(failed.inputs):
        held = kinds[tensor.number]
        if held is None or held.kind != "token" or sources_of(held) != {mine}:
            continue
        # beside scores that are added to, what comes from the queries is a bias of theirs
        has_pair = any(kind is not None and kind.kind == "pair" for kind in kinds.values())
        with_pair = has_pair and failed.last in PRODUCTS
        if with_pair or (failed.name == "scaled_dot_product_attention" and place > 0) or _asks_keys(run, failed):
            candidates.append((others[-1] if with_pair or place == 2 else others[0], len(run.seen), tensor.number))
    for name, at, number in candidates[:1]:
        chain = chain_of(run, at, number)
        projection = next((op for op in reversed(chain) if op.joint is not None), None)
        if projection is not None:
            return redirected(run, projection, name, queries)
    return None


def _misfit(run: Run, failed: Operation) -> Suspect | None:
    """A projection that was handed another argument than the one whose width it has."""
    if failed.last != "linear" or len(failed.inputs) < 2:
        return None
    marks, wanted = run.marks_at(failed.inputs[0]), failed.inputs[1].shape[-1]
    if marks is None or marks.kind != "token":
        return None
    taken = {name for name, number in run.sources.items() if number in sources_of(marks) and name in run.argument_marks}
    fitting = [name for name, value in run.argument_marks.items() if value.shape[-1] == wanted and name not in taken]
    used = {source for entry in run.seen for marks in entry.given if marks is not None and marks.kind == "token"
            for source in sources_of(marks)}  # fmt: skip
    left = [name for name in fitting if run.sources[name] not in used]
    if not left:
        # what was computed since is no argument any more
        taken = {name for name in taken if run.argument_marks[name].shape[-1] == marks.shape[-1]}
    fitting = left or fitting
    if not fitting or not taken:
        return None
    kept: dict[str, Any] = {}
    function = torch.nn.functional.linear

    def right(_: Any, *args: Any, **options: Any) -> Any:
        return function(kept["value"], *args, **options)

    def change(_: Any, options: dict[str, Any]) -> None:
        kept["value"] = options.get(fitting[0])

    return Suspect(
        "input-ignored",
        failed.span,
        Repair({site_of(failed): right}, change=change),
        values={"name": fitting[0], "was": ", ".join(sorted(taken))},
    )


def _asks_keys(run: Run, failed: Operation) -> bool:
    """Whether what has the length of the queries was to be given that of the keys."""
    asked, count = asked_sizes(failed), prod(failed.inputs[0].shape)
    for place, size in enumerate(asked):
        changed = [run.sizes["L"] if at == place else each for at, each in enumerate(asked)]
        if size == run.sizes["S"] and prod(changed) == count:
            return True
    return False


def _product(run: Run, operation: Operation, exam: Examination, values: dict[str, object]) -> Suspect | None:
    """A product that wants its right side turned: the key was not transposed."""
    if len(operation.inputs) < 2 or any(run.marks.get(tensor.number) is None for tensor in operation.inputs[:2]):
        return None
    function = torch.matmul
    for order in _orders(operation):

        def turned(*args: Any, order: tuple[int, ...] = order, **_: Any) -> Any:
            return function(args[0], args[1].permute(order))

        stand_ins = {site_of(operation): turned}
        repeated = exam.run(stand_ins)
        if repeated.failure is None or repeated.failure.span != operation.span:
            repair = Repair(stand_ins, rewriting=keys_transposed)
            return Suspect("key-not-transposed", operation.span, repair, values=values)
    return None


def _orders(operation: Operation) -> Iterator[tuple[int, ...]]:
    """The orders of the axes of a product's right side that let it run: its last two turned, or else any that fits."""
    left, right = (tensor.shape for tensor in operation.inputs[:2])
    rank = len(right)
    last = (*range(rank - 2), rank - 1, rank - 2)
    yield last
    if len(left) == rank:
        for order in permutations(range(rank)):
            shape = tuple(right[each] for each in order)
            if order != last and shape[:-2] == left[:-2] and shape[-2] == left[-1]:
                yield order
