"""Decoding: how each host that keeps what it has seen is used, so that mutants of its cache can be told by numbers."""

import torch

__all__ = ["decoded"]

# a prompt and steps; steps alone; two parts
CUTS = ((3, 1, 1), (1, 1, 1, 1, 1), (3, 2))


def _returned(model, parts, name, **options):
    held, out = None, []
    for part in parts:
        y, held, *_ = model(part, **{name: held}, **options)
        out.append(y)
    return out


def _held(model, parts, store, name):
    return [model(part, **{name: store}) for part in parts]


def _started(model, parts):
    starts = [0, *torch.tensor([part.shape[1] for part in parts]).cumsum(0).tolist()]
    return [model(part, start_pos=start) for part, start in zip(parts, starts[:-1], strict=True)]


def _kept(model, parts):
    model.reset_cache()
    return [model(part, use_cache=True) for part in parts]


def _slotted(model, parts):
    model.setup_cache(4, 8)
    ends = torch.tensor([part.shape[1] for part in parts]).cumsum(0).tolist()
    return [model(part, torch.arange(end - part.shape[1], end)) for part, end in zip(parts, ends, strict=True)]


# by the name of a host's file
USES = {
    "past.py": lambda model, parts, space: _returned(model, parts, "past"),
    "flagged.py": lambda model, parts, space: _returned(model, parts, "layer_past", use_cache=True),
    "named.py": lambda model, parts, space: _held(model, parts, {}, "kv_cache"),
    "owned.py": lambda model, parts, space: _held(model, parts, space["KVCache"](), "cache"),
    "started.py": lambda model, parts, space: _started(model, parts),
    "kept.py": lambda model, parts, space: _kept(model, parts),
    "slotted.py": lambda model, parts, space: _slotted(model, parts),
}


def decoded(file, build, space, width):
    """What a host gives when it decodes two sequences, each in several ways; None where it raises or has no cache.

    build: makes it; space: the names of its file; width: of its input.
    """
    if file not in USES:
        return None
    out = []
    try:
        for cuts in CUTS:
            model = build().double()
            for seed in (0, 1):
                x = torch.randn(4, 5, width, generator=torch.Generator().manual_seed(seed)).double()
                with torch.no_grad():
                    out += [each[:, -1] for each in USES[file](model, x.split(cuts, dim=1), space)]
    except (RuntimeError, IndexError, ValueError):
        return None
    return torch.stack(out)
