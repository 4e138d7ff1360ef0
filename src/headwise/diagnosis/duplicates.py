"""Duplicates: each thing that is wrong said once, without what is only another sign of it."""

from __future__ import annotations

from headwise.diagnosis.suspects import Suspect

__all__ = ["merged"]


def merged(suspects: list[Suspect]) -> list[Suspect]:
    """Each thing once, that which is proved before that which is not."""
    out: dict[tuple[str, object], Suspect] = {}
    for each in suspects:
        span = each.span
        place = span if each.home is None else each.home
        key = (each.general, place if each.severity == "fault" or span is None else (span.file, span.line))
        if key not in out or (each.proved and not out[key].proved):
            out[key] = each
    return _plain(list(out.values()))


def _plain(suspects: list[Suspect]) -> list[Suspect]:
    """Without consequences of a fault that is proved: on its own line, or of a wrong layout."""
    proved = [each for each in suspects if each.severity == "fault" and each.proved]
    lines = {(each.span.file, each.span.line) for each in proved if each.span is not None}
    has_layout = any(each.fault.breaks_layout for each in proved)
    faults = [each for each in suspects if each.severity == "fault" and each.general != "mask-raises"]
    # scores of another shape fit no mask
    is_misshapen = any(each.fault.breaks_layout or each.fault.follows_layout for each in faults)

    # samples that took the place of tokens leak in every operation after it
    is_turned = any(each.fault.breaks_layout and each.fault.needs_proof == "samples" for each in proved)

    def is_sign(each: Suspect) -> bool:
        if is_turned and each.fault.needs_proof == "samples" and not each.fault.breaks_layout:
            return True
        if each.kind == "differs-from-every-formula":
            return any(other.severity == "fault" for other in suspects)
        if each.severity != "fault" or each.proved:
            return False
        return (each.span is not None and (each.span.file, each.span.line) in lines) or (
            each.fault.follows_layout and (is_misshapen if each.general == "mask-raises" else has_layout)
        )

    return [each for each in suspects if not is_sign(each)]
