"""The page is looked at while the file is still being read: what has come is shown, what has not is waited for."""

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.pages.made import a_map, a_page

pytestmark = pytest.mark.needs("chromium", "playwright")

SETTLED = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


@contextmanager
def arriving(first: bytes, rest: bytes):
    """An address under which the first part of a page comes at once, the rest when the event is set; and the event."""
    go = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(first)
            self.wfile.flush()
            go.wait(60)
            self.wfile.write(rest)

        def log_message(self, *_):
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/page.html", go
    finally:
        go.set()
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("cut", ["codes-0", "exact-0", "codes-1"])
def test_a_layer_is_waited_for_until_all_of_it_has_come(browser, cut):
    made = {"first": a_map(H=2, Lq=40, Lk=40), "second": a_map(H=3, Lq=50, Lk=50, seed=1)}
    text = a_page(made).html()
    # in the middle of a block, so that what has come of it looks like data
    place = text.index(f'id="{cut}"') + 500
    context = browser.new_context()
    errors = []
    with arriving(text[:place].encode(), text[place:].encode()) as (address, go):
        tab = context.new_page()
        tab.on("console", lambda message: errors.append(message.text))
        tab.on("pageerror", lambda error: errors.append(str(error)))
        tab.goto(address, wait_until="commit")
        tab.wait_for_selector("#tab-map")
        layer = int(cut[-1])
        assert tab.evaluate("document.querySelectorAll('.head canvas').length") == 5
        for view in ("map", "heads", "row", "statistics"):
            tab.click(f"#tab-{view}")
            tab.select_option("#layer", str(layer))
            tab.evaluate(SETTLED)
            assert tab.evaluate("document.getElementById('view').dataset.waiting") == "true"
        assert "still being read" in tab.inner_text("#status")
        tab.click("#tab-map")
        go.set()
        tab.wait_for_load_state("load")
        tab.evaluate(SETTLED)
        assert tab.evaluate("'waiting' in document.getElementById('view').dataset") is False
        wanted = list(made.values())[layer][0, 0, 3].tolist()
        got = tab.evaluate(f"window.headwise.codes({layer}, 0).map(window.headwise.weightOf)")
        columns = len(wanted)
        assert got[3 * columns : 4 * columns] == pytest.approx(wanted, rel=0.041, abs=2**-28)
    context.close()
    # a browser asks any address that is no file for its icon
    assert [each for each in errors if "favicon" not in each] == []
