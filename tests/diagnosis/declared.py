"""Declared sizes: each right class examined and traced with nothing declared, and with its sizes declared in 3 ways.

python -m tests.diagnosis.declared [--only NAME] [--part I/N] [--json FILE]
"""

import argparse
import ast
import json
import re
import sys
import time
import warnings
from collections import Counter
from pathlib import Path

import torch

from headwise.calls import evaluated, find, whole
from headwise.diagnosis.attention_owners import own_files
from headwise.diagnosis.check_runner import CheckRunner
from headwise.diagnosis.target_diagnosis import _examine_target, diagnosed
from headwise.errors import InputError
from headwise.targets import describe_object
from headwise.tracing.entry_point import traced
from tests.diagnosis.mutants import HERE, loaded
from tests.diagnosis.operators import HOSTS
from tests.diagnosis.test_correct import VARIANTS

WAYS = ("nothing", "constructor", "numbers", "letters")
# H * d is D, d is H, and a length that a class is built for is D again
COINCIDING = {"B": 2, "L": 5, "S": 7, "H": 4, "Hkv": 2, "g": 2, "d": 4, "dv": 4, "D": 16}
PARAMETERS = (16, 8, 4, 12, 32, 64)
WORD = re.compile(r"(?<![\w.])[^\W\d]\w*(?!\w*\s*[=(.])")


class Subject:
    """A class, and how it is called where nothing is declared."""

    def __init__(self, name, target, namespace, files):
        self.name, self.target, self.namespace, self.files = name, target, namespace, files

    def diagnosis(self, said):
        """The verdict and the findings: severity, kind and line."""
        found = diagnosed(self.target, title=self.name, namespace=self.namespace, files=self.files, **said)
        return found.verdict, sorted((each.severity, each.kind, each.line or 0) for each in found.findings)

    def trace(self, said):
        """The steps: operation, line, shapes in and out; and where it fails, why."""
        found = traced(self.target, title=self.name, namespace=self.namespace, files=self.files, texts={}, **said)
        steps = [
            (each.op, each.place.line, [*map(str, each.inputs)], [*map(str, each.outputs)]) for each in found.steps
        ]
        return steps, [(each.place and each.place.line, each.op, each.reason) for each in found.problems]

    def plans(self):
        """The call that the doctor ends with where nothing is declared, and the one that a trace shows."""
        target, init = whole(self.target, None)
        shown = find(target, namespace=self.namespace, init=init, user_files=tuple(self.files)).plans[:1]
        said = {"init": init, "call": None}
        exams = _examine_target(target, self.namespace, own_files(target, self.files), said, CheckRunner()).exams
        mine = [each.plan for each in exams if each.plan.target is target]
        examined = max(mine, key=lambda plan: (plan.setting == "cross", bool(plan.mask)), default=None)
        return examined, next(iter(shown), None)


def subjects():
    """The hosts and the classes that are right, however unusual."""
    for host in HOSTS:
        source = (HERE / "hosts" / host.file).read_text(encoding="utf-8")
        target, namespace, name = loaded(host, source, "declared")
        yield Subject(host.file, target, namespace, {name: host.file})
    for each in VARIANTS:
        found = describe_object(each)
        yield Subject(f"{each.__module__.rpartition('.')[2]}.{each.__name__}", each, found.namespace, found.files)


def coinciding(plan):
    """Sizes of a plan's symbols of which many are equal, with which it runs; those of a probe run where none do."""
    for number in PARAMETERS:
        sizes = {}
        for each in plan.symbols:
            if each.equals:
                sizes[each.name] = evaluated(each.equals, sizes)
                continue
            wanted = COINCIDING.get(each.name, 2 if each.said == "windows" else number)
            wanted = max(wanted, each.times)
            sizes[each.name] = wanted if each.fixed is None else each.fixed
        if runs(plan, sizes):
            return sizes
    return plan.sizes(0)


def runs(plan, sizes):
    try:
        with torch.no_grad():
            target = plan.build(sizes)
            args, options = plan.arguments(sizes)
            target(*args, **options)
    except Exception:  # noqa: BLE001  whatever a class raises, these sizes are not for it
        return False
    return True


def numbered(value, sizes):
    """A value of `init` or `call` with numbers for its symbols."""
    if isinstance(value, list):
        return [numbered(each, sizes) for each in value]
    if isinstance(value, dict):
        if "_expr" in value:
            return {"_expr": WORD.sub(lambda word: str(sizes.get(word[0], word[0])), value["_expr"])}
        kept = ("argument", "means", "dtype", "_layout")
        return {key: each if key in kept else numbered(each, sizes) for key, each in value.items()}
    if isinstance(value, str):
        words = {node.id for node in ast.walk(ast.parse(value or "0", mode="eval")) if isinstance(node, ast.Name)}
        return evaluated(value, sizes) if value and words <= sizes.keys() else value
    return value


