"""Calls: how a person's class or function is built and called, in symbols, so that it can be run at any sizes."""

from headwise.recording.calls.plan import Named, Plan

__all__ = ["Named", "Plan"]
