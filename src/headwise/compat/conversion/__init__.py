"""Conversions that prove themselves: one table for each convention, read both ways."""

from headwise.compat.conversion.converting import Conversion, convert, to_state_dict
from headwise.compat.conversion.report import Check, Report

__all__ = ["Check", "Conversion", "Report", "convert", "to_state_dict"]
