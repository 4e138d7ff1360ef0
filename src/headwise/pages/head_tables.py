"""Head tables: what heads do, what their change does, and how they differ, as tables of the terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from headwise.wording import say

if TYPE_CHECKING:
    from headwise.pages.text_comparison import TextComparison
    from headwise.pages.text_heads import TextEffects, TextHeads

__all__ = ["comparison_parts", "show_effects", "show_heads", "table_of"]

# heads of a comparison that are printed
MOST_HEADS = 10
# the headings of each table; names stand left, numbers right
NAMES = ("heads.column.head", "heads.column.does")
HEAD_COLUMNS = (
    *NAMES, "heads.column.score", "heads.column.chance", "heads.column.entropy", "heads.column.distance",
)  # fmt: skip
EFFECT_COLUMNS = {"measured": "effects.column.measured", "estimated": "effects.column.estimated"}
COMPARE_COLUMNS = (
    "heads.column.head", "compare.column.divergence", "compare.column.entropy", "compare.column.received",
)  # fmt: skip


def show_heads(result: TextHeads, console: Console, lang: str) -> None:
    """Print what each head does."""
    heads = result.heads
    title = say(
        "heads.title", lang=lang, model=result.model, layers=len(heads.names), heads=sum(heads.heads),
        tokens=result.tokens, least=f"{heads.least:g}",
    )  # fmt: skip
    console.print(Text(title, style="bold"))
    table = table_of(HEAD_COLUMNS, lang)
    for module, head in heads.places():
        at = (heads.names.index(module), head)
        does, best = heads.name(module, head), heads.best(module, head)
        pattern = _pattern(does.pattern or best.pattern, lang)
        measure = "largest" if does.pattern == "broad" else best.pattern
        numbers = (does.score, heads.chance[measure][at], heads.scores["entropy"][at], heads.scores["distance"][at])
        style = "" if does.pattern else "dim"
        name = Text(pattern if does.pattern else f"({pattern})", style=style)
        table.add_row(Text(f"L{at[0]}H{head}"), name, *(_number(float(n), 2) for n in numbers), style=style)
    console.print(table)
    console.print(Text(say("heads.key", lang=lang), style="dim"))
    for module, reason in heads.left_out.items():
        console.print(Text(say("heads.left_out", lang=lang, name=module, reason=reason)))


def show_effects(result: TextEffects, console: Console, lang: str, *, top: int) -> None:
    """Print the heads of the largest effect."""
    effects, request = result.effects, result.request
    key = "effects.title.predict" if request.predict is not None else "effects.title.similar"
    values = {} if request.predict is None else {"word": request.predict}
    title = say(
        key,
        lang=lang,
        model=result.model,
        base=f"{effects.base:.4f}",
        heads=sum(effects.heads),
        by=effects.by,
        **values,
    )
    console.print(Text(title, style="bold"))
    known = {name: key for name, key in EFFECT_COLUMNS.items() if getattr(effects, name) is not None}
    table = table_of(("heads.column.head", *known.values()), lang)
    for row in effects.top(top):
        table.add_row(Text(result.place(row.name, row.head)), *(_number(getattr(row, name), 4) for name in known))
    console.print(table)
    console.print(Text(say("effects.key", lang=lang), style="dim"))


def comparison_parts(comparison: TextComparison, lang: str) -> Iterator[RenderableType]:
    """The heads that differ most between two runs."""
    title = say("compare.title", lang=lang, count=comparison.count, first=comparison.first, second=comparison.second)
    yield Text(title, style="bold")
    table = table_of(COMPARE_COLUMNS, lang)
    heads = comparison.heads
    for row in heads.top(MOST_HEADS):
        place = Text(f"L{heads.names.index(row.name)}H{row.head}")
        table.add_row(place, _number(row.divergence, 4), _number(row.entropy, 3), _number(row.received, 4))
    yield table
    yield Text(say("compare.key", lang=lang), style="dim")


def table_of(columns: Sequence[str], lang: str, names: Sequence[str] = NAMES) -> Table:
    """A table with these keys as headings. names: those whose entries stand left."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for key in columns:
        table.add_column(say(key, lang=lang), justify="left" if key in names else "right")
    return table


def _pattern(name: str, lang: str) -> str:
    return say(f"heads.pattern.{name}", lang=lang)


def _number(value: float, places: int) -> Text:
    return Text("–" if math.isnan(value) else f"{value:.{places}f}")
