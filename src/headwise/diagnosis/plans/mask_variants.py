"""Mask variants: plans whose masks let everything be seen, or close other keys than they did."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, full_like, ones_like, zeros_like

from headwise.calls import Plan
from headwise.dataflow import Run, attentions, find_pattern

__all__ = ["FinitePlan", "FlippedPlan", "OpenPlan", "StandingPlan", "TurnedPlan", "is_shut", "looks_back"]

LEAST = -1e4


class OpenPlan(Plan):
    """A plan whose mask lets everything be seen."""

    def arguments(self, sizes: Mapping[str, int], *, seed: int = 0) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args, options = super().arguments(sizes, seed=seed)
        said = self.call["_mask"]
        name = str(said["argument"])
        mask, is_turned = options[name], isinstance(self, TurnedPlan)
        if said["means"] == "lengths":
            most = sizes.get("S", sizes.get("L", 1)) if self.setting == "cross" else sizes["L"]
            options[name] = full_like(mask, 0 if is_turned else most)
        elif isinstance(mask, Tensor):
            is_one = (said["means"] == "attend") != is_turned
            options[name] = ones_like(mask) if is_one else zeros_like(mask)
        return args, options


class TurnedPlan(OpenPlan):
    """A plan whose mask lets everything be seen where it is used the wrong way round."""


class FlippedPlan(Plan):
    """A plan whose mask closes the keys after the first where it closed the last."""

    def arguments(self, sizes: Mapping[str, int], *, seed: int = 0) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args, options = super().arguments(sizes, seed=seed)
        said = self.call.get("_mask", {})
        mask = options.get(str(said.get("argument")))
        if isinstance(mask, Tensor) and said["means"] != "lengths":
            turned = mask.flip(-1)
            # the first stays open, so that no query that looks back is left without a key
            turned[..., :1] = mask[..., :1]
            options[str(said["argument"])] = turned
        return args, options


class FinitePlan(Plan):
    """A plan whose mask is added, and holds large numbers where it held infinite ones."""

    def arguments(self, sizes: Mapping[str, int], *, seed: int = 0) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args, options = super().arguments(sizes, seed=seed)
        said = self.call.get("_mask", {})
        name = str(said.get("argument"))
        if name in options and said["means"] == "additive":
            options[name] = options[name].clamp(min=LEAST)
        return args, options


class StandingPlan(Plan):
    """A plan whose mask has its keys before a last axis of one, and closes the last of them but for the first."""

    def arguments(self, sizes: Mapping[str, int], *, seed: int = 0) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args, options = super().arguments(sizes, seed=seed)
        said = self.call.get("_mask", {})
        mask = options.get(str(said.get("argument")))
        if isinstance(mask, Tensor) and mask.ndim > 1 and said["means"] in ("attend", "blocked"):
            standing = mask.clone()
            standing[..., 1:, :] = said["means"] == "blocked"
            options[str(said["argument"])] = standing
        return args, options


def looks_back(done: Run) -> bool:
    """Whether no query of an attention sees a later key, and some see earlier ones."""
    for each in attentions(done)[:1]:
        sight = find_pattern(each)
        if sight is not None and bool(sight.visible.any()):
            later, earlier = sight.column > sight.row, sight.column < sight.row
            return not bool(sight.visible[later].any()) and bool(sight.visible[earlier].any()) and bool(later.any())
    return False


def is_shut(done: Run) -> bool:
    """Whether no query of any attention sees anything, or each sees all alike."""
    if done.output is not None and bool(done.output.isnan().all()):
        return True
    sights = [find_pattern(each) for each in attentions(done)]
    return bool(sights) and all(each is not None and not bool(each.seeing.any()) for each in sights)
