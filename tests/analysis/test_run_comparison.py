"""Run comparison: divergences against their definition in float64, and tokens that differ."""

import math

import pytest
import torch
from torch import nn

import headwise as hw
from headwise.analysis import run_comparison
from headwise.errors import ArgumentError
from tests.analysis.test_head_names import Attend, watched

B, H, L = 2, 3, 11
RULES = {"plain": {}, "causal": {"mask": hw.causal()}, "sink": {"sink": torch.tensor([0.5, -1.0, 3.0]).double()}}


class Both(nn.Module):
    """Two layers of attention to given tensors, under the same rules."""

    def __init__(self, length, seed, **rules):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.q, self.k = (
            2 * torch.randn(2, B, H, length, 5, generator=generator, dtype=torch.float64) for _ in range(2)
        )
        self.rules = rules
        self.one, self.two = Inner(), Inner()

    def forward(self):
        self.one(self.q[0], self.k[0], self.rules)
        self.two(self.q[1], self.k[1], self.rules)


class Inner(nn.Module):
    def forward(self, q, k, rules):
        return hw.attention(q, k, k, **rules)


def run(length, seed, **rules):
    model = Both(length, seed, **rules)
    with hw.watch(model) as seen:
        model()
    return seen


def jensen_shannon(p, q):
    """Of two rows, by its definition; what a row lacks to 1 is one more key."""
    p, q = [*map(float, p), max(0.0, 1.0 - float(p.sum()))], [*map(float, q), max(0.0, 1.0 - float(q.sum()))]
    total = 0.0
    for a, b in zip(p, q, strict=True):
        for x in (a, b):
            if x > 0:
                total += x * math.log(x / ((a + b) / 2)) / 2
    return total


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_differences_are_their_definitions(rules, monkeypatch):
    monkeypatch.setattr(run_comparison, "STRIP", H * L * 3)
    first, second = run(L, 1, **rules), run(L, 2, **rules)
    found = hw.compare(first, second)
    assert (found.names, found.heads) == (("one", "two"), (H, H))
    for n, name in enumerate(found.names):
        p, q = first[name].dense(), second[name].dense()
        for head in range(H):
            rows = [jensen_shannon(p[b, head, i], q[b, head, i]) for b in range(B) for i in range(L)]
            assert float(found.divergence[n, head]) == pytest.approx(sum(rows) / len(rows), abs=1e-12)
            change = [-torch.xlogy(t, t).sum(-1)[:, head].mean() for t in (p, q)]
            assert float(found.entropy[n, head]) == pytest.approx(float(change[1] - change[0]), abs=1e-12)
            shares = [t[:, head].sum(1) / t[:, head].sum((1, 2), keepdim=True)[:, 0] for t in (p, q)]
            moved = (shares[0] - shares[1]).abs().sum(-1) / 2
            assert float(found.received[n, head]) == pytest.approx(float(moved.mean()), abs=1e-12)
    # the same from the other side, but for the sign of the change
    back = hw.compare(second, first)
    torch.testing.assert_close(back.divergence, found.divergence)
    torch.testing.assert_close(back.entropy, -found.entropy)


def test_a_run_does_not_differ_from_itself_and_opposites_differ_by_log_2():
    seen = run(L, 1)
    found = hw.compare(seen, seen)
    assert float(found.divergence.abs().max()) == float(found.entropy.abs().max()) == 0.0
    assert "all 11 queries compared" in found.alignment
    eye = 60 * torch.eye(7, dtype=torch.float64).expand(1, 1, -1, -1)
    runs = []
    for q in (eye, eye.roll(1, dims=-1)):
        model = Attend(q, torch.eye(7, dtype=torch.float64).expand(1, 1, -1, -1) * 10)
        with hw.watch(model) as seen:
            model()
        runs.append(seen)
    assert float(hw.compare(*runs).divergence[0, 0]) == pytest.approx(math.log(2), abs=1e-9)


