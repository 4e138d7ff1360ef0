"""A fault rests on what was measured, or on what shows however the code is called; never on the doctor's own guess."""

from dataclasses import replace
from math import sqrt

import pytest
import torch
from torch import nn

import headwise as hw
from headwise.calls import find
from headwise.diagnosis.plans import further_masks
from headwise.diagnosis.plans.further_masks import laid_flat, taken_otherwise
from headwise.diagnosis.repair import Repair
from headwise.diagnosis.suspects import Suspect
from headwise.diagnosis.verdict import rests_on_guess

PLACES = 12


class KeptOnce(nn.Module):
    """Keys and values of the source are kept in the first call and taken again in each later one, never joined."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.each = heads, width // heads
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(width, width) for _ in range(3))
        self.out_proj = nn.Linear(width, width)

    def split(self, x):
        return x.view(x.shape[0], -1, self.heads, self.each).transpose(1, 2)

    def forward(self, query, key, value, mask, cache=None):
        q = self.split(self.q_proj(query))
        if cache is not None and "k" in cache:
            k, v = cache["k"], cache["v"]
        else:
            k, v = self.split(self.k_proj(key)), self.split(self.v_proj(value))
            if cache is not None:
                cache["k"], cache["v"] = k, v
        scores = q @ k.transpose(-2, -1) / sqrt(self.each)
        # what is added has a place for each key that came now, and for each that was kept
        scores = scores + torch.zeros_like(scores).masked_fill(mask.unsqueeze(1), -1e9)
        return self.out_proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class TokensBeforeHeads(nn.Module):
    """Takes what is split already, with heads behind tokens, and says so only by its equations."""

    def forward(self, queries, keys, values, bias=None):
        scores = torch.einsum("nlhd,nshd->nhls", queries, keys) / sqrt(queries.shape[-1])
        scores = scores if bias is None else scores + bias
        return torch.einsum("nhls,nshd->nlhd", scores.softmax(-1), values)


class FewPlaces(nn.Module):
    """Looks back in a table of fixed size: with more tokens than that it does not run, with more samples it does."""

    def __init__(self, width):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.register_buffer("past", torch.tril(torch.ones(PLACES, PLACES)))

    def forward(self, x):
        scores = self.q(x) @ self.k(x).transpose(-2, -1) * x.shape[-1] ** -0.5
        count = x.shape[1]
        return scores.masked_fill(self.past[:count, :count] == 0, -torch.inf).softmax(-1) @ self.v(x)


class WrittenWhereHidden(nn.Module):
    """Hidden weights are set to 0 in a copy, at the places of a mask that was laid out as the scores are."""

    def __init__(self, width):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))

    def forward(self, x, mask=None):
        scores = self.q(x) @ self.k(x).transpose(-2, -1) * x.shape[-1] ** -0.5
        if mask is not None:
            mask = mask.expand_as(scores)
            scores[mask] = -torch.inf
        weights = scores.softmax(-1)
        if mask is not None:
            weights = weights.clone()
            weights[mask] = 0
        return weights @ self.v(x)


class OnAGrid(nn.Module):
    """Half of the features turn by the row of a token, half by its column."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)

    def forward(self, x, h, w):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        quarter = q.shape[-1] // 4
        speeds = 10.0 ** -torch.arange(quarter, device=x.device)
        rows = torch.outer(torch.arange(h), speeds)[:, None].expand(h, w, quarter)
        columns = torch.outer(torch.arange(w), speeds)[None].expand(h, w, quarter)
        angles = torch.cat([rows, columns], -1).flatten(0, 1).to(x)

        def turned(t):
            a, b = t.chunk(2, -1)
            return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1)

        weights = (turned(q) @ turned(k).transpose(-2, -1) / sqrt(q.shape[-1])).softmax(-1)
        return (weights @ v).transpose(1, 2).flatten(2)


class PairsOfResidues(nn.Module):
    """Takes a square of pairs, with no axis of samples: each row attends with a bias for each pair of columns."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.bias, self.out = nn.Linear(width, 3 * width), nn.Linear(width, heads), nn.Linear(width, width)

    def forward(self, pairs):
        q, k, v = self.qkv(pairs).unflatten(-1, (3, self.heads, -1)).unbind(-3)
        scores = torch.einsum("ijhd,ikhd->ihjk", q, k) / sqrt(q.shape[-1]) + self.bias(pairs).permute(2, 0, 1)
        return self.out(torch.einsum("ihjk,ikhd->ijhd", scores.softmax(-1), v).flatten(2))


class SquareMap(nn.Module):
    """Tokens of an image, with an offset for each row that only fits a square."""

    def __init__(self, dim, heads, fmap_size):
        super().__init__()
        self.heads, self.each, self.qkv = heads, dim // heads, nn.Conv2d(dim, 3 * dim, 1)
        self.offsets = nn.Parameter(torch.randn(1, 1, fmap_size[0], fmap_size[0]))

    def forward(self, x):
        x = x + self.offsets * 0.1
        q, k, v = self.qkv(x).flatten(2).unflatten(1, (3, self.heads, self.each)).transpose(-2, -1).unbind(1)
        weights = (q @ k.transpose(-2, -1) / sqrt(q.shape[-1])).softmax(-1)
        return (weights @ v).transpose(-2, -1).reshape(x.shape)


class WeaklyHidden(nn.Module):
    """A mask of a row for each sample; what it is to hide is hardly less."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.each = heads, width // heads
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))

    def split(self, x):
        return x.view(x.shape[0], -1, self.heads, self.each).transpose(1, 2)

    def forward(self, x, mask=None):
        """mask: (batch, length), 1 = token, 0 = padding"""
        q, k, v = (self.split(project(x)) for project in (self.q, self.k, self.v))
        scores = q @ k.transpose(-2, -1) / sqrt(self.each)
        if mask is not None:
            scores = scores - (1.0 - mask[:, None, None, :].to(scores.dtype)) * 1e-30
        context = scores.softmax(-1) @ v
        return self.out(context.transpose(1, 2).contiguous().view(x.shape[0], -1, self.heads * self.each))


