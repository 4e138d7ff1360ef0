"""The page's script, made of its modules; python -m tests.page_code --write renews assets/script.js."""

import re
import sys
from pathlib import Path

from tests.arrow import SRC

ASSETS = SRC / "pages" / "assets"
SOURCE = ASSETS / "source"
IMPORT = re.compile(r'^import (?:\{([^}]*)\} from )?"\./([a-z]+\.js)";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?=const |let |class |function |async )", re.MULTILINE)
NAMED = re.compile(r"^(?:const|let|class|function|async function) ([A-Za-z_$][\w$]*)", re.MULTILINE)
NOTE = "// Made from source/*.js by python -m tests.page_code --write: change those.\n"


def bundle(source: Path = SOURCE) -> str:
    """All modules that main.js needs as one script, each after those that it imports from."""
    order: list[Path] = []
    _visit(source / "main.js", order, [])
    bodies = [EXPORT.sub("", IMPORT.sub("", file.read_text(encoding="utf-8"))) for file in order]
    _check(order, bodies)
    parts = (f"// {file.name}\n{body.strip()}\n" for file, body in zip(order, bodies, strict=True))
    return NOTE + '"use strict";\n(() => {\n' + "\n".join(parts) + "})();\n"


def _visit(file: Path, order: list[Path], above: list[Path]) -> None:
    if file in above:
        raise ValueError(f"modules must not import in a circle, but these do: {[each.name for each in above]}")
    if file in order:
        return
    for _, name in IMPORT.findall(file.read_text(encoding="utf-8")):
        _visit(file.parent / name, order, [*above, file])
    order.append(file)


def _check(order: list[Path], bodies: list[str]) -> None:
    """In one script every name at the top is seen by all modules, so that none may stand twice."""
    owners: dict[str, str] = {}
    for file, body in zip(order, bodies, strict=True):
        left = re.search(r"^(import|export)\b.*", body, re.MULTILINE)
        if left:
            raise ValueError(f"{file.name}: {left[0]!r} is a form that the bundle does not know")
        for name in NAMED.findall(body):
            if name in owners:
                raise ValueError(f"{name} stands in {owners[name]} and in {file.name}: give one another name")
            owners[name] = file.name


def main() -> None:
    """Print the script, or write it."""
    if sys.argv[1:] != ["--write"]:
        print(bundle(), end="")
        return
    (ASSETS / "script.js").write_text(bundle(), encoding="utf-8")


if __name__ == "__main__":
    main()
