"""A page opened in Chromium with the network off, and everything that it asked for or complained of."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.optional import require

# Debian's Chromium runs as root only without its sandbox; nothing but our own files is opened in it
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
DESKTOP, PHONE = (1280, 900), (390, 844)


@contextmanager
def chromium() -> Iterator[object]:
    """The browser, without a window."""
    for part in ("chromium", "playwright"):
        require(part)
    import shutil

    from playwright.sync_api import sync_playwright

    names = ("chromium", "chromium-browser", "google-chrome", "chrome-headless-shell")
    path = next(filter(None, map(shutil.which, names)))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


class Opened:
    """One page in the browser: `tab` is Playwright's, requests and errors are what should stay empty."""

    def __init__(self, browser, file: Path, *, size=DESKTOP, scheme="light", place="") -> None:
        self.context = browser.new_context(
            viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, offline=True, accept_downloads=True
        )
        self.requests, self.errors, self.file = [], [], file
        self.tab = self.context.new_page()
        self.tab.on("request", lambda request: self.requests.append(request.url))
        self.tab.on("console", lambda message: self.errors.append(message.text))
        self.tab.on("pageerror", lambda error: self.errors.append(str(error)))
        self.tab.on("dialog", lambda dialog: (self.errors.append(dialog.message), dialog.dismiss()))
        self.tab.goto(f"{file.as_uri()}{place}")

    def view(self, name: str) -> None:
        """Open one of the views."""
        self.tab.click(f"#tab-{name}")

    def asked(self, script: str):
        """What a piece of JavaScript gives, once the page has drawn what it had to draw."""
        frame = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
        return self.tab.evaluate(f"async () => {{ await {frame}; return {script}; }}")

    def text(self, selector: str) -> str:
        return self.tab.inner_text(selector)

    def beside(self) -> list[str]:
        """What was asked for beside the file itself."""
        return [url for url in self.requests if url.partition("#")[0] != self.file.as_uri()]

    def close(self) -> None:
        """Close it, having seen that it asked for nothing and complained of nothing."""
        self.context.close()
        if self.beside() or self.errors:
            raise AssertionError(f"the page asked for {self.beside()} and complained of {self.errors}")


@contextmanager
def opened(browser, file: Path, **options) -> Iterator[Opened]:
    page = Opened(browser, file, **options)
    yield page
    page.close()
