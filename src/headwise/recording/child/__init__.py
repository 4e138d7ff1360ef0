"""Child: runs a function in a process of its own, with limits, so that strangers' code can do little harm to this one.

With limits, not a sandbox: the code can still read and write what the person can.
"""

from headwise.recording.child.running import in_child
from headwise.recording.child.start import started_in

__all__ = ["in_child", "started_in"]
