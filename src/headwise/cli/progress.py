"""What a command is doing, on stderr while it takes time; see `headwise.wording.bar`."""

from __future__ import annotations

from headwise.wording.bar import told

__all__ = ["told"]
