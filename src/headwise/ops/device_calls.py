"""Device calls: a repeated call with a mask on a GPU, which is not waited for: the mask is made anew."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from headwise.masks import Mask
from headwise.masks.coordinates import Grid
from headwise.ops import sdpa, sdpa_arguments
from headwise.ops.call import Call
from headwise.ops.dense_mask import attended_keys, may_have_empty_rows, may_hide_keys


@dataclass(slots=True, frozen=True)
class DeviceCall:
    """The arguments of torch's kernel beside q, k, v and the mask, for calls of the same shapes, dtypes and flags.

    grid: where the mask is evaluated. zero: 0-d, what stands for keys and outputs that nobody may read. hidden: 0-d,
    what is added to the score of a masked pair: of a bool mask torch would make such scores in three steps. groups: how
    many query heads share each of k and v. is_grouped: whether the kernel lets them share these, which else are
    repeated. may_hide_keys: whether a key may be hidden from all queries, so that what it holds must not spread.
    may_have_empty_rows: whether a query may have no key, and gets zeros.
    """

    grid: Grid
    zero: Tensor
    hidden: Tensor
    scale: float
    dropout: float
    groups: int
    is_grouped: bool
    may_hide_keys: bool
    may_have_empty_rows: bool

    def run(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | Tensor | None, _numbers: int = 0
    ) -> tuple[Tensor, bool]:
        """The outputs (B, Hq, Lq, Dv), and True: they are the result."""
        if not isinstance(mask, Mask):
            raise AssertionError("what is kept with a mask is run with it")
        allowed = mask.allows(self.grid)
        kept_k, kept_v = k, v
        if self.may_hide_keys:
            attended = attended_keys(allowed, self.groups)
            kept_k, kept_v = torch.where(attended, k, self.zero), torch.where(attended, v, self.zero)
        if self.groups > 1 and not self.is_grouped:
            kept_k, kept_v = (t.repeat_interleave(self.groups, dim=1) for t in (kept_k, kept_v))
        with_keys, rows = sdpa_arguments.with_open_rows(allowed) if self.may_have_empty_rows else (allowed, None)
        scores = torch.where(with_keys, self.zero, self.hidden)
        raw = out = F.scaled_dot_product_attention(
            q, kept_k, kept_v, sdpa_arguments.with_whole_rows(scores, self.grid.sizes.Lk), self.dropout,
            scale=self.scale, enable_gqa=self.is_grouped,
        )  # fmt: skip
        if rows is not None:
            out = torch.where(rows, out, self.zero)
        if out.requires_grad:
            rules = {"mask": mask, "attn_bias": None, "scale": self.scale, "dropout": self.dropout}
            out = sdpa.twice_differentiable(out, raw, (q, k, v), rules)
        return out, True


def device_call(call: Call) -> DeviceCall | None:
    """How calls like this checked one, with its mask, are run again; None: torch's kernel takes other q, k or v."""
    if call.q.shape[-1] != call.v.shape[-1]:
        return None
    with torch.inference_mode(False):
        # a number would be made into a tensor there at each call
        grid, zero = Grid.whole(call.sizes, call.q.device), torch.zeros((), dtype=call.q.dtype, device=call.q.device)
        hidden = torch.full_like(zero, float("-inf"))
    hides, empties = may_hide_keys(call.mask, call.sizes), may_have_empty_rows(call.mask, call.sizes)
    is_grouped = sdpa_arguments.arguments(call).is_grouped
    return DeviceCall(grid, zero, hidden, call.multiplier, call.dropout, call.groups, is_grouped, hides, empties)
