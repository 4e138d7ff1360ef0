"""Attention seen from outside, while a model runs, without changing what it computes."""

from headwise.watching.block import watched_block
from headwise.watching.editors import editing, other_editors
from headwise.watching.map_collector import MapCollector
from headwise.watching.product_layout import ProductLayout
from headwise.watching.record import CallRecord, Projected
from headwise.watching.session import Session
from headwise.watching.watched_maps import Seen
from headwise.watching.watched_modules import WatchedModules, unwatchable
from headwise.watching.watcher import watch

__all__ = [
    "CallRecord", "MapCollector", "ProductLayout", "Projected", "Seen", "Session", "WatchedModules", "editing",
    "other_editors", "unwatchable", "watch", "watched_block",
]  # fmt: skip
