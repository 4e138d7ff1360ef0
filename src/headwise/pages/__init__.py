"""Figures and pages: what a model's heads look at, drawn for a person."""

from headwise.pages.looking import look
from headwise.pages.text_look import Look

__all__ = ["Look", "look"]
