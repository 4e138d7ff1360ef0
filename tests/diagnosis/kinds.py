"""The list of kinds in docs/doctor.md, made of what the doctor says: python -m tests.diagnosis.kinds writes it."""

import re
from pathlib import Path

from headwise.diagnosis.diagnosis import KINDS
from headwise.wording import LANGUAGES

DOCUMENT = Path(__file__).parents[2] / "docs" / "doctor.md"
PLACE = re.compile(r"(<!-- kinds: [^\n]*-->\n).*?(<!-- end of kinds -->)", re.DOTALL)


def listed() -> str:
    """A row for each kind: its name, and the sentence that tells it."""
    rows = [(kind, LANGUAGES["en"][f"doctor.{kind.replace('-', '_')}.what"]) for kind in KINDS]
    lines = [f"| `{kind}` | {re.sub('{[a-z]+}', '…', sentence)} |" for kind, sentence in rows]
    return "\n".join(["| kind | what |", "|---|---|", *lines]) + "\n"


def with_list(text: str) -> str:
    """The document with the list as it should be."""
    return PLACE.sub(lambda place: place[1] + listed() + place[2], text)


if __name__ == "__main__":
    DOCUMENT.write_text(with_list(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
