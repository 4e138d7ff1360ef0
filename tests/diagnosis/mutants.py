"""Mutants: every operator on every host, examined by the doctor; the table of what it finds.

python -m tests.diagnosis.mutants [--host FILE] [--operator NAME] [--write]
"""

import argparse
import hashlib
import itertools
import json
import linecache
import multiprocessing
import os
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import torch

from headwise.diagnosis.diagnosing import diagnosed
from headwise.diagnosis.following.running import Manner, default_dtype, run
from headwise.diagnosis.plans.sizing import small
from headwise.recording.calls import find
from tests.diagnosis.decoding import decoded
from tests.diagnosis.operators import HOSTS, mutants

HERE = Path(__file__).parent
RULES = Path(__file__).parents[2] / "src" / "headwise" / "diagnosis"
# what only says what was found
WORDS = {"diagnosis.py", "report.py", "tried.py", "child.py", "fixing.py", "__init__.py"}
COUNT = itertools.count()


def loaded(host, source, label):
    """The class of a host, from a source that may be mutated, and the name of its file."""
    name = f"/mutants/{label}_{next(COUNT)}_{host.file}"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    namespace = {"__name__": f"mutant_{Path(host.file).stem}_{next(COUNT)}"}
    module = type(sys)(namespace["__name__"])
    sys.modules[namespace["__name__"]] = module
    exec(compile(source, name, "exec"), vars(module))
    return vars(module)[host.name], vars(module), name


def diagnosis(host, source, label="host"):
    """What the doctor says of a host's source."""
    target, namespace, name = loaded(host, source, label)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return diagnosed(target, title=host.name, namespace=namespace, files={name: host.file}, call=host.call)


class Oracle:
    """Tells by their numbers whether a mutant computes anything else than its host."""

    def __init__(self, host):
        self.host, self.source = host, (HERE / "hosts" / host.file).read_text(encoding="utf-8")
        self.target, self.namespace, self.name = loaded(host, self.source, "oracle")
        self.plans = find(self.target, namespace=self.namespace, call=host.call, own=(self.name,)).plans
        self.wanted = [outcome(plan, self.name) for plan in self.plans]
        self.parts = self._decoded(self.target, self.namespace)

    def _decoded(self, target, namespace):
        """What decoding with the host's cache gives; None where it has none, or raises."""
        plan = next((each for each in self.plans if not each.mask), None)
        if plan is None:
            return None
        sizes = small(plan)
        there = replace(plan, target=target, namespace=namespace)
        args, options = plan.arguments(sizes)
        width = [*args, *options.values()][0].shape[-1]
        with default_dtype(torch.float64):
            return decoded(self.host.file, lambda: there.build(sizes), namespace, width)

    def differs(self, mutant):
        """Whether outputs, gradients, randomness or failures differ on any of the host's calls."""
        try:
            target, namespace, name = loaded(self.host, mutant.source, "differ")
        except Exception:  # noqa: BLE001  a mutant that cannot be read differs, whatever it raises
            return True
        parts = self._decoded(target, namespace)
        if self.parts is not None and (parts is None or not torch.allclose(parts, self.parts, atol=1e-9)):
            return True
        return any(
            not same(outcome(type(plan)(**{**plan.__dict__, "target": target}), name), wanted)
            for plan, wanted in zip(self.plans, self.wanted, strict=True)
        )


def outcome(plan, name):
    """The numbers of a call: its output, what its parameters get, its output in training."""
    sizes = small(plan)
    done = run(plan, Manner(gradients=True), sizes=sizes, own=(name,))
    if done.record.failure is not None or done.output is None:
        return None
    try:
        done.output.sin().sum().backward()
        gradients = {key: each.grad for key, each in done.target.named_parameters(remove_duplicate=False)}
    except RuntimeError:
        return None
    trained = run(plan, Manner(training=True, luck=5), sizes=sizes, own=(name,))
    again = run(plan, Manner(luck=6), sizes=sizes, own=(name,))
    shaken = [None if each.record.failure is not None else each.output for each in (trained, again)]
    # after another call, of another instance with the same weights, and what was given
    second = run(plan, Manner(earlier=17), sizes=sizes, own=(name,)).output
    state = {key: each.detach() for key, each in done.target.state_dict().items()}

    def load(target, _):
        target.load_state_dict(state, strict=False)

    other = run(plan, Manner(instance=23), sizes=sizes, own=(name,), change=load).output
    given = {f"given {key}": each.detach() for key, each in done.named.items()}
    shown = {"": done.output.detach(), "training": shaken[0], "again": shaken[1], "second": second, "other": other}
    return {**shown, **given, **gradients}


def same(a, b):
    if a is None or b is None:
        return a is b
    return a.keys() == b.keys() and all(
        (x is None and y is None)
        or (x is not None and y is not None and x.shape == y.shape and torch.allclose(x, y, atol=1e-9, equal_nan=True))
        for x, y in zip(a.values(), b.values(), strict=True)
    )


