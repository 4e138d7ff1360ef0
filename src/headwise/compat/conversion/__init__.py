"""Conversions that prove themselves: one table for each convention, read both ways.

Its names are loaded when they are first used: the command line refuses a name or a file without torch.
"""

from typing import TYPE_CHECKING

from headwise.lazy_names import lazy_names

# each public name, and the file that it comes from
_HOME = {
    "Check": "report", "Conversion": "converter", "Report": "report", "convert": "converter",
    "to_state_dict": "converter",
}  # fmt: skip

__all__ = list(_HOME)

if TYPE_CHECKING:
    from headwise.compat.conversion.converter import Conversion as Conversion
    from headwise.compat.conversion.converter import convert as convert
    from headwise.compat.conversion.converter import to_state_dict as to_state_dict
    from headwise.compat.conversion.report import Check as Check
    from headwise.compat.conversion.report import Report as Report
else:
    __getattr__, __dir__ = lazy_names(__name__, _HOME)
