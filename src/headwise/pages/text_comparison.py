"""Text comparison: the heads of a model on a text beside those of another text, of another model, or without a head."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwise.analysis import RunComparison, compare
from headwise.analysis.token_alignment import aligned
from headwise.intervening import intervene
from headwise.maps.files import LoadedMaps
from headwise.pages.links import Place
from headwise.pages.model_run import ModelRun, run
from headwise.pages.models import LoadedModel, Progress, load
from headwise.pages.requests import check_places
from headwise.pages.text_tokens import TextTokens, read
from headwise.wording import refusal

if TYPE_CHECKING:
    from torch import nn

    from headwise.pages.text_look import TextRequest

__all__ = ["TextComparison", "compared", "maps_of"]


@dataclass(frozen=True, eq=False)
class TextComparison:
    """How the heads differ from those of a second run, and how many of the first and second tokens were compared."""

    heads: RunComparison
    count: int
    first: int
    second: int


def compared(
    asked: TextRequest, loaded: LoadedModel, reading: TextTokens, first: ModelRun, tell: Progress
) -> TextComparison | None:
    """The comparison that a look asks for, with a second run; None: it asks for none."""
    if asked.against is None and asked.against_model is None and not asked.ablate:
        return None
    other = loaded if asked.against_model is None else load(asked.against_model, tell)
    text, pair = (asked.text, asked.pair) if asked.against is None else (asked.against, None)
    second_reading = read(other, text, pair=pair, cut=asked.cut)
    names = [name for name, _ in first.maps]
    for layer, head in asked.ablate:
        check_places(loaded.name, [layer_map.shape[1] for _, layer_map in first.maps], [layer], [head])
    with _without(other.model, names, asked.ablate):
        second = run(other, second_reading, tell)
    counts = [[layer_map.shape[1] for _, layer_map in each.maps] for each in (first, second)]
    if counts[0] != counts[1]:
        raise refusal(
            "refuse.other_layers", first=loaded.name, heads=str(counts[0]), second=other.name, others=str(counts[1])
        )
    tokens = [[token.text for token in each.tokens] for each in (reading, second_reading)]
    heads = compare(maps_of(first), maps_of(second), tokens=(tokens[0], tokens[1]))
    return TextComparison(heads, aligned(*tokens).first.numel(), *map(len, tokens))


def maps_of(model_run: ModelRun) -> LoadedMaps:
    """The maps of a run by name, those of a module that ran several times with a number each."""
    names = [name for name, _ in model_run.maps]
    numbered = [f"{name}[{names[:n].count(name)}]" if names.count(name) > 1 else name for n, name in enumerate(names)]
    return LoadedMaps(dict(zip(numbered, (layer_map for _, layer_map in model_run.maps), strict=True)), None)


@contextmanager
def _without(model: nn.Module, names: Sequence[str], places: Sequence[Place]) -> Iterator[None]:
    """A block in which some heads of a model give zeros."""
    if not places:
        yield
        return
    with intervene(model) as edits:
        for layer, head in places:
            edits[names[layer]].zero(heads=[head])
        yield
