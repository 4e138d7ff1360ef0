"""One run: the checks that see what is wrong in a single run, and ask for no other."""

from __future__ import annotations

from collections.abc import Callable

from headwise.calls import Plan
from headwise.dataflow import Run
from headwise.diagnosis.checks.bounded_fills import bounded_fills, masked_bounds
from headwise.diagnosis.checks.discarded_results import discarded_results
from headwise.diagnosis.checks.idle_masks import unread_masks_of
from headwise.diagnosis.checks.joined_heads import joined_heads
from headwise.diagnosis.checks.joined_streams import swapped_streams
from headwise.diagnosis.checks.norm_axis import norm_suspects
from headwise.diagnosis.checks.offset_tables import shared_offsets
from headwise.diagnosis.checks.other_samples import mask_leaks
from headwise.diagnosis.checks.parameters import unregistered
from headwise.diagnosis.checks.regrouped_tokens import regrouped_tokens
from headwise.diagnosis.checks.residuals import doubled_residuals, dropped_residuals, normed_residuals
from headwise.diagnosis.checks.shared_layers import shared_layers
from headwise.diagnosis.checks.side_effects import changed_masks
from headwise.diagnosis.checks.single_entries import single_entries
from headwise.diagnosis.checks.subsampled_lengths import unscaled_lengths
from headwise.diagnosis.checks.unread_attentions import unread_attentions
from headwise.diagnosis.checks.whole_models import (
    batch_place_suspects,
    causal_crossing_suspects,
    constant_place_suspects,
    crossing_suspects,
    unread_masks,
)
from headwise.diagnosis.suspects import Suspect

__all__ = ["ANY", "MASKED", "WHOLE"]

# of a whole model, each under the name of its part
WHOLE: tuple[tuple[str, Callable[[Run], list[Suspect]]], ...] = (
    ("parameters", shared_layers), ("rotation", norm_suspects), ("heads", regrouped_tokens),
    ("samples", batch_place_suspects), ("samples", constant_place_suspects), ("inputs", crossing_suspects),
    ("causal", causal_crossing_suspects), ("mask", unread_masks), ("residual", doubled_residuals),
    ("residual", dropped_residuals), ("residual", normed_residuals), ("inputs", unread_attentions),
    ("scores", shared_offsets), ("arguments kept", changed_masks),
)  # fmt: skip
# of any class, whether an attention was found in it or not
ANY: tuple[tuple[str, Callable[[Run], list[Suspect]]], ...] = (
    ("calls", discarded_results), ("weights", single_entries), ("weights", joined_heads),
    ("mask", unread_masks_of), ("mask", bounded_fills), ("parameters", unregistered), ("inputs", swapped_streams),
)  # fmt: skip
# of a plan with a mask, and what repeats its runs
MASKED: tuple[tuple[str, Callable[[Plan, Callable[..., Run]], list[Suspect]]], ...] = (
    ("samples", mask_leaks), ("mask", unscaled_lengths), ("mask", masked_bounds),
)  # fmt: skip
