"""Edits: which changes are asked of the attention of which module, and what has become of each."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from headwise.errors import ArgumentError
from headwise.intervening.edit_types import AttentionEdit, HeadReplacement, Knockout, PatternPatch, Temperature
from headwise.intervening.head_outputs import MeanOutput, PatchedOutput, zeros
from headwise.intervening.positions import Selection, position_set
from headwise.maps import AttentionMap
from headwise.maps.name_lookup import ITSELF, holds, listed
from headwise.watching import Seen

__all__ = ["Edits", "AttentionEdits"]


class Edits:
    """The edits of one block, made by `intervene`; printed, they say what was asked for.

    names: of the modules that may compute attention, the model itself first, as "". refusal: why the attention of a
    name cannot be changed, "": it can.
    """

    def __init__(self, names: Iterable[str], refusal: Callable[[str], str]) -> None:
        self._names, self._refusal = list(names), refusal
        self._known = listed(self._names[1:]) if self._names[1:] else ITSELF
        self._targets: list[AttentionEdits] = []
        # how often all was forgotten, so that a new sequence begins
        self.round = 0

    def find(self, part: str) -> AttentionEdits:
        """The attention of the one module whose name holds `part`, by whole dotted parts; "" is the model itself.

        The module that computes attention may lie deeper: "layer.3" finds "layer.3.attention.self". ArgumentError where
        no module has such a name; where the attention of two modules has, once the second of them runs.

        >>> import torch, headwise as hw
        >>> attn, x = hw.MultiHeadAttention(8, 2), torch.randn(3, 5, 8)
        >>> with hw.intervene(attn) as edits:
        ...     edits.find("").zero()
        ...     out = attn(x)
        AttentionEdits(""): zero()
        >>> torch.allclose(out, attn.out_proj.bias.expand_as(out))
        True
        """
        if not isinstance(part, str):
            raise ArgumentError(f'find takes a part of a name, such as "layer.3", but {part!r} came')
        within = [name for name in self._names if holds(name, part)]
        if not within:
            raise ArgumentError(
                f'"{part}" must name a module that may compute attention, but names none: {self._known}'
            )
        return self._target(part, within[0], is_exact=False)

    def __getitem__(self, name: str) -> AttentionEdits:
        """The attention of the module with this very name."""
        if name not in self._names:
            raise ArgumentError(f'"{name}" must be the name of a module that may compute attention: {self._known}')
        return self._target(name, name, is_exact=True)

    def clear(self) -> None:
        """Forget every edit, as if the block began here; those that met no call are not told any more."""
        self._targets.clear()
        self.round += 1

    def of(self, name: str) -> list[AttentionEdits]:
        """The targets whose edits are of the attention of a module."""
        return [target for target in self._targets if target.edits and target.is_of(name)]

    def _target(self, part: str, name: str, *, is_exact: bool) -> AttentionEdits:
        if why := self._refusal(name):
            raise ArgumentError(f'the attention of "{name}" cannot be changed: it {why}')
        target = next((each for each in self._targets if (each.part, each.is_exact) == (part, is_exact)), None)
        if target is None:
            target = AttentionEdits(part, is_exact)
            self._targets.append(target)
        return target

    def unmet(self) -> list[tuple[AttentionEdits, AttentionEdit]]:
        """The edits that have changed nothing yet."""
        return [(target, edit) for target in self._targets for edit in target.edits if not target.count(edit)]

    def __repr__(self) -> str:
        return "\n".join(map(repr, self._targets)) or "Edits: none"


@dataclass(eq=False, repr=False)
class AttentionEdits:
    """The attention of one module, and what is to be changed in it, in the order in which it is asked for.

    All changes of weights come first, then those of head outputs, each kind in that order: a head that is zeroed stays
    zero whatever its weights are.
    """

    part: str
    is_exact: bool = False
    name: str | None = None
    edits: list[AttentionEdit] = field(default_factory=list)
    counts: dict[AttentionEdit, int] = field(default_factory=dict)

    def zero(self, heads: Selection = None, *, positions: Selection = None) -> AttentionEdits:
        """Ablate: heads give 0 before the output projection. heads, positions: None: all."""
        text = f"zero({_arguments(heads=heads, positions=positions)})"
        return self._add(partial(HeadReplacement, make=zeros), text, heads, positions)

    def mean(self, heads: Selection = None, *, over: Seen, positions: Selection = None) -> AttentionEdits:
        """Ablate by the mean: heads give their mean output over a watched run (Wang et al. 2022, arXiv:2211.00593).

        over: what `hw.watch` gave of a reference run: the mean is over all samples and queries of its calls of this
        module.
        """
        _check_seen("over", over)
        text = f"mean({_arguments(heads=heads, positions=positions)})"
        return self._add(partial(HeadReplacement, make=MeanOutput(over, self.name_in, text)), text, heads, positions)

    def output(self, source: Seen, heads: Selection = None, *, positions: Selection = None) -> AttentionEdits:
        """Patch: heads give at some positions what they gave in another run (Meng et al. 2022, arXiv:2202.05262).

        source: what `hw.watch` gave, of an input with as many samples, or one. The n-th call of the module takes from
        the n-th of the other run; from its only call by position.
        """
        _check_seen("source", source)
        text = f"output({_arguments(heads=heads, positions=positions)})"
        make = PatchedOutput(source, self.name_in, text)
        return self._add(partial(HeadReplacement, make=make), text, heads, positions)

    def block(self, queries: Selection = None, keys: Selection = None, *, heads: Selection = None) -> AttentionEdits:
        """Attention knockout: these queries may not attend to these keys (Geva et al. 2023, arXiv:2304.14767).

        The other weights of a row are normalised again; a row without any key gives 0. None: all of them.
        """
        if queries is None and keys is None:
            raise ArgumentError("block needs queries= or keys=, but neither came: zero() removes whole heads")
        text = f"block({_arguments(queries=queries, keys=keys, heads=heads)})"
        named = {"queries": position_set("queries", queries), "keys": position_set("keys", keys)}
        return self.add(Knockout(text, position_set("heads", heads), **named))

    def weights(self, pattern: AttentionMap, heads: Selection = None) -> AttentionEdits:
        """Patch the attention pattern: heads take the weights that they have in a map of another run.

        pattern: (B or 1, H, Lq, Lk) of the same sizes, as `seen.find("layer.6")` gives it; the values stay this run's.
        """
        if not isinstance(pattern, AttentionMap):
            raise ArgumentError(
                f"weights takes a map, such as seen.find('layer.6') of another run, but {type(pattern).__name__} came"
            )
        return self.add(PatternPatch(f"weights({_arguments(heads=heads)})", position_set("heads", heads), map=pattern))

    def temperature(self, value: float, heads: Selection = None) -> AttentionEdits:
        """Divide the logits, sinks and biases included, by a temperature > 0: below 1 attention is sharper."""
        if isinstance(value, bool) or not isinstance(value, int | float) or not (0 < value < math.inf):
            raise ArgumentError(f"a temperature must be a number > 0, but {value!r} came")
        return self.add(
            Temperature(
                f"temperature({', '.join(filter(None, [f'{value:g}', _arguments(heads=heads)]))})",
                position_set("heads", heads),
                temperature=value,
            )
        )

    def count(self, edit: AttentionEdit) -> int:
        """In how many calls an edit was made."""
        return self.counts.get(edit, 0)

    def is_of(self, name: str) -> bool:
        """Whether the attention of a module is meant."""
        return name == self.part if self.is_exact else holds(name, self.part)

    def name_in(self, run: Seen) -> str:
        """The name of the same attention in another run."""
        return self.name if self.name is not None and self.name in run else self.part

    def meet(self, name: str) -> None:
        """A call of a module is changed; ArgumentError where another module was."""
        if self.name not in (None, name):
            raise ArgumentError(
                f'"{self.part}" must name the attention of one module, but names that of "{self.name}" and of '
                f'"{name}": give more of the name'
            )
        self.name = name

    def _add(
        self, make: Callable[..., AttentionEdit], text: str, heads: Selection, positions: Selection
    ) -> AttentionEdits:
        return self.add(make(text, position_set("heads", heads), position_set("positions", positions)))

    def add(self, edit: AttentionEdit) -> AttentionEdits:
        """Ask for an edit."""
        self.edits.append(edit)
        return self

    def __repr__(self) -> str:
        return f'AttentionEdits("{self.part}"): ' + (", ".join(edit.text for edit in self.edits) or "no edits")


def _arguments(**named: Any) -> str:
    return ", ".join(f"{name}={value}" for name, value in named.items() if value is not None)


def _check_seen(name: str, value: object) -> None:
    if not isinstance(value, Seen):
        raise ArgumentError(
            f"{name} must be what hw.watch gave of another run, but {type(value).__name__} came: "
            "with hw.watch(model) as seen: model(...)"
        )
