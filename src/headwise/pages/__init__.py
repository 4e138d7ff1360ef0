"""Figures and pages: what a model's heads look at, drawn for a person."""

from headwise.pages.looking import Look, look

__all__ = ["Look", "look"]
