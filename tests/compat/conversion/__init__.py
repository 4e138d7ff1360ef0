"""Tests of conversions, convention by convention and of what they share."""
