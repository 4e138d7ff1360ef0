"""What is proved met, in a run with that put right, what headwise's definition gives of the person's own q, k and v."""

import pytest
import torch

from headwise.diagnosis.entry_point import doctor
from tests.diagnosis.mutants import HERE, diagnosis
from tests.diagnosis.operators import HOSTS, mutants

PLAIN, FUSED, SECOND = (
    next(each for each in HOSTS if each.file == name) for name in ("plain.py", "fused.py", "second.py")
)


def source_of(host):
    return (HERE / "hosts" / host.file).read_text(encoding="utf-8")


def found_of(host, operator):
    """What the doctor says of one mutant, and of what it should say."""
    mutant = next(each for each in mutants(host, source_of(host)) if each.operator == operator)
    found = diagnosis(host, mutant.source)
    return found, [each for each in found.faults if each.kind in mutant.kinds]


@pytest.mark.parametrize("host", HOSTS, ids=lambda host: host.file)
def test_the_output_of_a_right_host_is_what_the_definition_gives(host):
    assert diagnosis(host, source_of(host)).examined["ideal"] is True


@pytest.mark.parametrize(
    ("host", "operator"),
    [
        (PLAIN, "floor division"), (PLAIN, "split values by view"), (PLAIN, "merge without transpose"),
        (PLAIN, "mask fill 1e-9"), (PLAIN, "value from key input"), (PLAIN, "key by query weights"),
        (SECOND, "drop scale"), (SECOND, "softmax over queries"), (FUSED, "mask inverted"),
    ],
    ids=lambda each: getattr(each, "file", each),
)  # fmt: skip
def test_a_proof_says_how_far_the_output_was_from_the_ideal_and_is_then(host, operator):
    _, ours = found_of(host, operator)
    assert ours
    for each in ours:
        assert each.proved
        error, _, after = each.evidence.removeprefix("Output error ").partition(" → ")
        assert float(error) > 1e-3
        assert after.startswith("0 ")


def test_what_leaves_the_output_alone_is_proved_by_its_law():
    found, ours = found_of(PLAIN, "detach scores")
    assert [each.proved for each in ours] == [True]
    assert "the check passes again" in ours[0].evidence
    assert found.examined["ideal"] is True


def test_of_several_faults_each_is_needed_for_the_ideal():
    changed = source_of(PLAIN)
    for word, new in (("scaled", "{product}"), ("merge", "{bad_merge}"), ("fill", "{weak_fill}")):
        old = PLAIN.words[word]
        assert changed.count(old) == 1
        changed = changed.replace(old, new.format(**PLAIN.words))
    found = diagnosis(PLAIN, changed)
    kinds = {each.kind: each for each in found.faults}
    assert {"scale-missing", "merge-without-transpose", "mask-weak-fill"} <= set(kinds)
    for kind in ("scale-missing", "merge-without-transpose", "mask-weak-fill"):
        assert kinds[kind].proved
        assert "→ 0 " in kinds[kind].evidence


def test_a_fault_that_nothing_puts_right_is_suspected_only():
    mutant = next(each for each in mutants(PLAIN, source_of(PLAIN)) if each.operator == "undefined name")
    found = diagnosis(PLAIN, mutant.source.replace("softmaxx", "unlike_all_there_is"))
    assert [(each.kind, each.proved) for each in found.faults] == [("undefined-name", False)]
    assert found.examined["ideal"].startswith("no: what it should be could not be computed")


def test_a_scale_fault_beside_an_unusual_bias_is_proved_by_the_laws_and_says_so():
    class Biased(torch.nn.Module):
        def __init__(self, d_model, n_heads):
            super().__init__()
            self.n_heads = n_heads
            self.slopes = torch.nn.Parameter(torch.rand(n_heads, 1, 1))
            self.q, self.k, self.v, self.o = (torch.nn.Linear(d_model, d_model) for _ in range(4))

        def forward(self, x):
            b, n, d = x.shape
            q, k, v = (f(x).view(b, n, self.n_heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
            far = (torch.arange(n)[:, None] - torch.arange(n)).abs()
            scores = q @ k.transpose(-2, -1) // q.shape[-1] ** 0.5 - far * self.slopes
            return self.o((torch.softmax(scores, dim=-1) @ v).transpose(1, 2).reshape(b, n, d))

    (finding,) = doctor(Biased).faults
    assert (finding.kind, finding.proved) == ("scale-floor-division", True)
    assert "there is no formula to compare this output with" in finding.evidence


def test_a_module_at_hand_is_left_as_it_was():
    own = diagnosed_module()
    before = {name: each.clone() for name, each in own.state_dict().items()}
    own.train()
    doctor(own)
    assert own.training
    assert {name: each.dtype for name, each in own.state_dict().items()} == dict.fromkeys(before, torch.float32)
    assert all(torch.equal(each, before[name]) for name, each in own.state_dict().items())


def diagnosed_module():
    from tests.diagnosis.hosts.plain import MultiHeadAttention

    return MultiHeadAttention(24, 4)