def test_a_step_that_fails_as_the_doctor_handed_a_cache_on_is_not_examined():
    found = hw.doctor(KeptOnce)
    assert (found.verdict, found.faults) == ("sound", ())
    assert found.examined["cache"].startswith("no: a step with it fails at line")


@pytest.mark.parametrize("kind", [TokensBeforeHeads, FewPlaces, WrittenWhereHidden])
def test_an_order_of_axes_that_the_doctor_tried_is_no_fault_of_what_was_written_for_another(kind):
    found = hw.doctor(kind)
    assert (found.verdict, found.faults) == ("sound", ())
    assert found.examined["ideal"] is True


def test_a_rotation_by_rows_and_columns_depends_on_the_distance_in_both():
    found = hw.doctor(
        OnAGrid, init={"width": "H*4*d", "heads": "H"}, call={"x": ["B", "h*w", "H*4*d"], "h": "h", "w": "w"}
    )
    assert (found.verdict, found.faults) == ("sound", ())


def test_an_order_of_axes_in_which_nothing_meets_is_asked_for_and_no_fault():
    found = hw.doctor(
        TokensBeforeHeads,
        call={"queries": ["B", "H", "L", "d"], "keys": ["B", "H", "L", "d"], "values": ["B", "H", "L", "d"]},
    )
    assert (found.verdict, found.faults) == ("not examined", ())
    assert "--call" in found.reason
    assert found.examined["heads"].startswith("no: ")


def test_sizes_that_differ_where_the_code_wants_one_are_no_fault_of_it():
    sizes = {"width": "H*d", "heads": "H"}
    found = hw.doctor(PairsOfResidues, init=sizes, call={"pairs": ["B", "L", "H*d"]})
    assert (found.verdict, found.faults) == ("not examined", ())
    assert "with one for all it runs" in found.examined["heads"]


def test_keys_that_must_be_as_many_as_queries_are_no_size_that_the_doctor_chose():
    class Miscounted(TokensBeforeHeads):
        def forward(self, queries, keys, values):
            length = queries.shape[1]
            return super().forward(queries, keys.reshape(keys.shape[0], length, *keys.shape[2:]), values)

    shapes = {"queries": ["B", "L", "H", "d"], "keys": ["B", "S", "H", "d"], "values": ["B", "S", "H", "d"]}
    assert [each.kind for each in hw.doctor(Miscounted, call=shapes).faults] == ["key-uses-query-length"]


def test_tokens_that_want_a_square_are_examined_in_one():
    found = hw.doctor(SquareMap)
    assert (found.verdict, found.faults) == ("sound", ())
    assert found.examined["ideal"] is True


def test_a_mask_that_only_ran_because_it_was_laid_over_more_axes_is_tried_in_another_shape():
    free = next(each for each in find(WeaklyHidden, namespace=globals()).plans if not each.mask)
    said = {"argument": "mask", "means": "attend", "shape": ["1", "1", "L", "L"]}
    masked = replace(free, call={**free.call, "_mask": said}, mask="mask")
    flat, kept = laid_flat([masked, free], WeaklyHidden, globals(), (__file__,))
    assert flat.call["_mask"]["shape"] == ["B", "L"]
    assert kept is free


def test_a_mask_that_fails_is_no_fault_where_one_of_another_kind_runs_and_no_words_say_which(monkeypatch):
    free = next(each for each in find(WeaklyHidden, namespace=globals()).plans if not each.mask)
    said = {"argument": "mask", "means": "attend", "shape": ["L", "B"]}
    other = taken_otherwise(replace(free, call={**free.call, "_mask": said}, mask="mask"), (__file__,))
    assert other is not None
    assert other.call["_mask"]["shape"] != said["shape"]
    # what its words say it takes is what it must take: they say its axes, and not what it holds
    said = {**said, "shape": ["B", "L"], "dtype": "bool"}
    masked = replace(free, call={**free.call, "_mask": said}, mask="mask")
    assert taken_otherwise(masked, (__file__,)).call["_mask"] == {**said, "dtype": "int"}
    monkeypatch.setattr(further_masks, "said_lines", lambda *_: iter(["mask: (batch, length) of bool"]))
    assert taken_otherwise(masked, (__file__,)) is None


def test_what_a_run_put_right_shows_to_be_no_better_may_be_meant():
    odd = Suspect("value-changed", None, Repair({("f", 1): abs}), proved=False)
    assert rests_on_guess(odd)
    assert not rests_on_guess(replace(odd, proved=True))
    # nothing was tried, or it shows without a run
    assert not rests_on_guess(replace(odd, repair=Repair()))
    assert not rests_on_guess(replace(odd, proved=None))
    assert not rests_on_guess(replace(odd, kind="contraction-extra-axis"))
    assert rests_on_guess(Suspect("sample-leak", None, proved=False))


def test_a_guess_accuses_only_once_it_is_measured():
    guessed = Suspect("split-without-transpose", None, guess="layout")
    assert rests_on_guess(guessed)
    assert not rests_on_guess(replace(guessed, proved=True))
    assert not rests_on_guess(replace(guessed, guess=""))
    assert not rests_on_guess(replace(guessed, severity="note"))
