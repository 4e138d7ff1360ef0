"""Entry point: `doctor`, the diagnosis of attention code by its name or of an object in memory."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from headwise.diagnosis.plans.user_arguments import check_said, in_python
from headwise.diagnosis.result import Diagnosis
from headwise.diagnosis.target_diagnosis import diagnosed
from headwise.errors import InputError
from headwise.targets import describe_object, in_child, parse
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
    hangs on time. An object that is at hand runs to its end.

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
    description = describe_object(target)
    with plain_torch():
        return diagnosed(
            target,
            title=description.title,
            namespace=description.namespace,
            files=description.files,
            init=init,
            call=call,
            lang=lang,
        )


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