def declarations(plan):
    """What is declared in each way."""
    init, call = dict(plan.init), dict(plan.call)
    sizes = coinciding(plan)
    layout = {name: value for name, value in call.items() if name == "_layout"}
    said = {
        name: dict(value) if isinstance(value, dict) or hasattr(value, "keys") else value
        for name, value in call.items()
    }
    numbers = {name: numbered(value, sizes) for name, value in said.items() if name != "_layout"}
    built = {name: numbered(value, sizes) for name, value in init.items()}
    return {
        "nothing": {"init": None, "call": None},
        "constructor": {"init": built, "call": None},
        "numbers": {"init": built, "call": numbers},
        "letters": {"init": init, "call": {**said, **layout}},
    }


def asked(subject, said, *, trace):
    """What is answered to one declaration: {"verdict", "findings"} or {"steps", "problems"}, or {"refused"}."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if trace:
                steps, problems = subject.trace(said)
                return {"steps": steps, "problems": problems}
            verdict, findings = subject.diagnosis(said)
            return {"verdict": verdict, "findings": findings}
    except InputError as error:
        return {"refused": str(error)}


def compared(a, b):
    """How the trace b names what a names: "same", "unknown" (some are `?`), "numbers" (some are numbers), "other"
    (an operation or a line is another one), or "wrong"; "none": a is no trace."""
    if "refused" in a:
        return "none"
    if "refused" in b:
        return "refused"
    flat_a = [(op, line, text) for op, line, given, made in a["steps"] for text in (*given, *made)]
    flat_b = [(op, line, text) for op, line, given, made in b["steps"] for text in (*given, *made)]
    if [each[:2] for each in flat_a] != [each[:2] for each in flat_b] or a["problems"] != b["problems"]:
        return "other"
    out = "same"
    for (_, _, mine), (_, _, other) in zip(flat_a, flat_b, strict=True):
        for one, two in zip(mine[1:-1].split(", "), other[1:-1].split(", "), strict=False):
            if one == two:
                continue
            if two == "?":
                out = "unknown" if out == "same" else out
            elif not re.search(r"[^\W\d]", two):
                out = "numbers" if out in ("same", "unknown") else out
            else:
                return "wrong"
    return out


def judged(subject):
    """The answers to each way, and how they differ from those with nothing declared."""
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plans = subject.plans()
    if None in plans:
        # what is found by the doctor alone is not traced
        plans = [each for each in plans if each is not None] * 2
    if not plans:
        return {"name": subject.name, "ways": {}}
    said, shown = map(declarations, plans)
    out = {"name": subject.name, "said": said, "shown": shown, "ways": {}}
    for way in WAYS:
        found = asked(subject, said[way], trace=False)
        drawn = asked(subject, shown[way], trace=True)
        out["ways"][way] = {"doctor": found, "trace": drawn}
    first = out["ways"]["nothing"]
    for each in out["ways"].values():
        each["same"] = each["doctor"] == first["doctor"]
        each["names"] = compared(first["trace"], each["trace"])
    out["seconds"] = time.perf_counter() - start
    return out


def told(found):
    """What differs, in lines."""
    first = found["ways"]["nothing"]["doctor"]
    for way, each in found["ways"].items():
        if not each["same"]:
            yield f"   {found['name']} {way}: {said_of(each['doctor'])} instead of {said_of(first)}"
        if each["names"] != "same":
            yield f"   {found['name']} {way}: trace: {each['names']}"


def said_of(answer):
    return answer.get("refused") or f"{answer['verdict']} {[tuple(each) for each in answer['findings']]}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only")
    parser.add_argument("--part", default="1/1", help="I/N: the I-th of N parts")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--steps", action="store_true", help="with the steps of what is traced otherwise")
    choice = parser.parse_args()
    torch.set_num_threads(1)
    at, count = map(int, choice.part.split("/"))
    every = [each for each in subjects() if choice.only in (None, each.name, each.name.rpartition(".")[2])]
    rows, missing = [], []
    for subject in every[at - 1 :: count]:
        found = judged(subject)
        if not found["ways"]:
            missing.append(subject.name)
            continue
        rows.append(found)
        print(f"{subject.name} {found['seconds']:.1f} s")
        print("\n".join(told(found)) or "   same", flush=True)
        if choice.steps:
            for way, each in found["ways"].items():
                print(way, json.dumps(found["shown"][way], default=str))
                print("\n".join(map(str, each["trace"].get("steps", [each["trace"]]))))
                print(each["trace"].get("problems"))
        if choice.json:
            with choice.json.open("a", encoding="utf-8") as file:
                file.write(json.dumps(found, default=str) + "\n")
    print(f"{len(rows)} classes; no call is found for {len(missing)}: {', '.join(missing)}")
    for way in WAYS[1:]:
        names = Counter(each["ways"][way]["names"] for each in rows)
        same = sum(each["ways"][way]["same"] for each in rows)
        print(f"{way}: the same verdict and findings in {same} of {len(rows)}; names {dict(names)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
