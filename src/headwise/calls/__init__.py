"""Calls: how a class or a function is built and called, in symbols, so that it can be run at any sizes."""

from typing import TYPE_CHECKING

from headwise.lazy_names import lazy_names

# each public name, and the file that it comes from
_HOME = {
    "EMPTY": "signature", "FEATURES": "symbols", "PRIMES": "probe_sizes", "CacheProtocol": "cache_protocols",
    "Found": "request", "Named": "plan", "Plan": "plan", "Reading": "source_hints", "Tried": "trial",
    "alike": "symbols", "call_role": "roles", "callee": "signature", "check_forward": "forward_method",
    "checked_call": "user_values", "checked_init": "user_values", "declared_sizes": "equations",
    "evaluated": "plan", "find": "finder", "init_role": "roles", "is_of_code": "code_errors",
    "is_of_library": "code_errors", "is_of_options": "option_attributes", "is_wrong_kind": "argument_errors",
    "lacks_forward": "forward_method", "mask_arguments": "mask_forms", "masks": "mask_forms",
    "masks_of_keys": "documented_ranks",
    "methods_of": "forward_method", "other_lengths": "call_lengths", "parameters": "signature",
    "read": "source_hints", "role_of": "argument_use",
    "seen_names": "cache_protocols", "spoken_axes": "unpacked_axes",
    "visible": "mask_forms", "ways": "cache_protocols", "whole": "signature",
    "with_own_sizes": "own_sizes", "written": "function_trees",
}  # fmt: skip

__all__ = list(_HOME)

if TYPE_CHECKING:
    from headwise.calls.argument_errors import is_wrong_kind as is_wrong_kind
    from headwise.calls.argument_use import role_of as role_of
    from headwise.calls.cache_protocols import CacheProtocol as CacheProtocol
    from headwise.calls.cache_protocols import seen_names as seen_names
    from headwise.calls.cache_protocols import ways as ways
    from headwise.calls.call_lengths import other_lengths as other_lengths
    from headwise.calls.code_errors import is_of_code as is_of_code
    from headwise.calls.code_errors import is_of_library as is_of_library
    from headwise.calls.documented_ranks import masks_of_keys as masks_of_keys
    from headwise.calls.equations import declared_sizes as declared_sizes
    from headwise.calls.finder import find as find
    from headwise.calls.forward_method import check_forward as check_forward
    from headwise.calls.forward_method import lacks_forward as lacks_forward
    from headwise.calls.forward_method import methods_of as methods_of
    from headwise.calls.function_trees import written as written
    from headwise.calls.mask_forms import mask_arguments as mask_arguments
    from headwise.calls.mask_forms import masks as masks
    from headwise.calls.mask_forms import visible as visible
    from headwise.calls.option_attributes import is_of_options as is_of_options
    from headwise.calls.own_sizes import with_own_sizes as with_own_sizes
    from headwise.calls.plan import Named as Named
    from headwise.calls.plan import Plan as Plan
    from headwise.calls.plan import evaluated as evaluated
    from headwise.calls.probe_sizes import PRIMES as PRIMES
    from headwise.calls.request import Found as Found
    from headwise.calls.roles import call_role as call_role
    from headwise.calls.roles import init_role as init_role
    from headwise.calls.signature import EMPTY as EMPTY
    from headwise.calls.signature import callee as callee
    from headwise.calls.signature import parameters as parameters
    from headwise.calls.signature import whole as whole
    from headwise.calls.source_hints import Reading as Reading
    from headwise.calls.source_hints import read as read
    from headwise.calls.symbols import FEATURES as FEATURES
    from headwise.calls.symbols import alike as alike
    from headwise.calls.trial import Tried as Tried
    from headwise.calls.unpacked_axes import spoken_axes as spoken_axes
    from headwise.calls.user_values import checked_call as checked_call
    from headwise.calls.user_values import checked_init as checked_init
else:
    __getattr__, __dir__ = lazy_names(__name__, _HOME)
