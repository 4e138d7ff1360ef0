"""Call: one checked call of attention, as every backend receives it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict, Unpack

import torch
from torch import Tensor
from torch.autograd import forward_ad

from headwise.errors import ArgumentError, ShapeError
from headwise.masks import Mask, as_mask
from headwise.masks.coordinates import Grid, Sizes
from headwise.masks.derived_tensors import derived, table
from headwise.masks.leaves import Allowed
from headwise.ops.dense_mask import dense, masked_keys, may_hide_keys
from headwise.shapes import check_number, check_shapes


class Rules(TypedDict, total=False):
    """The rules of a call beside q, k and v, as keywords; see `Call` for their meaning."""

    mask: Mask | Tensor | None
    attn_bias: Tensor | None
    scale: float | None
    softcap: float | None
    sink: Tensor | None
    dropout: float
    generator: torch.Generator | None


@dataclass(slots=True, eq=False)
class Call:
    """q (B, Hq, Lq, D), k (B, Hk, Lk, D), v (B, Hk, Lk, Dv) and every rule of one call, checked against each other.

    mask: who may attend to whom, None: all. weight: (Hq, D), for additive scoring, weightᵀ tanh(q + k) in place of
    q·k; None: q·k. attn_bias: added to the scores, broadcastable to (B, Hq, Lq, Lk), None:
    nothing. scale: multiplies q·k, None: 1/sqrt(D). softcap: scores become softcap·tanh(scores/softcap), None: not.
    sink: (Hq,) one logit a head that takes weight and gives nothing, None: no sink. dropout: chance that a weight is
    zeroed. generator: where its random numbers come from, None: torch's global one.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Mask | None = None
    weight: Tensor | None = None
    attn_bias: Tensor | None = None
    scale: float | None = None
    softcap: float | None = None
    sink: Tensor | None = None
    dropout: float = 0.0
    generator: torch.Generator | None = None
    # what has been made of this call once, by its name; functools.cached_property does not compile
    prepared: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def groups(self) -> int:
        """How many query heads read each key/value head."""
        # a call without heads has no groups to count
        return self.q.shape[1] // self.k.shape[1] if self.k.shape[1] else 1

    @property
    def multiplier(self) -> float:
        """What the score of a query and a key is multiplied by."""
        if self.scale is not None:
            return self.scale
        return self.q.shape[-1] ** -0.5 if self.weight is None else 1.0

    @property
    def sizes(self) -> Sizes:
        """B, Hq, Lq and Lk."""
        B, Hq, Lq, _ = self.q.shape
        return Sizes(B, Hq, Lq, self.k.shape[2])

    @property
    def is_differentiated(self) -> bool:
        """Whether a gradient will be asked of the outputs."""
        return torch.is_grad_enabled() and any(t.requires_grad for t in self.tensors)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Every tensor that a gradient may flow to."""
        return tuple(t for t in (self.q, self.k, self.v, self.weight, self.attn_bias, self.sink) if t is not None)

    @property
    def allowed(self) -> Tensor | None:
        """The mask as bool, broadcastable to (B, Hq, Lq, Lk) and no larger than it must be; None: all."""
        if self.mask is None:
            return None
        if "allowed" not in self.prepared:
            self.prepared["allowed"] = dense(self.mask, self.sizes, self.q.device)
        allowed: Tensor = self.prepared["allowed"]
        return allowed

    @property
    def hidden(self) -> Tensor | None:
        """Keys that no query of the sample may see, bool broadcastable to (B, Hk, Lk, 1); None: there are none."""
        allowed = self.allowed if may_hide_keys(self.mask, self.sizes) else None
        if allowed is None or self.mask is None:
            return None
        if not self.q.is_cpu or table(self.mask) is None:
            return masked_keys(allowed, self.groups)

        def make() -> Tensor | None:
            found = masked_keys(allowed, self.groups)
            return found if found.any() else None

        return derived(self.mask, ("hidden", *self.sizes, self.groups), make)

    def part(
        self,
        rows: slice = slice(None),
        columns: slice = slice(None),
        *,
        samples: slice = slice(None),
        heads: slice = slice(None),
        masked: bool = True,
    ) -> Call:
        """The same call for a block of its map: differentiable views, each bounded by the block.

        Query heads that share a key/value head in part only take copies of it. masked: False where the block is known
        to be all True; without dropout, which is drawn for a whole map.
        """
        shared = self._shared_by(heads)
        mask = None
        if masked and self.mask is not None:
            grid = Grid.whole(self.sizes, self.q.device).part(rows, columns, samples=samples, heads=heads)
            mask = Allowed(self.mask.allows(grid))
        return replace(
            self,
            q=self.q[samples, heads, rows],
            k=self.k[samples, shared, columns],
            v=self.v[samples, shared, columns],
            mask=mask,
            weight=None if self.weight is None else self.weight[heads],
            attn_bias=None if self.attn_bias is None else block_of(self.attn_bias, (samples, heads, rows, columns)),
            scale=self.multiplier,
            sink=None if self.sink is None else self.sink[heads],
            dropout=0.0,
            generator=None,
            prepared={},
        )

    def _shared_by(self, heads: slice) -> slice | list[int]:
        """Which key/value heads the query heads of a slice read."""
        taken = range(self.q.shape[1])[heads]
        first, past = taken.start // self.groups, -(-taken.stop // self.groups)
        if len(taken) == (past - first) * self.groups or past - first <= 1:
            return slice(first, past)
        return [h // self.groups for h in taken]

    def without_hidden_keys(self) -> tuple[Tensor, Tensor]:
        """k and v with zeros where no query may look, so that padding may hold NaN or inf."""
        hidden = self.hidden
        if hidden is None:
            return self.k, self.v
        return torch.where(hidden, 0.0, self.k), torch.where(hidden, 0.0, self.v)


def checked(q: Tensor, k: Tensor, v: Tensor, *, weight: Tensor | None = None, **rules: Unpack[Rules]) -> Call:
    """The call of q, k, v and its rules, if they fit each other; else ShapeError, MaskError or ArgumentError."""
    _check_tensors(q, k, v)
    B, Hq, Lq, D = q.shape
    if k.shape[0] != B or k.shape[3] != D or v.shape[:3] != k.shape[:3]:
        check_shapes(q=(q, "B Hq Lq D"), k=(k, "B Hk Lk D"), v=(v, "B Hk Lk Dv"))
    Hk, Lk = k.shape[1], k.shape[2]
    if Hq != Hk and (Hk == 0 or Hq % Hk):
        raise ShapeError(
            f"Hk={Hk} must divide Hq={Hq}: each key/value head serves an equal group of query heads, so give k and v "
            "a number of heads that divides q's"
        )
    mask = as_mask(rules.get("mask"))
    rest = {name: value for name, value in rules.items() if name != "mask"}
    call = Call(q, k, v, mask, weight, **rest)  # type: ignore[arg-type]  # Rules has typed them
    if mask is not None:
        mask.check(Sizes(B, Hq, Lq, Lk))
    _check_numbers(call)
    _check_companions(call)
    if call.attn_bias is not None:
        check_bias(call.attn_bias, Sizes(B, Hq, Lq, Lk))
    if call.weight is not None and call.weight.shape != (Hq, D):
        raise ShapeError(
            f"weight must be (Hq={Hq}, D={D}), or (D={D},) for all heads, but came as {tuple(call.weight.shape)}: "
            "give one number to each feature of a head"
        )
    if call.sink is not None and call.sink.shape != (Hq,):
        raise ShapeError(f"sink must be (Hq={Hq},), one logit a query head, but came as {tuple(call.sink.shape)}")
    return call


def transformed(call: Call) -> bool:
    """Whether a torch.func transform or a forward-mode derivative is at work, which only plain operations follow."""
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return True
    if forward_ad._current_level < 0:
        return False
    return any(forward_ad.unpack_dual(t).tangent is not None for t in call.tensors)


def autocasts(q: Tensor) -> bool:
    """Whether autocast is on where q is; torch has none for meta tensors."""
    if not isinstance(q, Tensor):
        # which is told as soon as the call is checked
        return False
    kind = q.device.type
    return kind != "meta" and torch.is_autocast_enabled(kind)


def cast_by_autocast(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v in the dtype that autocast asks for; unchanged where it is off, or where they are float64."""
    if not autocasts(q):
        return q, k, v
    dtype = torch.get_autocast_dtype(q.device.type)
    cast = [t.to(dtype) if isinstance(t, Tensor) and t.dtype is not torch.float64 else t for t in (q, k, v)]
    return cast[0], cast[1], cast[2]


