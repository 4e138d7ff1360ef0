"""Reading patients: their files, what was written down of them by hand, and the same listing from a trace."""

import importlib.util
import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from headwise.calls import Named, Plan
from headwise.tracing.steps import Step

FOLDER = Path(__file__).parent / "patients"
# an operation that gives one tensor for each head says one of them
MANY = 3


@cache
def golden(name: str) -> Any:
    """What was written down of a file of patients: one entry, or a list of them."""
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def patients() -> list[str]:
    """The names of the files that hold one patient each."""
    return sorted(file.stem for file in FOLDER.glob("*.json") if not file.stem.startswith("adversarial"))


@cache
def loaded(name: str, path: Path | None = None) -> ModuleType:
    """A file of patients, run once for all tests; path: of a copy of it."""
    spec = importlib.util.spec_from_file_location(f"patient_{name}", path or FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def plan_of(entry: dict[str, Any], module: ModuleType) -> Plan:
    """How an entry is built and called, as it was written down."""
    return Plan(
        getattr(module, entry["target"]),
        entry["setting"],
        entry["init"],
        entry["call"],
        tuple(Named(**each) for each in entry["symbols"]),
        mask=entry["mask"],
        namespace=vars(module),
    )


def listing(steps: Iterable[Step]) -> list[dict[str, Any]]:
    """Steps in the words of the golden files."""
    return [
        {"line": each.place.line, "column": each.place.column, "op": each.op, "output": _said(each)}
        | ({"times": each.times} if each.times else {})
        for each in steps
    ]


def without_columns(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """A listing of which only the lines are compared."""
    return [{key: value for key, value in row.items() if key != "column"} for row in rows]


def _said(step: Step) -> str:
    own = [str(each) for each in step.outputs]
    return f"{own[0]} ×n" if len(own) > MANY and len(set(own)) == 1 else ", ".join(own)
