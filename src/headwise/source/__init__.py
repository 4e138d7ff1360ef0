"""Source: spans of code in its files, its syntax trees, and edits of it; nothing is run."""

from typing import TYPE_CHECKING

from headwise.lazy_names import lazy_names

# each public name, and the file that it comes from
_HOME = {
    "Code": "syntax", "Edit": "syntax", "Edits": "syntax", "Span": "spans", "UserCode": "spans",
    "alias_after": "lookup", "applied": "syntax", "assigned": "methods", "assigned_pairs": "lookup",
    "axis_of": "picks",
    "bound_to": "lookup", "characters": "syntax", "code_at": "syntax",
    "constructors": "methods", "file_tree": "syntax", "fill_of": "picks",
    "function_node": "syntax", "function_of": "lookup", "is_additive": "mask_meaning", "is_installed": "libraries",
    "is_left": "lookup", "is_library": "libraries", "kept": "methods", "last_given": "lookup", "loads_of": "lookup",
    "made_at": "lookup", "meaning_of": "mask_meaning", "nodes_of": "syntax", "ones_of": "mask_meaning",
    "option_of": "picks", "own_number": "lookup", "registered": "methods", "sign_at": "spans", "span_like": "lookup",
    "span_of": "spans", "start_of": "picks", "written_in": "attributes",
}  # fmt: skip

__all__ = list(_HOME)

if TYPE_CHECKING:
    from headwise.source.attributes import written_in as written_in
    from headwise.source.libraries import is_installed as is_installed
    from headwise.source.libraries import is_library as is_library
    from headwise.source.lookup import alias_after as alias_after
    from headwise.source.lookup import assigned_pairs as assigned_pairs
    from headwise.source.lookup import bound_to as bound_to
    from headwise.source.lookup import function_of as function_of
    from headwise.source.lookup import is_left as is_left
    from headwise.source.lookup import last_given as last_given
    from headwise.source.lookup import loads_of as loads_of
    from headwise.source.lookup import made_at as made_at
    from headwise.source.lookup import own_number as own_number
    from headwise.source.lookup import span_like as span_like
    from headwise.source.mask_meaning import is_additive as is_additive
    from headwise.source.mask_meaning import meaning_of as meaning_of
    from headwise.source.mask_meaning import ones_of as ones_of
    from headwise.source.methods import assigned as assigned
    from headwise.source.methods import constructors as constructors
    from headwise.source.methods import kept as kept
    from headwise.source.methods import registered as registered
    from headwise.source.picks import axis_of as axis_of
    from headwise.source.picks import fill_of as fill_of
    from headwise.source.picks import option_of as option_of
    from headwise.source.picks import start_of as start_of
    from headwise.source.spans import Span as Span
    from headwise.source.spans import UserCode as UserCode
    from headwise.source.spans import sign_at as sign_at
    from headwise.source.spans import span_of as span_of
    from headwise.source.syntax import Code as Code
    from headwise.source.syntax import Edit as Edit
    from headwise.source.syntax import Edits as Edits
    from headwise.source.syntax import applied as applied
    from headwise.source.syntax import characters as characters
    from headwise.source.syntax import code_at as code_at
    from headwise.source.syntax import file_tree as file_tree
    from headwise.source.syntax import function_node as function_node
    from headwise.source.syntax import nodes_of as nodes_of
else:
    __getattr__, __dir__ = lazy_names(__name__, _HOME)
