"""Trains the network that reads dates on 4 processes, and shows that its loss is that of one process.

torchrun --nproc-per-node 4 examples/dates_spread.py
"""

import os
from datetime import date
from pathlib import Path
from random import Random
from time import perf_counter

import click
import torch
import torch.distributed as dist
from date_reader.model import DateReader, iso_ids
from date_reader.picture import save_losses
from date_reader.written import ALPHABET, split_days, write_at_random
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.functional import cross_entropy

import headwise as hw

BATCH = 128
RATE = 8e-3
# the mesh: the signs of a text over 2 ranks, the heads of a layer over 2
SIZES = {"cp": 2, "tp": 2}


class Loss(nn.Module):
    """What a network is trained on: the sum of its losses over the signs of this rank, and how many all ranks have."""

    def __init__(self, reader: DateReader, mesh: DeviceMesh | None = None) -> None:
        super().__init__()
        self.reader, self.mesh = reader, mesh

    def forward(self, texts: Tensor, dates: Tensor) -> tuple[Tensor, int]:
        """texts (B, L) and dates (B, 1 + 10) of the whole batch, on every rank."""
        text, written = self.spread(texts.shape[1]), self.spread(dates.shape[1] - 1)
        scores = self.reader.write(dates[:, :-1], self.reader.read(texts, text), spread=written)
        wanted = dates[:, 1:] if written is None else written.local(dates[:, 1:])
        return cross_entropy(scores.flatten(0, 1), wanted.flatten(), reduction="sum"), dates[:, 1:].numel()

    def spread(self, length: int) -> hw.distributed.Spread | None:
        """Of so many signs over the ranks; None: one process holds all."""
        return None if self.mesh is None else hw.distributed.spread(length, self.mesh["cp"], layout="zigzag")


def over(mesh: DeviceMesh, reader: DateReader) -> Loss:
    """The network with its heads and wide layers split over tp, and every parameter cut once more over cp."""
    plan = hw.distributed.plan(reader)
    for side in ("encoder", "decoder"):
        plan |= {f"{side}.think.0": ColwiseParallel(), f"{side}.think.2": RowwiseParallel()}
    parallelize_module(reader, mesh["tp"], plan)
    return fully_shard(Loss(reader, mesh), mesh=mesh["cp"])


def train(loss: Loss, days: list[date], *, steps: int, seed: int) -> list[float]:
    """Show the network `steps` batches of dates, the same for every seed, and give the loss of each."""
    optimizer = torch.optim.AdamW(loss.parameters(), lr=RATE, betas=(0.9, 0.98), weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps, pct_start=0.2)
    ranks = 1 if loss.mesh is None else loss.mesh["cp"].size()
    random, losses = Random(seed), []
    for _ in range(steps):
        batch = random.choices(days, k=BATCH)
        texts = loss.reader.encode(write_at_random(batch, random))  # (128, L)
        dates = iso_ids([day.isoformat() for day in batch])  # (128, 1 + 10)
        summed, count = loss(texts, dates)
        optimizer.zero_grad()
        # fully_shard takes the mean of the gradients over its ranks, where their sum is wanted
        (summed / count * ranks).backward()
        optimizer.step()
        schedule.step()
        total = summed.detach() / count
        if loss.mesh is not None:
            dist.all_reduce(total, group=loss.mesh.get_group("cp"))
        losses.append(total.item())
    return losses


def made(seed: int) -> DateReader:
    torch.manual_seed(seed)
    return DateReader(ALPHABET)


@click.command()
@click.option("--steps", type=click.IntRange(min=2), default=100, show_default=True, help="Batches to train on.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Decides all that is random.")
@click.option(
    "--picture", type=click.Path(dir_okay=False, path_type=Path), default="build/dates/losses.png", show_default=True,
    help="File of the two curves.",
)  # fmt: skip
def main(steps: int, seed: int, picture: Path) -> None:
    """Train on 4 processes, then in one, and compare the losses of every step."""
    if "RANK" not in os.environ or int(os.environ["WORLD_SIZE"]) != 4:
        raise click.UsageError("this takes 4 processes: torchrun --nproc-per-node 4 examples/dates_spread.py")
    torch.set_num_threads(1)
    mesh = init_device_mesh("cpu", tuple(SIZES.values()), mesh_dim_names=tuple(SIZES))
    days, _ = split_days(Random(seed), held_out=2000)
    start = perf_counter()
    spread = train(over(mesh, made(seed)), days, steps=steps, seed=seed)
    seconds = perf_counter() - start
    if mesh.get_rank() == 0:
        alone = train(Loss(made(seed)), days, steps=steps, seed=seed)
        difference = max(abs(a - b) for a, b in zip(alone, spread, strict=True))
        click.echo(f"loss after {steps} steps: {alone[-1]:.6f} of one process, {spread[-1]:.6f} of 4")
        click.echo(f"largest difference of a step: {difference:.1e}")
        picture.parent.mkdir(parents=True, exist_ok=True)
        save_losses(alone, spread, picture)
        click.echo(f"wrote {picture}; seconds on 4 processes: {seconds:.0f}, in all {perf_counter() - start:.0f}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
