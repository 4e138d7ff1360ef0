"""Conversions: weights and modules of other libraries, one table for each convention."""
