"""Checks: one file for each thing that may be wrong, and what would put it right."""
