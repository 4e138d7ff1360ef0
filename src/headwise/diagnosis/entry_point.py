"""Entry point: `doctor`, the diagnosis of attention code by its name or of an object in memory."""

from __future__ import annotations

import contextlib
import linecache
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from headwise.diagnosis.patches.redefinition import redefined, source_file
from headwise.diagnosis.patches.trials import SHORT, with_patches
from headwise.diagnosis.plans.user_arguments import check_said, in_python
from headwise.diagnosis.result import Diagnosis
from headwise.diagnosis.target_diagnosis import diagnosed
from headwise.errors import InputError
from headwise.source import Edit
from headwise.targets import ObjectInfo, describe_object, in_child, parse
from headwise.wording import refusal, refuses_in_lang

__all__ = ["doctor", "plain_torch"]

ENTRY = "headwise.diagnosis.child:answer"
# what would never end is ended, on a busy machine too
SECONDS = 300


@refuses_in_lang
def doctor(
    target: Any,
    *,
    init: Mapping[str, Any] | None = None,
    call: Mapping[str, Any] | None = None,
    lang: str = "en",
    seconds: int = SECONDS,
) -> Diagnosis:
    """Whether attention code is right; if not, which fault, on which line, what mends it, and the proof.

    target: a class, a function or a module that is at hand, which runs in this process; or what the command line
    takes ("attention.py:MultiHeadAttention", "note.md:MultiHeadAttention", "package.module:Class"), which runs in a
    child process with limits. init, call: how it is built and called, sizes as numbers or symbols ("H*d"); None: that
    is found out. lang: "en" or "zh". seconds: after which a child process is ended, with an InputError; no verdict
    hangs on time. An object that is at hand runs to its end; patches are tried on a copy of its definition.

    `print` shows the report; `verdict` is "sound", "faulty" or "not examined"; `findings` are data. An InputError says
    what is missing where the target cannot be found, or what init or call names is not there.

    >>> import torch
    >>> def attention(q, k, v):
    ...     return torch.softmax(q @ k.transpose(-2, -1) // q.shape[-1] ** 0.5, dim=-1) @ v
    >>> shapes = {"q": ["B", "H", "L", "d"], "k": ["B", "H", "S", "d"], "v": ["B", "H", "S", "d"]}
    >>> [each.kind for each in doctor(attention, call=shapes).findings]
    ['scale-floor-division']
    """
    if isinstance(target, str):
        parse(target)
        answer = in_child(ENTRY, {"target": target, "init": init, "call": call, "lang": lang}, seconds=seconds)
        if "refused" in answer:
            raise InputError(in_python(InputError(answer["refused"]), lang))
        return Diagnosis.from_dict(answer["diagnosis"], lang=lang)
    if not callable(target):
        raise refusal("refuse.target_object", given=repr(target)[:100])
    try:
        check_said(target, init, call)
    except InputError as error:
        raise InputError(in_python(error, lang)) from error
    info = describe_object(target)
    with plain_torch():
        diagnosis = _examined(target, info, info.namespace, init, call, lang)
        return _patched(diagnosis, target, info, init, call, lang)


def _examined(
    target: Any,
    info: ObjectInfo,
    namespace: Mapping[str, Any],
    init: Mapping[str, Any] | None,
    call: Mapping[str, Any] | None,
    lang: str,
) -> Diagnosis:
    return diagnosed(target, title=info.title, namespace=namespace, files=info.files, init=init, call=call, lang=lang)


def _patched(
    diagnosis: Diagnosis,
    target: Any,
    info: ObjectInfo,
    init: Mapping[str, Any] | None,
    call: Mapping[str, Any] | None,
    lang: str,
) -> Diagnosis:
    """A diagnosis of an object in memory with the patches that help, as far as its definitions can be run again."""
    name = info.files.get(source_file(target), "")
    text = "".join(linecache.getlines(source_file(target))) if name else ""
    if not text:
        return diagnosis

    def again(edits: Mapping[str, Sequence[Edit]]) -> Diagnosis | None:
        if not set(edits) <= {name}:
            return None
        try:
            with redefined(target, info.namespace, text, edits.get(name, ())) as new:
                return _examined(new[0], info, new[1], init, call, lang)
        except Exception:  # noqa: BLE001  whatever the mended source raises, it does not help
            return None

    return with_patches(diagnosis, {name: text}, again, effort=SHORT, lang=lang)


@contextlib.contextmanager
def plain_torch() -> Iterator[None]:
    """A block in which gradients are recorded, new tensors are on the CPU, and nothing is cast to half precision."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        if torch.is_autocast_enabled("cpu"):
            stack.enter_context(torch.autocast("cpu", enabled=False))
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        yield
