"""The folder of the modules of the page's script."""

from tests.arrow import SRC

ASSETS = SRC / "pages" / "assets"
SOURCE = ASSETS / "source"
