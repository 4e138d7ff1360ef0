"""headwise convert: one attention layer's weights from one library's names to another's, proved on the way."""

from __future__ import annotations

import json
from pathlib import Path

import click

from headwise.cli.localization import WordedArgument, WordedCommand, WordedOption, lang_option, language, missing
from headwise.cli.progress import progress_bar
from headwise.compat.conversion.arguments import check_convention, check_file, check_output, read_config
from headwise.wording import refusal, said_in, say
from headwise.wording.screen import visible

__all__ = ["convert"]

# the layer's own names
OURS = "headwise"


@click.command(
    cls=WordedCommand,
    about="convert.help",
    example="headwise convert bert.safetensors --layer 3 -o out.safetensors",
)
@click.argument(
    "weights", required=False, type=click.Path(path_type=Path), cls=WordedArgument, help="convert.help.weights"
)
@click.option("--from", "source", metavar="NAME", cls=WordedOption, help="convert.help.from")
@click.option("--to", "target", metavar="NAME", default=OURS, cls=WordedOption, help="convert.help.to")
@click.option("--layer", metavar="N", type=int, cls=WordedOption, help="convert.help.layer")
@click.option("--block", metavar="PREFIX", cls=WordedOption, help="convert.help.block")
@click.option("--heads", metavar="N", type=int, cls=WordedOption, help="convert.help.heads")
@click.option("--config", metavar="FILE", type=click.Path(path_type=Path), cls=WordedOption, help="convert.help.config")
@click.option("-o", "--out", metavar="FILE", type=click.Path(path_type=Path), cls=WordedOption, help="convert.help.out")
@click.option("--force", is_flag=True, cls=WordedOption, help="look.help.force")
@click.option("--json", "as_json", is_flag=True, cls=WordedOption, help="convert.help.json")
@click.option("--list", "listed", is_flag=True, cls=WordedOption, help="convert.help.list")
@lang_option
@click.pass_context
def convert(
    ctx: click.Context,
    *,
    weights: Path | None,
    source: str | None,
    target: str,
    layer: int | None,
    block: str | None,
    heads: int | None,
    config: Path | None,
    out: Path | None,
    force: bool,
    as_json: bool,
    listed: bool,
) -> None:
    """Convert one attention layer."""
    lang = language(ctx)
    if listed:
        _list(lang, as_json=as_json)
        return
    if weights is None:
        raise missing(ctx, "WEIGHTS")
    if source is not None:
        check_convention(source)
    if target != OURS:
        check_convention(target)
    check_file(weights)
    if out is not None:
        check_output(out, force=force)
    configuration = read_config(config, weights)
    with progress_bar(lang) as tell:
        from headwise.compat.conversion import convert as converted
        from headwise.compat.conversion.converter import written
        from headwise.compat.conversion.files import one_block, read_weights, write_weights
        from headwise.compat.conversion.source import UntoldError

        tell("step.reading", {"file": weights})
        chosen = one_block(read_weights(weights), source, layer, block)
        tell("step.proving", {})
        try:
            conversion = converted(chosen, convention=source, num_heads=heads, config=configuration)
        except UntoldError as error:
            values = {name: said_in(value, lang) for name, value in error.values.items()}
            raise refusal(error.key, **values) from error
        wanted, origins = (conversion.layer.state_dict(), ()) if target == OURS else written(conversion.layer, target)
        if out is not None:
            tell("step.writing", {"file": out})
            write_weights(wanted, out, force=force)
    if as_json:
        data = {"schema": 1, "file": None if out is None else str(out), "to": target, **conversion.report.to_dict()}
        click.echo(json.dumps(data, ensure_ascii=False, indent=1))
        return
    report = conversion.report.said(lang, written=origins, target=target)
    click.echo("\n".join(map(visible, report.split("\n"))))
    click.echo()
    if out is None:
        click.echo(say("convert.unwritten", lang=lang))
    else:
        click.echo(visible(say("look.wrote", lang=lang, file=out)))


def _list(lang: str, *, as_json: bool) -> None:
    from headwise.compat.conversion.registry import conventions

    if as_json:
        names = [{"name": c.name, "aliases": list(c.aliases), "about": c.about.said(lang)} for c in conventions()]
        click.echo(json.dumps({"schema": 1, "conventions": names}, ensure_ascii=False, indent=1))
        return
    click.echo(say("convert.list", lang=lang))
    width = max(len(convention.name) for convention in conventions())
    for convention in conventions():
        others = f" ({', '.join(convention.aliases)})" if convention.aliases else ""
        click.echo(f"  {convention.name:{width}}  {convention.about.said(lang)}{others}")
