"""Diagnosis: whether attention code is right; if not, which fault, where, the fix, and the proof.

Its names are loaded when they are first used: the command line's parent process prints a diagnosis without torch.
"""

from typing import TYPE_CHECKING

from headwise.lazy_names import lazy_names

# each public name, and the file that it comes from
_HOME = {
    "Diagnosis": "result", "apart": "modules", "difference": "patches.fixed_source", "doctor": "entry_point",
    "fixed": "patches.fixed_source", "holds_numbers": "modules", "plain_torch": "entry_point",
    "report": "display", "unfixed": "patches.fixed_source",
}  # fmt: skip

__all__ = list(_HOME)

if TYPE_CHECKING:
    from headwise.diagnosis.display import report as report
    from headwise.diagnosis.entry_point import doctor as doctor
    from headwise.diagnosis.entry_point import plain_torch as plain_torch
    from headwise.diagnosis.modules import apart as apart
    from headwise.diagnosis.modules import holds_numbers as holds_numbers
    from headwise.diagnosis.patches.fixed_source import difference as difference
    from headwise.diagnosis.patches.fixed_source import fixed as fixed
    from headwise.diagnosis.patches.fixed_source import unfixed as unfixed
    from headwise.diagnosis.result import Diagnosis as Diagnosis
else:
    __getattr__, __dir__ = lazy_names(__name__, _HOME)
