"""The command line: one file for each command, loaded when it is called."""

import click

from headwise import __version__
from headwise.cli.localization import WordedGroup, WordedOption, lang_option

__all__ = ["main"]

# each command, and where it is, in the order in which they are met
COMMANDS = {
    "look": "headwise.cli.look:look",
    "trace": "headwise.cli.trace:trace",
    "doctor": "headwise.cli.doctor:doctor",
    "steps": "headwise.cli.steps:steps",
    "heads": "headwise.cli.heads:heads",
    "effects": "headwise.cli.effects:effects",
    "convert": "headwise.cli.convert:convert",
    "plot": "headwise.cli.plot:plot",
}


@click.group(cls=WordedGroup, commands_at=COMMANDS, about="cli.about")
@click.version_option(__version__, prog_name="headwise", cls=WordedOption, help="cli.version")
@lang_option
def main() -> None:
    """Multi-head attention you can see through."""
