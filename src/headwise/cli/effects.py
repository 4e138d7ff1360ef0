"""headwise effects: what a change of each head of a pretrained model does to its output on a text."""

from __future__ import annotations

import json
from pathlib import Path

import click

from headwise.cli.localization import WordedArgument, WordedCommand, WordedOption, lang_option, language
from headwise.cli.progress import progress_bar
from headwise.cli.trace import megabytes, positive
from headwise.pages.files import MAX_MB, check_output
from headwise.wording import refusal, say
from headwise.wording.screen import visible

__all__ = ["effects"]


@click.command(
    cls=WordedCommand, about="effects.help", example='headwise effects "The animal was tired." --similar "It slept."'
)
@click.argument("text", cls=WordedArgument, help="heads.help.text")
@click.option("--predict", metavar="WORD", cls=WordedOption, help="effects.help.predict")
@click.option("--similar", metavar="TEXT2", cls=WordedOption, help="effects.help.similar")
@click.option("--model", metavar="NAME_OR_FOLDER", cls=WordedOption, help="look.help.model")
@click.option("--cut", is_flag=True, cls=WordedOption, help="look.help.cut")
@click.option("--by", type=click.Choice(["zero", "mean"]), default="zero", cls=WordedOption, help="effects.help.by")
@click.option("--estimate", is_flag=True, cls=WordedOption, help="effects.help.estimate")
@click.option("--top", metavar="N", type=int, default=10, callback=positive, cls=WordedOption, help="effects.help.top")
@click.option(
    "-o", "--output", metavar="FILE", type=click.Path(path_type=Path), cls=WordedOption, help="effects.help.output"
)
@click.option(
    "--max-mb", metavar="N", type=float, default=MAX_MB, callback=megabytes, cls=WordedOption, help="look.help.max_mb"
)
@click.option("--json", "as_json", is_flag=True, cls=WordedOption, help="heads.help.json")
@click.option("--force", is_flag=True, cls=WordedOption, help="look.help.force")
@lang_option
@click.pass_context
def effects(
    ctx: click.Context,
    *,
    text: str,
    predict: str | None,
    similar: str | None,
    model: str | None,
    cut: bool,
    by: str,
    estimate: bool,
    top: int,
    output: Path | None,
    max_mb: float,
    as_json: bool,
    force: bool,
) -> None:
    """Measure the effect of each head."""
    lang = language(ctx)
    metrics = [name for name, value in (("--predict", predict), ("--similar", similar)) if value is not None]
    if len(metrics) != 1:
        raise refusal("refuse.one_metric", given=", ".join(metrics)) if metrics else refusal("refuse.no_metric")
    if output is not None:
        check_output(output, force=force, of_maps=True)
    with progress_bar(lang) as tell:
        from headwise.pages.text_heads import EffectRequest, effects_of_text

        asked = EffectRequest(text, model, predict, similar, by=by, is_measured=not estimate, cut=cut)
        result = effects_of_text(asked, tell)
        if output is not None:
            from headwise.pages.files import write_effects
            from headwise.pages.text_look import TextRequest, looked

            page = looked(TextRequest(text, model=model, cut=cut, lang=lang), tell).page()
            page = page.with_table(result.effects, metric=result.metric)
            tell("step.writing", {"file": output})
            write_effects(page, output, force=force, max_mb=max_mb, tell=tell)
    if as_json:
        click.echo(json.dumps(result.to_dict(), ensure_ascii=False, indent=1))
    else:
        from rich.console import Console

        from headwise.pages.head_tables import show_effects

        show_effects(result, Console(), lang, top=top)
    if output is not None:
        click.echo(visible(say("look.wrote", lang=lang, file=output)), err=as_json)
