"""A document of 65,536 tokens over 4 processes: who holds what, what moves, its whole map, and the numbers of one.

torchrun --nproc-per-node 4 examples/long_document.py
"""

import os
from time import perf_counter

import click
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import headwise as hw

E, HEADS, KV_HEADS = 256, 4, 1
# how many tokens a chapter has on average, and how far a token looks back in its own
CHAPTER, WINDOW = 5000, 2048
# the last tokens, for which one process computes the same
CHECKED = 512


def chapters(length: int) -> torch.Tensor:
    """The chapter that each token belongs to (1, L), of unequal lengths."""
    starts = torch.rand(length, generator=torch.Generator().manual_seed(1)) < 1 / CHAPTER
    return starts.cumsum(0)[None]


@click.command()
@click.option("--length", type=click.IntRange(min=CHECKED), default=65536, show_default=True, help="Tokens in all.")
@torch.no_grad()
def main(length: int) -> None:
    """Run one layer over a long document whose tokens 4 processes share."""
    if "RANK" not in os.environ:
        raise click.UsageError("this takes processes: torchrun --nproc-per-node 4 examples/long_document.py")
    torch.set_num_threads(1)
    mesh = init_device_mesh("cpu", (int(os.environ["WORLD_SIZE"]),), mesh_dim_names=("cp",))
    torch.manual_seed(0)
    attn = hw.MultiHeadAttention(E, HEADS, num_kv_heads=KV_HEADS, position=hw.Rotary())
    tokens = torch.randn(1, length, E)
    mask = hw.window(keys=WINDOW) & hw.documents(chapters(length))

    size = hw.distributed.LayerSize(query=HEADS, key=KV_HEADS, width=E // HEADS, itemsize=4)
    spread = hw.distributed.spread(length, mesh, mask=mask, layer=size)
    x, start = spread.local(tokens), perf_counter()
    with hw.watch(attn) as seen:
        y = attn(x, mask=mask, spread=spread)
    seconds, start = perf_counter() - start, perf_counter()
    whole = spread.whole(y)
    # of the whole map, on every rank: each computes its own rows, and all ask in the same order
    entropy, received = seen[""].entropy()[0], seen[""].received()[0]
    reading = perf_counter() - start

    if mesh.get_rank() == 0:
        q, k = torch.empty(1, HEADS, x.shape[1], E // HEADS), torch.empty(1, KV_HEADS, x.shape[1], E // HEADS)
        click.echo(f"{spread}\n")
        click.echo(hw.distributed.ways(q, k, k, mask=mask, spread=spread))
        pairs = spread.estimate.pairs.sum().item()
        click.echo(f"\npairs attended to, of {length}²: {pairs / length**2:.2%}; seconds of rank 0: {seconds:.1f}")
        click.echo(f"{seen['']}; read in {reading:.1f} s")
        most = received.mean(0).argmax().item()
        click.echo(
            f"entropy {entropy.mean():.2f} nats of a token; token {most} receives {received[:, most].mean():.1f}"
        )
        # the last tokens see nothing before their window, so a shorter text gives them the same
        last = slice(length - min(length, WINDOW + CHECKED), length)
        alone = attn(
            tokens[:, last],
            mask=hw.window(keys=WINDOW) & hw.documents(chapters(length)[:, last]),
            positions=torch.arange(length)[last],
        )
        difference = (alone[:, -CHECKED:] - whole[:, -CHECKED:]).abs().max()
        click.echo(f"the last {CHECKED} tokens in one process: largest difference {difference:.0e}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
