"""What a spread would cost, before a cluster is rented: python -m benchmarks.spread --ranks 512 --length 1048576.

Arithmetic of masks, layouts and sizes alone: no process is started and nothing is timed. Bytes are those that the
busiest rank receives, found by tiles; seconds are modelled from what --flops, --bandwidth and --latency say of a rank.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import headwise as hw
from headwise.distributed.costs import (
    BACKWARD,
    FORWARD,
    MACHINES,
    Estimate,
    LayerSize,
    Machine,
    compare,
    estimate,
    work_of,
)
from headwise.distributed.layouts import striped
from headwise.errors import AttentionError
from headwise.wording import say

MASKS = ("causal", "window", "prefix", "lengths", "documents", "keys", "allowed", "rule")


@dataclass(frozen=True)
class Row:
    """One way on one layout: of the busiest rank, bytes received and held, and seconds of a layer's step.

    why_not: one sentence where the way cannot be taken, else "".
    """

    layout: str
    runs: int
    way: str
    imbalance: float
    forward_bytes: float
    backward_bytes: float
    memory: float
    compute: float
    transfer: float
    seconds: float
    why_not: str = ""


@dataclass(frozen=True)
class Question:
    """What is asked: a sequence, its ranks, the size of a layer and what a rank can do."""

    length: int
    ranks: int
    heads: LayerSize
    machine: Machine

    @property
    def held_bytes(self) -> float:
        """Bytes of q, k, v and the outputs of the tokens that a rank holds."""
        features = 2 * (self.heads.query + self.heads.key) * self.heads.width
        return math.ceil(self.length / self.ranks) * features * self.heads.itemsize

    @property
    def ring_bytes(self) -> float:
        """What a ring that passes every key and value on to every rank moves, forward."""
        return self.length * (self.ranks - 1) / self.ranks * self.heads.token_bytes


def gather(at: Question, found: Estimate) -> Row:
    """One exchange of the keys that are needed, then attention; backward their gradients go home."""
    most = float(found.received.max())
    forward, backward = most * at.heads.token_bytes, most * at.heads.gradient_bytes
    compute, transfer = _compute(at, float(found.pairs.max())), (forward + backward) / at.machine.bandwidth
    seconds = compute + transfer + 2 * at.machine.latency
    return _row(found, "gather", (forward, backward, at.held_bytes + forward), (compute, transfer, seconds))


def ring(at: Question, found: Estimate) -> Row:
    """A step a rank, straight from the owner and only what is needed, while the step before computes."""
    most, steps = float(found.received.max()), at.ranks - 1
    forward = most * at.heads.token_bytes
    # backward asks for the keys again
    backward = most * (at.heads.token_bytes + at.heads.gradient_bytes)
    compute, transfer = _compute(at, float(found.pairs.max())), (forward + backward) / at.machine.bandwidth
    seconds = max(compute, transfer + 3 * steps * at.machine.latency)
    block = min(most, math.ceil(at.length / at.ranks)) * at.heads.token_bytes
    return _row(found, "ring", (forward, backward, at.held_bytes + 2 * block), (compute, transfer, seconds))


def heads(at: Question, found: Estimate) -> Row:
    """Tokens are changed for heads and back: every rank has all tokens of some heads (Ulysses, arXiv:2309.14509)."""
    if at.ranks > at.heads.query:
        why = f"{at.ranks} ranks, but {at.heads.query} query heads"
        return Row("any", 1, "heads", *(math.nan,) * 7, why)
    share, key_heads = math.ceil(at.heads.query / at.ranks), max(1, math.ceil(at.heads.key / at.ranks))
    features = 2 * (share + key_heads) * at.heads.width
    forward = at.length * (at.ranks - 1) / at.ranks * features * at.heads.itemsize
    pairs = float(found.pairs.sum()) * share / at.heads.query
    compute, transfer = _compute(at, pairs), 2 * forward / at.machine.bandwidth
    memory = at.held_bytes + at.length * features * at.heads.itemsize
    seconds = compute + transfer + 4 * at.machine.latency
    # every rank computes all pairs of its heads, wherever the tokens come from
    even = share * at.ranks / at.heads.query
    return Row("any", 1, "heads", even, forward, forward, memory, compute, transfer, seconds)


def table(at: Question, mask: hw.Mask | None) -> tuple[list[Row], float]:
    """Every way on every layout, and the seconds of a step that shared its work out evenly and sent nothing."""
    device = torch.device("cpu")
    found = compare(mask, at.length, at.ranks, machine=at.machine, layer=at.heads, device=device)
    work, seen = work_of(mask, at.length, device)
    found.append(estimate(striped(at.length, at.ranks), work, seen, machine=at.machine, layer=at.heads))
    ideal = _compute(at, float(work.double().sum()) / at.ranks)
    return [*(way(at, each) for each in found for way in (gather, ring)), heads(at, found[0])], ideal


def _compute(at: Question, pairs: float) -> float:
    return at.heads.flops(pairs, FORWARD + BACKWARD) / at.machine.flops


def _row(
    found: Estimate,
    way: str,
    bytes_: tuple[float, float, float],
    seconds: tuple[float, float, float],
) -> Row:
    runs = math.ceil((int((found.layout.owner.diff() != 0).sum()) + 1) / found.layout.ranks)
    return Row(found.layout.name, runs, way, found.imbalance, *bytes_, *seconds)


def mask_of(text: str) -> hw.Mask | None:
    """The mask that an expression gives, in the names of headwise's masks, hw and torch; "none": no mask."""
    if text == "none":
        return None
    names: dict[str, Any] = {name: getattr(hw, name) for name in MASKS}
    # what a person types into their own terminal
    found = eval(text, {"hw": hw, "torch": torch, **names})
    if not isinstance(found, hw.Mask):
        raise TypeError(f"it gives a {type(found).__name__}")
    return found


