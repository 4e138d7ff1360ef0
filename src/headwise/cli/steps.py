"""headwise steps: the operations of anyone's attention code one by one, on its own lines, with numbers, as a page."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from headwise.atomic_write import check_place
from headwise.cli.definitions import list_attention
from headwise.cli.localization import WordedArgument, WordedCommand, WordedOption, lang_option, language, missing
from headwise.cli.progress import progress_bar
from headwise.cli.trace import SECONDS, as_object, positive
from headwise.wording import ChildRefusal, refusal, say
from headwise.wording.screen import visible

__all__ = ["steps"]

ENTRY = "headwise.tracing.worked_example_child:answer"
# where the page goes when nobody says
NAME = "steps"


@click.command(cls=WordedCommand, about="steps.help", example="headwise steps attention.py:MyAttention")
@click.argument("target", required=False, cls=WordedArgument, help="steps.help.target")
@click.option("--example", "of_example", is_flag=True, cls=WordedOption, help="steps.help.example")
@click.option("--init", metavar="JSON", cls=WordedOption, help="trace.help.init")
@click.option("--call", metavar="JSON", cls=WordedOption, help="trace.help.call")
@click.option(
    "-o", "--output", metavar="FILE", type=click.Path(path_type=Path), cls=WordedOption, help="steps.help.output"
)
@click.option(
    "--seconds", metavar="N", type=int, default=SECONDS, callback=positive, cls=WordedOption,
    help="trace.help.seconds", fills={"seconds": str(SECONDS)},
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, cls=WordedOption, help="steps.help.json")
@click.option("--open", "opened", is_flag=True, cls=WordedOption, help="look.help.open")
@click.option("--force", is_flag=True, cls=WordedOption, help="look.help.force")
@lang_option
@click.pass_context
def steps(
    ctx: click.Context,
    *,
    target: str | None,
    of_example: bool,
    init: str | None,
    call: str | None,
    output: Path | None,
    seconds: int,
    as_json: bool,
    opened: bool,
    force: bool,
) -> None:
    """Show the steps of user code."""
    lang = language(ctx)
    request = {"target": target, "init": as_object("--init", init), "call": as_object("--call", call), "lang": lang}
    for option, value in (("--init", init), ("--call", call)):
        if target is None and value is not None:
            raise refusal("refuse.steps_target", option=option)
    if target is not None and of_example:
        raise refusal("refuse.steps_both", target=target)
    if target is not None:
        list_attention("steps", target, lang, as_json=as_json)
    elif not of_example:
        raise missing(ctx, "TARGET")
    file = output if output is not None else _free_name()
    if file.suffix.lower() != ".html":
        raise refusal("refuse.page_suffix", file=file)
    is_written = output is not None or opened or not as_json
    if is_written:
        check_place(file, force=force)
    if target is not None:
        from headwise.targets import check_name, parse, read

        named = parse(target)
        check_name(named, read(named))
    with progress_bar(lang) as tell:
        if target is None:
            from headwise.pages.steps import worked_example

            title, shown = say("steps.of_example", lang=lang), worked_example()
        else:
            tell("step.tracing", {"target": target})
            title, shown = target, _steps_of(target, request, seconds)
        if is_written:
            tell("step.writing", {"file": file})
            from headwise.pages.page import Page

            Page(title=title, layers=(), sides=(), steps=shown, lang=lang).save(file, force=force, progress=tell)
    if as_json:
        click.echo(json.dumps(shown, ensure_ascii=False, indent=1))
    if is_written:
        click.echo(visible(say("look.wrote", lang=lang, file=file)), err=as_json)
    if opened:
        click.launch(file.resolve().as_uri())


def _steps_of(target: str, request: Mapping[str, Any], seconds: int) -> dict[str, Any]:
    """What the child process answers, as the page draws it."""
    from headwise.pages.traced_steps import traced_steps
    from headwise.targets import in_child
    from headwise.tracing import Trace

    answer = in_child(ENTRY, dict(request), seconds=seconds)
    if "refused" in answer:
        raise ChildRefusal(str(answer["refused"]))
    if not answer["worked"]["steps"] and answer["worked"]["error"] is not None:
        raise refusal("refuse.steps_failed", target=target, error=answer["worked"]["error"])
    if not answer["worked"]["steps"]:
        raise refusal("refuse.steps_none", target=target)
    return traced_steps(Trace.from_dict(answer["trace"]), answer["worked"])


def _free_name() -> Path:
    """steps.html here, or the first of steps-2.html, steps-3.html ... that is not there yet."""
    names = itertools.chain([NAME], (f"{NAME}-{n}" for n in itertools.count(2)))
    return next(file for name in names if not (file := Path(f"{name}.html")).exists())
