"""Figures and pages: what a model's heads attend to, drawn."""

from headwise.pages.look import look
from headwise.pages.text_look import Look

__all__ = ["Look", "look"]
