"""The names of four notes on multi-head attention, and what is fixed in them: one row for each note."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["NOTES", "Note"]


@dataclass(frozen=True)
class Note:
    """One note: the words of its class, the rules that it attends by, and what is fixed here.

    takes, forward: the arguments of its constructor and of its forward. projections: the names of its four linear
    layers, of queries, keys, values and output; they begin the keys of its state_dict. has_bias: whether these have
    biases unless asked. mask: what its mask says, "" where it has none. has_dropout: of the weights. empty_row: what
    a query that may attend to nothing gets here. mended: one sentence for each thing that is right here and was not.
    """

    number: str
    class_name: str
    takes: tuple[str, ...]
    forward: tuple[str, ...]
    projections: tuple[str, str, str, str]
    has_bias: bool
    mask: str
    has_dropout: bool
    empty_row: str
    mended: tuple[str, ...]


NOTES = (
    Note(
        number="000",
        class_name="MultiHeadAttention",
        takes=("model_dim", "num_heads", "dropout"),
        forward=("q", "k", "v", "mask"),
        projections=("q_proj", "k_proj", "v_proj", "o_proj"),
        has_bias=True,
        mask="0 = blocked, (L, S) or (B, H, L, S)",
        has_dropout=True,
        empty_row="zeros",
        mended=(
            "scores are divided by / and not by //, so that they are not rounded and training works",
            "keys and values are split by their own length, so that cross-attention works",
            "what is blocked has no score, instead of -1e9, so that half precision works",
            "heads that do not divide the width are refused when the layer is made",
        ),
    ),
    Note(
        number="002",
        class_name="MultiHeadAttention",
        takes=("hidden_dim", "num_heads"),
        forward=("X",),
        projections=("W_q", "W_k", "W_v", "W_o"),
        has_bias=True,
        mask="",
        has_dropout=False,
        empty_row="there is none",
        mended=(),
    ),
    Note(
        number="003",
        class_name="MultiHeadAttention",
        takes=("key_size", "query_size", "value_size", "num_hiddens", "num_heads", "dropout", "bias"),
        forward=("queries", "keys", "values", "valid_lens"),
        projections=("W_q", "W_k", "W_v", "W_o"),
        has_bias=False,
        mask="valid_lens, how many keys count, (B,) or (B, L)",
        has_dropout=True,
        empty_row="the mean of all values, as in d2l",
        mended=(
            "an argument that is not known is refused instead of swallowed",
            "what is beyond valid_lens has no score, instead of -1e6, so that half precision works",
            "heads that do not divide the width are refused when the layer is made",
        ),
    ),
    Note(
        number="004",
        class_name="MultiHeadedAttention",
        takes=("h", "d_model", "dropout"),
        forward=("query", "key", "value", "mask"),
        projections=("linears.0", "linears.1", "linears.2", "linears.3"),
        has_bias=True,
        mask="0 = blocked, (B, 1, S) or (B, L, S)",
        has_dropout=True,
        empty_row="the mean of all values, as in the Annotated Transformer",
        mended=(
            "the output goes through linears[-1], and not through linear, which is not there",
            "clones and attention, which the note uses without them, are in headwise.compat.annotated",
            "a mask (B, S) is refused instead of spread over the heads",
        ),
    ),
)
