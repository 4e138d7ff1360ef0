"""Trains an encoder-decoder to read dates as people write them, and tests it on days that it has never seen."""

import sys
from datetime import date
from pathlib import Path
from random import Random
from time import perf_counter

import click
import torch
from date_reader.model import DateReader, iso_ids, read_dates
from date_reader.picture import save_alignment
from date_reader.written import ALPHABET, WAYS, split_days, write_at_random, write_in_turn
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from safetensors.torch import load_file, save_file
from torch.nn.functional import cross_entropy

HELD_OUT_DAYS = 2000
BATCH = 128
PEAK_RATE = 8e-3
WEIGHT_DECAY = 0.1
# what the picture shows: Friday, November 20, 2026 and the last of the Chinese ways
PICTURED = (WAYS[8], WAYS[-1])


def train(model: DateReader, days: list[date], random: Random, *, steps: int) -> None:
    """Show the model `steps` batches of days, each written in any way, and let it guess every sign of their dates."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK_RATE, betas=(0.9, 0.98), weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, PEAK_RATE, total_steps=steps, pct_start=0.2)
    columns = (TextColumn("training"), BarColumn(), MofNCompleteColumn(), TextColumn("loss {task.fields[loss]:.4f}"))
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as progress:
        task = progress.add_task("training", total=steps, loss=float("nan"))
        for _ in range(steps):
            batch = random.choices(days, k=BATCH)
            texts = model.encode(write_at_random(batch, random))  # (128, L)
            dates = iso_ids([day.isoformat() for day in batch])  # (128, 1 + 10)
            scores = model.write(dates[:, :-1], model.read(texts))  # (128, 10, 11)
            loss = cross_entropy(scores.flatten(0, 1), dates[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            progress.update(task, advance=1, loss=loss.item())


def prove_equal(answers: list[str], again: list[str], how: str) -> None:
    """Say that all answers came out alike again, or stop."""
    differing = sum(a != b for a, b in zip(answers, again, strict=True))
    if differing:
        raise click.ClickException(f"{differing} of {len(answers)} dates are not the same {how}, but all should be")
    click.echo(f"the same {len(answers)} dates {how}")


def show(texts: list[str], answers: list[str], days: list[date]) -> None:
    """Print some of the texts and what was read in them, then how many were read right."""
    wrong = [n for n, day in enumerate(days) if answers[n] != day.isoformat()]
    table = Table("written", "read", "", box=None)
    for n in (*range(0, len(WAYS), 4), *wrong[:3]):
        table.add_row(texts[n], answers[n], "right" if n not in wrong else f"wrong: {days[n]}")
    Console().print(table)
    right = len(days) - len(wrong)
    click.echo(f"exact match: {right / len(days):.2%} of {len(days)} days that were held out, in {len(WAYS)} ways")


@click.command()
@click.option("--steps", type=click.IntRange(min=1), default=400, show_default=True, help="Batches to train on.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Decides all that is random.")
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Threads for torch; 2 are faster where nothing else runs.",
)
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), default="build/dates", show_default=True,
    help="Folder for the weights and the picture.",
)  # fmt: skip
def main(steps: int, seed: int, threads: int, out: Path) -> None:
    """Train on dates written in many ways, then read days that were held out."""
    begun = perf_counter()
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.ClickException(f"the folder {out} cannot be made: {error.strerror}") from error
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    random = Random(seed)
    days, held_out = split_days(random, held_out=HELD_OUT_DAYS)
    model = DateReader(ALPHABET)
    train(model, days, random, steps=steps)
    trained = perf_counter()

    texts = write_in_turn(held_out)
    answers = read_dates(model, texts)
    show(texts, answers, held_out)
    prove_equal(answers, read_dates(model, texts, is_cached=False), "without the cache")

    weights, picture = out / "date_reader.safetensors", out / "alignment.png"
    save_file(model.state_dict(), weights)
    reloaded = DateReader(ALPHABET)
    reloaded.load_state_dict(load_file(weights))
    prove_equal(answers, read_dates(reloaded, texts), "with the saved weights")

    # a day with many different digits, so that one sees which of them is looked at
    pictured = max(held_out, key=lambda day: (len(set(day.isoformat())), day.month, day.day))
    save_alignment(reloaded, [way(pictured) for way in PICTURED], picture)
    click.echo(f"wrote {weights} and {picture}")
    click.echo(f"seconds: {trained - begun:.1f} to train, {perf_counter() - begun:.1f} in all")


if __name__ == "__main__":
    try:
        main(standalone_mode=False)
    except click.ClickException as error:
        click.echo(error.format_message(), err=True)
        sys.exit(error.exit_code)
