"""Mutants: every operator on every host, examined by the doctor; the table of what it finds.

python -m tests.diagnosis.mutants [--host FILE] [--operator NAME] [--write]
"""

import argparse
import datetime
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

import headwise
from headwise.calls import find
from headwise.dataflow import Manner, default_dtype, run
from headwise.diagnosis.plans.small_sizes import small
from headwise.diagnosis.target_diagnosis import diagnosed
from tests.diagnosis.decoding import decoded
from tests.diagnosis.operators import HOSTS, mutants

HERE = Path(__file__).parent
COUNT = itertools.count()
# what a mutant can have of the doctor, and the letters that stand for it in mutants.json
MARKS = {"d": "detected", "k": "right kind", "l": "right line", "p": "proved"}
# stands for a mutant that computes what its host computes, and so does not count
EQUAL = "equal"


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
        self.plans = find(self.target, namespace=self.namespace, call=host.call, user_files=(self.name,)).plans
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
    """What the doctor makes of a mutant: (detected, right kind, right line, proved, kinds and lines said, seconds).

    The seconds are of this process's CPU: those of a wall clock are as many as other processes leave it waiting.
    """
    start = time.process_time()
    try:
        found = diagnosis(mutant.host, mutant.source, "mutant")
    except Exception as error:  # noqa: BLE001  the doctor must not raise: a mutant at which it does is missed
        return False, False, False, False, [f"{type(error).__name__}: {error}"], time.process_time() - start
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
        time.process_time() - start,
    )


def judge_host(host, only):
    """The marks of each mutant of a host by operator; seconds and name of the slowest; sentences on what was missed."""
    torch.set_num_threads(1)
    oracle, slowest, rows, said_of = Oracle(host), (0.0, ""), {}, []
    clean = diagnosis(host, oracle.source)
    said_of.append(f"{host.file}: {clean.verdict} {[(each.kind, each.line) for each in clean.findings]}")
    for mutant in mutants(host, oracle.source):
        if only and only != mutant.operator:
            continue
        if not oracle.differs(mutant):
            said_of.append(f"   equal: {mutant.operator}")
            rows[mutant.operator] = EQUAL
            continue
        *marks, said, seconds = judged(mutant)
        slowest = max(slowest, (seconds, f"{mutant.operator}, {host.file}"))
        rows[mutant.operator] = letters(marks)
        if not all(marks[:3]):
            said_of.append(f"   missed: {mutant.operator}: {said}; {mutant.kinds} {sorted(mutant.lines)}")
    return rows, slowest, said_of


def letters(marks):
    """The marks of a mutant as they are kept: "dkl-" was not proved."""
    return "".join(letter if mark else "-" for letter, mark in zip(MARKS, marks, strict=True))


def published():
    """The kept table: version and date of the run; by host and operator the marks of a mutant, or EQUAL."""
    return json.loads((HERE / "mutants.json").read_text(encoding="utf-8"))


def write_table(verdicts):
    """Keep the table, with the version and the date it was made at, in mutants.json and in docs/doctor.md."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    kept = {"version": headwise.__version__, "date": today, "verdicts": verdicts}
    (HERE / "mutants.json").write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    document = HERE.parents[1] / "docs" / "doctor.md"
    text = document.read_text(encoding="utf-8")
    head, _, rest = text.partition("<!-- mutants -->\n")
    _, _, tail = rest.partition("<!-- end of mutants -->\n")
    table = table_of(kept)
    document.write_text(f"{head}<!-- mutants -->\n{table}<!-- end of mutants -->\n{tail}", encoding="utf-8")


def counts(verdicts):
    """Of each operator how many mutants there are, and how many of them have each mark."""
    rows = {}
    for operator, marks in sorted((name, marks) for host in verdicts.values() for name, marks in host.items()):
        if marks == EQUAL:
            continue
        before = rows.get(operator, [0] * (1 + len(MARKS)))
        rows[operator] = [count + more for count, more in zip(before, [1, *(m in marks for m in MARKS)], strict=True)]
    return rows


def table_of(kept):
    """The table as it is printed, and as the document shows it."""
    rows = counts(kept["verdicts"])
    total = [sum(column) for column in zip(*rows.values(), strict=True)]
    lines = [f"| operator | mutants | {' | '.join(MARKS.values())} |", "|---" * (2 + len(MARKS)) + "|"]
    lines += [f"| {name} | {' | '.join(map(str, row))} |" for name, row in rows.items()]
    lines.append(f"| **all {len(rows)}** | {' | '.join(f'**{count}**' for count in total)} |")
    hosts = len(kept["verdicts"])
    return f"{hosts} hosts; version {kept['version']}, {kept['date']}\n\n" + "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--host")
    parser.add_argument("--operator")
    parser.add_argument("--bare", action="store_true", help="say nothing of how the hosts are called")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    verdicts, slowest = {}, (0.0, "")
    hosts = [replace(host, call=None) if asked.bare else host for host in HOSTS if asked.host in (None, host.file)]
    # a fork would inherit torch's threads, and hang
    with ProcessPoolExecutor(os.cpu_count(), mp_context=multiprocessing.get_context("spawn")) as pool:
        judged_hosts = pool.map(judge_host, hosts, [asked.operator] * len(hosts))
        for host, (rows, longest, said) in zip(hosts, judged_hosts, strict=True):
            print("\n".join(said), flush=True)
            slowest = max(slowest, longest)
            verdicts[host.file] = rows
    rows = counts(verdicts)
    total = [sum(column) for column in zip(*rows.values(), strict=True)]
    shown = ", ".join(f"{name} {count}" for name, count in zip(MARKS.values(), total[1:], strict=True))
    print(f"{total[0]} mutants of {len(rows)} operators: {shown}")
    print(f"the slowest took {slowest[0]:.1f} s of CPU: {slowest[1]}")
    if asked.write:
        write_table(verdicts)
        print(table_of(published()))


if __name__ == "__main__":
    main()
