"""What is right, however unusual, has no fault: the hosts, and variants that are so on purpose."""

import inspect

import pytest
from torch import nn

import headwise.diagnosis.entry_point as doctors
from tests.diagnosis.correct import (
    chosen,
    heads,
    libraries,
    meant,
    promises,
    published,
    scores,
    sequences,
    strangers,
    weights,
)
from tests.diagnosis.decoding import USES
from tests.diagnosis.mutants import HERE, diagnosis
from tests.diagnosis.operators import HOSTS

VARIANTS = [
    each
    for module in (scores, weights, heads, strangers, promises, libraries, chosen, sequences, meant, published)
    for each in vars(module).values()
    if inspect.isclass(each)
    and issubclass(each, nn.Module)
    and each.__module__ == module.__name__
    and "forward" in vars(each)
]
# it is not known how to call them
OTHERS = {"FewBits", "OfVolumes"}


# those with a cache are in test_caches.py
@pytest.mark.parametrize("host", [host for host in HOSTS if host.file not in USES], ids=lambda host: host.file)
def test_a_host_is_sound(host):
    found = diagnosis(host, (HERE / "hosts" / host.file).read_text(encoding="utf-8"))
    assert (found.verdict, found.faults) == ("sound", ())


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda each: each.__name__)
def test_a_variant_on_purpose_has_no_fault(variant):
    found = doctors.doctor(variant)
    assert found.faults == ()
    assert found.verdict == ("not examined" if variant.__name__ in OTHERS else "sound")


def test_there_are_at_least_30_variants():
    assert len(VARIANTS) >= 30
