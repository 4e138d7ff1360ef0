"""Figures and pages: what a model's heads attend to, drawn."""

from headwise.pages.entry_point import look
from headwise.pages.text_look import Look

__all__ = ["Look", "look"]
