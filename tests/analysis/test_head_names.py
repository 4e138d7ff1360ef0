"""Head names: every measure against its definition written as loops, and names of heads whose work is known."""

import math

import pytest
import torch
from torch import nn

import headwise as hw
from headwise.analysis import head_measures
from headwise.analysis.head_names import DEFINITIONS
from headwise.errors import ArgumentError

B, H, L = 2, 3, 11
WORDS = [
    ["[CLS]", "a", "b", "a", "c", "a", "b", "[SEP]", "d", "b", "[SEP]"],
    ["[CLS]", "e", "f", "e", "f", "g", "[SEP]", "[PAD]", None, None, None],
]
LENGTHS = hw.lengths(torch.tensor([11, 7]))
MASKS = {"none": None, "causal": hw.causal(), "window": hw.window(before=3, after=1), "lengths": LENGTHS}


class Attend(nn.Module):
    """Attention to given queries and keys."""

    def __init__(self, q, k, mask=None):
        super().__init__()
        self.q, self.k, self.mask = q, k, mask

    def forward(self):
        return hw.attention(self.q, self.k, self.k, mask=self.mask)


def watched(mask=None, seed=0, sizes=(B, H, L)):
    generator = torch.Generator().manual_seed(seed)
    q, k = (3 * torch.randn(*sizes, 5, generator=generator, dtype=torch.float64) for _ in range(2))
    model = Attend(q, k, mask)
    with hw.watch(model) as seen:
        model()
    return seen


def by_hand(weights, is_open, words):
    """Each measure of one head as its mean over queries, by loops over pairs; and over how many."""
    rows = {name: [] for name in ("previous", "next", "same", "first", "separator", "duplicate", "induction")}
    others = {"entropy": [], "largest": [], "distance": []}
    for b, sample in enumerate(words):
        real = [n for n, word in enumerate(sample) if word not in (None, "[PAD]")]
        for i in real:
            keys = [j for j in real if is_open[b, i, j]]
            if not keys:
                continue
            wanted = {
                "previous": [i - 1], "next": [i + 1], "same": [i],
                "first": [real[0]] if i != real[0] else [],
                "separator": [j for j in real if sample[j] == "[SEP]"] if sample[i] != "[SEP]" else [],
                "duplicate": [j for j in real if sample[j] == sample[i] and j != i],
                "induction": [j for j in real if j > 0 and sample[j - 1] == sample[i] and j not in (i, i + 1)],
            }  # fmt: skip
            for name, some in wanted.items():
                some = [j for j in some if j in keys]
                if some:
                    rows[name].append(sum(float(weights[b, i, j]) for j in some))
            row = [float(weights[b, i, j]) for j in range(len(sample))]
            entropy = -sum(w * math.log(w) for w in row if w > 0)
            others["entropy"].append(entropy / math.log(len(keys)) if len(keys) > 1 else 0.0)
            others["largest"].append(max(row))
            others["distance"].append(sum(w * abs(i - j) for j, w in enumerate(row)))
    return rows | others


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_measures_are_their_definitions(mask, monkeypatch):
    # several strips of a map
    monkeypatch.setattr(head_measures, "STRIP", B * H * L * 4)
    seen = watched(mask)
    found = hw.name_heads(seen, WORDS)
    weights = seen[""].dense()
    allowed = torch.ones(B, 1, L, L, dtype=torch.bool) if mask is None else mask.allowed(L, L, batch=B)
    is_open = allowed.expand(B, H, L, L)
    even = is_open.double() / is_open.sum(-1, keepdim=True).clamp(min=1)
    for head in range(H):
        rows = by_hand(weights[:, head], is_open[:, head], WORDS)
        for name, values in rows.items():
            assert found.queries[name] == len(values)
            score = float(found.scores[name][0, head])
            if not values:
                assert math.isnan(score)
                continue
            assert score == pytest.approx(sum(values) / len(values), abs=1e-12), name
        if mask is not LENGTHS:
            continue
        # padding that the mask closes is no part of equal weights
        chance = by_hand(even[:, head], is_open[:, head], WORDS)
        for name, values in chance.items():
            if values:
                assert float(found.chance[name][0, head]) == pytest.approx(sum(values) / len(values), abs=1e-12), name
    assert set(found.scores) == set(DEFINITIONS)


def scores_of(pairs, length=6, strength=50.0):
    """Queries and keys of one head whose rows attend to the keys of these pairs."""
    q = torch.zeros(1, 1, length, length, dtype=torch.float64)
    for i, j in pairs:
        q[0, 0, i, j] = strength
    return q, torch.eye(length, dtype=torch.float64).expand(1, 1, -1, -1)


HEADS = {
    "previous": [(i, max(i - 1, 0)) for i in range(6)],
    "next": [(i, min(i + 1, 5)) for i in range(6)],
    "same": [(i, i) for i in range(6)],
    "first": [(i, 0) for i in range(6)],
    "separator": [(i, 5) for i in range(6)],
    "duplicate": [(0, 3), (1, 4), (2, 0), (3, 0), (4, 1), (5, 2)],
    "induction": [(0, 4), (1, 5), (2, 3), (3, 1), (4, 2), (5, 3)],
    "broad": [],
}


