"""Each view of the page is saved as SVG, PNG and PDF: the figure alone, of its own size, whose text is text."""

import re
import xml.etree.ElementTree as ET
import zlib
from pathlib import Path

import pytest

pytestmark = pytest.mark.needs("chromium", "playwright", "minilm", "transformers", "safetensors")

VIEWS = ("overview", "heads", "map", "row", "statistics", "steps")


@pytest.fixture
def page(open_page, animal_page):
    return open_page(animal_page, place="#layer=2&head=0&token=10")


def saved(page, button):
    with page.tab.expect_download() as waiting:
        page.tab.click(button)
    return waiting.value.suggested_filename, Path(waiting.value.path()).read_bytes()


@pytest.mark.parametrize("view", VIEWS)
def test_a_figure_is_saved_as_svg_and_png(page, view):
    page.view(view)
    (svg_name, svg), (png_name, png) = saved(page, "#save-svg"), saved(page, "#save-png")
    assert (svg_name, png_name) == tuple(f"all-MiniLM-L6-v2-{view}-L2H0.{form}" for form in ("svg", "png"))
    root = ET.fromstring(svg)
    sides = [float(root.get(side)) for side in ("width", "height")]
    assert png.startswith(b"\x89PNG")
    drawn = [int.from_bytes(png[at : at + 4]) for at in (16, 20)]
    assert drawn == pytest.approx([3 * side for side in sides], abs=3)
    # nothing that was drawn lies outside
    for text in root.iter("{http://www.w3.org/2000/svg}text"):
        assert 0 <= float(text.get("x")) <= sides[0]
        assert -1 <= float(text.get("y")) <= sides[1] + 1


@pytest.mark.parametrize("view", VIEWS)
def test_pdf_is_the_figure_alone_on_a_page_of_its_size(page, view):
    page.view(view)
    sides = [float(ET.fromstring(saved(page, "#save-svg")[1]).get(side)) for side in ("width", "height")]
    page.tab.evaluate("() => { window.print = () => { window.asked = document.title; }; }")
    page.tab.click("#print")
    page.tab.wait_for_selector("#printed", state="attached")
    assert page.asked("window.asked") == f"all-MiniLM-L6-v2-{view}-L2H0"
    pdf = page.tab.pdf(prefer_css_page_size=True, print_background=True)
    boxes = re.findall(rb"/MediaBox ?\[0 0 ([\d.]+) ([\d.]+)\]", pdf)
    assert [[float(side) for side in box] for box in boxes] == [pytest.approx([0.75 * side for side in sides], abs=1.5)]
    # letters as letters, not as a picture of them
    assert b"/Font" in pdf or any(b"/Font" in part for part in inflated(pdf))
    page.tab.evaluate("() => window.dispatchEvent(new Event('afterprint'))")
    assert page.asked("[document.getElementById('printed'), document.body.className, document.title]") == [
        *(None, "", "all-MiniLM-L6-v2"),
    ]
    assert page.asked("document.adoptedStyleSheets.length") == 0


def inflated(pdf):
    for stream in re.findall(rb"stream\r?\n(.*?)endstream", pdf, re.DOTALL):
        try:
            yield zlib.decompress(stream)
        except zlib.error:
            continue


def test_a_step_is_a_figure_of_its_line_and_its_numbers(page):
    page.view("steps")
    page.tab.fill("#step-slider", "3")
    heading = page.text(".what h2")
    svg = saved(page, "#save-svg")[1].decode()
    assert heading in svg
    values = page.asked("[...document.querySelectorAll('.tensor.new td')].map((each) => each.textContent)")
    assert len(values) == 12
    assert [value for value in values if f">{value}</text>" not in svg] == []
    page.tab.uncheck("#step-numbers")
    assert f">{values[0]}</text>" not in saved(page, "#save-svg")[1].decode()
