"""headwise look: which words every head of a pretrained model links in a text."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from headwise.cli.progress import told
from headwise.cli.worded import WordedCommand, WordedOption, lang_option, language
from headwise.pages.files import SUFFIXES

__all__ = ["look"]


@click.command(cls=WordedCommand, about="look.help")
@click.argument("text")
@click.option("--query", metavar="WORD", cls=WordedOption, help="look.help.query")
@click.option("--layer", metavar="N", type=int, multiple=True, cls=WordedOption, help="look.help.layer")
@click.option("--head", metavar="N", type=int, multiple=True, cls=WordedOption, help="look.help.head")
@click.option("--model", metavar="NAME_OR_FOLDER", cls=WordedOption, help="look.help.model")
@click.option(
    "-o", "--output", metavar="FILE", type=click.Path(path_type=Path), cls=WordedOption,
    help="look.help.output", fills={"suffixes": ", ".join(SUFFIXES)},
)  # fmt: skip
@click.option("--force", is_flag=True, cls=WordedOption, help="look.help.force")
@lang_option
@click.pass_context
def look(
    ctx: click.Context,
    *,
    text: str,
    query: str | None,
    layer: tuple[int, ...],
    head: tuple[int, ...],
    model: str | None,
    output: Path | None,
    force: bool,
) -> None:
    """Look at one text."""
    lang = language(ctx)
    with told(lang) as tell:
        from headwise.pages.looking import look as look_at

        seen = look_at(
            text,
            model=model,
            query=query,
            layer=layer,
            head=head,
            output=output,
            force=force,
            lang=lang,
            progress=tell,
        )
    from rich.console import Console

    from headwise.pages.terminal import show

    if not (sys.stdout.encoding or "").lower().startswith("utf"):
        # a terminal that cannot write a sign shows ? in its place
        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    show(seen, Console())
