"""headwise plot: maps from a file as a figure, for a paper."""

from __future__ import annotations

import json
from pathlib import Path

import click

from headwise.cli.localization import WordedArgument, WordedCommand, WordedOption, lang_option, language
from headwise.cli.progress import progress_bar
from headwise.pages.files import check_output
from headwise.pages.requests import check_maps
from headwise.wording import refusal, say
from headwise.wording.screen import visible

__all__ = ["plot"]

# the forms that a figure can have
SUFFIXES = (".svg", ".pdf", ".png")
VIEWS = ("overview", "map", "heads", "row", "entropy", "received", "statistics")


@click.command(cls=WordedCommand, about="plot.help", example="headwise plot maps.safetensors -o figure.svg")
@click.argument("maps", type=click.Path(path_type=Path), cls=WordedArgument, help="plot.help.maps")
@click.option(
    "-o", "--output", metavar="FIGURE", required=True, type=click.Path(path_type=Path), cls=WordedOption,
    help="plot.help.output", fills={"suffixes": ", ".join(SUFFIXES)},
)  # fmt: skip
@click.option(
    "--view", metavar="VIEW", default=None, cls=WordedOption, help="plot.help.view", fills={"views": ", ".join(VIEWS)}
)
@click.option("--layer", metavar="N", type=int, cls=WordedOption, help="plot.help.layer")
@click.option("--head", metavar="N", type=int, cls=WordedOption, help="plot.help.head")
@click.option("--token", metavar="N", type=int, cls=WordedOption, help="plot.help.token")
@click.option("--sample", metavar="N", type=int, default=0, cls=WordedOption, help="plot.help.sample")
@click.option("--scale", type=click.Choice(["linear", "log"]), default=None, cls=WordedOption, help="plot.help.scale")
@click.option("--json", "as_json", is_flag=True, cls=WordedOption, help="plot.help.json")
@click.option("--force", is_flag=True, cls=WordedOption, help="look.help.force")
@lang_option
@click.pass_context
def plot(
    ctx: click.Context,
    *,
    maps: Path,
    output: Path,
    view: str | None,
    layer: int | None,
    head: int | None,
    token: int | None,
    sample: int,
    scale: str | None,
    as_json: bool,
    force: bool,
) -> None:
    """Draw maps."""
    lang = language(ctx)
    if output.suffix.lower() not in SUFFIXES:
        raise refusal("refuse.suffix", suffixes=", ".join(SUFFIXES), file=output)
    if view is not None and view not in VIEWS:
        raise refusal("refuse.view", views=", ".join(VIEWS), got=view)
    check_output(output, force=force, of_maps=True)
    check_maps(maps, [] if layer is None else [layer], lang)
    with progress_bar(lang) as tell:
        from headwise.maps import load_maps
        from headwise.pages.files import save_figure
        from headwise.pages.page_sources import page_of_maps

        tell("step.reading", {"file": maps})
        where = ([] if each is None else [each] for each in (layer, head))
        page = page_of_maps(load_maps(maps), tokens=None, query=None, layer=next(where), head=next(where), lang=lang)
        page = page.of_sample(sample)
        if view is None:
            view = "overview" if (layer, head, token) == (None, None, None) else "map" if token is None else "row"
        if view in ("overview", "statistics"):
            unread = [("--layer", layer), ("--head", head), ("--token", token)]
            if options := [name for name, value in unread if value is not None]:
                raise refusal("refuse.view_of_all", view=view, given=", ".join(options))
            figure = page.plot_all(view=view, scale=scale if scale is not None else "log", progress=tell)
        else:
            chosen = scale if scale is not None else "linear"
            figure = page.plot(view=view, layer=layer or 0, head=head, token=token, scale=chosen).figure
        tell("step.writing", {"file": output})
        save_figure(figure, output, force=force)
    if as_json:
        click.echo(json.dumps({"schema": 1, "file": str(output), "view": view}, ensure_ascii=False, indent=1))
    else:
        click.echo(visible(say("look.wrote", lang=lang, file=output)))
