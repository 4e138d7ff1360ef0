"""Tracing: the record of attention code as annotated source, with every axis by its name.

The names are loaded at first use: the command line's parent process prints a trace without torch.
"""

from typing import TYPE_CHECKING

from headwise.lazy_names import lazy_names

# each public name, and the file that it comes from
_HOME = {
    "LENGTHS": "size_words", "MEANINGS": "legend", "MOST_TURNS": "steps", "SCHEMA": "serialization",
    "SpokenShape": "shape_text", "Symbol": "steps", "Trace": "steps", "annotated": "annotation",
    "as_trace": "entry_point", "asked": "symbol_names", "functions": "function_lines", "meanings": "size_words",
    "page": "html", "probed": "probe_runs", "show": "terminal", "spoken": "shape_text", "trace": "entry_point",
}  # fmt: skip

__all__ = list(_HOME)

if TYPE_CHECKING:
    from headwise.tracing.annotation import annotated as annotated
    from headwise.tracing.entry_point import as_trace as as_trace
    from headwise.tracing.entry_point import trace as trace
    from headwise.tracing.function_lines import functions as functions
    from headwise.tracing.html import page as page
    from headwise.tracing.legend import MEANINGS as MEANINGS
    from headwise.tracing.probe_runs import probed as probed
    from headwise.tracing.serialization import SCHEMA as SCHEMA
    from headwise.tracing.shape_text import SpokenShape as SpokenShape
    from headwise.tracing.shape_text import spoken as spoken
    from headwise.tracing.size_words import LENGTHS as LENGTHS
    from headwise.tracing.size_words import meanings as meanings
    from headwise.tracing.steps import MOST_TURNS as MOST_TURNS
    from headwise.tracing.steps import Symbol as Symbol
    from headwise.tracing.steps import Trace as Trace
    from headwise.tracing.symbol_names import asked as asked
    from headwise.tracing.terminal import show as show
else:
    __getattr__, __dir__ = lazy_names(__name__, _HOME)