@pytest.mark.parametrize("name", HEADS)
def test_a_head_is_named_for_what_it_does(name):
    model = Attend(*scores_of(HEADS[name]))
    with hw.watch(model) as seen:
        model()
    words = ["a", "b", "c", "a", "b", "[SEP]"]
    if name == "broad":
        # equal weights over 11 keys
        model = Attend(torch.zeros(1, 1, 11, 4), torch.zeros(1, 1, 11, 4))
        with hw.watch(model) as seen:
            model()
        words = [str(n) for n in range(11)]
    found = hw.name_heads(seen, words)
    assert found.name("", 0).pattern == name
    assert name in str(found)
    row = found.to_dict()["heads"][0]
    assert row["pattern"] == name
    assert row["scores"]["duplicate"] is None or 0 <= row["scores"]["duplicate"] <= 1
    with pytest.raises(ArgumentError, match='no head 1 of ""'):
        found.name("", 1)


def test_a_head_between_patterns_has_no_name_but_a_score():
    q, k = scores_of([(i, j) for i in range(6) for j in (i, max(i - 1, 0), (i + 3) % 6)])
    model = Attend(q, k)
    with hw.watch(model) as seen:
        model()
    found = hw.name_heads(seen, list("uvwxyz"))
    assert found.name("", 0).pattern == ""
    best = found.best("", 0)
    assert 0.3 < best.score < 0.5
    assert f"({best.pattern})" in str(found)
    assert hw.name_heads(seen, list("uvwxyz"), least=0.3).name("", 0) == best


def test_ids_are_tokens_too_and_the_order_of_heads_is_that_of_the_model():
    torch.manual_seed(0)
    model = nn.Sequential(hw.MultiHeadAttention(12, 2), hw.MultiHeadAttention(12, 4))
    with hw.watch(model) as seen, torch.no_grad():
        model(torch.randn(2, 7, 12))
    ids = torch.randint(0, 3, (2, 7))
    found = hw.name_heads(seen, ids, separators=[1])
    named = hw.name_heads(seen, [[str(n) for n in row] for row in ids.tolist()], separators=["1"])
    assert (found.names, found.heads) == (("0", "1"), (2, 4))
    for name, table in found.scores.items():
        torch.testing.assert_close(table, named.scores[name], equal_nan=True)
    assert bool(found.scores["same"][0, 2:].isnan().all())
    order = [score for *_, score in found.top("duplicate", 6)]
    assert order == sorted(order, reverse=True)
    assert len(order) == 6
    ax = found.plot("duplicate")
    assert ax.get_xlabel() == "head"


def test_relations_are_measured_where_a_parse_is_given():
    model = Attend(*scores_of([(0, 2), (1, 0), (2, 4), (3, 4), (4, 1), (5, 0)]))
    with hw.watch(model) as seen:
        model()
    words = ["the", "old", "man", "sees", "it", "."]
    found = hw.name_heads(seen, words, parse={"det": [(0, 2), (1, 2)], "obj": [(3, 4)]})
    assert float(found.scores["det"][0, 0]) == 0.5
    assert found.name("", 0) == ("obj", 1.0)
    assert found.queries["det"] == 2
    # what parts a text is no word that a head could mean
    told = hw.name_heads(seen, words, separators=["it"], parse={"obj": [(3, 4)]})
    assert float(told.scores["obj"][0, 0]) == 0.0
    with pytest.raises(ArgumentError, match=r"must lie in 0\.\.5, but reach 6"):
        hw.name_heads(seen, words, parse={"obj": [(3, 6)]})
    with pytest.raises(ArgumentError, match='"same" is a measure'):
        hw.name_heads(seen, words, parse={"same": [(3, 4)]})


def test_what_cannot_be_measured_is_refused_or_listed():
    seen = watched()
    with pytest.raises(ArgumentError, match=r"each of the B=2 samples.*but 1 came"):
        hw.name_heads(seen, ["a"] * L)
    with pytest.raises(ArgumentError, match=r"its map is \(2, 3, 11, 11\), and the tokens are 2 x 4"):
        hw.name_heads(seen, [["a"] * 4, ["b"] * 3])
    with pytest.raises(ArgumentError, match="at most 1, but 2 came"):
        hw.name_heads(seen, WORDS, least=2)
    with pytest.raises(ArgumentError, match="Tensor came"):
        hw.name_heads(torch.zeros(3), WORDS)
    with pytest.raises(ArgumentError, match=r"one of previous, .*'topic' came"):
        hw.name_heads(seen, WORDS).top("topic")

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.mine, self.cross = hw.MultiHeadAttention(12, 2), hw.MultiHeadAttention(12, 3)

        def forward(self, x, memory):
            return self.cross(self.mine(x), memory)

    model = Both()
    with hw.watch(model) as seen, torch.no_grad():
        model(torch.randn(1, 4, 12), torch.randn(1, 6, 12))
    found = hw.name_heads(seen, list("abcd"))
    assert found.names == ("mine",)
    assert found.left_out == {"cross": "its map is (1, 3, 4, 6), and the tokens are 1 x 4"}
    assert '"cross" left out' in str(found)
