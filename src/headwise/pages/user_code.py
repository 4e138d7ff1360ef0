"""User code: the maps of a class or function in user code, of one call on random inputs."""

from __future__ import annotations

import base64
import json
import math
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from headwise.pages.code_inputs import say_inputs
from headwise.pages.files import MAX_MB, check_output, write_code
from headwise.pages.heat_map import Heat
from headwise.pages.models import Progress
from headwise.pages.terminal import html_of, text_of
from headwise.targets import in_child
from headwise.wording import ChildRefusal, refusal, say
from headwise.wording.counts import counted
from headwise.wording.progress_bar import progress_bar

if TYPE_CHECKING:
    from headwise.maps import AttentionMap
    from headwise.pages.page import Page

__all__ = ["CodeLook", "look_at_code", "show_code"]

ENTRY = "headwise.pages.code_child:answer"
SECONDS = 60
WIDTH = 100


@dataclass(frozen=True, eq=False)
class CodeLook:
    """The maps of one call of code, in running order; `str` and a notebook show them, `save` writes them.

    target: as the user named it. init, call: how it was built and called; sizes: of the letters in them. layer, head:
    the maps and heads to draw, empty: the first. unseen: what could not be seen, and why. is_built: whether it came as
    a module, with weights of its own.
    """

    target: str
    init: Mapping[str, Any]
    call: Mapping[str, Any]
    sizes: Mapping[str, int]
    maps: Mapping[str, AttentionMap] = field(repr=False)
    unseen: Mapping[str, str]
    layer: tuple[int, ...] = ()
    head: tuple[int, ...] = ()
    lang: str = "en"
    is_built: bool = False

    @property
    def tokens(self) -> tuple[str, ...]:
        """The positions, as text: random inputs are no words."""
        return tuple(map(str, range(next(iter(self.maps.values())).shape[2])))

    def page(self) -> Page:
        """Every head of every map: one file that opens anywhere."""
        from headwise.pages.page_sources import page_of_maps

        page = page_of_maps(self.maps, tokens=None, query=None, layer=self.layer, head=self.head, lang=self.lang)
        return replace(page, notes=(say_inputs(self.call, self.lang), *page.notes))

    def to_dict(self) -> dict[str, Any]:
        """How the code was called, and every map with its weights: {"schema": 1, ...}."""
        return {
            "schema": 1,
            "target": self.target,
            "init": json.loads(_as_json(self.init)),
            "call": json.loads(_as_json(self.call)),
            "sizes": dict(self.sizes),
            "tokens": list(self.tokens),
            "maps": [
                {
                    "name": name,
                    "shape": list(layer_map.shape),
                    "entropy": _numbers(layer_map.entropy().mean(-1).tolist()),
                    "distance": _numbers(layer_map.distance().tolist()),
                    "weights": _numbers(layer_map.dense().tolist()),
                }
                for name, layer_map in self.maps.items()
            ],
            "unseen": dict(self.unseen),
        }

    def save(
        self, path: str | os.PathLike[str], *, force: bool = False, max_mb: float = MAX_MB,
        progress: Progress | None = None,
    ) -> Path:  # fmt: skip
        """Write the page, or a figure, the data or the text of it, as the suffix says (.html, .png, .svg, .pdf, .json,
        .txt), whole or not at all; a file that exists is kept unless `force`. The file.

        max_mb, progress: as in `Page.save`.
        """
        file = check_output(Path(path), force=force)
        with progress_bar(self.lang) if progress is None else nullcontext(progress) as tell:
            write_code(self, file, force=force, max_mb=max_mb, tell=tell)
        return file

    def __repr__(self) -> str:
        heads = sum(layer_map.shape[1] for layer_map in self.maps.values())
        return f"<Look at {self.target}: {counted(len(self.maps), 'map')}, {counted(heads, 'head')}>"

    def __str__(self) -> str:
        return text_of(lambda console: show_code(self, console))

    def _repr_html_(self) -> str:
        return html_of(lambda console: show_code(self, console))


def look_at_code(
    target: str | Callable[..., Any],
    *,
    init: Mapping[str, Any] | None = None,
    call: Mapping[str, Any] | None = None,
    layer: tuple[int, ...] = (),
    head: tuple[int, ...] = (),
    seconds: int = SECONDS,
    lang: str = "en",
) -> CodeLook:
    """The maps of one call of code.

    target: "FILE:NAME" or "package.module:NAME", which runs in a child process with limits and is ended after so many
    seconds; or a class, a function or a module that is in memory, which runs in this process, the module as a copy.
    init, call: as `trace` takes them; None: they are found. Raises InputError where it cannot be run, or has no map.
    """
    look = (
        _of_name(target, init, call, seconds, lang) if isinstance(target, str) else _of_object(target, init, call, lang)
    )
    if not look.maps:
        reasons = "; ".join(f"{name} {reason}" for name, reason in look.unseen.items())
        if not reasons:
            raise refusal("refuse.look_no_softmax", target=look.target)
        raise refusal("refuse.look_no_maps", target=look.target, reason=reasons)
    look = replace(look, layer=layer, head=head)
    _check_places(look)
    return look


def _of_name(
    target: str, init: Mapping[str, Any] | None, call: Mapping[str, Any] | None, seconds: int, lang: str
) -> CodeLook:
    """The maps of user code, run in a child process."""
    request = {"target": target, "init": init, "call": call, "lang": lang}
    answer = in_child(ENTRY, request, seconds=seconds)
    if "refused" in answer:
        raise ChildRefusal(str(answer["refused"]))
    # what no part of it is called is called as it is
    whole = target.rpartition(":")[2]
    unseen = {str(name or whole): str(why) for name, why in answer["unseen"].items()}
    maps: dict[str, AttentionMap] = {}
    if answer["maps"]:
        from headwise.maps import load_maps
        from headwise.watching.sequences import layers_of

        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "maps.safetensors"
            file.write_bytes(base64.b64decode(answer["maps"]))
            maps = {name or whole: layer_map for name, layer_map in layers_of(load_maps(file))}
    return CodeLook(target, answer["init"], answer["call"], answer["sizes"], maps, unseen, lang=lang)


