"""What a command is doing, on stderr while it takes time; see `headwise.wording.progress_bar`."""

from __future__ import annotations

from headwise.wording.progress_bar import progress_bar

__all__ = ["progress_bar"]
