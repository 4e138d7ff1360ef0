"""Attention seen from outside, while a model runs, without changing what it computes."""

from typing import TYPE_CHECKING

from headwise.lazy_names import lazy_names

# each public name, and the file that it comes from
_HOME = {
    "CallRecord": "record", "MapCollector": "map_collector", "ProductLayout": "product_layout", "Projected": "record",
    "Seen": "watched_maps", "Session": "session", "WatchedModules": "watched_modules", "editing": "editors",
    "other_editors": "editors", "unwatchable": "watched_modules", "watch": "watcher", "watched_block": "block",
}  # fmt: skip

__all__ = list(_HOME)

if TYPE_CHECKING:
    from headwise.watching.block import watched_block as watched_block
    from headwise.watching.editors import editing as editing
    from headwise.watching.editors import other_editors as other_editors
    from headwise.watching.map_collector import MapCollector as MapCollector
    from headwise.watching.product_layout import ProductLayout as ProductLayout
    from headwise.watching.record import CallRecord as CallRecord
    from headwise.watching.record import Projected as Projected
    from headwise.watching.session import Session as Session
    from headwise.watching.watched_maps import Seen as Seen
    from headwise.watching.watched_modules import WatchedModules as WatchedModules
    from headwise.watching.watched_modules import unwatchable as unwatchable
    from headwise.watching.watcher import watch as watch
else:
    __getattr__, __dir__ = lazy_names(__name__, _HOME)
