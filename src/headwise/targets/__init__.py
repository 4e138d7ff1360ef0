"""Targets: the code that a user names, read and loaded, and the child process with limits that runs it.

The names are loaded at first use: the command line's parent process reads a target without torch.
"""

from typing import TYPE_CHECKING

from headwise.lazy_names import lazy_names

# each public name, and the file that it comes from
_HOME = {
    "Loaded": "loaded_target", "ObjectInfo": "objects", "Source": "source_file", "Target": "target",
    "attention_classes": "attention_definitions", "bytes_like": "text_files", "check_name": "loader",
    "describe_object": "objects", "import_of": "stand_ins",
    "in_child": "child.process", "load": "loader", "meant": "stand_ins", "parse": "target", "python_of": "reader",
    "read": "reader",
}  # fmt: skip

__all__ = list(_HOME)

if TYPE_CHECKING:
    from headwise.targets.attention_definitions import attention_classes as attention_classes
    from headwise.targets.child.process import in_child as in_child
    from headwise.targets.loaded_target import Loaded as Loaded
    from headwise.targets.loader import check_name as check_name
    from headwise.targets.loader import load as load
    from headwise.targets.objects import ObjectInfo as ObjectInfo
    from headwise.targets.objects import describe_object as describe_object
    from headwise.targets.reader import python_of as python_of
    from headwise.targets.reader import read as read
    from headwise.targets.source_file import Source as Source
    from headwise.targets.stand_ins import import_of as import_of
    from headwise.targets.stand_ins import meant as meant
    from headwise.targets.target import Target as Target
    from headwise.targets.target import parse as parse
    from headwise.targets.text_files import bytes_like as bytes_like
else:
    __getattr__, __dir__ = lazy_names(__name__, _HOME)
