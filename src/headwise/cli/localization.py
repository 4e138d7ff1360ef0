"""Localization: commands whose help and refusals are in the language asked for."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import IO, Any, TypeVar

import click

from headwise.cli.process import prepare_process
from headwise.errors import AttentionError
from headwise.wording import LANGUAGES, ChildRefusal, Refusal, say
from headwise.wording.screen import visible

__all__ = [
    "WordedArgument",
    "WordedCommand",
    "WordedGroup",
    "WordedOption",
    "lang_option",
    "language",
    "missing",
]

_LANG = "headwise.lang"
# how much of a word must be that of another to be a misspelling of it; 1: all
NEAR = 0.7

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


class UsageMessage(click.ClickException):
    """A sentence for the user, on stderr, with exit status 2."""

    exit_code = 2

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the sentence with nothing around it, and with nothing in it that a terminal would obey."""
        click.echo("\n".join(map(visible, self.message.split("\n"))), file=file, err=True)


class WordedOption(click.Option):
    """An option whose help is a key of the wording. fills: the values of its sentence."""

    def __init__(self, *args: Any, fills: Mapping[str, str] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fills = dict(fills) if fills is not None else {}

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        record = super().get_help_record(ctx)
        if record is None:
            return None
        # click adds what it knows itself, as that an option is required, in words of its own
        key = record[1].partition("  [")[0]
        text = say(key, lang=language(ctx), **self.fills)
        return record[0], text + say("cli.required", lang=language(ctx)) if self.required else text


class WordedArgument(click.Argument):
    """An argument whose help is a key of the wording."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        name, key = super().get_help_record(ctx)
        return name, say(key, lang=language(ctx))


class _Worded(click.Command):
    """A command whose help texts are keys of the wording. about: the key of what it does; example: a line to copy."""

    def __init__(self, *args: Any, about: str, example: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.about, self.example = about, example

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # read before all else: help and a wrong option, too, are to be in the language asked for
        ctx.meta[_LANG] = _asked(args, otherwise=language(ctx))
        try:
            return super().parse_args(ctx, args)
        except click.exceptions.NoArgsIsHelpError:
            raise
        except click.UsageError as error:
            raise UsageMessage(_usage(error, ctx)) from error

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except AttentionError as error:
            text = _said(error, language(ctx))
            if ctx.params.get("as_json"):
                # what reads the output finds an object there in any case
                about = {"target": target} if (target := ctx.params.get("target")) else {}
                click.echo(json.dumps({"schema": 1, **about, "error": text}, ensure_ascii=False, indent=1))
            raise UsageMessage(text) from error

    def get_short_help_str(self, limit: int = 45) -> str:
        context = click.get_current_context(silent=True)
        return say(self.about, lang=language(context) if context is not None else "en")

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        pieces = " ".join(self.collect_usage_pieces(ctx))
        formatter.write_usage(ctx.command_path, pieces, prefix=say("cli.usage_is", lang=language(ctx)))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.epilog is not None:
            formatter.write_paragraph()
            formatter.write_text(say(self.epilog, lang=language(ctx)))

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(say(self.about, lang=language(ctx)))

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        option = super().get_help_option(ctx)
        if option is not None:
            option.help = say("cli.help", lang=language(ctx))
        return option

    def format_arguments(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self._list(ctx, formatter, "cli.arguments", click.Argument)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self._list(ctx, formatter, "cli.options", click.Option)
        if isinstance(self, click.Group):
            self.format_commands(ctx, formatter)

    def _list(self, ctx: click.Context, formatter: click.HelpFormatter, heading: str, kind: type) -> None:
        """A section of the parameters of one kind, if there are any."""
        records = [parameter.get_help_record(ctx) for parameter in self.get_params(ctx) if isinstance(parameter, kind)]
        if records:
            with _section(formatter, heading, language(ctx)):
                formatter.write_dl([record for record in records if record is not None])


class WordedCommand(_Worded):
    """One command."""


def missing(ctx: click.Context, what: str) -> UsageMessage:
    """The refusal of a command that was given nothing, with a line to copy."""
    example = getattr(ctx.command, "example", "")
    context = {"lang": language(ctx), "command": ctx.command_path}
    return UsageMessage(say("cli.missing", what=what, example=example, **context))


def _said(error: AttentionError, lang: str) -> str:
    if isinstance(error, Refusal):
        return error.said_by_command(lang)
    return str(error) if isinstance(error, ChildRefusal) else say("cli.other", lang=lang, message=error)


class WordedGroup(_Worded, click.Group):
    """Commands that are imported when they are called. commands_at: name -> "module:attribute"."""

    def __init__(self, *args: Any, commands_at: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.commands_at = commands_at

    def main(self, args: Sequence[str] | None = None, *rest: Any, **options: Any) -> Any:
        if args is None:
            # the command line of this process, which is a command then, and no test or notebook that calls one
            prepare_process()
        return super().main(args, *rest, **options)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not _without_language(args):
            ctx.meta[_LANG] = _asked(args, otherwise=language(ctx))
            click.echo(self._overview(ctx))
            ctx.exit()
        return super().parse_args(ctx, args)

    def _overview(self, ctx: click.Context) -> str:
        """Each command with what it does, and a line to copy."""
        lang = language(ctx)
        lines = [say(self.about, lang=lang)]
        for name in self.commands_at:
            command = self.get_command(ctx, name)
            if isinstance(command, WordedCommand):
                about = click.formatting.wrap_text(say(command.about, lang=lang), 76, " " * 11, " " * 11).lstrip()
                lines += ["", f"  {name:<9}{about}", f"           {command.example}"]
        return "\n".join([*lines, "", say("cli.more", lang=lang)])

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self.commands_at)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.commands_at:
            return None
        module, _, name = self.commands_at[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self.commands_at:
            commands = ", ".join(self.list_commands(ctx))
            near = difflib.get_close_matches(args[0], self.commands_at, n=1, cutoff=NEAR)
            key = "cli.near_command" if near else "cli.no_such_command"
            raise UsageMessage(say(key, lang=language(ctx), what=args[0], near="".join(near), known=commands))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with _section(formatter, "cli.commands", language(ctx)):
            formatter.write_dl([(name, command.get_short_help_str()) for name, command in commands if command])


@contextmanager
def _section(formatter: click.HelpFormatter, heading: str, lang: str) -> Iterator[None]:
    """A section of the help; click would end its heading with a colon of English."""
    formatter.write_paragraph()
    formatter.write(f"{say(heading, lang=lang)}\n")
    with formatter.indentation():
        yield


def lang_option(command: Decorated) -> Decorated:
    """Give a command the option --lang, which `language` reads."""
    option = click.option(
        "--lang", cls=WordedOption, type=click.Choice(list(LANGUAGES)), expose_value=False, help="cli.lang"
    )
    return option(command)


def language(ctx: click.Context) -> str:
    """The language that the command line asks for."""
    asked: str = ctx.meta.get(_LANG, "en")
    return asked


def _asked(args: Sequence[str], *, otherwise: str) -> str:
    options = args[: args.index("--")] if "--" in args else args
    asked = otherwise
    for n, option in enumerate(options):
        name, _, value = option.partition("=")
        if name == "--lang":
            value = value if value else "".join(options[n + 1 : n + 2])
            asked = value if value in LANGUAGES else asked
    return asked


def _without_language(args: Sequence[str]) -> list[str]:
    """What a command line holds besides the language."""
    if args[:1] == ["--lang"] and args[1:2] and args[1] in LANGUAGES:
        return list(args[2:])
    return [argument for argument in args if argument not in {f"--lang={name}" for name in LANGUAGES}]


def _usage(error: click.UsageError, ctx: click.Context) -> str:
    context = {"lang": language(ctx), "command": ctx.command_path}
    match error:
        case click.MissingParameter(param=click.Parameter() as parameter):
            example = getattr(ctx.command, "example", "")
            what = parameter.human_readable_name.upper() if isinstance(parameter, click.Argument) else parameter.opts[0]
            return say("cli.missing", what=what, example=example, **context)
        case click.NoSuchOption(option_name=name):
            near = difflib.get_close_matches(name, error.possibilities or (), n=1, cutoff=NEAR)
            if near:
                return say("cli.near_option", what=name, near=near[0], **context)
            return say("cli.no_such_option", what=name, **context)
        case click.BadParameter(param=click.Parameter() as parameter, message=message):
            if value := re.match(r"('.*') is not a valid (?:integer|float)", message):
                return say("cli.not_number", what=parameter.opts[-1], value=value[1], **context)
            return say("cli.bad_value", what=parameter.opts[-1], reason=message.rstrip("."), **context)
    if words := re.match(r"Got unexpected extra arguments? \((.*)\)", error.format_message()):
        return say("cli.extra", what=words[1], **context)
    return say("cli.usage", reason=error.format_message().rstrip("."), **context)
