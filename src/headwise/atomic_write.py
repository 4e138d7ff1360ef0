"""Atomic write: a file that appears complete or not at all, under its name only when all of it is there."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from headwise.wording import Refusal, refusal

__all__ = ["check_place", "write_whole"]


def check_place(file: Path, *, force: bool) -> Path:
    """The file, if it may be written there; else a Refusal. force: whether one that exists may be replaced."""
    try:
        has_folder, is_folder, is_there = file.parent.is_dir(), file.is_dir(), file.exists()
    except OSError as error:
        # as of a name that is too long
        raise _unwritable(file, error) from error
    if not has_folder:
        raise refusal("refuse.output_folder", folder=file.parent)
    if is_folder:
        raise refusal("refuse.is_folder", file=file)
    if is_there and not force:
        raise refusal("refuse.exists", file=file)
    if not os.access(file.parent, os.W_OK | os.X_OK):
        raise refusal("refuse.unwritable", file=file, reason=os.strerror(errno.EACCES))
    return file


def write_whole(file: Path, fill: Callable[[Path], None], *, force: bool) -> None:
    """Let `fill` write a file of this name in a hidden folder beside it, then move that here, after what lies with it.

    The place is checked before and after, and a Refusal raised where it cannot be written; what `fill` raises beside
    OSError is raised as it is. Nothing unfinished is left behind.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_whole(Path(folder, "a.txt"), lambda unfinished: print(unfinished.write_text("all")), force=False)
    ...     [each.name for each in Path(folder).iterdir()]
    3
    ['a.txt']
    """
    check_place(file, force=force)
    try:
        with TemporaryDirectory(dir=file.parent, prefix=".headwise.", ignore_cleanup_errors=True) as folder:
            fill(Path(folder, file.name))
            # it may have come to be in the meantime
            check_place(file, force=force)
            # such as weights, which the file names: they are there before it is
            for written in sorted(Path(folder).iterdir(), key=lambda written: written.name == file.name):
                written.replace(file.with_name(written.name))
    except OSError as error:
        raise _unwritable(file, error) from error


def _unwritable(file: Path, error: OSError) -> Refusal:
    return refusal("refuse.unwritable", file=file, reason=error.strerror or type(error).__name__)
