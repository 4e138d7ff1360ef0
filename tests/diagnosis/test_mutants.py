"""A fixed sample of the mutants is found, named and located; the published table is of the rules as they are."""

import json

import pytest

from tests.diagnosis.mutants import HERE, Oracle, digest, judged, table_of
from tests.diagnosis.operators import HOSTS, SIMPLE, mutants

SAMPLE = {
    "plain.py": ("drop scale", "split keys by view", "mask fill 1e-9", "keys of query length"),
    "book.py": ("softmax over axis 1", "mask repeated as tiles"),
    "annotated.py": ("wrong attribute", "shared by alias"),
    "gpt.py": ("causal off by one", "detach scores"),
    "rearranged.py": ("merge without transpose",),
    "summed.py": ("floor division", "value by key weights"),
    "fused.py": ("mask inverted", "key from query input"),
    "grouped.py": ("groups tiled", "rotary on values"),
    "listed.py": ("plain list",),
    "second.py": ("mask inverted",),
    "crossed.py": ("value from query input",),
    "vision.py": ("scale by model width",),
    "past.py": ("cache mask without offset", "cache of new tokens alone", "cache without values"),
    "started.py": ("cache angle without offset", "cache written at the start"),
    "owned.py": ("cache key angle without offset", "cache joined in front"),
    "kept.py": ("cache not emptied", "cache joined on another axis"),
    "named.py": ("causal flag for a step", "cache mask without offset"),
    "slotted.py": ("cache mask without offset", "cached values written at the start"),
    "flagged.py": ("cache of new tokens alone", "cache joined in front"),
    "neighbours.py": ("groups tiled",),
    "padded.py": ("mask inverted",),
}


@pytest.mark.parametrize("host", HOSTS, ids=lambda host: host.file)
def test_the_sampled_faults_of_a_host_are_found_named_and_located(host):
    oracle = Oracle(host)
    ready = [each for each in mutants(host, oracle.source) if each.operator in SAMPLE[host.file]]
    assert {each.operator for each in ready} == set(SAMPLE[host.file])
    for mutant in ready:
        assert oracle.differs(mutant), mutant.operator
        detected, kind, line, _, said, _ = judged(mutant)
        assert (detected, kind, line) == (True, True, True), (mutant.operator, said)


def test_there_are_at_least_35_operators_and_10_hosts():
    assert len(SIMPLE) >= 35
    assert len(HOSTS) >= 10


def test_the_published_table_is_of_these_rules_operators_and_hosts():
    held = json.loads((HERE / "mutants.json").read_text(encoding="utf-8"))
    document = (HERE.parents[1] / "docs" / "doctor.md").read_text(encoding="utf-8")
    assert held["digest"] == digest(), "run python -m tests.diagnosis.mutants --write"
    assert table_of(held) in document


def test_the_published_table_keeps_what_the_issue_asks():
    held = json.loads((HERE / "mutants.json").read_text(encoding="utf-8"))
    count, detected, kind, line, _ = (sum(each) for each in zip(*held["operators"].values(), strict=True))
    assert detected >= 0.98 * count
    assert kind >= 0.95 * count
    assert line >= 0.95 * count
