"""In a notebook: a still picture at once, in which no text acts, and the page itself on request."""

import base64
import dataclasses
import re
import zlib

import torch
from torch import nn

import headwise as hw
from headwise.pages.colours import deep
from headwise.pages.png import png
from tests.fresh import run_fresh
from tests.pages.made import a_map, a_page, with_nan


def picture_of(block):
    return base64.b64decode(re.search(r'src="data:image/png;base64,([^"]*)"', block)[1])


def pixels(file):
    """Rows of colours of a PNG as we write it."""
    palette = file[file.index(b"PLTE") + 4 :]
    start = file.index(b"IDAT")
    size = int.from_bytes(file[start - 4 : start], "big")
    width = int.from_bytes(file[16:20], "big")
    raw = zlib.decompress(file[start + 4 : start + 4 + size])
    lines = [raw[n + 1 : n + 1 + width] for n in range(0, len(raw), width + 1)]
    return [[tuple(palette[3 * p : 3 * p + 3]) for p in line] for line in lines]


def test_a_map_and_a_watch_show_all_their_heads():
    attn = hw.MultiHeadAttention(12, 3)
    with hw.watch(attn) as seen:
        attn(torch.randn(1, 5, 12), mask=hw.causal())
        attn(torch.randn(1, 4, 12))
    rows = pixels(picture_of(seen._repr_html_()))
    assert (len(rows), len(rows[0])) == (2 * 44 + 4, 3 * 44 + 4)
    alone = pixels(picture_of(seen.calls("")[0]._repr_html_()))
    assert (len(alone), len(alone[0])) == (48, 136)


def test_the_pixels_are_the_weights():
    q = torch.zeros(1, 1, 2, 4)
    rows = pixels(picture_of(hw.attention_map(q, q, mask=hw.causal())._repr_html_()))
    assert rows[6][6] == deep()[255 - 4]
    assert rows[6][40] == (200, 193, 172)
    # a half, three powers of ten below 1 being the lowest
    assert rows[40][6] == rows[40][40]
    assert rows[40][6] not in (rows[6][6], rows[6][40])


def test_nan_and_empty_rows_have_colours_of_their_own():
    assert (205, 60, 20) in {pixel for row in pixels(picture_of(with_nan()._repr_html_())) for pixel in row}
    empty = a_map(mask=hw.lengths(torch.tensor([0])))._repr_html_()
    assert {pixel for row in pixels(picture_of(empty)) for pixel in row} == {(255, 255, 255), (240, 214, 196)}


def test_a_map_of_too_many_weights_is_shown_in_words():
    long = hw.attention_map(torch.zeros(1, 8, 9000, 2), torch.zeros(1, 8, 9000, 2))
    assert "<img" not in long._repr_html_()
    assert "8 heads" in long._repr_html_()


def test_text_cannot_act_in_a_notebook():
    page = dataclasses.replace(a_page({"<b onclick='x'>": a_map()}), title="<script>alert(1)</script>")
    assert not re.search("<script|<b ", page._repr_html_())
    frame = page.show()._repr_html_()
    assert not re.search("<script|<b ", frame)
    assert 'sandbox="allow-scripts' in frame
    assert "allow-same-origin" not in frame


def test_a_watch_without_maps_shows_its_words():
    with hw.watch(nn.Linear(2, 2)) as seen:
        pass
    assert seen._repr_html_().startswith("<pre>Seen: 0 modules")
    attn = hw.MultiHeadAttention(8, 2)
    with hw.watch(attn, keep=lambda m: m.entropy()) as kept:
        attn(torch.randn(1, 3, 8))
    assert kept._repr_html_().startswith("<pre>Seen: 1 module, 1 call")


def test_a_map_that_cannot_be_drawn_shows_its_words():
    q = torch.zeros(1, 2, 3, 4)
    made = hw.attention_map(q, q)
    q.add_(1)
    assert made._repr_html_().startswith("<pre>AttentionMap((1, 2, 3, 3)")
    assert hw.attention_map(q[:, :, :0], q)._repr_html_().startswith("<pre>AttentionMap((1, 2, 0, 3)")


def test_a_picture_needs_no_library():
    source = """
import warnings
warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
import torch, headwise as hw
print(hw.attention_map(torch.zeros(1, 2, 3, 4), torch.zeros(1, 2, 3, 4))._repr_html_()[:40])
"""
    printed = run_fresh(source, without=("matplotlib", "numpy", "transformers", "IPython"))
    assert printed.startswith('<div><img src="data:image/png;base64,')


def test_a_picture_is_read_by_others():
    file = png([[0, 1, 2], [2, 1, 0]], [(255, 0, 0), (0, 255, 0), (0, 0, 255)])
    assert pixels(file) == [[(255, 0, 0), (0, 255, 0), (0, 0, 255)], [(0, 0, 255), (0, 255, 0), (255, 0, 0)]]


def test_the_frame_opens_in_a_browser(open_page, tmp_path):
    file = tmp_path / "notebook.html"
    file.write_text(f"<!doctype html><title>n</title>{a_page(a_map()).show()._repr_html_()}", encoding="utf-8")
    page = open_page(file)
    inside = page.tab.frames[1]
    inside.click("#tab-map")
    assert inside.inner_text("#title") == "Attention maps"
    # the frame's own address is part of the file
    page.requests = [url for url in page.requests if url != "about:srcdoc"]
