"""Attention seen from outside, while a model runs, without changing what it computes."""

from headwise.watching.rollout import rollout
from headwise.watching.watched_maps import Seen
from headwise.watching.watcher import watch

__all__ = ["Seen", "rollout", "watch"]
