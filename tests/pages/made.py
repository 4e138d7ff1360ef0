"""Maps and pages that tests of the page look at: sizes all different."""

import torch

import headwise as hw
from headwise.pages.page import Page
from headwise.pages.page_sources import page_of_maps


def a_map(*, B=1, H=3, Lq=5, Lk=7, D=11, mask=None, seed=0, spread=3.0):
    """A map of random queries and keys, its weights spread over many powers of ten."""
    torch.manual_seed(seed)
    return hw.attention_map(spread * torch.randn(B, H, Lq, D), torch.randn(B, H, Lk, D), mask=mask)


def a_page(maps, *, tokens=None, query=None, layer=(), head=(), lang="en") -> Page:
    return page_of_maps(maps, tokens=tokens, query=query, layer=layer, head=head, lang=lang)


def with_nan(*, row=1, **sizes):
    """A map one of whose queries is NaN in head 0."""
    torch.manual_seed(3)
    size = {"H": 2, "L": 6, "D": 4} | sizes
    q = torch.randn(1, size["H"], size["L"], size["D"])
    q[0, 0, row, 0] = float("nan")
    return hw.attention_map(q, torch.randn(1, size["H"], size["L"], size["D"]), mask=hw.causal())
