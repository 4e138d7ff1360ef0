"""Targets: finds and loads what a person named: code in a file, a note, a notebook or a module."""

from headwise.recording.targets.loaded import Loaded
from headwise.recording.targets.loading import check_name, load
from headwise.recording.targets.reading import python_of, read
from headwise.recording.targets.source import Cell, Definition, Source
from headwise.recording.targets.stand_ins import import_of, meant
from headwise.recording.targets.target import Target, parse
from headwise.recording.targets.texts import bytes_like

__all__ = ["Cell", "Definition", "Loaded", "Source", "Target", "bytes_like", "check_name", "import_of", "load",
           "meant", "parse", "python_of", "read"]  # fmt: skip
