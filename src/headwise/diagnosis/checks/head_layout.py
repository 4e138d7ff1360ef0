"""Head layout: whether each head of each sample meets its own tokens and features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.dataflow import (
    LAYERS,
    AttentionOps,
    MarkedOp,
    Marks,
    is_constant,
    operand_marks,
    own_of,
    own_tokens,
    place_of,
    sample_held,
    sample_of,
    source_of,
    value_of,
)

__all__ = ["LayoutProblem", "Side", "are_of_pairs", "layout_problems", "operand_problem", "sides", "unequal"]


@dataclass(frozen=True)
class Side:
    """An operand that meets another. name: "q", "k" or "v"; t, f: its marks as (problems, rows, channels), x: what it
    held, in the same form.
    """

    name: str
    entry: MarkedOp
    operand: Tensor
    t: Tensor
    f: Tensor
    x: Tensor


@dataclass(frozen=True)
class LayoutProblem:
    """What is wrong with a side. what: "mixed" (one channel vector holds several tokens), "features" (rows are heads of
    one token), "samples" (rows are samples), "samples mixed", "features mixed", "unequal samples", "unequal tokens".
    """

    side: str
    what: str


def sides(attention: AttentionOps) -> list[Side]:
    """The three operands of an attention, as far as their marks are known."""
    out = []
    scores, context = attention.scores, attention.context
    if attention.fused:
        if context.last in LAYERS:
            return []
        for name, place in (("q", 0), ("k", 1), ("v", 2)):
            marks = context.given[place] if place < len(context.given) else None
            if marks is not None and marks.kind == "token" and len(marks.shape) >= 2:
                operand = context.tensors[place]
                t, f, x = (
                    array.reshape(-1, *array.shape[-2:])
                    for array in (marks.arrays["t"], marks.arrays["f"], value_of(context, operand))
                )
                out.append(Side(name, context, operand, t, f, x))
        return out
    if scores is not None and scores.joint is not None:
        names = ("q", "k") if attention.looks == "x" else ("k", "q")
        for left, name, marks in zip((True, False), names, operand_marks(scores), strict=True):
            if marks is not None and marks.kind == "token":
                apart = _heads_apart(scores, marks, left=left)
                operand = scores.joint.a if left else scores.joint.b
                t, f, x = (
                    scores.joint.flat(array, left=left, apart=apart)
                    for array in (marks.arrays["t"], marks.arrays["f"], value_of(scores, operand))
                )
                out.append(Side(name, scores, operand, t, f, x))
    joint = context.joint
    if joint is not None:
        for left, marks in zip((True, False), operand_marks(context), strict=True):
            if marks is not None and marks.kind == "token":
                operand, tokens = joint.a if left else joint.b, _tokens_of_values(attention, marks, left=left)
                t, f, x = (
                    joint.flat(array, left=left).transpose(1, 2)
                    for array in (tokens, marks.arrays["f"], value_of(context, operand))
                )
                out.append(Side("v", context, operand, t, f, x))
    return sorted(out, key=lambda side: "qkv".index(side.name))


def _tokens_of_values(attention: AttentionOps, marks: Marks, *, left: bool) -> Tensor:
    """The tokens of values; where rows share their weights, those of any row as those of the row of the weights."""
    context, tokens = attention.context, marks.arrays["t"]
    joint, weights = context.joint, operand_marks(context)[int(left)]
    if joint is None or weights is None or weights.kind != "pair":
        return tokens
    letters, others = (joint.left, joint.right) if left else (joint.right, joint.left)
    rows = own_tokens(joint, marks, letters, others)
    for letter in rows:
        tokens = tokens.narrow(letters.index(letter), 0, 1)
    return tokens + (weights.arrays[attention.keys].min() - tokens.min()) if rows else tokens


def _heads_apart(scores: MarkedOp, marks: Marks, *, left: bool) -> str:
    """The letters of an operand that are heads which the other has not, where its rows are tokens as well."""
    joint = scores.joint
    if joint is None:
        return ""
    letters, others = (joint.left, joint.right) if left else (joint.right, joint.left)
    rows = [letter for letter in letters if letter in joint.out and letter not in others]
    heads = [row for row in rows if is_constant(marks.arrays["t"], letters.index(row))]
    return "".join(heads) if len(rows) > 1 and len(heads) < len(rows) else ""


def layout_problems(attention: AttentionOps, handed: Sequence[Side] | None = None) -> list[LayoutProblem]:
    """What is wrong with what an attention is handed, in order. handed: None: its operands."""
    by_name = {each.name: each for each in (sides(attention) if handed is None else handed)}
    out = [LayoutProblem(each.name, text) for each in by_name.values() if (text := operand_problem(each.t, each.f))]
    # with what all samples share, rows may be of any of them
    is_shared = any(name in by_name and bool((sample_held(by_name[name].t) < 0).all()) for name in "qk")
    out = [each for each in out if not (is_shared and each.side in ("q", "k") and each.what.startswith("samples"))]
    if {"q", "k"} <= by_name.keys() and is_constant(by_name["k"].f, 1) and _are_all_heads(by_name["q"]):
        # heads that share a key may stand among the queries
        out = [each for each in out if (each.side, each.what) != ("q", "features mixed")]
    if out:
        return out
    if attention.fused:
        return unequal(by_name)
    out = unequal({name: each for name, each in by_name.items() if name != "v"})
    return [*out, *(_unequal_tokens(attention, by_name["v"], by_name.get("k")) if "v" in by_name else [])]


def _are_all_heads(side: Side) -> bool:
    """Whether the rows of an operand are each token with each head, once."""
    t, f = side.t[:, :, 0], side.f[:, :, 0]
    counts = {(len(rows.unique()), len(heads.unique()), len(set(zip(rows.tolist(), heads.tolist(), strict=True))))
              for rows, heads in zip(t, f, strict=True)}  # fmt: skip
    return all(heads > 1 and tokens * heads == pairs == t.shape[1] for tokens, heads, pairs in counts)


def unequal(sides_by_name: Mapping[str, Side]) -> list[LayoutProblem]:
    """That queries and keys are of other samples, or keys and values of other tokens."""
    out = []
    if "q" in sides_by_name and "k" in sides_by_name and sides_by_name["q"].t.shape[0] == sides_by_name["k"].t.shape[0]:
        a, b = (_one(sample_held(sides_by_name[name].t)) for name in "qk")
        if bool(((a != b) & (a >= 0) & (b >= 0)).any()):
            out.append(LayoutProblem("k", "unequal samples"))
    if (
        "v" in sides_by_name
        and "k" in sides_by_name
        and sides_by_name["v"].t.shape[:2] == sides_by_name["k"].t.shape[:2]
    ):
        a, b = (own_of(sides_by_name[name].t[:, :, 0]) for name in "vk")
        if bool(((a != b) & (a >= 0) & (b >= 0)).any()):
            out.append(LayoutProblem("v", "unequal tokens"))
    return out


def _unequal_tokens(attention: AttentionOps, v: Side, k: Side | None) -> list[LayoutProblem]:
    """Whether the weights of a key meet the value of another."""
    tokens = attention.weight_tokens
    if tokens is None:
        return []
    looked_at = tokens[1][:, 0, :]
    if k is not None and _are_apart(looked_at, k.t):
        # scores to which those of something else were added first
        return []
    keys, mine = own_of(looked_at), own_of(v.t[:, :, 0])
    if are_of_pairs(attention):
        return []
    # values that alone have what no token gave among them are those of other places on purpose
    is_moved = bool((mine < 0).any()) and not bool((keys < 0).any())
    if not is_moved and keys.shape == mine.shape and bool(((keys != mine) & (keys >= 0) & (mine >= 0)).any()):
        return [LayoutProblem("v", "unequal tokens")]
    return []


def are_of_pairs(attention: AttentionOps) -> bool:
    """Whether values are those of pairs of tokens, as of edges, each of which has one of its own."""
    values = next((side for side in sides(attention) if side.name == "v"), None)
    if attention.weight_tokens is None or values is None:
        return False
    keys = attention.weight_tokens[1][:, 0, :]
    if not keys.numel() or not values.t.numel():
        return False
    return _are_apart(keys, values.t) and int(own_of(values.t[:, :, 0]).max()) > int(own_of(keys).max())


def _are_apart(a: Tensor, b: Tensor) -> bool:
    """Whether tokens are of other arguments than others are."""
    return set(torch.unique(source_of(a)).tolist()).isdisjoint(torch.unique(source_of(b)).tolist())


def operand_problem(t: Tensor, f: Tensor) -> str:
    """What is wrong with one operand (problems, rows, channels); "": nothing."""
    if not is_constant(t, 2):
        return "" if _is_shifted(t) else "mixed"
    if bool((t < 0).any()):
        # compressed, learned or padded tokens are among them
        return ""
    token = t[:, :, :1]
    if t.shape[1] > 1:
        same_token = is_constant(token, 1) and bool((token >= 0).all())
        if same_token and not is_constant(f, 1):
            return "features"
        if not is_constant(sample_of(token), 1):
            return "samples" if is_constant(place_of(token), 1) else "samples mixed"
        if not is_constant(f, 1):
            return "features mixed"
    return ""


def _is_shifted(t: Tensor) -> bool:
    """Whether each channel goes from token to token, so that some of them are of tokens before the others."""
    steps, is_known = t.diff(dim=1), (t[:, 1:] >= 0) & (t[:, :-1] >= 0)
    return bool(is_known.any()) and bool((steps[is_known] == 1).all())


def _one(samples: Tensor) -> Tensor:
    return samples.amax(dim=(1, 2))
