"""The walk of shapes has the sizes that were measured, and folds to the width."""

import pytest

from headwise.pages.shape_walk import folded, full_walk, short_walk

SIZES = [
    ("query", (2, 5, 11), (2, 5, 18)),
    ("key", (2, 5, 11), (2, 5, 18)),
    ("value", (2, 5, 11), (2, 5, 18)),
    ("output.dense", (2, 5, 18), (2, 5, 13)),
]


def test_the_walk_goes_through_every_projection_with_its_own_sizes():
    lines = [" ".join(folded(chain, 1000)) for chain in full_walk(SIZES, (2, 3, 5, 6))]
    assert lines == [
        *(
            f"[B, L, D] = [2, 5, 11] → {name} → [B, L, H*d] = [2, 5, 18] → split → [B, H, L, d] = [2, 3, 5, 6]"
            for name in ("query", "key", "value")
        ),
        "[B, H, L, d] = [2, 3, 5, 6] → q kᵀ / √d → [B, H, L, L] = [2, 3, 5, 5] → softmax → [B, H, L, L] = [2, 3, 5, 5]",
        "[B, H, L, L] = [2, 3, 5, 5] → weights v → [B, H, L, d] = [2, 3, 5, 6] → join → [B, L, H*d] = [2, 5, 18] "
        "→ output.dense → [B, L, D] = [2, 5, 13]",
    ]


def test_a_foreign_layer_shows_what_went_in_and_its_weights():
    (chain,) = short_walk((2, 5, 11), (2, 3, 5, 5))
    assert folded(chain, 1000) == ["[B, L, D] = [2, 5, 11] → softmax(q kᵀ) → [B, H, L, L] = [2, 3, 5, 5]"]


@pytest.mark.parametrize("width", [45, 60, 90])
def test_a_walk_is_folded_to_the_width_and_nothing_is_lost(width):
    for chain in full_walk(SIZES, (2, 3, 5, 6)):
        lines = folded(chain, width)
        assert max(map(len, lines)) <= width
        assert " ".join(lines) == " ".join(folded(chain, 1000))
        assert all(line.startswith("→ ") for line in lines[1:])
