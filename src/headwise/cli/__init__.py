"""The command line: one file for each command, loaded when it is called."""

import click

from headwise import __version__
from headwise.cli.localization import WordedGroup, WordedOption, lang_option

__all__ = ["main"]

# each command, and where it is
COMMANDS = {
    "convert": "headwise.cli.convert:convert",
    "doctor": "headwise.cli.doctor:doctor",
    "effects": "headwise.cli.effects:effects",
    "heads": "headwise.cli.heads:heads",
    "look": "headwise.cli.look:look",
    "plot": "headwise.cli.plot:plot",
    "steps": "headwise.cli.steps:steps",
    "trace": "headwise.cli.trace:trace",
}


@click.group(cls=WordedGroup, commands_at=COMMANDS, about="cli.about")
@click.version_option(__version__, prog_name="headwise", cls=WordedOption, help="cli.version")
@lang_option
def main() -> None:
    """Multi-head attention you can see through."""
