"""Of any chain of moves each named axis holds what its name says, in that order, and what is mixed is marked."""

import random
from itertools import permutations

import pytest
import torch

from headwise.calls import Named, Plan
from headwise.tracing.probe_runs import probed

FREE = {"B": "batch", "L": "queries", "H": "heads", "d": "head_width"}
SYMBOLS = tuple(Named(name, meaning) for name, meaning in FREE.items())
STARTS = (("B", "H", "L", "d"), ("L", "B", "H", "d"), ("H", "B", "d", "L"))
CHAINS = range(60)


def chain(seed):
    """A start and a few moves of it, as lines of code; sizes are legal, orders are not minded."""
    generator = random.Random(seed)
    start = generator.choice(STARTS)
    axes, lines = list(start), []
    for _ in range(generator.randint(1, 5)):
        move = generator.choice((permuted, flattened, unflattened, reshaped))
        line, axes = move(generator, axes)
        lines += [line] * bool(line)
    return start, lines or ["x = x.contiguous()"]


def permuted(generator, axes):
    order = generator.sample(range(len(axes)), len(axes))
    return f"x = x.permute({', '.join(map(str, order))})", [axes[at] for at in order]


def flattened(generator, axes):
    if len(axes) == 1:
        return "", axes
    first, last = sorted(generator.sample(range(len(axes)), 2))
    return f"x = x.flatten({first}, {last})", [*axes[:first], "*".join(axes[first : last + 1]), *axes[last + 1 :]]


def unflattened(generator, axes):
    long = [at for at, axis in enumerate(axes) if "*" in axis]
    if not long:
        return "", axes
    at = generator.choice(long)
    factors = axes[at].split("*")
    if generator.random() < 0.3:
        generator.shuffle(factors)
    cut = generator.randint(1, len(factors) - 1)
    parts = ["*".join(factors[:cut]), "*".join(factors[cut:])]
    return f"x = x.unflatten({at}, ({', '.join(parts)}))", [*axes[:at], *parts, *axes[at + 1 :]]


def reshaped(generator, axes):
    factors = "*".join(axes).split("*")
    if generator.random() < 0.5:
        generator.shuffle(factors)
    cuts = sorted(generator.sample(range(1, len(factors)), generator.randint(1, len(factors) - 1)))
    new = ["*".join(factors[a:b]) for a, b in zip([0, *cuts], [*cuts, len(factors)], strict=True)]
    return f"x = x.reshape({', '.join(new)})", new


def holds(coordinates, sizes, axis, names):
    """Whether the entries along an axis are those of the names, row-major, everywhere."""
    place = 0
    for name in names:
        place = place * sizes[name] + coordinates[name]
    count = coordinates["B"].shape[axis]
    wanted = torch.arange(count).reshape([count if at == axis else 1 for at in range(coordinates["B"].ndim)])
    return bool((place == wanted).all())


@pytest.mark.parametrize("seed", CHAINS)
def test_a_named_axis_holds_what_its_name_says(seed):
    start, lines = chain(seed)
    source = "def f(x, B, L, H, d):\n" + "".join(f"    {line}\n" for line in lines) + "    return x\n"
    namespace = {}
    exec(compile(source, f"<chain {seed}>", "exec"), namespace)
    plan = Plan(namespace["f"], "self", {}, {"x": list(start), **{name: name for name in FREE}}, SYMBOLS)
    steps = probed(plan).steps
    assert len(steps) == len(lines)

    sizes = plan.sizes(0)
    entries = torch.arange(torch.Size([sizes[name] for name in start]).numel()).reshape([sizes[name] for name in start])
    for line, step in zip(lines, steps, strict=True):
        given = {"x": entries, **sizes}
        exec(line, {}, given)
        entries = given["x"]
        coordinates, rest = {}, entries
        for name in reversed(start):
            coordinates[name], rest = rest % sizes[name], rest // sizes[name]
        (shape,) = step.outputs
        for at, axis in enumerate(shape.axes):
            assert axis.scrambled == ("(" in axis.text), (line, str(shape))
            if not axis.scrambled:
                assert holds(coordinates, sizes, at, axis.text.split("*")), (line, str(shape))
            elif axis.text.startswith("(") and axis.text.endswith(")"):
                clean = [
                    names
                    for count in range(1, len(FREE) + 1)
                    for names in permutations(FREE, count)
                    if torch.Size([sizes[name] for name in names]).numel() == axis.size
                    and holds(coordinates, sizes, at, names)
                ]
                assert clean == [], (line, str(shape))
