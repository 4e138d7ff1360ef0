"""Calls: how a person's class or function is built and called, in symbols, so that it can be run at any sizes."""

from headwise.recording.calls.asked import Found
from headwise.recording.calls.finding import find
from headwise.recording.calls.plan import Named, Plan
from headwise.recording.calls.trying import Tried, check_lengths

__all__ = ["Found", "Named", "Plan", "Tried", "check_lengths", "find"]
