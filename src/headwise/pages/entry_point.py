"""hw.look: shows the heads of a model on a text, of user code, or of maps in memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from headwise.errors import InputError
from headwise.pages.code_target import code_target
from headwise.pages.files import check_output, write, write_page
from headwise.pages.models import Progress, silent
from headwise.pages.text_look import Look, Model, TextRequest, looked
from headwise.wording import ArgumentRefusal, Refusal, Sentence, refuses_in_lang, say
from headwise.wording.progress_bar import progress_bar

if TYPE_CHECKING:
    from headwise.pages.page import Page
    from headwise.pages.page_sources import Maps, Tokens
    from headwise.pages.user_code import CodeLook

__all__ = ["look"]

# the options that say something of some kinds of target only, and the refusal where another came
OPTIONS = {
    "model": (("text",), "refuse.look_model_of"),
    "query": (("text", "maps"), "refuse.look_query_of"),
    "tokens": (("maps",), "refuse.look_tokens_of"),
    "call": (("code",), "refuse.look_call_of"),
}


@overload
def look(
    target: str | tuple[str, str],
    *,
    tokens: None = None,
    model: Model = None,
    query: str | None = None,
    layer: int | Sequence[int] | None = None,
    head: int | Sequence[int] | None = None,
    output: str | os.PathLike[str] | None = None,
    force: bool = False,
    lang: str = "en",
    progress: Progress | None = None,
) -> Look: ...


@overload
def look(
    target: Maps,
    *,
    tokens: Tokens | None = None,
    model: None = None,
    query: str | None = None,
    layer: int | Sequence[int] | None = None,
    head: int | Sequence[int] | None = None,
    output: str | os.PathLike[str] | None = None,
    force: bool = False,
    lang: str = "en",
    progress: Progress | None = None,
) -> Page: ...


@overload
def look(
    target: Callable[..., Any],
    *,
    call: Mapping[str, Any] | None = None,
    layer: int | Sequence[int] | None = None,
    head: int | Sequence[int] | None = None,
    output: str | os.PathLike[str] | None = None,
    force: bool = False,
    lang: str = "en",
    progress: Progress | None = None,
) -> CodeLook: ...


@refuses_in_lang
def look(
    target: str | tuple[str, str] | Maps | Callable[..., Any],
    *,
    tokens: Tokens | None = None,
    model: Model = None,
    query: str | None = None,
    call: Mapping[str, Any] | None = None,
    layer: int | Sequence[int] | None = None,
    head: int | Sequence[int] | None = None,
    output: str | os.PathLike[str] | None = None,
    force: bool = False,
    lang: str = "en",
    progress: Progress | None = None,
) -> Look | Page | CodeLook:
    """Which words every head of a pretrained model links in a text; the heads of code; or a Page of finished maps.

    target: a text, or a pair of them. The untouched model runs twice, the second time watched, and the result is given
    only if both runs agree bit for bit. Its weights are computed exactly from its queries and keys, whichever kernel it
    uses. Or code: a class, a function or a module in memory, which runs in this process on random inputs; a class
    is built with sizes that are found out, a module runs as a copy on the CPU, in float32 and eval mode. Or maps: those
    of `watch`, of `load_maps`, by their names, or one map; of a batch as many samples as fit.

    model, of a text: a Hugging Face name, a folder, or (module, tokenizer): any module that `watch` can see, which runs
    in eval mode, and what makes input_ids of a text. None: the embedded all-MiniLM-L6-v2. query: a word of the text, or
    several side by side, whose links alone are shown; None: those of all words. call, of code: how it is called,
    sizes as numbers or symbols, as `trace` takes it; None: that is found out. layer, head: what is drawn,
    from 0; None: the head of the strongest link shown, of code the first. tokens, of maps: their texts, or their names
    in a vocabulary, a list of them for each sample, or {"queries": ..., "keys": ...}; None: numbers. output: a file to
    write too, whose suffix says how (.html, .png, .svg, .pdf, .json, .txt; of maps, all but the last two); one that
    exists is kept unless `force`. lang: "en" or "zh". progress: is told of each slow step;
    None: nobody, but maps that are written show a bar on stderr where that is a terminal.

    Of maps that ranks share, every rank calls it, and makes the same page; the first of them writes the file.
    What cannot be used raises a Refusal (an InputError), one sentence long.

    >>> seen = look("The animal didn't cross the street because it was too tired.", query="it")
    >>> print(*seen.links[0].links[:3], sep="; ")
    because 1.00 L0H2; was 0.75 L1H8; tired 0.71 L2H1
    >>> import torch
    >>> heads = look(torch.nn.MultiheadAttention(16, 2, batch_first=True), layer=0, head=1)
    >>> heads, next(iter(heads.maps.values())).shape
    (<Look at MultiheadAttention: 1 map, 2 heads>, torch.Size([2, 2, 11, 11]))
    """
    tell = progress if progress is not None else silent
    # a language that is not there is refused before anything slow begins
    say("step.starting", lang=lang)
    kind = "text" if isinstance(target, str | tuple) else "code" if callable(target) else "maps"
    _check_options(kind, {"model": model, "query": query, "tokens": tokens, "call": call})
    file = None if output is None else check_output(Path(output), force=force, of_maps=kind == "maps")
    layers, heads = _numbers(layer), _numbers(head)
    if callable(target):
        return _look_at_code(target, call, (layers, heads), file, force, lang, progress)
    if not isinstance(target, str | tuple):
        return _page(target, tokens, query, (layers, heads), file, force, lang, progress)
    return _look_at_text(target, model, query, (layers, heads), file, force, lang, tell)


def _check_options(kind: str, options: Mapping[str, object]) -> None:
    """Refuse an option that does not apply to this kind: "text", "code" or "maps"."""
    for name, value in options.items():
        kinds, key = OPTIONS[name]
        if value is not None and kind not in kinds:
            raise ArgumentRefusal(key, {"kind": Sentence(f"look.kind.{kind}")})


def _look_at_text(
    target: str | tuple[str, str], model: Model, query: str | None, where: tuple[list[int], list[int]],
    file: Path | None, force: bool, lang: str, tell: Progress,
) -> Look:  # fmt: skip
    if isinstance(target, str) and code_target(target) is not None:
        raise ArgumentRefusal("refuse.look_code_name", {"target": target})
    if isinstance(target, tuple) and (len(target) != 2 or not all(isinstance(text, str) for text in target)):
        raise ArgumentRefusal("refuse.look_pair", {"count": len(target)})
    if model is not None and not isinstance(model, str | os.PathLike | tuple):
        raise ArgumentRefusal("refuse.look_model_alone", {"kind": type(model).__name__})
    first, pair = (target, None) if isinstance(target, str) else target
    result = looked(TextRequest(first, pair, model, query, tuple(where[0]), tuple(where[1]), lang=lang), tell)
    if file is not None:
        tell("step.writing", {"file": file})
    return result if file is None else write(result, file, force=force, tell=tell)


def _look_at_code(
    code: Callable[..., Any],
    call: Mapping[str, Any] | None,
    where: tuple[list[int], list[int]],
    file: Path | None,
    force: bool,
    lang: str,
    progress: Progress | None,
) -> CodeLook:
    from headwise.pages.user_code import look_at_code

    layer, head = map(tuple, where)
    try:
        result = look_at_code(code, call=call, layer=layer, head=head, lang=lang)
    except InputError as error:
        raise InputError(_in_python(error, code, lang)) from error
    if file is not None:
        result.save(file, force=force, progress=progress)
    return result


def _in_python(error: InputError, code: Callable[..., Any], lang: str) -> str:
    """A refusal of the command line in the words of Python: code is given built, and examined by hw.doctor."""
    from headwise.targets import describe_object

    text = error.said(lang) if isinstance(error, Refusal) else str(error)
    name = describe_object(code).title
    in_python = {
        f"headwise doctor {name}": f"hw.doctor({name})",
        "--init": f"functools.partial({name}, ...)",
        "--call": "call=",
    }
    for command, words in in_python.items():
        text = text.replace(command, words)
    return text


def _page(
    maps: Maps, tokens: Tokens | None, query: str | None, where: tuple[list[int], list[int]], file: Path | None,
    force: bool, lang: str, progress: Progress | None,
) -> Page:  # fmt: skip
    from headwise.pages.page_sources import page_of_maps

    page = page_of_maps(maps, tokens=tokens, query=query, layer=where[0], head=where[1], lang=lang)
    if file is not None:
        # a text takes a moment, long maps take longer
        with progress_bar(lang) if progress is None else nullcontext(progress) as tell:
            tell("step.writing", {"file": file})
            write_page(page, file, force=force, tell=tell)
    return page


def _numbers(numbers: int | Sequence[int] | None) -> list[int]:
    if numbers is None:
        return []
    several = [numbers] if isinstance(numbers, int) else numbers
    if isinstance(several, str) or not all(isinstance(number, int) for number in several):
        raise ArgumentRefusal("refuse.look_numbers", {"given": repr(numbers)})
    return list(dict.fromkeys(several))
