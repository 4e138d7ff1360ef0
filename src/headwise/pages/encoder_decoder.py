"""Encoder-decoder: every head of a model that reads one text and writes another, of source, target and across."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console
from rich.text import Text
from torch import Tensor
from torch.utils import _pytree as pytree

from headwise.maps import AttentionMap
from headwise.pages.axis_tokens import EMPTY, sides_of
from headwise.pages.generation import COLUMNS, links_of_row
from headwise.pages.head_tables import table_of
from headwise.pages.links import Link
from headwise.pages.models import LoadedModel, Progress, first_line, load, quiet
from headwise.pages.number_tables import GeneratedToken
from headwise.pages.page import Layer, Page
from headwise.pages.terminal import text_of
from headwise.pages.text_tokens import check_text, read
from headwise.pages.user_model import in_evaluation
from headwise.watching import watch
from headwise.wording import Sentence, refusal, say
from headwise.wording.screen import visible

if TYPE_CHECKING:
    from headwise.watching import Seen

__all__ = ["EncoderDecoderLook", "TargetRequest", "followed", "generated", "look_at_target", "show_target"]

# the page's sides
SOURCE, TARGET = 0, 1


@dataclass(frozen=True)
class TargetRequest:
    """A source, and its target: a text, or None and how many tokens the model is to generate."""

    text: str
    model: str | os.PathLike[str]
    target: str | None = None
    count: int | None = None
    cut: bool = False
    lang: str = "en"


@dataclass(frozen=True, eq=False)
class EncoderDecoderLook:
    """What the heads of an encoder with a decoder attend to; `str` shows it.

    sources, targets: the tokens that encoder and decoder read. steps: of each token that the decoder read, the one that
    came next and its probability. links: of each, the source tokens that it attends to most, over all layers and heads
    of cross-attention. maps: name, map, and which of the page's sides its queries and keys are.
    """

    model: str
    text: str
    target: str
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    steps: tuple[GeneratedToken, ...]
    links: tuple[tuple[Link, ...], ...]
    maps: tuple[tuple[str, AttentionMap, int, int], ...]
    lang: str = "en"

    def page(self) -> Page:
        """Every head of every layer, which opens at the strongest link of the first token to the source."""
        first, links = self.steps[0], self.links[0]
        opening: dict[str, int | str] = {"token": first.query}
        if links:
            opening |= {"view": "row", "layer": links[0].layer, "head": links[0].head}
        (source,), (target,) = (sides_of(list(tokens), 1) for tokens in (self.sources, self.targets))
        return Page(
            title=self.model, text=f"{self.text} → {self.target}",
            layers=tuple(Layer(name, layer_map, queries, keys) for name, layer_map, queries, keys in self.maps),
            sides=(source, target), opening=opening, generated=self.steps, lang=self.lang,
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Plain values: {"schema": 1, ...}."""
        steps = [
            {**step.to_dict(), "links": [dataclasses.asdict(link) for link in links]}
            for step, links in zip(self.steps, self.links, strict=True)
        ]
        return {
            "schema": 1, "model": self.model, "text": self.text, "target": self.target, "sources": list(self.sources),
            "targets": list(self.targets), "next": steps,
        }  # fmt: skip

    def __str__(self) -> str:
        return text_of(lambda console: show_target(self, console))


def show_target(result: EncoderDecoderLook, console: Console) -> None:
    """Print each token of the target, and what it attends to in the source."""
    title = say("target.title", lang=result.lang, model=result.model, text=result.text, target=result.target)
    console.print(Text(title, style="bold"))
    table = table_of((*COLUMNS[:2], "target.column.links"), result.lang, names=(COLUMNS[0], "target.column.links"))
    for step, links in zip(result.steps, result.links, strict=True):
        table.add_row(Text(step.text), Text(f"{step.probability:.3f}"), Text(" · ".join(map(str, links))))
    console.print(table)
    console.print(Text(say("target.key", lang=result.lang), style="dim"))


def look_at_target(asked: TargetRequest, tell: Progress) -> EncoderDecoderLook:
    """Run an encoder with a decoder on a source and a target, alone and then watched."""
    for text in (asked.text, asked.target):
        if text is not None:
            check_text(text)
    loaded = load(asked.model, tell, loader=lambda name, config: "AutoModelForSeq2SeqLM")
    reading = read(loaded, asked.text, cut=asked.cut)
    inputs = dict(reading.inputs)
    names = _names(loaded, inputs["input_ids"][0])

    def ids() -> Tensor:
        return _target_ids(loaded, inputs, asked)

    return followed(loaded, inputs, ids, tell, text=asked.text, sources=lambda count: names, lang=asked.lang)


