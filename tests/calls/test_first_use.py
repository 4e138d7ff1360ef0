"""What the code first does with an argument tells what it is, whatever it is called."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from headwise.calls import find

SIDE = 4


class Mixing(nn.Module):
    """Attention of one head, of tokens to themselves or to others."""

    def __init__(self, width):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))

    def forward(self, x, z=None):
        z = x if z is None else z
        weights = (self.q(x) @ self.k(z).mT / x.shape[-1] ** 0.5).softmax(-1)
        return weights @ self.v(z)


class Atoms(nn.Module):
    """Three tables, and one with a row for each pair."""

    def __init__(self, num_kinds, num_charges, num_paths, width):
        super().__init__()
        self.kind, self.charge = nn.Embedding(num_kinds, width), nn.Embedding(num_charges + 1, width)
        self.path = nn.Embedding(num_paths, 1)
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))

    def forward(self, atoms, charges, paths):
        graphs, nodes = paths.size()[:2]
        x = self.kind(atoms) + self.charge(charges)
        bias = self.path(paths).view(graphs, nodes, nodes)
        return (self.q(x) @ self.k(x).mT / x.shape[-1] ** 0.5 + bias).softmax(-1) @ self.v(x)


class Pictures(nn.Module):
    """Pictures of several patches each, which words look at."""

    def __init__(self, width, wide):
        super().__init__()
        self.made, self.mixing = nn.Linear(wide, width), Mixing(width)

    def forward(self, words, pictures):
        batch, count, patches = pictures.shape[:3]
        return self.mixing(words, self.made(pictures.reshape(batch, count * patches, -1)))


class Square(nn.Module):
    """As many tokens as a picture has."""

    def __init__(self, width, side):
        super().__init__()
        self.side, self.mixing = side, Mixing(width)

    def forward(self, x):
        high = wide = self.side
        assert x.shape[1] == high * wide, "not the picture that was meant"
        return self.mixing(x.unflatten(1, (high, wide)).mT.mT.flatten(1, 2))


class Bought(nn.Module):
    """One thing against those that were bought, by two numbers each."""

    def __init__(self, n_things, n_shops, width):
        super().__init__()
        self.thing, self.shop = nn.Embedding(n_things, width), nn.Embedding(n_shops, width)
        self.mixing = Mixing(2 * width)

    def both(self, thing, shop):
        return torch.cat([self.thing(thing), self.shop(shop)], dim=-1)

    def forward(self, offered, its_shop, bought, their_shops):
        one, many = self.both(offered, its_shop), self.both(bought, their_shops)
        return self.mixing(one.unsqueeze(1).expand(-1, many.size(1), -1), many)


class Answers(nn.Module):
    """Numbers of the answer that may be left out, from labels that may not be left out then."""

    def __init__(self, vocab_size, width):
        super().__init__()
        self.table, self.mixing, self.answering = nn.Embedding(vocab_size, width), Mixing(width), Mixing(width)

    def embed(self, numbers):
        return self.table(numbers) * 2.0

    def forward(self, asked, labels=None, answered=None):
        if answered is None:
            answered = labels.roll(1, dims=1)
        return self.answering(self.embed(answered), self.mixing(self.embed(asked)))


class Future(nn.Module):
    """So many steps are past, and what is true of each is told."""

    def __init__(self, width):
        super().__init__()
        self.mixing = Mixing(width)

    def forward(self, x, behind, holds):
        steps = torch.arange(x.shape[1])
        later = F.one_hot(steps[behind:], x.shape[1]).to(x.dtype)
        return self.mixing(later @ x, x.masked_fill(~holds[..., None], 0.0))


class Opened(nn.Module):
    """A mask by no name of one, beside the place of each token."""

    def __init__(self, width):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))

    def forward(self, x, open_to, pos):
        B, T, D = x.shape
        q, k, v = (f(x).view(B, T, 1, D).transpose(1, 2) for f in (self.q, self.k, self.v))
        angle = pos[:, None, :, None] * torch.arange(D // 2)
        q, k = (torch.cat([t[..., : D // 2] * angle.cos(), t[..., D // 2 :]], -1) for t in (q, k))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=open_to.unsqueeze(1))
        return y.transpose(1, 2).reshape(B, T, D)


class Parts(nn.Module):
    """Tokens of one part see each other."""

    def __init__(self, width):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))

    def forward(self, x, part):
        scores = self.q(x) @ self.k(x).mT / x.shape[-1] ** 0.5
        others = part[:, :, None] != part[:, None, :]
        return scores.masked_fill(others, float("-inf")).softmax(-1) @ self.v(x)


CALLS = {
    Atoms: {
        "atoms": {"_ids": ["B", "L"], "below": "num_kinds"},
        "charges": {"_ids": ["B", "L"], "below": "num_charges"},
        "paths": {"_ids": ["B", "L", "L"], "below": "num_paths"},
    },
    Pictures: {"words": ["B", "L", "D"], "pictures": ["B", "n", "S", "wide"]},
    Square: {"x": ["B", "L", "D"]},
    Bought: {
        "offered": {"_ids": ["B"], "below": "n_things"},
        "its_shop": {"_ids": ["B"], "below": "n_shops"},
        "bought": {"_ids": ["B", "L"], "below": "n_things"},
        "their_shops": {"_ids": ["B", "L"], "below": "n_shops"},
    },
    Future: {
        "x": ["B", "L", "D"],
        "behind": "L//2",
        "_mask": {"argument": "holds", "means": "attend", "shape": ["B", "L"]},
    },
    Opened: {
        "x": ["B", "L", "D"],
        "_mask": {"argument": "open_to", "means": "attend", "shape": ["B", "L", "L"]},
        "pos": ["B", "L"],
    },
    Parts: {"x": ["B", "L", "D"], "part": {"_ids": ["B", "L"], "below": "3"}},
}  # fmt: skip


def found(target):
    return find(target, namespace=globals()).plans[0]


@pytest.mark.parametrize("target", CALLS)
def test_an_argument_is_what_its_first_use_makes_it(target):
    plan = found(target)
    assert {name: value for name, value in plan.call.items() if name != "_layout"} == CALLS[target]


def test_a_length_is_what_an_assertion_compares_it_with():
    plan = found(Square)
    assert all(plan.sizes(probe)["L"] == plan.sizes(probe)["side"] ** 2 for probe in range(SIDE))


def test_an_argument_that_may_be_left_out_is_given_where_something_must_be():
    call = found(Answers).call
    assert call["asked"]["_ids"] == ["B", "L"]
    assert {"labels", "answered"} & call.keys()