def judged(mutant):
    """What the doctor makes of a mutant: (detected, right kind, right line, proved, kinds and lines said, seconds)."""
    start = time.perf_counter()
    try:
        found = diagnosis(mutant.host, mutant.source, "mutant")
    except Exception as error:  # noqa: BLE001  the doctor must not raise: a mutant at which it does is missed
        return False, False, False, False, [f"{type(error).__name__}: {error}"], time.perf_counter() - start
    faults = found.faults
    kind = [each for each in faults if each.kind in mutant.kinds]
    line = any(
        each.line is not None and set(range(each.line, (each.end_line or each.line) + 1)) & mutant.lines
        for each in kind or faults
    )
    said = [(each.kind, each.line, each.proved) for each in faults] or [found.verdict, found.reason[:100]]
    return (
        bool(faults),
        bool(kind),
        line,
        any(each.proved for each in kind or faults),
        said,
        time.perf_counter() - start,
    )


def digest():
    """Of the rules, the operators and the hosts: what the published table is true of."""
    rules = [each for each in sorted(RULES.rglob("*.py")) if each.name not in WORDS]
    files = [*rules, HERE / "operators.py", *sorted((HERE / "hosts").glob("*.py"))]
    return hashlib.sha256(b"".join(each.read_bytes() for each in files)).hexdigest()[:16]


def judge_host(host, only):
    """What the doctor makes of each mutant of a host, by operator; how long the slowest took; what there is to say."""
    torch.set_num_threads(1)
    oracle, slowest, rows, said_of = Oracle(host), 0.0, {}, []
    clean = diagnosis(host, oracle.source)
    said_of.append(f"{host.file}: {clean.verdict} {[(each.kind, each.line) for each in clean.findings]}")
    for mutant in mutants(host, oracle.source):
        if only and only != mutant.operator:
            continue
        if not oracle.differs(mutant):
            said_of.append(f"   equal: {mutant.operator}")
            continue
        *marks, said, seconds = judged(mutant)
        slowest = max(slowest, seconds)
        rows.setdefault(mutant.operator, []).append(tuple(marks))
        if not all(marks[:3]):
            said_of.append(f"   missed: {mutant.operator}: {said}; {mutant.kinds} {sorted(mutant.lines)}")
    return rows, slowest, said_of


def write_table(rows):
    """Keep the table, and what it is true of, in mutants.json and in docs/doctor.md."""
    held = {
        "digest": digest(),
        "hosts": len(HOSTS),
        "operators": {name: [len(own), *map(sum, zip(*own, strict=True))] for name, own in sorted(rows.items())},
    }
    (HERE / "mutants.json").write_text(json.dumps(held, indent=1) + "\n", encoding="utf-8")
    document = HERE.parents[1] / "docs" / "doctor.md"
    text = document.read_text(encoding="utf-8")
    head, _, rest = text.partition("<!-- mutants -->\n")
    _, _, tail = rest.partition("<!-- end of mutants -->\n")
    table = table_of(held)
    document.write_text(f"{head}<!-- mutants -->\n{table}<!-- end of mutants -->\n{tail}", encoding="utf-8")


def table_of(held):
    """The table as the document shows it."""
    total = [sum(each) for each in zip(*held["operators"].values(), strict=True)]
    lines = ["| operator | mutants | detected | right kind | right line | proved |", "|---|---|---|---|---|---|"]
    lines += [f"| {name} | {' | '.join(map(str, own))} |" for name, own in held["operators"].items()]
    lines.append(f"| **all {len(held['operators'])}** | {' | '.join(f'**{each}**' for each in total)} |")
    return f"{held['hosts']} hosts; digest `{held['digest']}`\n\n" + "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--host")
    parser.add_argument("--operator")
    parser.add_argument("--bare", action="store_true", help="say nothing of how the hosts are called")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    rows, slowest = {}, 0.0
    hosts = [replace(host, call=None) if asked.bare else host for host in HOSTS if asked.host in (None, host.file)]
    # a fork would inherit torch's threads, and hang
    with ProcessPoolExecutor(os.cpu_count(), mp_context=multiprocessing.get_context("spawn")) as pool:
        for found, longest, said in pool.map(judge_host, hosts, [asked.operator] * len(hosts)):
            print("\n".join(said), flush=True)
            slowest = max(slowest, longest)
            for operator, marks in found.items():
                rows.setdefault(operator, []).extend(marks)
    judged_all = [each for own in rows.values() for each in own]
    count, (detected, kind, line, proved) = len(judged_all), map(sum, zip(*judged_all, strict=True))
    print(f"{count} mutants of {len(rows)} operators: detected {detected}, kind {kind}, line {line}, proved {proved}")
    print(f"the slowest took {slowest:.1f} s")
    if asked.write:
        write_table(rows)


if __name__ == "__main__":
    main()