def test_tokens_that_only_one_run_has_count_as_one_key():
    words = [list("abcdefg"), list("abXcdg")]
    first, second = watched(seed=1, sizes=(1, H, 7)), watched(seed=2, sizes=(1, H, 6))
    found = hw.compare(first, second, tokens=tuple(words))
    # a b c d g, of the second with X between
    mine, other = [0, 1, 2, 3, 6], [0, 1, 3, 4, 5]
    p, q = (seen[""].dense()[0] for seen in (first, second))
    for head in range(H):
        rows = []
        for i, j in zip(mine, other, strict=True):
            a = torch.cat([p[head, i, mine], p[head, i, [4, 5]].sum()[None]])
            b = torch.cat([q[head, j, other], q[head, j, [2]]])
            rows.append(jensen_shannon(a, b))
        assert float(found.divergence[0, head]) == pytest.approx(sum(rows) / 5, abs=1e-12)
    assert "5 of 7 and 6 queries compared" in found.alignment
    # one side only has more
    longer = hw.compare(first, watched(seed=3, sizes=(1, H, 5)), tokens=(list("abcdefg"), list("abcdg")))
    assert bool((longer.divergence > 0).all())
    assert float(longer.divergence.max()) < math.log(2)
    assert "5 of 7 and 5" in str(longer)


def test_a_table_is_ranked_drawn_and_written():
    model = hw.MultiHeadAttention(12, 3)
    x = torch.randn(2, 5, 12)
    with hw.watch(model) as before, torch.no_grad():
        model(x)
    with hw.watch(model) as after, torch.no_grad(), hw.intervene(model) as edits:
        edits.find("").temperature(0.25, heads=[1])
        model(x)
    found = hw.compare(before, after)
    assert found.top(1)[0][:2] == ("", 1)
    assert float(found.divergence[0, 0]) == float(found.divergence[0, 2]) == 0.0
    assert float(found.entropy[0, 1]) < 0
    assert found.to_dict()["heads"][1]["divergence"] == float(found.divergence[0, 1])
    for measure in ("divergence", "entropy", "received"):
        assert found.plot(measure).get_xlabel() == "head"
    with pytest.raises(ArgumentError, match="'distance' came"):
        found.plot("distance")
    with pytest.raises(ArgumentError, match="k must be an integer >= 0, but -1 came"):
        found.top(-1)


def test_heads_of_nan_are_ranked_last_and_stay_nan():
    q = torch.randn(1, 3, 4, 8, dtype=torch.float64)
    q[0, 0, 1] = float("nan")
    model = Attend(q, torch.randn(1, 3, 4, 8, dtype=torch.float64))
    with hw.watch(model) as first:
        model()
    model.q = model.q * torch.tensor([1.0, 2.0, 1.0])[:, None, None]
    with hw.watch(model) as second:
        model()
    found = hw.compare(first, second)
    assert [row.head for row in found.top(3)] == [1, 2, 0]
    assert math.isnan(found.top(3)[2].divergence)
    assert found.to_dict()["heads"][0]["divergence"] is None


@pytest.mark.parametrize("shape", [(0, 5, 12), (2, 0, 12)])
def test_runs_on_nothing_are_refused(shape):
    attn = hw.MultiHeadAttention(12, 3)
    with hw.watch(attn) as seen, torch.no_grad():
        attn(torch.randn(shape))
    tokens = [["a"] * shape[1]] * shape[0]
    for reading in (lambda: hw.compare(seen, seen), lambda: hw.name_heads(seen, tokens)):
        with pytest.raises(ArgumentError, match=rf"but \"\" gave \({shape[0]}, 3, {shape[1]}, {shape[1]}\)"):
            reading()


def test_runs_that_do_not_belong_together_are_refused():
    with pytest.raises(ArgumentError, match=r"runs of 7 and 6 tokens .*give tokens="):
        hw.compare(watched(sizes=(1, H, 7)), watched(sizes=(1, H, 6)))
    with pytest.raises(ArgumentError, match=r"\(2, 3, 11, 11\) and \(2, 2, 11, 11\)"):
        hw.compare(watched(), watched(sizes=(B, 2, L)))
    with pytest.raises(ArgumentError, match="but 2 and 1 came"):
        hw.compare(run(L, 1), watched())
    with pytest.raises(ArgumentError, match="has 7 and 6 where 3 and 2 tokens came"):
        hw.compare(watched(sizes=(1, H, 7)), watched(sizes=(1, H, 6)), tokens=(list("abc"), list("ab")))
