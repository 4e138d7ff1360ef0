"""Fixed arguments: what an argument may be given that is no input of features, by what it is for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["ANGLES", "FIXED"]

ANGLES: tuple[list[str], ...] = (
    ["L", "d"], ["B", "L", "d"], ["L", "d//2"], ["B", "L", "d//2"], ["1", "1", "L", "d"], ["1", "L", "1", "d"],
    ["1", "L", "1", "d//2"], ["1", "1", "L", "d//2"],
)  # fmt: skip
# what an argument of a role may be given; D stands for the width
FIXED: Mapping[str, tuple[Any, ...]] = {
    "frequencies": (
        {"_expr": "torch.polar(torch.ones(L, d // 2), torch.randn(L, d // 2))"}, ["L", "d"], ["L", "d//2"], None,
        ["L", "d//2", "2"], {"_tuple": [["L", "d"], ["L", "d"]]}, {"_tuple": [["L", "d//2"], ["L", "d//2"]]},
    ),
    "cosine": ANGLES,
    "sine": ANGLES,
    "cosine_sine": tuple({"_tuple": [ANGLES[at], ANGLES[at]]} for at in (1, 0, 3, 2, 4, 5, 6, 7)),
    "positions": ({"_expr": "torch.arange(L)"}, {"_expr": "torch.arange(L).expand(B, L)"}, None),
    "adjacency": ({"means": "attend", "shape": ["B", "L", "L"]}, {"means": "attend", "shape": ["L", "L"]}),
    # three from each node, one or more into each
    "edges": ({"_expr": "torch.stack([torch.arange(edges) % L, torch.cat([torch.arange(1, L + 1) % L, "
                        "torch.arange(edges - L) % (L // 2 + 1)])])"},),
    "edge_features": (["edges", "D"], ["edges"]),
    "pairs": (["B", "L", "L", "D"], ["L", "L", "D"], ["B", "L", "L"], ["B", "H", "L", "L"]),
    "weight": (["D", "D"], ["H", "D", "d"]),
    "packed_weight": (["D", "3*D"], ["3*D", "D"]),
    "vector": (["D"],),
    "rows": ("h",),
    "columns": ("w",),
    "grid": ({"_tuple": ["h", "w"]},),
    "start": (0,),
    "count": ("L//2", {"_expr": "torch.full((B,), L // 2)"}),
    "slopes": (["H"], ["B"], ["H", "1", "1"]),
    "flag": (False,),
    "boundaries": ({"_expr": "torch.tensor([0, L])"},), "limit": ("L",), "mapping": ({"_expr": "{}"},),
    "scale": (0.5, 1.0),
    "dropout": (0.0, None),
    "states": (["1", "B", "D"], ["2", "B", "D"]), "state": (["B", "D"],),
    "state_pairs": ({"_tuple": [["1", "B", "D"], ["1", "B", "D"]]},),
    "state_pair": ({"_tuple": [["B", "D"], ["B", "D"]]},),
    "pair": ({"_tuple": [["B", "H", "L", "d"], ["B", "H", "L", "d"]]}, {"_tuple": [["B", "L", "D"], ["B", "L", "D"]]}),
    "function": (None,),
    "segments": (None, {"_ids": ["B", "L"], "below": "3"}),
    "ids": ({"_ids": ["B", "L"], "below": "11"},),
}  # fmt: skip
