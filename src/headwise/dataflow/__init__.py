"""Dataflow: the origin of each tensor entry of a run, the names of its axes, and the operations of its attention."""

from typing import TYPE_CHECKING

from headwise.lazy_names import lazy_names

# each public name, and the file that it comes from
_HOME = {
    "ADDITIONS": "marked_operations",
    "ATTENTIONS": "propagation", "CONVOLUTIONS": "contractions", "FAILURES": "propagation", "JOINS": "propagation",
    "LAYERS": "propagation", "LEARNED": "provenance", "MULTIPLICATIONS": "summed_products",
    "NOTHING": "attention_pattern", "SOFTMAXES": "marked_operations",
    "SUMS": "propagation", "TOTALS": "sums_over_tokens", "TRIANGLES": "propagation", "UNKNOWN": "expressions",
    "AttentionOps": "attention", "AttentionPattern": "attention_pattern", "Decoded": "decoder", "Decoder": "decoder",
    "DecodingStep": "decoder", "Einsum": "contractions", "Expressions": "expressions", "Follower": "provenance",
    "Manner": "manner", "MarkedOp": "marked_operations", "Marks": "provenance", "NamedAxis": "axes",
    "Names": "axis_names", "Origin": "provenance", "Owners": "entry_heads", "ProvenanceTracker": "propagation",
    "Row": "axis_names", "Run": "runner", "Shape": "axes", "Sizes": "sizes", "TokenSum": "sums_over_tokens",
    "aligned": "axis_names", "allowed_by": "attention_pattern", "arguments": "manner", "attentions": "attention",
    "axes_of": "decoder", "by_site": "axis_names", "call_of": "runner", "causal_argument": "attention_pattern",
    "chain_of": "attention",
    "contraction": "contractions", "default_dtype": "manner", "downstream": "sums_over_tokens",
    "feature_sums": "token_mixing", "find_pattern": "attention_pattern", "followed": "provenance",
    "hidden_in_layer": "attention", "is_constant": "contractions", "is_laid_over": "attention",
    "is_layer": "attention", "is_movement": "index_maps", "is_scores": "attention", "kinds": "attention_steps",
    "looking": "product_provenance", "made_from": "attention", "makers": "attention",
    "mask_argument": "attention_pattern", "mixing_of": "token_mixing", "move_weights": "float64",
    "operand_marks": "attention", "own_of": "provenance", "own_tokens": "product_provenance",
    "place_of": "provenance", "product": "sizes",
    "reader": "sums_over_tokens", "readied": "float64", "run": "runner", "sample_held": "provenance",
    "sample_of": "provenance", "source_of": "provenance", "sources_of": "provenance",
    "token_sums": "sums_over_tokens", "value_of": "attention",
}  # fmt: skip

__all__ = list(_HOME)

