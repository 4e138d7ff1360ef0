"""Merging: each thing that is wrong said once, without what is only another sign of it."""

from __future__ import annotations

from headwise.diagnosis.suspects import Suspect

__all__ = ["merged"]

# kinds of what is wrong with the layout
LAYOUT = frozenset({
    "split-without-transpose", "merge-without-transpose", "heads-batch-swapped", "key-not-transposed", "input-ignored",
    "key-uses-query-length", "batch-length-confused",
})  # fmt: skip


def merged(suspects: list[Suspect]) -> list[Suspect]:
    """Each thing once, that which is proved before that which is not."""
    out: dict[tuple[str, object], Suspect] = {}
    for each in suspects:
        span = each.span
        place = span if each.home is None else each.home
        key = (each.kind, place if each.severity == "fault" or span is None else (span.file, span.line))
        if key not in out or (each.proved and not out[key].proved):
            out[key] = each
    return _plain(list(out.values()))


def _plain(suspects: list[Suspect]) -> list[Suspect]:
    """Without what is only another sign of a fault that is proved: at its own line, or of the layout without a name."""
    proved = [each for each in suspects if each.severity == "fault" and each.proved]
    lines = {(each.span.file, each.span.line) for each in proved if each.span is not None}
    has_layout = any(each.kind in LAYOUT for each in proved)
    is_misshapen = any(each.severity == "fault" and each.kind in (*LAYOUT, "unknown") for each in suspects)

    def is_sign(each: Suspect) -> bool:
        if each.severity != "fault" or each.proved:
            return False
        return (each.span is not None and (each.span.file, each.span.line) in lines) or (
            (each.kind == "unknown" and has_layout)
            # scores of another shape fit no mask
            or (each.kind == "mask-raises" and is_misshapen)
        )

    return [each for each in suspects if not is_sign(each)]
