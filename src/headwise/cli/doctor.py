"""headwise doctor: whether anyone's attention is right; if not, which fault, where, the fix, and the proof."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import click

from headwise.cli.progress import told
from headwise.cli.trace import as_object as json_object
from headwise.cli.trace import positive
from headwise.cli.worded import Told, WordedArgument, WordedCommand, WordedOption, lang_option, language
from headwise.errors import AttentionError
from headwise.wording import Refusal, say
from headwise.wording.screen import visible
from headwise.written import check_place, write_whole

__all__ = ["doctor"]

ENTRY = "headwise.diagnosis.child:answer"
# no verdict hangs on it: it ends code that would never end, on a busy machine too
SECONDS = 300
STATUS = {"sound": 0, "faulty": 1, "not examined": 3}


@click.command(cls=WordedCommand, about="doctor.help", epilog="doctor.help.ends")
@click.argument("target", cls=WordedArgument, help="doctor.help.target")
@click.option("--init", metavar="JSON", cls=WordedOption, help="doctor.help.init")
@click.option("--call", metavar="JSON", cls=WordedOption, help="doctor.help.call")
@click.option(
    "--seconds", metavar="N", type=int, default=SECONDS, callback=positive, cls=WordedOption,
    help="trace.help.seconds", fills={"seconds": str(SECONDS)},
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, cls=WordedOption, help="doctor.help.json")
@click.option("--fix", is_flag=True, cls=WordedOption, help="doctor.help.fix")
@click.option("--force", is_flag=True, cls=WordedOption, help="look.help.force")
@lang_option
@click.pass_context
def doctor(
    ctx: click.Context,
    *,
    target: str,
    init: str | None,
    call: str | None,
    seconds: int,
    as_json: bool,
    fix: bool,
    force: bool,
) -> None:
    """Examine what a person names."""
    lang = language(ctx)
    try:
        status = _doctor(target, init, call, lang, seconds=seconds, as_json=as_json, fix=fix, force=force)
    except AttentionError as error:
        if as_json:
            text = error.said(lang) if isinstance(error, Refusal) else str(error)
            click.echo(json.dumps({"schema": 1, "target": target, "error": text}, indent=1))
        raise
    ctx.exit(status)


def _doctor(
    target: str, init: str | None, call: str | None, lang: str, *, seconds: int, as_json: bool, fix: bool, force: bool
) -> int:
    """The exit status of an examination that was said, and written where that was asked for."""
    from headwise.recording.targets import check_name, parse, read

    named = parse(target)
    check_name(named, read(named))
    said = {"init": json_object("--init", init), "call": json_object("--call", call)}
    request = {"target": target, **said, "lang": lang, "fix": fix}
    copy = _copy_of(target) if fix else None
    if copy is not None:
        check_place(copy, force=force)
    from headwise.recording.child import in_child

    with told(lang) as tell:
        tell("step.examining", {"target": target})
        answer = in_child(ENTRY, request, seconds=seconds)
    if "refused" in answer:
        raise Told(str(answer["refused"]))
    found = answer["diagnosis"]
    if as_json:
        click.echo(json.dumps({name: each for name, each in found.items() if name != "reason" or each}, indent=1))
    else:
        _show(found, lang)
    if copy is not None:
        _fix(target, copy, found, answer["texts"], lang=lang, force=force, quiet=as_json)
    return STATUS[str(found["verdict"])]


def _copy_of(target: str) -> Path:
    """Where the mended copy of a target goes: beside it, or here where the target is an installed module."""
    from headwise.recording.targets import parse

    found = parse(target)
    if found.kind == "module":
        return Path(f"{found.path.rpartition('.')[2]}.fixed.py")
    return Path(found.path).with_suffix(".fixed.py")


def _show(found: dict[str, Any], lang: str) -> None:
    from headwise.diagnosis.diagnosis import Diagnosis
    from headwise.diagnosis.report import report

    if not (sys.stdout.encoding or "").lower().startswith("utf"):
        # a terminal that cannot write a sign shows ? in its place
        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    widest = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    click.echo(report(Diagnosis.from_dict(found, lang=lang), widest=widest))


def _fix(
    target: str, copy: Path, found: dict[str, Any], texts: dict[str, str], *, lang: str, force: bool, quiet: bool
) -> None:
    from headwise.diagnosis.diagnosis import Diagnosis
    from headwise.diagnosis.patches.fixing import difference, fixed
    from headwise.recording.targets import bytes_like, parse, python_of

    findings = Diagnosis.from_dict(found).findings
    after = {name: fixed(text, [each for each in findings if each.file == name]) for name, text in texts.items()}
    changed = [name for name, text in texts.items() if after[name] != text]
    if not changed:
        if found["verdict"] != "sound":
            click.echo(visible(say("doctor.no_fix", lang=lang)), err=quiet)
        return
    if not quiet:
        for name in changed:
            for line in difference(texts[name], after[name], name, str(copy)).split("\n"):
                click.echo(visible(line) if line.strip() else "")
    found_at = parse(target)
    text = python_of(found_at, after)
    written = bytes_like(found_at.file, text) if found_at.kind == "python" else text.encode()
    write_whole(copy, lambda unfinished: _fill(unfinished, written), force=force)
    click.echo(visible(say("look.wrote", lang=lang, file=copy)), err=quiet)


def _fill(file: Path, written: bytes) -> None:
    file.write_bytes(written)
