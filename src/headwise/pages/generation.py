"""Generation: a causal model followed token by token, with the weights and the probability of every step."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console
from rich.text import Text
from torch import Tensor

from headwise.maps import AttentionMap
from headwise.maps.files import LoadedMaps
from headwise.pages.axis_tokens import EMPTY
from headwise.pages.head_tables import table_of
from headwise.pages.language_models import load_predicting
from headwise.pages.links import Link
from headwise.pages.models import LoadedModel, Progress, first_line, quiet
from headwise.pages.number_tables import GeneratedToken
from headwise.pages.page_sources import page_of_maps
from headwise.pages.terminal import text_of
from headwise.pages.text_tokens import check_text, read
from headwise.pages.user_model import in_evaluation
from headwise.watching import watch
from headwise.watching.sequences import layers_of
from headwise.wording import refusal, say
from headwise.wording.screen import visible

if TYPE_CHECKING:
    from headwise.pages.page import Page

__all__ = ["Generation", "GenerationRequest", "generated", "links_of_row", "show_generation"]

# keys of each step that are named
MOST_LINKS = 3
COLUMNS = ("generate.column.token", "generate.column.probability", "generate.column.links")


@dataclass(frozen=True)
class GenerationRequest:
    """A text, and how many tokens a causal model is to go on for, each the most probable one."""

    text: str
    count: int
    model: str | os.PathLike[str] | None = None
    cut: bool = False
    lang: str = "en"


@dataclass(frozen=True, eq=False)
class Generation:
    """What a model generated from a text, and every weight that it did so by; `str` shows it.

    tokens: names of all tokens that were read, the prompt's and all generated but the last. steps: each generated
    token. links: of each step, the keys that the query which chose it attends to most, over all layers and heads. maps:
    name and map of every layer, the steps joined as of the whole sequence at once.
    """

    model: str
    text: str
    tokens: tuple[str, ...]
    steps: tuple[GeneratedToken, ...]
    links: tuple[tuple[Link, ...], ...]
    maps: tuple[tuple[str, AttentionMap], ...]
    lang: str = "en"

    def page(self) -> Page:
        """Every head of every layer, which opens at the step that chose the first token."""
        page = page_of_maps(
            LoadedMaps(dict(self.maps), None), tokens=list(self.tokens), query=None, layer=(), head=(), lang=self.lang
        )
        first, link = self.steps[0], self.links[0][0]
        opening: dict[str, int | str] = {"view": "row", "layer": link.layer, "head": link.head, "token": first.query}
        return dataclasses.replace(
            page, title=self.model, text=self.text, opening=opening, generated=self.steps,
            chosen=tuple(step.query for step in self.steps),
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Plain values: {"schema": 1, ...}."""
        steps = [
            {**step.to_dict(), "links": [dataclasses.asdict(link) for link in links]}
            for step, links in zip(self.steps, self.links, strict=True)
        ]
        return {"schema": 1, "model": self.model, "text": self.text, "tokens": list(self.tokens), "generated": steps}

    def __str__(self) -> str:
        return text_of(lambda console: show_generation(self, console))


def show_generation(result: Generation, console: Console) -> None:
    """Print what was generated, step by step."""
    console.print(Text(say("generate.title", lang=result.lang, model=result.model, text=result.text), style="bold"))
    table = table_of(COLUMNS, result.lang, names=(COLUMNS[0], COLUMNS[2]))
    for step, links in zip(result.steps, result.links, strict=True):
        table.add_row(Text(step.text), Text(f"{step.probability:.3f}"), Text(" · ".join(map(str, links))))
    console.print(table)
    console.print(Text(say("generate.key", lang=result.lang), style="dim"))


def generated(asked: GenerationRequest, tell: Progress) -> Generation:
    """Let a model go on with a text, alone and then watched; a Refusal where both do not give the same numbers."""
    check_text(asked.text)
    loaded = load_predicting(asked.model, tell)
    if not loaded.model.can_generate():
        raise refusal("refuse.no_generation", model=loaded.name)
    reading = read(loaded, asked.text, cut=asked.cut)
    with quiet(), torch.no_grad(), in_evaluation(loaded.model):
        tell("step.untouched", {})
        alone = _run(loaded, reading.inputs, asked.count)
        tell("step.watched", {})
        with watch(loaded.model) as seen:
            ids, scores = _run(loaded, reading.inputs, asked.count)
        if not (torch.equal(alone[0], ids) and torch.equal(alone[1], scores)):
            raise refusal("refuse.unequal", difference=float((alone[1] - scores).abs().max()), model=loaded.name)
        count = ids.shape[1] - 1
        maps = tuple((name, m) for name, m in layers_of(seen) if tuple(m.shape[2:]) == (count, count))
    if not maps:
        reason = "; ".join(f"{name}: {why}" for name, why in seen.unseen.items()) or f"no map is {count} x {count}"
        raise refusal("refuse.no_attention", model=loaded.name, model_type=loaded.config.model_type, reason=reason)
    names = [str(loaded.tokenizer.decode([number])) for number in ids[0].tolist()]
    # alone, a token needs no space before it
    shown = [visible(name.strip() or name) or EMPTY for name in names]
    prompt = ids.shape[1] - scores.shape[0]
    steps = tuple(
        GeneratedToken(prompt - 1 + n, shown[prompt + n], float(row.softmax(-1)[ids[0, prompt + n]]))
        for n, row in enumerate(scores)
    )
    numbered = [(n, m) for n, (_, m) in enumerate(maps)]
    links = tuple(links_of_row(numbered, step.query, shown) for step in steps)
    text = str(loaded.tokenizer.decode(ids[0], skip_special_tokens=True))
    return Generation(loaded.name, text, tuple(names[:-1]), steps, links, maps, asked.lang)


def _run(loaded: LoadedModel, inputs: Mapping[str, Tensor], count: int) -> tuple[Tensor, Tensor]:
    """The ids (1, L) of the prompt and what follows it, and the logits (steps, V) that each was chosen by."""
    try:
        out = loaded.model.generate(
            **inputs, max_new_tokens=count, do_sample=False, num_beams=1, output_logits=True,
            return_dict_in_generate=True, pad_token_id=loaded.tokenizer.pad_token_id or 0,
        )  # fmt: skip
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        got = inputs["input_ids"].shape[1]
        raise refusal("refuse.model_fails", model=loaded.name, got=got, reason=first_line(error)) from error
    return out.sequences, torch.cat(list(out.logits)).float()


def links_of_row(maps: Sequence[tuple[int, AttentionMap]], query: int, names: Sequence[str]) -> tuple[Link, ...]:
    """The keys that a query attends to most, each by its largest weight over all heads of some layers.

    maps: the number of a layer, and its map. names: of the keys.
    """
    if not maps:
        return ()
    rows = [m[0, :, query].nan_to_num(nan=0.0) for _, m in maps]
    weight, layer = torch.stack([row.amax(0) for row in rows]).max(0)
    open_keys = int((weight > 0).sum())
    keys = weight.topk(min(MOST_LINKS, open_keys)).indices.tolist()
    return tuple(
        Link(names[key], float(weight[key]), maps[at][0], int(rows[at][:, key].argmax()))
        for key in keys
        for at in (int(layer[key]),)
    )
