"""ConversionSource: what is to be converted, and what it declares; LayerPlan: the layer for it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from headwise.compat.conversion.weight_tables import WeightLayout
from headwise.errors import ConversionError
from headwise.layer import DotProduct, MultiHeadAttention
from headwise.layer.sizes import make_widths
from headwise.positions import RelativeBias, Rotary, RotaryEmbedding
from headwise.wording import Sentence

# what libraries call the number of query heads
HEADS = ("num_attention_heads", "num_heads", "n_heads", "n_head", "heads", "h")

__all__ = ["HEADS", "LayerPlan", "Shapes", "ConversionSource", "UntoldError", "layout_of", "plan_for"]

_ABSENT = object()


class UntoldError(ConversionError):
    """Something that weights do not show must be given. key, values: the same in the words of the command line."""

    def __init__(self, message: str, key: str, **values: object) -> None:
        super().__init__(message)
        self.key, self.values = key, values

    def __reduce__(self) -> tuple[Any, ...]:
        return _untold, (str(self), self.key, self.values)


@dataclass(frozen=True)
class ConversionSource:
    """Weights under the names of a convention, with all that is known beside them.

    weights: without the prefix that all keys had. module: where they came from, None: from a state_dict. config: the
    model's configuration, a mapping or an object. num_heads: as given to `convert`.
    """

    weights: Mapping[str, Tensor]
    module: Any = None
    config: Any = None
    num_heads: int | None = None
    prefix: str = ""

    def says(self, *names: str, otherwise: Any = _ABSENT, why: Sentence | None = None) -> Any:
        """The value that the module, its config or the config given has under one of these names.

        Where none has it, `otherwise`, or a ConversionError that says what to give.
        """
        for place in self._places():
            for name in names:
                value = _look_up(place, name)
                if value is not None:
                    return value
        if otherwise is _ABSENT:
            why = Sentence("convert.why.untold") if why is None else why
            raise UntoldError(
                f"{names[0]} must be known, but {why}: give config= with {names[0]!r} in it, or the module itself",
                "refuse.config_untold",
                name=names[0],
                why=why,
            )
        return otherwise

    def heads(self, *names: str) -> int:
        """The number of query heads; what was given must agree with what the module and config say."""
        declared = self._heads_of_side() or self.says(*names, otherwise=None)
        if self.num_heads is not None and declared is not None and self.num_heads != declared:
            raise ConversionError(
                f"num_heads must be what the source says, but num_heads={self.num_heads} came and "
                f"{names[0]}={declared}: leave num_heads out"
            )
        count = declared if self.num_heads is None else self.num_heads
        if count is None:
            raise UntoldError(
                "the number of heads must be known, but weights alone do not tell it: give num_heads=, config= or the "
                "module itself",
                "refuse.heads_untold",
            )
        if not isinstance(count, int) or count < 1:
            raise ConversionError(
                f"num_heads must be a whole number from 1, but came as {count!r}: give the query heads"
            )
        return count

    def _heads_of_side(self) -> int | None:
        """The heads of the encoder or the decoder, where a configuration has both and the weights are of one."""
        counts = [_look_up(self.config, f"{side}_attention_heads") for side in ("encoder", "decoder")]
        if self.module is not None or None in counts:
            return None
        parts = self.prefix.split(".")
        inside = ["encoder" in parts, "decoder" in parts]
        if counts[0] != counts[1] and sum(inside) != 1:
            if self.num_heads in counts:
                return self.num_heads
            raise ConversionError(
                f"the side must be known, since the encoder has {counts[0]} heads and the decoder {counts[1]}: keep it "
                "in the keys, as in decoder.layers.3.self_attn.q_proj.weight, or give num_heads="
            )
        return int(counts[inside.index(True)] if True in inside else counts[0])

    def shape(self, name: str) -> tuple[int, int]:
        """(rows, columns) of a matrix."""
        sizes = tuple(self.weights[name].shape)
        if len(sizes) != 2:
            raise ConversionError(f"{name} must be a matrix, but came as {sizes}: give the weight of a linear layer")
        return sizes

    @property
    def dropout(self) -> float:
        """The dropout of the weights that the module has, 0 where there is none."""
        for place in (getattr(self.module, "attention", None), getattr(self.module, "self", None), self.module):
            for name in ("attn_dropout", "attention_dropout", "dropout"):
                rate = getattr(place, name, None)
                rate = getattr(rate, "p", rate)
                if isinstance(rate, float):
                    return rate
        return 0.0

    def _places(self) -> tuple[Any, ...]:
        inner = getattr(self.module, "self", None)
        objects = [place for place in (self.module, inner) if place is not None]
        return (*objects, *(getattr(place, "config", None) for place in objects), self.config)

    @property
    def layer(self) -> int | None:
        """Which layer of its model this is, if that can be known."""
        index = getattr(self.module, "layer_idx", None)
        if index is not None:
            return int(index)
        numbers: list[str] = re.findall(r"(?:^|\.)(\d+)(?=\.|$)", self.prefix)
        return int(numbers[0]) if len(numbers) == 1 else None


@dataclass(frozen=True)
class Shapes:
    """(rows, columns) of the four projections as Linears, whatever the source stores."""

    q: tuple[int, int]
    k: tuple[int, int]
    v: tuple[int, int]
    out: tuple[int, int]

    @classmethod
    def of_linears(cls, source: ConversionSource, q: str, k: str, v: str, out: str) -> Shapes:
        """Those of four weights (out, in)."""
        return cls(*(source.shape(name) for name in (q, k, v, out)))


@dataclass(frozen=True)
class LayerPlan:
    """The layer to build: the arguments of `MultiHeadAttention`, and what a report should say of it.

    eps: of the norm of queries and keys. mask: what the source masks by itself, as the code to give the layer, "":
    nothing. notes: sentences for the report.
    """

    embed_dim: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    v_head_dim: int
    kdim: int
    vdim: int
    out_dim: int
    bias: bool = True
    dropout: float = 0.0
    score: DotProduct = DotProduct()  # noqa: RUF009  frozen, so it is safe to share
    position: Rotary | RelativeBias | None = None
    qk_norm: Literal["rms", "layer", "l2"] | None = None
    eps: float | None = None
    mask: str = ""
    notes: tuple[str, ...] = ()

    def build(self, device: torch.device, dtype: torch.dtype) -> MultiHeadAttention:
        """An untrained layer."""
        layer = MultiHeadAttention(
            self.embed_dim,
            self.num_heads,
            num_kv_heads=self.num_kv_heads,
            head_dim=self.head_dim,
            v_head_dim=self.v_head_dim,
            kdim=self.kdim,
            vdim=self.vdim,
            out_dim=self.out_dim,
            bias=self.bias,
            dropout=self.dropout,
            score=self.score,
            position=self.position,
            qk_norm=self.qk_norm,
            device=device,
            dtype=dtype,
        )
        for norm in (layer.q_norm, layer.k_norm):
            if isinstance(norm, nn.RMSNorm | nn.LayerNorm) and self.eps is not None:
                norm.eps = self.eps
        return layer

    @property
    def code(self) -> str:
        """The code that builds such a layer."""
        options = {
            "num_kv_heads": (self.num_kv_heads, self.num_heads),
            "head_dim": (self.head_dim, self.embed_dim / self.num_heads),
            "v_head_dim": (self.v_head_dim, self.head_dim),
            "kdim": (self.kdim, self.embed_dim),
            "vdim": (self.vdim, self.kdim),
            "out_dim": (self.out_dim, self.embed_dim),
            "bias": (self.bias, True),
            "dropout": (self.dropout, 0.0),
            "score": (self.score, DotProduct()),
            "position": (self.position, None),
            "qk_norm": (self.qk_norm, None),
        }
        arguments = [f"{name}={value!r}" for name, (value, usual) in options.items() if value != usual]
        return f"MultiHeadAttention({', '.join([str(self.embed_dim), str(self.num_heads), *arguments])})"

    @property
    def layout(self) -> WeightLayout:
        """What the steps of a table must know."""
        widths = make_widths(
            self.embed_dim, self.num_heads, num_kv_heads=self.num_kv_heads, head_dim=self.head_dim,
            v_head_dim=self.v_head_dim, kdim=self.kdim, vdim=self.vdim, out_dim=self.out_dim,
        )  # fmt: skip
        if isinstance(self.position, Rotary):
            return WeightLayout(widths, self.position.pairing, self.position.width(self.head_dim))
        return WeightLayout(widths)


def layout_of(layer: MultiHeadAttention) -> WeightLayout:
    """What the steps of a table must know of a layer."""
    if isinstance(layer.position, RotaryEmbedding):
        return WeightLayout(layer.widths, layer.position.spec.pairing, layer.position.dim)
    return WeightLayout(layer.widths)


def plan_for(shapes: Shapes, num_heads: int, *, head_dim: int | None = None, **more: Any) -> LayerPlan:
    """A plan whose widths follow from the shapes; ConversionError where heads do not divide them."""
    q, k, v, out = shapes.q, shapes.k, shapes.v, shapes.out
    if q[0] % num_heads or (head_dim is not None and head_dim * num_heads != q[0]):
        width = "" if head_dim is None else f" of head_dim={head_dim}"
        raise ConversionError(
            f"num_heads={num_heads}{width} must divide the {q[0]} rows of the query projection into equal heads: "
            "give the number of query heads"
        )
    D = q[0] // num_heads
    Hk, left = divmod(k[0], D)
    if left or Hk == 0 or num_heads % Hk or v[0] % Hk or out[1] != num_heads * (v[0] // Hk):
        raise ConversionError(
            f"num_heads={num_heads} must fit all four projections, but queries have {q[0]} rows, keys {k[0]}, values "
            f"{v[0]} and the output {out[1]} columns: give the weights of one layer and its query heads"
        )
    return LayerPlan(
        embed_dim=q[1], num_heads=num_heads, num_kv_heads=Hk, head_dim=D, v_head_dim=v[0] // Hk, kdim=k[1], vdim=v[1],
        out_dim=out[0], **more,
    )  # fmt: skip


def _untold(message: str, key: str, values: Mapping[str, object]) -> UntoldError:
    return UntoldError(message, key, **values)


def _look_up(place: Any, name: str) -> Any:
    """place.name or place[name] as a plain value; None where there is none."""
    value = place.get(name) if isinstance(place, Mapping) else getattr(place, name, None)
    return None if isinstance(value, nn.Module | Tensor) or callable(value) else value
