"""Calls: how a person's class or function is built and called, in symbols, so that it can be run at any sizes."""

from headwise.recording.calls.asked import Found
from headwise.recording.calls.callee import callee, whole
from headwise.recording.calls.certain import is_of_code, is_of_library
from headwise.recording.calls.drafts import EMPTY, parameters
from headwise.recording.calls.equations import declared_sizes
from headwise.recording.calls.finding import find
from headwise.recording.calls.given import checked_call, checked_init
from headwise.recording.calls.guarding import check_lengths
from headwise.recording.calls.masks import mask_arguments, masks
from headwise.recording.calls.plan import Named, Plan, evaluated
from headwise.recording.calls.probes import PRIMES
from headwise.recording.calls.reading import Reading, read
from headwise.recording.calls.roles import call_role, init_role
from headwise.recording.calls.symbols import alike
from headwise.recording.calls.trying import Tried

__all__ = [
    "EMPTY",
    "PRIMES",
    "Found",
    "Named",
    "Plan",
    "Reading",
    "Tried",
    "alike",
    "call_role",
    "callee",
    "check_lengths",
    "checked_call",
    "checked_init",
    "declared_sizes",
    "evaluated",
    "find",
    "init_role",
    "is_of_code",
    "is_of_library",
    "mask_arguments",
    "masks",
    "parameters",
    "read",
    "whole",
]
