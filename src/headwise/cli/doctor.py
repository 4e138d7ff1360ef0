"""headwise doctor: whether anyone's attention is right; if not, which fault, where, the fix, and the proof."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import click

from headwise.atomic_write import check_place, write_whole
from headwise.cli.definitions import list_attention
from headwise.cli.localization import WordedArgument, WordedCommand, WordedOption, lang_option, language
from headwise.cli.progress import progress_bar
from headwise.cli.trace import as_object as json_object
from headwise.cli.trace import positive
from headwise.wording import ChildRefusal, say
from headwise.wording.screen import visible

__all__ = ["doctor"]

ENTRY = "headwise.diagnosis.child:answer"
# no verdict hangs on it: it ends code that would never end, on a busy machine too
SECONDS = 300
STATUS = {"sound": 0, "faulty": 1, "not examined": 3}


@click.command(
    cls=WordedCommand,
    about="doctor.help",
    example="headwise doctor attention.py:MyAttention",
    epilog="doctor.help.ends",
)
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
    """Examine user code."""
    lang = language(ctx)
    list_attention("doctor", target, lang, as_json=as_json)
    ctx.exit(_doctor(target, init, call, lang, seconds=seconds, as_json=as_json, fix=fix, force=force))


def _doctor(
    target: str, init: str | None, call: str | None, lang: str, *, seconds: int, as_json: bool, fix: bool, force: bool
) -> int:
    """The exit status of an examination that was said, and written where that was asked for."""
    from headwise.targets import check_name, parse, read

    named = parse(target)
    check_name(named, read(named))
    options = {"init": json_object("--init", init), "call": json_object("--call", call)}
    request = {"target": target, **options, "lang": lang, "fix": fix}
    copy = _copy_of(target) if fix else None
    if copy is not None:
        check_place(copy, force=force)
    from headwise.targets import in_child

    with progress_bar(lang) as tell:
        tell("step.examining", {"target": target})
        answer = in_child(ENTRY, request, seconds=seconds)
    if "refused" in answer:
        raise ChildRefusal(str(answer["refused"]))
    diagnosis = answer["diagnosis"]
    if as_json:
        click.echo(json.dumps({key: v for key, v in diagnosis.items() if key != "reason" or v}, indent=1))
    else:
        _show(diagnosis, lang)
    if copy is not None:
        _fix(target, copy, diagnosis, answer["texts"], lang=lang, force=force, quiet=as_json)
    return STATUS[str(diagnosis["verdict"])]


def _copy_of(target: str) -> Path:
    """Where the mended copy of a target goes: beside it, or here where the target is an installed module."""
    from headwise.targets import parse

    parsed = parse(target)
    if parsed.kind == "module":
        return Path(f"{parsed.path.rpartition('.')[2]}.fixed.py")
    return Path(parsed.path).with_suffix(".fixed.py")


def _show(diagnosis: dict[str, Any], lang: str) -> None:
    from headwise.diagnosis import Diagnosis, report

    if not (sys.stdout.encoding or "").lower().startswith("utf"):
        # a terminal that cannot write a sign shows ? in its place
        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    widest = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    click.echo(report(Diagnosis.from_dict(diagnosis, lang=lang), widest=widest))


def _fix(
    target: str, copy: Path, diagnosis: dict[str, Any], texts: dict[str, str], *, lang: str, force: bool, quiet: bool
) -> None:
    from headwise.diagnosis import Diagnosis, difference, fixed, unfixed
    from headwise.targets import bytes_like, parse, python_of

    findings = Diagnosis.from_dict(diagnosis).findings
    after = {
        name: fixed(text, [finding for finding in findings if finding.file == name]) for name, text in texts.items()
    }
    changed = [name for name, text in texts.items() if after[name] != text]
    if not changed:
        if diagnosis["verdict"] != "sound":
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
    if left := ", ".join(f"{fault.kind} ({fault.line})" for fault in unfixed(findings)):
        click.echo(visible(say("doctor.unfixed", lang=lang, faults=left)), err=quiet)


def _fill(file: Path, written: bytes) -> None:
    file.write_bytes(written)
