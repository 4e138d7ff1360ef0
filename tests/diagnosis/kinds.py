"""The lists of kinds and designs in docs/doctor.md, made of what the doctor says: python -m tests.diagnosis.kinds."""

import re
from pathlib import Path

from headwise.diagnosis.designs import DESIGNS
from headwise.diagnosis.diagnosis import KINDS
from headwise.wording import LANGUAGES

DOCUMENT = Path(__file__).parents[2] / "docs" / "doctor.md"
DESIGNS_PLACE = re.compile(r"(<!-- designs: [^\n]*-->\n).*?(<!-- end of designs -->)", re.DOTALL)
PLACE = re.compile(r"(<!-- kinds: [^\n]*-->\n).*?(<!-- end of kinds -->)", re.DOTALL)


def listed() -> str:
    """A row for each kind: its name, and the sentence that tells it."""
    rows = [(kind, LANGUAGES["en"][f"doctor.{kind.replace('-', '_')}.what"]) for kind in KINDS]
    lines = [f"| `{kind}` | {re.sub('{[a-z]+}', '…', sentence)} |" for kind, sentence in rows]
    return "\n".join(["| kind | what |", "|---|---|", *lines]) + "\n"


def designs() -> str:
    """A row for each design: its name, its source and its formula."""
    sources = [", ".join(f"[{one}](https://arxiv.org/abs/{one[6:]})" for one in each.source.split(", ") if one)
               for each in DESIGNS]  # fmt: skip
    lines = [f"| {each.name} | {source} | `{each.example}` |" for each, source in zip(DESIGNS, sources, strict=True)]
    return "\n".join(["| design | source | context, of scores = q·kᵀ |", "|---|---|---|", *lines]) + "\n"


def with_list(text: str) -> str:
    """The document with the lists as they should be."""
    text = DESIGNS_PLACE.sub(lambda place: place[1] + designs() + place[2], text)
    return PLACE.sub(lambda place: place[1] + listed() + place[2], text)


if __name__ == "__main__":
    DOCUMENT.write_text(with_list(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
