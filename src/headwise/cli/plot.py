"""headwise plot: maps from a file as a figure, for a paper."""

from __future__ import annotations

from pathlib import Path

import click

from headwise.cli.progress import told
from headwise.cli.worded import WordedArgument, WordedCommand, WordedOption, lang_option, language
from headwise.wording import refusal, say
from headwise.wording.screen import visible

__all__ = ["plot"]

# the forms that a figure can have
SUFFIXES = (".svg", ".pdf", ".png")


@click.command(cls=WordedCommand, about="plot.help")
@click.argument("maps", type=click.Path(path_type=Path), cls=WordedArgument, help="plot.help.maps")
@click.option(
    "-o", "--output", metavar="FIGURE", required=True, type=click.Path(path_type=Path), cls=WordedOption,
    help="plot.help.output", fills={"suffixes": ", ".join(SUFFIXES)},
)  # fmt: skip
@click.option("--layer", metavar="N", type=int, cls=WordedOption, help="plot.help.layer")
@click.option("--head", metavar="N", type=int, cls=WordedOption, help="plot.help.head")
@click.option("--scale", type=click.Choice(["linear", "log"]), default=None, cls=WordedOption, help="plot.help.scale")
@click.option("--force", is_flag=True, cls=WordedOption, help="look.help.force")
@lang_option
@click.pass_context
def plot(
    ctx: click.Context,
    *,
    maps: Path,
    output: Path,
    layer: int | None,
    head: int | None,
    scale: str | None,
    force: bool,
) -> None:
    """Draw maps."""
    lang = language(ctx)
    if output.suffix.lower() not in SUFFIXES:
        raise refusal("refuse.suffix", suffixes=", ".join(SUFFIXES), file=output)
    with told(lang) as tell:
        from headwise.maps import load_maps
        from headwise.pages.files import check_output, save_figure
        from headwise.pages.subjects import page_of_maps

        check_output(output, force=force, of_maps=True)
        tell("step.reading", {"file": maps})
        where = ([] if each is None else [each] for each in (layer, head))
        page = page_of_maps(load_maps(maps), tokens=None, query=None, layer=next(where), head=next(where), lang=lang)
        if layer is None and head is None:
            figure = page.plot_all(scale=scale if scale is not None else "log")
        else:
            chosen = scale if scale is not None else "linear"
            figure = page.plot(layer=layer if layer is not None else 0, head=head, scale=chosen).figure
        tell("step.writing", {"file": output})
        save_figure(figure, output, force=force)
    click.echo(visible(say("look.wrote", lang=lang, file=output)))