def _check_tensors(q: Tensor, k: Tensor, v: Tensor) -> None:
    for name, t in (("q", q), ("k", k), ("v", v)):
        if not isinstance(t, Tensor):
            raise ArgumentError(
                f"{name} must be a tensor, but {type(t).__name__} came: give q, k and v of four axes each"
            )
        if t.is_nested:
            raise ShapeError(f"{name} is a nested tensor: pad it, and say which keys are real with mask=keys(keep)")
        if t.layout is not torch.strided:
            raise ArgumentError(f"{name} must be a dense tensor, but {t.layout} came: give {name}.to_dense()")
        if t.ndim != 4:
            check_shapes(q=(q, "B Hq Lq D"), k=(k, "B Hk Lk D"), v=(v, "B Hk Lk Dv"))
    if not q.is_floating_point() or k.dtype is not q.dtype or v.dtype is not q.dtype:
        raise ArgumentError(
            f"q, k and v must share one floating dtype, but came as {q.dtype}, {k.dtype} and {v.dtype}: cast them first"
        )
    if k.device != q.device or v.device != q.device:
        raise ArgumentError(
            f"q, k and v must be on one device, but are on {q.device}, {k.device} and {v.device}: move them with .to()"
        )


def _check_numbers(call: Call) -> None:
    if call.q.shape[3] == 0:
        raise ShapeError("D=0: a query and a key need one feature at least to be compared")
    for name, number in (("scale", call.scale), ("softcap", call.softcap)):
        if number is not None:
            check_number(name, number)
    check_number("dropout", call.dropout)
    if call.scale is not None and not -math.inf < call.scale < math.inf:
        raise ArgumentError(f"scale must be a finite number, or None for 1/sqrt(D); got {call.scale}")
    if not 0.0 <= call.dropout <= 1.0:
        raise ArgumentError(f"dropout is the chance of zeroing a weight, so it must lie in 0..1; got {call.dropout}")
    if call.generator is not None and call.dropout == 0.0:
        raise ArgumentError("generator= feeds dropout, but dropout is 0: give dropout > 0, or no generator")
    if call.softcap is not None and not 0 < call.softcap < math.inf:
        raise ArgumentError(f"softcap must be greater than 0 and finite, or None for no cap; got {call.softcap}")


