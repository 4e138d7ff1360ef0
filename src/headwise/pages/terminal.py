"""Terminal: a look as text, for a terminal, a text file and a notebook."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from headwise.pages.head_tables import comparison_parts
from headwise.pages.heat_map import Heat
from headwise.pages.links import COUNT, Link, WordLinks
from headwise.pages.shape_walk import folded
from headwise.wording import say

if TYPE_CHECKING:
    from headwise.pages.text_look import Look

__all__ = ["as_html", "as_text", "html_of", "show", "text_of"]

BAR, WIDTH = 24, 100


def show(look: Look, console: Console) -> None:
    """Print a look to the width and with the colours that the console has."""
    for part in _parts(look, console.width):
        console.print(part)


def as_text(look: Look) -> str:
    """A look as plain text."""
    return text_of(lambda console: show(look, console))


def text_of(shown: Callable[[Console], None]) -> str:
    """What is printed to a console, as plain text."""
    console = Console(file=io.StringIO(), width=WIDTH, color_system=None, force_terminal=False)
    with console.capture() as captured:
        shown(console)
    return "\n".join(line.rstrip() for line in captured.get().strip("\n").splitlines())


def as_html(look: Look) -> str:
    """A look as one block of HTML in which the text cannot act."""
    return html_of(lambda console: show(look, console))


def html_of(shown: Callable[[Console], None]) -> str:
    """What is printed to a console, as one block of HTML."""
    console = Console(file=io.StringIO(), width=WIDTH, record=True, color_system="truecolor", force_terminal=True)
    shown(console)
    block = '<pre style="line-height:1.2;font-family:monospace">{code}</pre>'
    return console.export_html(inline_styles=True, code_format=block)


def _parts(look: Look, width: int) -> Iterator[RenderableType]:
    # everything is a Text: a str would have its brackets read as markup
    yield Text(_title(look), style="bold")
    yield Text(_source(look))
    yield Text()
    yield Text(say("look.walk", lang=look.lang, layer=look.drawn[0][0]), style="bold")
    yield from _walk(look, width)
    yield Text()
    if look.is_query:
        for word_links in look.links:
            yield from _links_of_query(word_links, look.lang)
    else:
        yield Text(say("look.links", lang=look.lang), style="bold")
        yield _table(look)
        if not any(word_links.links for word_links in look.links):
            yield Text(say("page.links.near", lang=look.lang))
    yield Text(say("look.links.key", lang=look.lang), style="dim")
    if look.comparison is not None:
        yield Text()
        yield from comparison_parts(look.comparison, look.lang)
    for layer, head in look.drawn:
        yield Text()
        yield from _map(look, layer, head)
    for note in look.notes:
        yield Text()
        yield Text(note)


def _title(look: Look) -> str:
    heads = sorted({int(all_heads.shape[0]) for all_heads in look.weights.values()})
    return say(
        "look.model",
        lang=look.lang,
        model=look.model,
        layers=len(look.weights),
        heads="/".join(map(str, heads)),
        tokens=len(look.tokens),
    )


def _source(look: Look) -> str:
    return say("look.proof", lang=look.lang, difference=look.difference)


def _walk(look: Look, width: int) -> Iterator[RenderableType]:
    names = max(len(chain.name) for chain in look.walk)
    for chain in look.walk:
        lines = folded(chain, width - names - 4)
        yield Text("\n".join(f"  {name:{names}}  {line}" for name, line in zip(_once(chain.name), lines, strict=False)))
    form = "look.letters.full" if len(look.walk) > 1 else "look.letters.short"
    yield Text(say(form, lang=look.lang), style="dim")


def _once(name: str) -> Iterator[str]:
    yield name
    while True:
        yield ""


def _links_of_query(word_links: WordLinks, lang: str) -> Iterator[RenderableType]:
    yield Text(say("look.links.of", lang=lang, word=word_links.word.name), style="bold")
    if not word_links.links:
        yield Text(f"  {say('look.links.none', lang=lang)}")
    rows = Table.grid(padding=(0, 1))
    for link in word_links.links:
        bar = Text("█" * max(1, round(BAR * link.weight)), style="cyan")
        rows.add_row(Text(link.to), bar, f"{link.weight:.2f}", f"L{link.layer}H{link.head}")
    yield Padding(rows, (0, 0, 0, 2))
    if word_links.special:
        yield Text(f"  {say('look.apart', lang=lang, links=' · '.join(map(str, word_links.special)))}")


def _table(look: Look) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column(say("look.word", lang=look.lang), style="bold")
    for number in range(1, COUNT + 1):
        table.add_column(str(number))
    has_special = any(word_links.special for word_links in look.links)
    if has_special:
        table.add_column(say("look.special", lang=look.lang), style="dim")
    for word_links in look.links:
        cells = [_cell(link) for link in word_links.links] + [Text()] * (COUNT - len(word_links.links))
        special = [Text("\n".join(map(str, word_links.special[:2])))] if has_special else []
        table.add_row(Text(word_links.word.name), *cells, *special)
    return table


def _cell(link: Link) -> Text:
    return Text(f"{link.to}\n{link.weight:.2f} L{link.layer}H{link.head}")


def _map(look: Look, layer: int, head: int) -> Iterator[RenderableType]:
    weights = look.weights[layer][head].tolist()
    yield Text(say("look.map", lang=look.lang, layer=layer, head=head), style="bold")
    yield Heat(weights, [token.text for token in look.tokens], look.queried, look.lang)
