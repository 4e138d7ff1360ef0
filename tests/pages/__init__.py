"""Tests of figures and pages."""
