"""WholeCall: a rank's part of a call, with the mask and biases of the whole map, and the calls of blocks of it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from headwise.masks import Mask
from headwise.ops.call import Call
from headwise.positions.distance_bias import Distances


@dataclass(slots=True, eq=False)
class WholeCall(Call):
    """A call of the q, k and v that a rank holds, whose mask, attn_bias and distances are those of the whole map.

    by_distance: (Hq, N), added to the scores by the distance of key and query, None: nothing. distances: which pair of
    the map has which of the N. No backend takes it: `block` makes the calls that they take.
    """

    by_distance: Tensor | None = None
    distances: Distances | None = None

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Every tensor that a gradient may flow to."""
        tensors = (self.q, self.k, self.v, self.weight, self.attn_bias, self.sink, self.by_distance)
        return tuple(t for t in tensors if t is not None)

    def block(
        self,
        tensors: tuple[Tensor, Tensor, Tensor],
        mask: Mask | None,
        bias: Tensor | None,
        *,
        heads: slice | None = None,
    ) -> Call:
        """The call of some rows, columns and heads, by their q, k and v, the mask of the block and its bias."""
        weight, sink = (t if t is None or heads is None else t[heads] for t in (self.weight, self.sink))
        return Call(
            *tensors, mask, weight, bias, scale=self.scale, softcap=self.softcap, sink=sink, dropout=self.dropout,
            generator=self.generator,
        )  # fmt: skip

    def bias_at(self, rows: Tensor, columns: Tensor, *, heads: slice = slice(None)) -> Tensor | None:
        """The bias of some rows (n,), columns (n,) and heads of the map, broadcastable to them; None: there is none."""
        parts = []
        if self.attn_bias is not None:
            part = _block_of(self.attn_bias, rows, columns)
            parts.append(part[:, heads] if part.ndim == 4 and part.shape[1] > 1 else part)
        if self.by_distance is not None and self.distances is not None:
            parts.append(self.distances.block(self.by_distance[heads], rows, columns))
        return None if not parts else parts[0] if len(parts) == 1 else parts[0] + parts[1]

    def exact_bias_at(self, rows: Tensor, columns: Tensor) -> Tensor | None:
        """The same, in float64 where its gradient is wanted, each number of which is a difference of large ones.

        One process takes it of the same rounded products, whose errors are then gone; of partial results they are not.
        """
        bias = self.bias_at(rows, columns)
        is_wanted = any(t is not None and t.requires_grad for t in (self.attn_bias, self.by_distance))
        return bias.double() if bias is not None and is_wanted else bias

    def add_bias_gradient(self, total: dict[str, Tensor], rows: Tensor, columns: Tensor, gradient: Tensor) -> None:
        """Add the gradient of `bias_at` to those of attn_bias and by_distance, as far as `total` has them."""
        if self.attn_bias is not None:
            part = _block_of(self.attn_bias, rows, columns)
            _add(total["attn_bias"], rows, columns, gradient.sum_to_size(part.shape))
        if self.distances is not None:
            self.distances.add_gradient(total["by_distance"], rows, columns, gradient)


def _block_of(bias: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Some rows and columns of a bias of the whole map; an axis of size 1 serves all."""
    if bias.shape[-2] > 1:
        bias = bias.index_select(-2, rows.to(bias.device))
    return bias.index_select(-1, columns.to(bias.device)) if bias.shape[-1] > 1 else bias


def _add(into: Tensor, rows: Tensor, columns: Tensor, gradient: Tensor) -> None:
    """Add the gradient of a block of a bias; an axis of size 1 serves all rows or columns."""
    if into.shape[-2] == 1:
        into[..., columns if into.shape[-1] > 1 else slice(None)] += gradient
    elif into.shape[-1] == 1:
        into[..., rows, :] += gradient
    else:
        into[..., rows[:, None], columns] += gradient
