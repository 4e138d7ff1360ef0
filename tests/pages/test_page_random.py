"""Maps, masks and tokens drawn at random: what the page reads back is what the map says."""

import itertools
import math
from unittest.mock import patch

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import headwise as hw
from headwise.pages import page_data
from headwise.pages.encode_maps import carry
from headwise.pages.weight_codes import EMPTY, LAST, MASKED, NAN, ZERO, decoded
from tests.pages.browsing import opened
from tests.pages.made import a_page

LEAST = 2.0**-28
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
# a page takes most of a second, whatever it holds: few pages, each of many maps or texts
MAPS = 3
SLOW = settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))


@st.composite
def maps(draw, longest=9):
    """A map of any size and type, whose mask is any pattern, with NaN in some queries and scores far apart."""
    B, H = draw(st.integers(1, 2)), draw(st.integers(1, 4))
    groups = draw(st.sampled_from([n for n in (1, 2, 4) if H % n == 0]))
    Lq, Lk = draw(st.integers(1, longest)), draw(st.integers(1, longest))
    make = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    dtype = draw(st.sampled_from(DTYPES))
    q = draw(st.sampled_from([0.1, 3.0, 40.0])) * torch.randn(B, H, Lq, 3, generator=make)
    k = torch.randn(B, H // groups, Lk, 3, generator=make)
    if draw(st.booleans()):
        q[torch.rand(B, H, Lq, generator=make) < 0.2] = math.nan
    share = draw(st.sampled_from([None, 0.0, 0.3, 0.9]))
    allowed = None if share is None else hw.allowed(torch.rand(B, H, Lq, Lk, generator=make) >= share)
    causal = hw.causal() if draw(st.booleans()) else None
    masks = [mask for mask in (allowed, causal) if mask is not None]
    mask = masks[0] & masks[1] if len(masks) == 2 else (masks or [None])[0]
    sink = torch.randn(H, generator=make) if draw(st.booleans()) else None
    return hw.attention_map(q.to(dtype), k.to(dtype), mask=mask, sink=sink)


def told(made, sample):
    """What a page has to say of each pair: its weight, and its kind by the codes' names."""
    weights, hidden = made[sample], made.logits[sample] == float("-inf")
    kinds = torch.full(weights.shape, LAST)
    kinds[weights < LEAST], kinds[weights.isnan()] = ZERO, NAN
    kinds[hidden] = MASKED
    kinds[hidden.all(-1)] = EMPTY
    return weights.double(), kinds


def kind(codes):
    return torch.where((codes > ZERO) & (codes <= LAST), LAST, codes)


@pytest.fixture(scope="module")
def read(browser, tmp_path_factory):
    """read(page) -> for each layer and head, the weight, the code and whether it is exact, of every pair."""
    folder, count = tmp_path_factory.mktemp("random"), itertools.count()

    def reading(page):
        with opened(browser, page.save(folder / f"{next(count)}.html")) as tab:
            found = tab.asked(
                "window.headwise.header.layers.map((layer, n) => Array.from({ length: layer.heads }, (_, h) =>"
                " Array.from({ length: layer.lengths[0] }, (_, i) => Array.from({ length: layer.lengths[1] }, (_, j) =>"
                " { const w = window.headwise.weight(n, h, i, j); return [w.weight, w.code, w.isExact]; }))))"
            )
            # every view must bear every layer
            for view in ("heads", "map", "row", "statistics"):
                tab.view(view)
                for layer in range(len(found)):
                    tab.tab.select_option("#layer", str(layer))
        return found

    return reading


@SLOW
@given(drawn=st.lists(maps(), min_size=MAPS, max_size=MAPS), is_exact=st.booleans(), data=st.data())
def test_every_number_of_the_page_is_that_of_the_map(read, drawn, is_exact, data):
    sample = data.draw(st.integers(0, min(made.shape[0] for made in drawn) - 1))
    page = a_page({f"layer {n}": made for n, made in enumerate(drawn)})
    with patch.object(page_data, "EXACT_BYTES", 10**6 if is_exact else -1):
        layers = read(page.of_samples([sample]))
    for made, layer in zip(drawn, layers, strict=True):
        assert_read(layer, made, sample, is_exact=is_exact)


def assert_read(layer, made, sample, *, is_exact):
    """What the page gave for a layer is what its map says."""
    weights, kinds = told(made, sample)
    found = torch.tensor([[[[math.nan if w is None else w for w in pair] for pair in row] for row in h] for h in layer])
    found = found.double()
    assert torch.equal(kind(found[..., 1]), kinds.double())
    assert bool((found[..., 2] == is_exact).all())
    seen = kinds == LAST
    if is_exact:
        assert torch.equal(found[..., 0][seen], weights[seen].float().double())
    else:
        assert bool(((found[..., 0] - weights).abs() < 0.0405 * weights)[seen].all())
    assert torch.equal(found[..., 0].isnan(), kinds == NAN)
    assert bool((found[..., 0][(kinds == MASKED) | (kinds == EMPTY)] == 0).all())


@settings(max_examples=100, deadline=None)
@given(made=maps(longest=14), block=st.integers(2, 6))
def test_a_square_of_a_pooled_map_is_the_largest_of_it_or_says_why_there_is_none(made, block):
    carried = carry(made, sample=0, block=block, exact=range(made.shape[2]))
    weights, kinds = told(made, 0)
    H = weights.shape[0]
    rows, columns = carried.block
    for h, i, j in itertools.product(range(H), range(carried.codes.shape[1]), range(carried.codes.shape[2])):
        there = kinds[h, i * rows : (i + 1) * rows, j * columns : (j + 1) * columns]
        square = weights[h, i * rows : (i + 1) * rows, j * columns : (j + 1) * columns]
        assert int(kind(carried.codes[h, i, j].long())) == int(there.max())
        if int(there.max()) == LAST:
            assert float(decoded(carried.codes[h, i, j])) == pytest.approx(
                float(square[there == LAST].max()), rel=0.0405
            )
    none = kinds[..., 0] == EMPTY
    entropy = made.entropy()[0].double()
    for h, i in itertools.product(range(H), range(carried.entropy.shape[1])):
        some = entropy[h, i * rows : (i + 1) * rows][~none[h, i * rows : (i + 1) * rows]]
        wanted = float(some.mean()) if some.numel() else -2.0
        assert float(carried.entropy[h, i]) == pytest.approx(wanted, rel=1e-4, abs=1e-5, nan_ok=True)


@SLOW
@example(
    tokens=[" a", "a ", "\t", "<b>x</b>", "&amp;", "e\u0301", "\u00e9", "\ufb01", "\u202ea", "</script>", "${x}"],
    texts=("  two blanks", "<i>&lt;", "\u2028"),
    names=[" l0", "<l1>", "l\u0301"],
)
@given(
    tokens=st.lists(st.text(max_size=30), min_size=2, max_size=18),
    texts=st.tuples(*(st.text(max_size=40) for _ in range(MAPS))),
    names=st.lists(st.text(max_size=20), min_size=MAPS, max_size=MAPS, unique=True),
)
def test_any_text_is_shown_as_text(browser, tmp_path_factory, tokens, texts, names):
    import dataclasses

    torch.manual_seed(0)
    size = len(tokens)
    made = hw.attention_map(torch.randn(1, 1, size, 3), torch.randn(1, 1, size, 3))
    title, text, note = texts
    page = dataclasses.replace(a_page(dict.fromkeys(names, made), tokens=tokens), title=title, text=text, notes=(note,))
    file = page.save(tmp_path_factory.mktemp("text") / "page.html")
    with opened(browser, file, place="#view=row") as tab:
        shown = tab.asked("[...document.querySelectorAll('.text .piece')].map((each) => each.textContent)")
        assert shown == list(page.sides[0].tokens)
        assert tab.asked("document.querySelectorAll('script:not([type]), style, svg, img, iframe, a').length") == 2
        for view in ("overview", "heads", "map", "statistics"):
            tab.view(view)
        with tab.tab.expect_download() as waiting:
            tab.tab.click("#save-svg")
        from xml.etree import ElementTree

        ElementTree.parse(waiting.value.path())
