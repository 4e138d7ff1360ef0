"""Sizing: small sizes that differ, so that a run is quick and no two axes can pass for each other."""

from __future__ import annotations

from headwise.recording.calls import Plan, evaluated

__all__ = ["small"]

# for sizes that bear the name of a parameter of the person's
PARAMETERS = (6, 8, 9, 10, 12, 14, 15, 16)
WANTED = {
    "batch": 4,
    "queries": 5,
    "keys": 7,
    "heads": 3,
    "head_width": 11,
    "key_heads": 3,
    "groups": 2,
    "value_width": 13,
}


def small(plan: Plan) -> dict[str, int]:
    """A size for each symbol; those of the plan where it bounds them, or where its names are not the usual ones."""
    usual = plan.sizes(0)
    out: dict[str, int] = {}
    for at, each in enumerate(plan.symbols):
        if each.equals:
            continue
        wanted = WANTED.get(each.meaning, PARAMETERS[at % len(PARAMETERS)])
        if each.fixed is not None:
            out[each.name] = usual[each.name]
            continue
        size = wanted * 2 if each.even and wanted % 2 else wanted
        out[each.name] = usual[each.name] if size < each.least else size
    for each in plan.symbols:
        if each.equals:
            out[each.name] = evaluated(each.equals, out)
    return out
