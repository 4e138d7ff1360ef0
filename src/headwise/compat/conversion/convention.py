"""Convention: one library's way of naming, packing and computing attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from headwise.compat.conversion.module_call import Question, ask
from headwise.compat.conversion.source import ConversionSource, LayerPlan
from headwise.compat.conversion.weight_tables import WeightTable
from headwise.layer import DotProduct, MultiHeadAttention
from headwise.positions import AlibiBias, RelativeBiasTable, RotaryEmbedding
from headwise.wording import Sentence

__all__ = ["Convention", "Formula", "features"]

Formula = Callable[[Mapping[str, Tensor], LayerPlan, Question], Tensor]


@dataclass(frozen=True)
class Convention:
    """A table, and all that is needed to build the layer and to prove it.

    name: as `convention=` takes it; aliases: others with the same table and formula. about: one line. plan: the layer
    that a source asks for. formula: what the convention computes, written plainly. fits: the features of a layer that
    it has room for, as `features` names them; needs: those without which a layer is none of it. modules: names of
    classes that are of this convention. needs_config: whether weights leave open what it computes. ask: runs a module
    on a question. scale: what q·k is multiplied by, None: 1/sqrt(D).
    """

    name: str
    about: Sentence
    table: WeightTable
    plan: Callable[[ConversionSource], LayerPlan]
    formula: Formula
    fits: frozenset[str] = frozenset()
    needs: frozenset[str] = frozenset()
    aliases: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    needs_config: bool = False
    ask: Callable[[nn.Module, LayerPlan, Question], Tensor] = ask
    scale: float | None = None

    def why_not(self, layer: MultiHeadAttention) -> tuple[str, ...]:
        """What a layer does that this convention has no room for, and what it lacks, in words."""
        present = features(layer, self.scale)
        lacking = sorted(self.needs - present.keys())
        return (*(text for name, text in present.items() if name not in self.fits), *(f"no {name}" for name in lacking))

    def is_for(self, module: Any, model_type: str | None) -> bool:
        """Whether a module's class or a configuration names this convention."""
        names = (self.name, *self.aliases)
        return type(module).__name__ in self.modules or (model_type is not None and model_type in names)


def features(layer: MultiHeadAttention, scale: float | None = None) -> dict[str, str]:
    """What a layer does beyond h heads of width E / h with dot products scaled by 1/sqrt(D), each in words.

    scale: what the convention multiplies q·k by, None: 1/sqrt(D).
    """
    w, score, position = layer.widths, layer.score, layer.position
    turned = position.dim if isinstance(position, RotaryEmbedding) else 0
    rows = [
        (w.Hk != w.Hq, "grouped", f"num_kv_heads={w.Hk} for num_heads={w.Hq}"),
        (w.Hq * w.D != w.E, "head_dim", f"head_dim={w.D} where embed_dim={w.E} and num_heads={w.Hq}"),
        (w.Dv != w.D, "v_head_dim", f"v_head_dim={w.Dv} beside head_dim={w.D}"),
        (w.key != w.E, "kdim", f"kdim={w.key} beside embed_dim={w.E}"),
        (w.value != w.key, "vdim", f"vdim={w.value} beside kdim={w.key}"),
        (w.out != w.E, "out_dim", f"out_dim={w.out} beside embed_dim={w.E}"),
        (
            layer.q_norm is not None,
            f"qk_norm {type(layer.q_norm).__name__}",
            f"a norm of queries and keys {layer.q_norm}",
        ),
        (turned == w.D, "rotary", f"position={getattr(position, 'spec', None)}"),
        (0 < turned < w.D, "rotary of a part", f"position={getattr(position, 'spec', None)}"),
        (isinstance(position, AlibiBias), "alibi", "position=Alibi()"),
        (isinstance(position, RelativeBiasTable), "relative", f"position={position}"),
    ]
    if isinstance(score, DotProduct):
        wanted = w.D**-0.5 if scale is None else scale
        actual = w.D**-0.5 if score.scale is None else score.scale
        rows += [
            (actual != wanted, "scale", f"scale={actual:g} in place of {wanted:g}"),
            (score.softcap is not None, "softcap", f"softcap={score.softcap}"),
            (score.sink is not None, f"sink {score.sink}", f"sink={score.sink!r}"),
        ]
    else:
        rows.append((True, "additive", f"score={score}"))
    return {feature: phrase for there, feature, phrase in rows if there}