def _check_companions(call: Call) -> None:
    """Raise unless what comes beside q, k and v is floating tensors where q is."""
    for name in ("weight", "attn_bias", "sink"):
        t = getattr(call, name)
        if t is None:
            continue
        if not isinstance(t, Tensor):
            raise ArgumentError(f"{name} must be a tensor or None, but {type(t).__name__} came: make it a tensor")
        if t.device != call.q.device:
            raise ArgumentError(
                f"{name} must be where q is, on {call.q.device}, but is on {t.device}: move it with .to()"
            )
        if name != "attn_bias" and not t.is_floating_point():
            raise ArgumentError(f"{name} must be floating, but {t.dtype} came: cast it first")
    if call.generator is not None and not isinstance(call.generator, torch.Generator):
        raise ArgumentError(
            f"generator must be a torch.Generator or None, but {type(call.generator).__name__} came: make one by "
            "torch.Generator().manual_seed(n)"
        )


def check_bias(bias: Tensor, sizes: Sizes) -> None:
    """Raise unless a bias is floating and broadcasts to the sizes of a map."""
    if not bias.is_floating_point():
        raise ArgumentError(
            f"attn_bias is added to the scores, so it must be floating, but {bias.dtype} came: who may attend to whom "
            "goes into mask="
        )
    shape = (1,) * (4 - bias.ndim) + tuple(bias.shape)
    if bias.ndim not in (2, 4) or any(n not in (1, size) for n, size in zip(shape, sizes, strict=True)):
        B, Hq, Lq, Lk = sizes
        raise ShapeError(
            f"attn_bias must be (Lq={Lq}, Lk={Lk}) or broadcast to (B={B}, Hq={Hq}, Lq={Lq}, Lk={Lk}), but came as "
            f"{tuple(bias.shape)}: give every axis its size or 1"
        )


def block_of(bias: Tensor, block: tuple[slice, ...]) -> Tensor:
    """A block of a bias that broadcasts to the map; an axis of size 1 serves it whole."""
    four = bias[None, None] if bias.ndim == 2 else bias
    return four[tuple(taken if n > 1 else slice(None) for taken, n in zip(block, four.shape, strict=True))]