def _of_object(
    target: Callable[..., Any], init: Mapping[str, Any] | None, call: Mapping[str, Any] | None, lang: str
) -> CodeLook:
    """The maps of a class, a function or a module that is in memory; a module runs as a copy, in eval mode."""
    from torch import nn

    from headwise.diagnosis import apart, holds_numbers, plain_torch
    from headwise.pages.code_call import watched_call
    from headwise.targets import describe_object
    from headwise.watching.sequences import layers_of

    code = describe_object(target)
    with plain_torch():
        if isinstance(target, nn.Module):
            if not holds_numbers(target):
                raise refusal("refuse.look_no_numbers", target=code.title)
            target = apart(target).float().eval()
        watched = watched_call(
            target, title=code.title, namespace=code.namespace, files=tuple(code.files), init=init, call=call
        )
    maps = {name or code.title: layer_map for name, layer_map in layers_of(watched.maps)}
    unseen = {name or code.title: why for name, why in watched.unseen.items()}
    is_built = isinstance(target, nn.Module)
    plan = watched.plan
    return CodeLook(code.title, plan.init, plan.call, watched.sizes, maps, unseen, lang=lang, is_built=is_built)


def show_code(look: CodeLook, console: Console) -> None:
    """Print the maps of code to the width and with the colours that the console has."""
    for part in _parts(look):
        console.print(part, soft_wrap=isinstance(part, Text) and bool(part.no_wrap))


def _check_places(look: CodeLook) -> None:
    """Refuse a map or a head that is not there."""
    maps = list(look.maps.values())
    for layer in look.layer:
        if not 0 <= layer < len(maps):
            raise refusal("refuse.layer", model=look.target, last=len(maps) - 1, count=len(maps), got=layer)
    for layer in look.layer or (0,):
        for head in look.head:
            count = maps[layer].shape[1]
            if not 0 <= head < count:
                raise refusal("refuse.head", layer=layer, last=count - 1, count=count, got=head)


def _parts(look: CodeLook) -> Iterator[RenderableType]:
    # everything is a Text: a str would have its brackets read as markup
    sizes = ", ".join(f"{name}={size}" for name, size in look.sizes.items())
    title = "look.code.built" if look.is_built else "look.code"
    yield Text(say(title, lang=look.lang, target=look.target), style="bold")
    for name, value in (("--init", look.init), ("--call", look.call)):
        if value or not look.is_built:
            # whole, so that it can be copied
            yield Text(f"  {name} '{_as_json(value)}'", no_wrap=True, overflow="ignore")
    yield Text(f"  {sizes}")
    if "_mask" in look.call:
        yield Text(_masked(look.call["_mask"], look.lang))
    yield Text(say_inputs(look.call, look.lang))
    for n, (name, layer_map) in enumerate(look.maps.items()):
        yield Text()
        title = say("look.code.map", lang=look.lang, layer=n, name=name, shape=tuple(layer_map.shape))
        yield Text(title, style="bold")
        yield _heads(layer_map, look.lang)
        if n in (look.layer or (0,)):
            yield from _drawn(look, n, layer_map)
    for name, why in look.unseen.items():
        yield Text()
        yield Text(say("look.unseen", lang=look.lang, module=name, reason=why))


def _masked(mask: Mapping[str, Any], lang: str) -> str:
    """That a mask is applied, which argument it is given to, and what it means."""
    argument = f"{mask['argument']} [{', '.join(map(str, mask['shape']))}]"
    return say("look.code.mask", lang=lang, mask=say(f"doctor.means.{mask['means']}", lang=lang, argument=argument))


def _heads(layer_map: AttentionMap, lang: str) -> Table:
    """One row a head, over all samples: how even it is, and how far it looks back."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for column in ("head", "entropy", "distance"):
        table.add_column(say(f"look.code.{column}", lang=lang, most=f"{math.log(max(1, layer_map.shape[3])):.2f}"))
    entropy, distance = layer_map.entropy().mean(2), layer_map.distance()
    for head in range(layer_map.shape[1]):
        row = (str(head), f"{float(entropy[:, head].mean()):.2f}", f"{float(distance[:, head].mean()):+.2f}")
        table.add_row(*map(Text, row))
    return table


def _drawn(look: CodeLook, layer: int, layer_map: AttentionMap) -> Iterator[RenderableType]:
    """The heads that are drawn, of the first sample, where rows and columns are the same tokens."""
    if layer_map.shape[2] != layer_map.shape[3]:
        return
    names = [str(n) for n in range(layer_map.shape[2])]
    for head in look.head or (0,):
        yield Text(say("look.map", lang=look.lang, layer=layer, head=head), style="bold")
        yield Heat(layer_map[0, head].tolist(), names, (), look.lang)


def _as_json(value: Mapping[str, Any]) -> str:
    """How code was built or called, as JSON; what JSON has no form for, such as a config, as it prints."""
    return json.dumps(value, ensure_ascii=False, default=repr)


def _numbers(values: Any) -> Any:
    """Lists of numbers as JSON can hold them: None in the place of NaN."""
    if isinstance(values, list):
        return [_numbers(value) for value in values]
    return values if math.isfinite(values) else None