def followed(
    loaded: LoadedModel,
    inputs: Mapping[str, Tensor],
    target: Callable[[], Tensor],
    tell: Progress,
    *,
    text: str,
    sources: Callable[[int], tuple[str, ...]],
    lang: str,
) -> EncoderDecoderLook:
    """A run of an encoder with a decoder, alone and then watched; a Refusal where both do not give the same.

    target: gives the ids (1, T + 1) that the decoder reads, and after them the last one that it is to give. text: what
    the source is called. sources: gives the names of so many positions of the encoder.
    """
    with quiet(), torch.no_grad(), in_evaluation(loaded.model):
        tell("step.untouched", {})
        ids = target()
        inputs = {**inputs, "decoder_input_ids": ids[:, :-1]}
        alone = _outputs(loaded, inputs)
        tell("step.watched", {})
        with watch(loaded.model) as seen:
            watched = _outputs(loaded, inputs)
        if not all(torch.equal(a, b) for a, b in zip(alone, watched, strict=True)):
            difference = max(float((a.double() - b.double()).abs().max()) for a, b in zip(alone, watched, strict=True))
            raise refusal("refuse.unequal", difference=difference, model=loaded.name)
        maps = _sided(loaded, inputs, seen)
    names = _names(loaded, ids[0])
    probabilities = watched[0][0].float().softmax(-1)
    steps = tuple(
        GeneratedToken(n, names[n + 1], float(probabilities[n, ids[0, n + 1]]), TARGET) for n in range(len(names) - 1)
    )
    crossing = [(n, m) for n, (_, m, queries, keys) in enumerate(maps) if (queries, keys) == (TARGET, SOURCE)]
    lengths = {m.shape[2 + axis] for _, m, *places in maps for axis in (0, 1) if places[axis] == SOURCE}
    if len(lengths) != 1:
        raise refusal(
            "refuse.no_attention", model=loaded.name, model_type=loaded.config.model_type,
            reason=Sentence("target.lengths", lengths=", ".join(map(str, sorted(lengths))) or "-"),
        )  # fmt: skip
    positions = sources(lengths.pop())
    links = tuple(links_of_row(crossing, step.query, positions) for step in steps)
    written = str(loaded.tokenizer.decode(ids[0], skip_special_tokens=True))
    return EncoderDecoderLook(loaded.name, text, written, positions, names[:-1], steps, links, maps, lang)


def _target_ids(loaded: LoadedModel, inputs: Mapping[str, Tensor], asked: TargetRequest) -> Tensor:
    """The ids (1, T + 1) that the decoder reads, and after them the last one that it is to give."""
    if asked.target is None:
        return generated(loaded, inputs, max_new_tokens=asked.count)
    labels: Tensor = loaded.tokenizer(text_target=asked.target, return_tensors="pt").input_ids
    read_ids: Tensor = loaded.model.prepare_decoder_input_ids_from_labels(labels)
    return torch.cat([read_ids, labels[:, -1:]], dim=1)


def generated(loaded: LoadedModel, inputs: Mapping[str, Tensor], **options: Any) -> Tensor:
    """The ids (1, T + 1) of the likeliest token after token; a Refusal where the model cannot generate them."""
    try:
        ids: Tensor = loaded.model.generate(**inputs, do_sample=False, num_beams=1, **options)
    except Exception as error:
        count = options.get("max_new_tokens")
        tokens = Sentence("target.whole") if count is None else Sentence("target.tokens", count=count)
        raise refusal("refuse.generation_fails", model=loaded.name, tokens=tokens, reason=first_line(error)) from error
    return ids


def _outputs(loaded: LoadedModel, inputs: Mapping[str, Tensor]) -> list[Tensor]:
    """The logits, and every other tensor that the model gives."""
    try:
        out = loaded.model(**inputs, use_cache=False)
    except Exception as error:
        target, reason = inputs["decoder_input_ids"].shape[1], first_line(error)
        if "input_features" in inputs:
            raise refusal("refuse.speech_fails", model=loaded.name, target=target, reason=reason) from error
        source = inputs["input_ids"].shape[1]
        raise refusal("refuse.pair_fails", model=loaded.name, source=source, target=target, reason=reason) from error
    return [out.logits, *(leaf for leaf in pytree.tree_leaves(dict(out)) if isinstance(leaf, Tensor))]


def _sided(
    loaded: LoadedModel, inputs: Mapping[str, Tensor], seen: Seen
) -> tuple[tuple[str, AttentionMap, int, int], ...]:
    """The maps with the sides of their queries and keys, told by their sizes where the target has another length."""
    ids = inputs["decoder_input_ids"]
    # one token less, as one more may be more than the decoder takes
    other = ids[:, :-1] if ids.shape[1] > 1 else torch.cat([ids, ids], dim=1)
    with watch(loaded.model, keep=lambda m: tuple(m.shape)) as sizes:
        _outputs(loaded, {**inputs, "decoder_input_ids": other})
    # the calls of a module that runs several times come in the same order
    resized = {name: iter(sizes.calls(name)) for name in sizes}
    maps = []
    for name, layer_map in seen.in_order():
        size = next(resized[name])
        queries, keys = (TARGET if size[axis] != layer_map.shape[axis] else SOURCE for axis in (2, 3))
        maps.append((name, layer_map, queries, keys))
    if not maps:
        reason = "; ".join(f"{name}: {why}" for name, why in seen.unseen.items()) or "no attention was seen"
        raise refusal("refuse.no_attention", model=loaded.name, model_type=loaded.config.model_type, reason=reason)
    return tuple(maps)


def _names(loaded: LoadedModel, ids: Tensor) -> tuple[str, ...]:
    """What each id spells by itself."""
    names = [str(loaded.tokenizer.decode([number])) for number in ids.tolist()]
    return tuple(visible(name.strip() or name) or EMPTY for name in names)