def drawn(rows: list[Row], ideal: float) -> Table:
    """The rows as a table, the fastest first."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    made.add_column("layout")
    numbers = ("slowest/mean", "receives", "backward", "memory", "compute", "transfer", "step", "of ideal")
    for name in ("runs", "way", *numbers):
        made.add_column(name, justify="left" if name == "way" else "right", no_wrap=True)
    for row in sorted(rows, key=lambda row: (bool(row.why_not), row.seconds if not row.why_not else 0.0)):
        if row.why_not:
            made.add_row(row.layout, str(row.runs), row.way, "-", "-", "-", "-", "-", "-", "-", row.why_not)
            continue
        made.add_row(
            row.layout, str(row.runs), row.way, f"{row.imbalance:.2f}",
            *(amount(n, "B") for n in (row.forward_bytes, row.backward_bytes, row.memory)),
            *(amount(n, "s") for n in (row.compute, row.transfer, row.seconds)), f"{ideal / row.seconds:.2f}",
        )  # fmt: skip
    return made


def amount(value: float, unit: str) -> str:
    """A number with three digits and a prefix: 1.34 GB, 22.1 ms."""
    for factor, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "u")):
        if value >= factor or (unit == "B" and factor == 1.0):
            return f"{value / factor:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def picture(rows: list[Row], ideal: float, title: str, path: Path) -> None:
    """Write bars of the modelled time of each way on each layout, computing and moving apart, to a file."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise SystemExit(f"the picture needs matplotlib: {say('install.extra', extra='plot')}") from error
    able = [row for row in rows if not row.why_not]
    names = [f"{row.layout} x{row.runs}, {row.way}" for row in able]
    figure = Figure(figsize=(11, 1.2 + 0.32 * len(able)), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, sharey=True)
    left.barh(names, [1e3 * row.compute for row in able], color="#1b6ca8", label="computing, slowest rank")
    starts = [0.0 if row.way == "ring" else 1e3 * row.compute for row in able]
    left.barh(names, [1e3 * row.transfer for row in able], left=starts, height=0.4, color="#d95f02", label="moving")
    left.axvline(1e3 * ideal, color="#999999", linestyle="--", label="even work, nothing moved")
    left.set_xlabel("milliseconds of a layer's forward and backward pass")
    left.legend(frameon=False, fontsize=8)
    left.invert_yaxis()
    right.barh(names, [row.memory / 1e6 for row in able], color="#777777")
    right.set_xlabel("MB held by a rank for one layer's attention")
    figure.suptitle(title, fontsize=10)
    figure.savefig(path, dpi=130)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, and draw the picture where one is asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spread", description=__doc__)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--length", type=int, default=131072, help="tokens of the whole sequence")
    parser.add_argument("--mask", default="causal()", help='as in Python: "causal() & window(before=4095)", or none')
    parser.add_argument("--machine", choices=MACHINES, default="infiniband", help="what a rank and its network can do")
    parser.add_argument("--flops", type=float, help="of attention, a second and rank")
    parser.add_argument("--bandwidth", type=float, help="bytes that a rank receives a second")
    parser.add_argument("--latency", type=float, help="seconds of one exchange")
    for name, value in LayerSize()._asdict().items():
        parser.add_argument(f"--{name}", type=int, default=value, help=f"of a layer's heads; {value} if not said")
    parser.add_argument("--picture", type=Path, metavar="FILE.png")
    options = parser.parse_args(arguments)
    given = {name: getattr(options, name) for name in Machine._fields if getattr(options, name) is not None}
    machine = MACHINES[options.machine]._replace(**given)
    size = LayerSize(*(getattr(options, name) for name in LayerSize._fields))
    at = Question(options.length, options.ranks, size, machine)
    start = time.perf_counter()
    try:
        mask = mask_of(options.mask)
        rows, ideal = table(at, mask)
    except (AttentionError, SyntaxError, NameError, TypeError) as error:
        parser.error(f"--mask {options.mask!r} on {options.length} tokens and {options.ranks} ranks: {error}")
    title = (
        f"{at.length} tokens, {at.ranks} ranks, {options.mask}; {size.query}/{size.key} heads of {size.width}, "
        f"{size.itemsize} bytes a number; {machine.flops:.3g} flop/s, {machine.bandwidth:.3g} B/s, "
        f"{machine.latency:.3g} s"
    )
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(title, highlight=False)
    console.print(drawn(rows, ideal), highlight=False)
    moved = f"A ring that passes all keys on moves {amount(at.ring_bytes, 'B')} forward."
    console.print(f"{moved} Planned in {time.perf_counter() - start:.1f} s.", highlight=False)
    if options.picture is not None:
        picture(rows, ideal, title, options.picture)
        console.print(f"drawn: {options.picture}", highlight=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
