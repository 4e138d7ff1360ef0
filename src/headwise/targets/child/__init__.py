"""Child: runs a function in a separate process with limits, so that user code can do little harm to this one.

The limits are no sandbox: the code has the file access of the user.
"""
