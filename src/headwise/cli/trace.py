"""headwise trace: what anyone's attention code does on every line, with each axis by its name."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from headwise.atomic_write import check_place, write_whole
from headwise.cli.definitions import list_attention
from headwise.cli.localization import WordedArgument, WordedCommand, WordedOption, lang_option, language
from headwise.cli.progress import progress_bar
from headwise.targets import check_name, parse, read
from headwise.tracing import SCHEMA, Trace, asked
from headwise.wording import ChildRefusal, refusal, say
from headwise.wording.screen import visible

__all__ = ["as_object", "megabytes", "positive", "trace"]

ENTRY = "headwise.tracing.child:answer"
SECONDS = 60


def positive(_: click.Context, __: click.Parameter, value: int | None) -> int | None:
    if value is not None and value < 1:
        raise click.BadParameter(f"{value} < 1")
    return value


def megabytes(_: click.Context, __: click.Parameter, value: float) -> float:
    """The most million bytes of a page, of an option; a Refusal where it leaves none."""
    if not 0 < value < float("inf"):
        raise refusal("refuse.max_mb", got=f"{value:g}")
    return value


@click.command(cls=WordedCommand, about="trace.help", example="headwise trace attention.py:MyAttention")
@click.argument("target", cls=WordedArgument, help="trace.help.target")
@click.option("--init", metavar="JSON", cls=WordedOption, help="trace.help.init")
@click.option("--call", metavar="JSON", cls=WordedOption, help="trace.help.call")
@click.option("--cross", is_flag=True, cls=WordedOption, help="trace.help.cross")
@click.option("--aten", is_flag=True, cls=WordedOption, help="trace.help.aten")
@click.option("--real", is_flag=True, cls=WordedOption, help="trace.help.real")
@click.option("--names", metavar="NAMES", cls=WordedOption, help="trace.help.names")
@click.option("--all", "every", is_flag=True, cls=WordedOption, help="trace.help.all")
@click.option("--write", is_flag=True, cls=WordedOption, help="trace.help.write")
@click.option("--html", metavar="FILE", type=click.Path(path_type=Path), cls=WordedOption, help="trace.help.html")
@click.option("--json", "as_json", is_flag=True, cls=WordedOption, help="trace.help.json")
@click.option(
    "--seconds", metavar="N", type=int, default=SECONDS, callback=positive, cls=WordedOption,
    help="trace.help.seconds", fills={"seconds": str(SECONDS)},
)  # fmt: skip
@click.option("--force", is_flag=True, cls=WordedOption, help="look.help.force")
@lang_option
@click.pass_context
def trace(
    ctx: click.Context,
    *,
    target: str,
    init: str | None,
    call: str | None,
    cross: bool,
    aten: bool,
    real: bool,
    names: str | None,
    every: bool,
    write: bool,
    html: Path | None,
    as_json: bool,
    seconds: int,
    force: bool,
) -> None:
    """Trace user code."""
    lang = language(ctx)
    request = {
        "target": target, "init": as_object("--init", init), "call": as_object("--call", call),
        "cross": cross or None, "aten": aten, "all": every, "lang": lang,
    }  # fmt: skip
    if not every or Path(target).is_dir():
        list_attention("trace", target, lang, as_json=as_json)
    copy = _copy_of(target) if write else None
    for file in (copy, html):
        if file is not None:
            check_place(file, force=force)
    if not every:
        named = parse(target)
        check_name(named, read(named))
    traces, refused = _traces(request, seconds, lang)
    if names is not None:
        traces = [each.renamed(asked(each, names)) for each in traces]
    files = _files(traces, copy, html)
    for file, text in files:
        write_whole(file, lambda unfinished, text=text: _fill(unfinished, text), force=force)  # type: ignore[misc]
    if as_json:
        click.echo(json.dumps(_plain(target, traces, refused) if every else traces[0].to_dict(), indent=1))
    else:
        _show(traces, refused, real=real)
    for file, _ in files:
        click.echo(visible(say("look.wrote", lang=lang, file=file)), err=as_json)
    if any(problem.setting != "cross" or cross for each in traces for problem in each.problems):
        ctx.exit(1)


def as_object(option: str, text: str | None) -> dict[str, Any] | None:
    """The JSON object of an option; None: the option is absent."""
    if text is None:
        return None
    try:
        value = json.loads(text)
    except ValueError as error:
        raise refusal("refuse.option_json", option=option, reason=error) from error
    if not isinstance(value, dict):
        raise refusal("refuse.option_json", option=option, reason=type(value).__name__)
    return value


def _copy_of(target: str) -> Path:
    """Where the annotated copy of a target goes: beside it, or here where the target is an installed module."""
    parsed = parse(target)
    if parsed.kind == "module":
        return Path(f"{parsed.path.rpartition('.')[2]}.traced.py")
    return Path(parsed.path).with_suffix(".traced.py")


def _traces(request: Mapping[str, Any], seconds: int, lang: str) -> tuple[list[Trace], dict[str, str]]:
    """What the child process answers: traces, and why others could not be made."""
    from headwise.targets import in_child

    with progress_bar(lang) as tell:
        tell("step.tracing", {"target": request["target"]})
        answer = in_child(ENTRY, dict(request), seconds=seconds)
    if "refused" in answer:
        raise ChildRefusal(str(answer["refused"]))
    traces = [Trace.from_dict(each) for each in answer["traces"]]
    refused = {str(name): str(why) for name, why in answer.get("refused_each", {}).items()}
    if not traces:
        raise ChildRefusal("\n".join(f"{name}: {why}" for name, why in refused.items()))
    return traces, refused


def _plain(target: str, traces: Sequence[Trace], refused: Mapping[str, str]) -> dict[str, Any]:
    return {"schema": SCHEMA, "target": target, "traces": [each.to_dict() for each in traces], "refused": dict(refused)}


def _show(traces: Sequence[Trace], refused: Mapping[str, str], *, real: bool) -> None:
    from rich.console import Console

    from headwise.tracing import show

    if not (sys.stdout.encoding or "").lower().startswith("utf"):
        # a terminal that cannot write a sign shows ? in its place
        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    console = Console(highlight=False)
    for index, trace in enumerate(traces):
        if index:
            console.print()
        show(trace, console, real=real)
    for name, why in refused.items():
        click.echo(visible(f"{name}: {why}"), err=True)


def _files(traces: Sequence[Trace], copy: Path | None, html: Path | None) -> list[tuple[Path, str]]:
    """The files that are asked for, and what goes into each."""
    out = []
    if copy is not None:
        from headwise.tracing import annotated

        out.append((copy, annotated(traces)))
    if html is not None:
        from headwise.tracing import page

        out.append((html, page(traces)))
    return out


def _fill(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8", newline="")
