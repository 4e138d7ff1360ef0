"""A fixed sample of the mutants has the verdicts that the published table promises."""

import pytest

from tests.diagnosis.decoding import USES
from tests.diagnosis.mutants import EQUAL, HERE, MARKS, Oracle, counts, judged, letters, published, table_of
from tests.diagnosis.operators import HOSTS, SIMPLE, mutants

# spread over operators and hosts; every fault of a host's cache is in test_caches.py
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
    "neighbours.py": ("groups tiled",),
    "padded.py": ("mask inverted",),
}
BY_FILE = {host.file: host for host in HOSTS}


def mutants_of(host):
    """The mutants of a host by their operators."""
    source = (HERE / "hosts" / host.file).read_text(encoding="utf-8")
    return {mutant.operator: mutant for mutant in mutants(host, source)}


@pytest.mark.parametrize(
    ("file", "operator"), [(file, operator) for file, operators in SAMPLE.items() for operator in operators]
)
def test_a_sampled_mutant_has_the_verdict_that_the_table_promises(file, operator):
    *marks, reported, _ = judged(mutants_of(BY_FILE[file])[operator])
    assert letters(marks) == published()["verdicts"][file][operator], reported
    assert all(marks[:3]), reported


def test_the_sample_and_the_caches_together_meet_every_host():
    assert set(SAMPLE) | set(USES) == set(BY_FILE)


def test_a_mutant_is_told_from_its_host_by_its_numbers_alone():
    host = BY_FILE["plain.py"]
    oracle, faulty = Oracle(host), mutants_of(host)["drop scale"]
    assert oracle.differs(faulty)
    # written otherwise, it computes the same
    assert not oracle.differs(type(faulty)(host, "none", (), f"{oracle.source}\n# the end\n", frozenset()))


def test_there_are_at_least_35_operators_and_10_hosts():
    assert len(SIMPLE) >= 35
    assert len(HOSTS) >= 10


@pytest.mark.parametrize("host", HOSTS, ids=lambda host: host.file)
def test_the_published_table_has_each_mutant_of_a_host(host):
    assert set(published()["verdicts"][host.file]) == set(mutants_of(host)), "make mutants"


def test_the_document_shows_the_published_table():
    kept = published()
    assert set(kept["verdicts"]) == set(BY_FILE)
    assert table_of(kept) in (HERE.parents[1] / "docs" / "doctor.md").read_text(encoding="utf-8")


def test_a_mutant_counts_where_it_differs_with_each_mark_it_has():
    verdicts = {"a.py": {"x": "dklp", "y": EQUAL}, "b.py": {"x": "d-l-", "z": "----"}}
    assert counts(verdicts) == {"x": [2, 2, 1, 2, 1], "z": [1, 0, 0, 0, 0]}
    assert letters((True, False, True, False)) == "d-l-"
    assert len(MARKS) == 4


def test_the_published_table_keeps_what_the_doctor_promises():
    count, detected, kind, line, _ = (
        sum(column) for column in zip(*counts(published()["verdicts"]).values(), strict=True)
    )
    assert detected >= 0.98 * count
    assert kind >= 0.95 * count
    assert line >= 0.95 * count
