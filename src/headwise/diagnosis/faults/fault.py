"""Fault: one row of the table of faults, its sentences in two languages, and the code of its example."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["ENGINES", "FAULT", "NOTE", "SEVERITIES", "WARNING", "Example", "Fault", "Template", "Words"]

SEVERITIES = FAULT, WARNING, NOTE = ("fault", "warning", "note")
# what decides whether code has a fault
ENGINES = {
    "formula": "the numbers that the code computes are compared with those of a formula",
    "layout": "every entry of a tensor is traced to its batch element, token and feature",
    "law": "the code runs again under a change, and the two results are compared",
    "constraint": "the call raises, and the failing operation is compared with its recorded shapes",
    "source": "the source is read and compared with what ran",
}


@dataclass(frozen=True)
class Words:
    """The sentences of one language. what: what is wrong; why: why it matters; fix: what to write instead.

    A name in braces stands for a value of the finding: {factor}, {wanted}, {axis}.
    """

    what: str
    why: str
    fix: str


@dataclass(frozen=True)
class Example:
    """The smallest code with a fault. template: the name of the correct class that it changes.

    text: the file; changes: pairs (correct piece, faulty piece); line: of the finding, from 1; init, call: declared to
    the doctor, None: found out. target: the class.
    """

    template: str
    text: str
    changes: tuple[tuple[str, str], ...]
    line: int
    init: Mapping[str, Any] | None = None
    call: Mapping[str, Any] | None = None
    target: str = "Attention"


@dataclass(frozen=True)
class Template:
    """A correct class of attention. Called with (correct piece, faulty piece) pairs it gives an `Example`.

    >>> template = Template("HALF", "def half(x):\\n    return x / 2\\n")
    >>> example = template(("x / 2", "x // 2"))
    >>> example.line, example.text
    (2, 'def half(x):\\n    return x // 2\\n')
    """

    name: str
    text: str

    def __call__(
        self,
        *changes: tuple[str, str],
        at: str = "",
        init: Mapping[str, Any] | None = None,
        call: Mapping[str, Any] | None = None,
    ) -> Example:
        """The class with each correct piece, which must stand in it once, replaced.

        at: a piece of the line of the finding; "": the first line of the last faulty piece. A piece that is not there,
        or stands there more than once, raises a ValueError.
        """
        text, place = self.text, 0
        for correct, faulty in changes:
            if text.count(correct) != 1:
                raise ValueError(f"{self.name} must hold {correct!r} once; it holds it {text.count(correct)} times.")
            place = text.index(correct)
            text = text.replace(correct, faulty)
        if at not in text:
            raise ValueError(f"The example must hold {at!r}.")
        line = text[: text.index(at) if at else place].count("\n") + 1
        return Example(self.name, text, changes, line, init, call)


@dataclass(frozen=True)
class Fault:
    """One thing that can be wrong with attention code.

    kind: its public name; severity: of FAULT, WARNING, NOTE, where a check states no other; engine: a key of ENGINES.
    example: a test runs the doctor on it, which finds this kind on this line and nothing else. has_patch: the doctor
    writes a patch for the example. family: the file of the table that holds the row.
    general: the kind of which this is a case, "": none; of both at one place one is reported.
    breaks_layout: queries, keys and values meet in the wrong axes, which explains a mask that does not fit.
    depends_on_layout: code that takes its axes in another order shows it too.
    follows_layout: without a proof it is a consequence of a fault with breaks_layout.
    ends_call: the call stops there, so that the doctor sees the rest in the patched source only.
    stops_training: a step of training shows nothing while it is there.
    removes: its fix removes an operation.
    needs_proof: the part of the examination that is reported as not examined where the fix restores nothing, "": it
    stands without.
    """

    kind: str
    severity: str
    engine: str
    example: Example
    english: Words
    chinese: Words
    has_patch: bool = False
    general: str = ""
    family: str = ""
    breaks_layout: bool = False
    depends_on_layout: bool = False
    follows_layout: bool = False
    ends_call: bool = False
    stops_training: bool = False
    removes: bool = False
    needs_proof: str = ""

    def words(self, lang: str) -> Words:
        """The sentences in "en" or "zh"."""
        return {"en": self.english, "zh": self.chinese}[lang]
