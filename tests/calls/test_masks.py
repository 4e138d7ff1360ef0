"""A mask that is made for a call leaves every row a key, on whichever axis its keys lie."""

import pytest
import torch
from torch import nn

from headwise.calls.finder import find
from headwise.calls.plan import Plan

SIZES = {"B": 3, "H": 2, "L": 5, "S": 7}


@pytest.mark.parametrize(
    ("shape", "keys"),
    [
        (["B", "S"], -1),
        (["B", "1", "L", "S"], -1),
        (["H", "B", "L", "S"], -1),
        (["1", "B", "1", "S"], -1),
        (["S", "B"], 0),
        (["L", "S", "B"], 1),
        (["L", "S", "B", "1"], 1),
    ],
    ids=str,
)
def test_each_row_of_a_mask_sees_its_first_key_and_not_its_last(shape, keys):
    said = {"argument": "mask", "means": "attend", "shape": shape}
    mask = Plan(nn.Identity(), "cross", {}, {"_mask": said}, ()).arguments(SIZES)[1]["mask"].movedim(keys, -1)
    assert mask.shape[-1] == SIZES["S"]
    assert bool(mask[..., 0].all())
    assert not bool(mask[..., -1].any())


class Kinds(nn.Module):
    """attention_mask: -1 padding, 0 near tokens only, 1 all tokens."""

    PAD, FAR = -1, 1

    def __init__(self, width):
        super().__init__()
        self.ask = nn.Linear(width, width)

    def forward(self, x, attention_mask=None):
        if attention_mask is None:
            attention_mask = torch.zeros(x.shape[:2], dtype=torch.long)
        real, far = attention_mask != self.PAD, attention_mask == self.FAR
        near = (torch.arange(x.shape[1])[:, None] - torch.arange(x.shape[1])).abs() < 3
        seen = (near | far[:, :, None]) & real[:, None]
        return (self.ask(x) @ x.mT).masked_fill(~seen, -1e4).softmax(-1) @ x


class Joined(nn.Module):
    """What is there is told in a name of its own, and gets a place more before a helper takes it."""

    def __init__(self, width):
        super().__init__()
        self.ask, self.first = nn.Linear(width, width), nn.Parameter(torch.randn(1, 1, width))

    def weigh(self, scores, open_to):
        return scores.masked_fill(~open_to, float("-inf")).softmax(-1)

    def forward(self, x, there=None):
        x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], 1)
        if there is None:
            return (self.ask(x) @ x.mT).softmax(-1) @ x
        both = nn.functional.pad(there.bool(), (1, 0), value=True)[:, None]
        return self.weigh(self.ask(x) @ x.mT, both) @ x


class Flattened(nn.Module):
    """Feature maps are taken too."""

    def __init__(self, width):
        super().__init__()
        self.ask = nn.Linear(width, width)

    def forward(self, x, context=None):
        if x.ndim == 4:
            b, c, h, w = x.shape
            x = x.reshape(b, c, h * w).mT
        context = x if context is None else context
        return (self.ask(x) @ context.mT).softmax(-1) @ context


def test_a_mask_of_several_kinds_is_not_made_up():
    assert [plan.mask for plan in find(Kinds, namespace=globals()).plans] == [""]


def test_what_is_padded_and_handed_on_is_a_mask():
    (plan,) = [plan for plan in find(Joined, namespace=globals()).plans if plan.mask]
    assert plan.call["_mask"] == {"argument": "there", "means": "attend", "shape": ["B", "L"]}


def test_axes_that_code_asks_for_first_are_not_those_that_it_takes_else():
    calls = [plan.call for plan in find(Flattened, namespace=globals()).plans]
    assert {"x": ["B", "L", "D"], "context": ["B", "S", "D"]} in calls


class Asked(nn.Module):
    """Asks whether there is a mask as people do."""

    def __init__(self, width):
        super().__init__()
        self.ask = nn.Linear(width, width)

    def forward(self, x, mask=None):
        s = self.ask(x) @ x.mT
        if mask != None:  # noqa: E711
            s = s.masked_fill(mask == 0, float("-inf"))
        return s.softmax(-1) @ x


class Training(nn.Module):
    """A flag is handed on, and is no tensor."""

    def __init__(self, width):
        super().__init__()
        self.ask = nn.Linear(width, width)

    def forward(self, x, training):
        self.train(training)
        return (self.ask(x) @ x.mT).softmax(-1) @ x


def test_none_is_no_kind_of_token():
    assert "mask" in [plan.mask for plan in find(Asked, namespace=globals()).plans]


def test_a_flag_that_is_handed_on_stays_one():
    assert find(Training, namespace=globals()).plans[0].call["training"] is False


class Windows(nn.Module):
    """Scores have a bias, and of the mask only words tell what it means."""

    def __init__(self, width):
        super().__init__()
        self.q, self.k, self.bias = nn.Linear(width, width), nn.Linear(width, width), nn.Parameter(torch.zeros(1))

    def joined(self, t):
        return torch.cat([t, t[:, :0]], dim=1)

    def forward(self, x, mask=None):
        """x: (b, n, width); mask: (b, n) bool, True = token, False = padding"""
        mask = torch.ones(x.shape[:2], dtype=torch.bool) if mask is None else mask
        shown = self.joined(nn.functional.pad(mask, (0, 0), value=False).float()).bool()[:, None]
        bias = self.bias.expand(1, x.shape[1])
        scores = self.q(x) @ self.k(x).mT + bias
        return scores.masked_fill(~(shown & shown.mT | torch.eye(x.shape[1]).bool()), -1e9).softmax(-1) @ x


def test_words_about_a_mask_come_before_what_code_tells_of_others():
    plans = find(Windows, namespace=globals()).plans
    assert [plan.call["_mask"]["means"] for plan in plans if plan.mask] == ["attend"]


class Decodes(nn.Module):
    """y: (B, T, width); enc_out: (B, S, width); enc_len: (B,), how many of its frames count"""

    def __init__(self, width):
        super().__init__()
        self.q, self.k = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, y, enc_out, enc_len):
        pad = torch.arange(enc_out.shape[1]) >= enc_len[:, None]
        scores = (self.q(y) @ self.k(enc_out).mT).masked_fill(pad[:, None], float("-inf"))
        return scores.softmax(-1) @ enc_out


def test_lengths_of_an_input_are_no_keys_although_they_have_its_name():
    plans = find(Decodes, namespace=globals()).plans
    assert {(plan.mask, plan.call["_mask"]["means"]) for plan in plans if plan.mask} == {("enc_len", "lengths")}
