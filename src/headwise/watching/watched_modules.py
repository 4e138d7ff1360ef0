"""Watched modules: which modules of a model are watched, and which cannot be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch
from torch import nn

from headwise.errors import ArgumentError

__all__ = ["Only", "WatchedModules", "chosen", "hookable", "is_native_layer", "unwatchable"]

# names, globs, several of them, or a function of a module's full name
Only = str | Iterable[str] | Callable[[str], bool] | None

COMPILED = "is compiled, and what runs in a compiled module is not seen: watch the module it was compiled from"
SCRIPTED = "is a ScriptModule, which runs outside of Python: watch the module it was scripted or traced from"
PARALLEL = "runs its copies in other threads, which are not seen: watch the module inside it"


@dataclass(frozen=True, eq=False)
class WatchedModules:
    """The modules of a watched model.

    names: of all of them. taken: those whose calls are recorded. takes_functions: whether calls of functions outside of
    any module are recorded too.
    """

    names: Mapping[nn.Module, str]
    taken: frozenset[nn.Module]
    takes_functions: bool

    def name(self, module: nn.Module) -> str | None:
        """The name of a module of the model; None: its calls are not recorded."""
        return self.names[module] if module in self.taken else None


def chosen(names: dict[nn.Module, str], only: Only) -> frozenset[nn.Module]:
    """The modules that `only` takes: by a name or glob with all that is inside of them, by a function one by one."""
    if only is None:
        return frozenset(names)
    if callable(only):
        taken = [module for module, name in names.items() if only(name)]
    else:
        patterns = [only] if isinstance(only, str) else list(only)
        idle = [p for p in patterns if not any(_takes(p, name) for name in names.values())]
        if idle and len(idle) < len(patterns):
            raise ArgumentError(
                f"each name in only= must take a module, but {', '.join(map(repr, idle))} of {len(patterns)} takes "
                "none: leave it out, or correct it"
            )
        taken = [module for module, name in names.items() if any(_takes(p, name) for p in patterns)]
    if not taken:
        some = ", ".join(f'"{name}"' for name in list(names.values())[1:9])
        raise ArgumentError(
            f"only= must take at least one of the model's {len(names)} modules, but {only!r} takes none: names are "
            f"like {some}"
        )
    return frozenset(taken)


def _takes(pattern: str, name: str) -> bool:
    """Whether a name, or that of a module around it, fits a pattern; "" is the model, with everything inside of it."""
    parts = name.split(".")
    return pattern == "" or any(fnmatchcase(".".join(parts[:n]), pattern) for n in range(1, len(parts) + 1))


def is_native_layer(module: nn.Module) -> bool:
    """Whether a module has torch's fast path, which a hook on it or inside of it would switch off."""
    if not isinstance(module, nn.TransformerEncoderLayer) or not isinstance(module.self_attn, nn.MultiheadAttention):
        return False
    # a hook has switched it off already: compat.torch.MultiheadAttention has one
    waiting: list[nn.Module] = [module]
    # this is asked at each call of the layer, and to name its parts would cost more than the call
    while waiting:
        part = waiting.pop()
        if part._forward_hooks or part._forward_pre_hooks:
            return False
        waiting += [inner for inner in part._modules.values() if inner is not None]
    return True


def hookable(model: nn.Module, taken: frozenset[nn.Module], closed: Mapping[nn.Module, str]) -> Iterator[nn.Module]:
    """The modules that may call attention in their forward, outside of what is closed or torch's own.

    The chosen ones, and those inside of them, whose calls would otherwise be taken for theirs.
    """
    # everything is inside of the model
    inside = None if model in taken else {inner for module in taken for inner in module.modules()}
    for module in _outside(model, closed):
        if (inside is None or module in inside) and not type(module).__module__.startswith("torch.nn.modules."):
            yield module


def unwatchable(module: nn.Module) -> str | None:
    """Why what runs inside of a module cannot be seen; None: it can."""
    if isinstance(module, torch.jit.ScriptModule):
        return SCRIPTED
    # by torch.compile(module), module.compile(), or a forward that was compiled
    is_compiled = isinstance(module, torch._dynamo.OptimizedModule) or module._compiled_call_impl is not None
    if is_compiled or hasattr(module.forward, "_torchdynamo_orig_callable"):
        return COMPILED
    if isinstance(module, nn.DataParallel) and len(module.device_ids) > 1:
        return PARALLEL
    return None


def _outside(module: nn.Module, closed: Mapping[nn.Module, str]) -> Iterator[nn.Module]:
    """A module and all inside of it, each once; closed ones and layers with a fast path are left out whole."""
    visited: dict[nn.Module, None] = {}
    waiting = [module]
    while waiting:
        inner = waiting.pop()
        if inner in visited or inner in closed or is_native_layer(inner):
            continue
        visited[inner] = None
        waiting += [part for part in inner._modules.values() if part is not None]
    return iter(visited)
