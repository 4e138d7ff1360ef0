"""headwise heads: what each head of a pretrained model does in a text, by published measures."""

from __future__ import annotations

import json

import click

from headwise.cli.localization import WordedArgument, WordedCommand, WordedOption, lang_option, language
from headwise.cli.progress import progress_bar

__all__ = ["heads"]


@click.command(cls=WordedCommand, about="heads.help", example='headwise heads "The animal was tired."')
@click.argument("text", cls=WordedArgument, help="heads.help.text")
@click.option("--pair", metavar="TEXT2", cls=WordedOption, help="look.help.pair")
@click.option("--model", metavar="NAME_OR_FOLDER", cls=WordedOption, help="look.help.model")
@click.option("--cut", is_flag=True, cls=WordedOption, help="look.help.cut")
@click.option("--least", metavar="X", type=float, default=0.5, cls=WordedOption, help="heads.help.least")
@click.option("--json", "as_json", is_flag=True, cls=WordedOption, help="heads.help.json")
@lang_option
@click.pass_context
def heads(
    ctx: click.Context, *, text: str, pair: str | None, model: str | None, cut: bool, least: float, as_json: bool
) -> None:
    """Name the heads of a model."""
    lang = language(ctx)
    with progress_bar(lang) as tell:
        from headwise.pages.text_heads import heads_of_text

        result = heads_of_text(text, model=model, pair=pair, cut=cut, least=least, tell=tell)
    if as_json:
        click.echo(json.dumps(result.to_dict(), ensure_ascii=False, indent=1))
        return
    from rich.console import Console

    from headwise.pages.head_tables import show_heads

    show_heads(result, Console(), lang)