if TYPE_CHECKING:
    from headwise.dataflow.attention import AttentionOps as AttentionOps
    from headwise.dataflow.attention import attentions as attentions
    from headwise.dataflow.attention import chain_of as chain_of
    from headwise.dataflow.attention import hidden_in_layer as hidden_in_layer
    from headwise.dataflow.attention import is_laid_over as is_laid_over
    from headwise.dataflow.attention import is_layer as is_layer
    from headwise.dataflow.attention import is_scores as is_scores
    from headwise.dataflow.attention import made_from as made_from
    from headwise.dataflow.attention import makers as makers
    from headwise.dataflow.attention import operand_marks as operand_marks
    from headwise.dataflow.attention import value_of as value_of
    from headwise.dataflow.attention_pattern import NOTHING as NOTHING
    from headwise.dataflow.attention_pattern import AttentionPattern as AttentionPattern
    from headwise.dataflow.attention_pattern import allowed_by as allowed_by
    from headwise.dataflow.attention_pattern import causal_argument as causal_argument
    from headwise.dataflow.attention_pattern import find_pattern as find_pattern
    from headwise.dataflow.attention_pattern import mask_argument as mask_argument
    from headwise.dataflow.attention_steps import kinds as kinds
    from headwise.dataflow.axes import NamedAxis as NamedAxis
    from headwise.dataflow.axes import Shape as Shape
    from headwise.dataflow.axis_names import Names as Names
    from headwise.dataflow.axis_names import Row as Row
    from headwise.dataflow.axis_names import aligned as aligned
    from headwise.dataflow.axis_names import by_site as by_site
    from headwise.dataflow.contractions import CONVOLUTIONS as CONVOLUTIONS
    from headwise.dataflow.contractions import Einsum as Einsum
    from headwise.dataflow.contractions import contraction as contraction
    from headwise.dataflow.contractions import is_constant as is_constant
    from headwise.dataflow.decoder import Decoded as Decoded
    from headwise.dataflow.decoder import Decoder as Decoder
    from headwise.dataflow.decoder import DecodingStep as DecodingStep
    from headwise.dataflow.decoder import axes_of as axes_of
    from headwise.dataflow.entry_heads import Owners as Owners
    from headwise.dataflow.expressions import UNKNOWN as UNKNOWN
    from headwise.dataflow.expressions import Expressions as Expressions
    from headwise.dataflow.float64 import move_weights as move_weights
    from headwise.dataflow.float64 import readied as readied
    from headwise.dataflow.index_maps import is_movement as is_movement
    from headwise.dataflow.manner import Manner as Manner
    from headwise.dataflow.manner import arguments as arguments
    from headwise.dataflow.manner import default_dtype as default_dtype
    from headwise.dataflow.marked_operations import ADDITIONS as ADDITIONS
    from headwise.dataflow.marked_operations import SOFTMAXES as SOFTMAXES
    from headwise.dataflow.marked_operations import MarkedOp as MarkedOp
    from headwise.dataflow.product_provenance import looking as looking
    from headwise.dataflow.product_provenance import own_tokens as own_tokens
    from headwise.dataflow.propagation import ATTENTIONS as ATTENTIONS
    from headwise.dataflow.propagation import FAILURES as FAILURES
    from headwise.dataflow.propagation import JOINS as JOINS
    from headwise.dataflow.propagation import LAYERS as LAYERS
    from headwise.dataflow.propagation import SUMS as SUMS
    from headwise.dataflow.propagation import TRIANGLES as TRIANGLES
    from headwise.dataflow.propagation import ProvenanceTracker as ProvenanceTracker
    from headwise.dataflow.provenance import LEARNED as LEARNED
    from headwise.dataflow.provenance import Follower as Follower
    from headwise.dataflow.provenance import Marks as Marks
    from headwise.dataflow.provenance import Origin as Origin
    from headwise.dataflow.provenance import followed as followed
    from headwise.dataflow.provenance import own_of as own_of
    from headwise.dataflow.provenance import place_of as place_of
    from headwise.dataflow.provenance import sample_held as sample_held
    from headwise.dataflow.provenance import sample_of as sample_of
    from headwise.dataflow.provenance import source_of as source_of
    from headwise.dataflow.provenance import sources_of as sources_of
    from headwise.dataflow.runner import Run as Run
    from headwise.dataflow.runner import call_of as call_of
    from headwise.dataflow.runner import run as run
    from headwise.dataflow.sizes import Sizes as Sizes
    from headwise.dataflow.sizes import product as product
    from headwise.dataflow.summed_products import MULTIPLICATIONS as MULTIPLICATIONS
    from headwise.dataflow.sums_over_tokens import TOTALS as TOTALS
    from headwise.dataflow.sums_over_tokens import TokenSum as TokenSum
    from headwise.dataflow.sums_over_tokens import downstream as downstream
    from headwise.dataflow.sums_over_tokens import reader as reader
    from headwise.dataflow.sums_over_tokens import token_sums as token_sums
    from headwise.dataflow.token_mixing import feature_sums as feature_sums
    from headwise.dataflow.token_mixing import mixing_of as mixing_of
else:
    __getattr__, __dir__ = lazy_names(__name__, _HOME)
