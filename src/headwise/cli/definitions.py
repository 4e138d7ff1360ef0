"""Definitions: the attention that a file or a folder holds, listed where no class in it was named."""

from __future__ import annotations

import json
from pathlib import Path

import click

from headwise.wording import say
from headwise.wording.screen import visible

__all__ = ["list_attention"]

# the exit status of what cannot be done as it was written
NOTHING_EXAMINED = 2


def list_attention(command: str, target: str, lang: str, *, as_json: bool = False) -> None:
    """Print a line to copy for each attention class of a file or a folder, and end the command with status 2.

    Nothing is printed where a class is named, and of a file in which there is none.
    """
    from headwise.targets import attention_classes, parse

    # FILE: names no class either
    target = target.removesuffix(":")
    is_folder = Path(target).is_dir()
    if not is_folder and parse(target).name:
        return
    definitions = attention_classes(target)
    if not definitions and not is_folder:
        return
    targets = [f"{definition.file}:{definition.name}" for definition in definitions]
    if as_json:
        rows = [
            {"name": definition.name, "kind": definition.kind, "file": definition.file, "line": definition.line}
            for definition in definitions
        ]
        click.echo(json.dumps({"schema": 1, "target": target, "definitions": rows}, ensure_ascii=False, indent=1))
        raise click.exceptions.Exit(NOTHING_EXAMINED)
    click.echo(visible(say("list.holds" if targets else "list.holds_none", lang=lang, target=target)))
    copied = [f'"{name}"' if " " in name else name for name in targets]
    width = max(map(len, copied), default=0)
    for name, definition in zip(copied, definitions, strict=True):
        line = say("list.line", lang=lang, line=definition.line)
        click.echo(visible(f"  headwise {command} {name:{width}}  {line}"))
    raise click.exceptions.Exit(NOTHING_EXAMINED)
