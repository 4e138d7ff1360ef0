"""Targets as the tests write and load them."""

import textwrap

from headwise.targets.loader import load
from headwise.targets.reader import read
from headwise.targets.target import parse


def loaded(text):
    """What a target names, loaded."""
    target = parse(text)
    return load(target, read(target))


def written(folder, name, text):
    """A file of a folder, with a text whose common indentation goes."""
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(textwrap.dedent(text).lstrip("\n"), encoding="utf-8")
    return file


def names_of(text):
    """The name, kind and line of each definition that a target's source has."""
    return [(each.name, each.kind, each.line) for each in read(parse(text)).definitions]
