"""Head parts: the parts of a head that are multiplied apart, as those with positions and those without."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headwise.dataflow import AttentionOps, MarkedOp, Run, chain_of, is_scores
from headwise.diagnosis.checks.head_layout import sides
from headwise.recording import TensorSeen

__all__ = ["HeadParts", "head_parts"]

SPLITS = frozenset({"split", "split_with_sizes", "chunk", "tensor_split"})


@dataclass(frozen=True)
class HeadParts:
    """The width of a head of queries, and those of its parts, each of which meets its own part of the keys."""

    width: int
    parts: tuple[int, ...]


def head_parts(run: Run, attention: AttentionOps) -> HeadParts | None:
    """The parts of heads whose products are added up, so that these are the product of whole heads; None: there are
    none, or some part meets no keys. DeepSeek-AI 2024, arXiv:2405.04434, eq. 16.
    """
    products = [entry for entry in attention.path if is_scores(entry)]
    split: MarkedOp | None = None
    used: list[TensorSeen] = []
    for product in products if len(products) > 1 else ():
        side = next((each for each in sides(replace(attention, scores=product)) if each.name == "q"), None)
        part = None if side is None else _part(product, chain_of(run, side.entry, side.operand))
        if part is None or (split is not None and part[0] is not split):
            return None
        split = part[0]
        used.append(part[1])
    parts = tuple(tensor.shape[-1] for tensor in used)
    if split is None or len({tensor.number for tensor in used}) != len(products):
        return None
    width = split.inputs[0].shape[-1]
    return HeadParts(width, parts) if sum(parts) == width else None


def _part(product: MarkedOp, chain: Sequence[MarkedOp]) -> tuple[MarkedOp, TensorSeen] | None:
    """The last operation that cut the features of an operand in parts, and the part that went on."""
    for split in reversed(chain):
        if split.last not in SPLITS or split.outputs[0].shape[:-1] != split.inputs[0].shape[:-1]:
            continue
        taken = {number for entry in (*chain, product) if entry.at > split.at for number in entry.taken}
        outputs = [output for output in split.outputs if output.number in taken]
        if len(outputs) == 1:
            return split, outputs[0]
    return None
