"""Child: runs a function in a process of its own, with limits, so that user code can do little harm to this one.

With limits, not a sandbox: the code can still read and write what the person can.
"""
