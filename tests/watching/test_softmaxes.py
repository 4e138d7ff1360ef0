"""Which softmaxes of a model's own are attention, which are listed with a reason, and which are no alarm."""

import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from headwise.watching import watch
from tests.watching.models import heads, made, x


class By(nn.Module):
    """A module that calls a function, and a Linear for it to use."""

    def __init__(self, function):
        super().__init__()
        self.function, self.gate = function, nn.Linear(12, 4)

    def forward(self, y):
        return self.function(self, y)


def scores(y):
    q = heads(y)
    return q @ q.mT


def five_axes(_, y):
    q = heads(y)[:, :, None]
    return torch.einsum("bhgqk,bhgkd->bhgqd", torch.softmax(torch.einsum("bhgqd,bhgkd->bhgqk", q, q), dim=-1), q)


def by_heads(_, y):
    weights, q = scores(y).softmax(-1), heads(y)
    return torch.stack([weights[:, h] @ q[:, h] for h in range(2)], dim=1)


def unbound(_, y):
    pairs = zip(scores(y).softmax(-1).unbind(1), heads(y).unbind(1), strict=True)
    return torch.stack([w @ q for w, q in pairs], dim=1)


# and the shape of the map
ATTENTION = {
    "4 axes": (lambda _, y: F.softmax(scores(y), dim=-1) @ heads(y), (3, 2, 5, 5)),
    "5 axes": (five_axes, (6, 1, 5, 5)),
    "3 axes": (lambda _, y: torch.bmm(nn.Softmax(dim=-1)(torch.bmm(y, y.mT)), y), (3, 1, 5, 5)),
    "2 axes": (lambda _, y: torch.mm((y[0] @ y[0].T).softmax(-1), y[0]), (1, 1, 5, 5)),
    "dropout, a cast and a mask that hides nothing": (
        lambda _, y: (
            F.dropout(torch.softmax(scores(y).double(), dim=-1), 0.5)
            .to(y.dtype)
            .masked_fill(y[:, None, :, :1] > 9, 0.0)
            @ heads(y)
        ),
        (3, 2, 5, 5),
    ),
    "moved axes": (
        lambda _, y: heads(y).mT @ scores(y).softmax(dim=-1).transpose(-1, -2).contiguous(),
        (3, 2, 5, 5),
    ),
    "heads one by one": (by_heads, (3, 2, 5, 5)),
    "heads unbound": (unbound, (3, 2, 5, 5)),
    "a learned query": (lambda module, y: (module.gate.weight @ y.mT).softmax(-1) @ y, (3, 1, 4, 5)),
    "letters for the rest": (
        lambda _, y: torch.einsum("...ij, ...jd -> ...id", scores(y).softmax(-1), heads(y)),
        (3, 2, 5, 5),
    ),
}


def mixed_heads(_, y):
    weights = torch.einsum("bhqk,hg->bgqk", scores(y).softmax(-1), torch.ones(2, 2))
    return weights @ heads(y)


def differential(_, y):
    return (scores(y).softmax(-1) - 0.5 * scores(2 * y).softmax(-1)) @ heads(y)


def linear(_, y):
    q = heads(y)
    return q.softmax(-1) @ (q.softmax(-2).mT @ q)


# what enters a product and is no map, and the reason that is given
LISTED = {
    "the log": (lambda _, y: scores(y).log_softmax(-1).exp() @ heads(y), "its scores are no product"),
    "the log of F": (
        lambda _, y: torch.matmul(torch.exp(F.log_softmax(scores(y), dim=-1)), heads(y)),
        "its scores are no product",
    ),
    "a column for a sink": (
        lambda _, y: F.softmax(F.pad(scores(y), (0, 1)), dim=-1)[..., :-1] @ heads(y),
        "normalised over another axis",
    ),
    "a band": (
        lambda _, y: F.pad(y[..., :3].softmax(-1), (0, 2)).flatten(1)[:, :-5].view(3, 5, 4).bmm(y[:, :4]),
        "its scores are no product",
    ),
    "written in place": (
        lambda _, y: torch.bmm(torch.softmax(torch.bmm(y, y.mT), -1).mul_(0.5), y),
        "mul changes its weights",
    ),
    "classes": (lambda module, y: module.gate(y).softmax(-1) @ torch.ones(4, 7), "a router, a pooling or a softmax"),
    "a table of classes": (
        lambda module, y: (y @ module.gate.weight.T).softmax(-1) @ module.gate.weight,
        "its keys are a parameter",
    ),
    "experts of a token": (
        lambda module, y: torch.einsum("ble,bled->bld", module.gate(y).softmax(-1), torch.stack([y] * 4, 2)),
        "a router, a pooling or a softmax",
    ),
    "experts by bmm": (
        lambda module, y: torch.bmm(
            module.gate(y).softmax(-1).flatten(0, 1)[:, None], torch.stack([y] * 4, 2).flatten(0, 1)
        ),
        "a router, a pooling or a softmax",
    ),
    "pooling": (lambda module, y: module.gate(y)[..., :1].softmax(1).mT @ y, "a router, a pooling or a softmax"),
    "linear attention": (linear, "a router, a pooling or a softmax over features"),
    "heads mixed after": (mixed_heads, "normalised over another axis"),
    "the difference of two": (differential, "sub changes its weights"),
    "over the queries": (lambda _, y: scores(y).softmax(-2) @ heads(y), "normalised over another axis"),
    "over the heads": (lambda _, y: scores(y).softmax(1) @ heads(y), "normalised over another axis"),
}


def experts(module, y):
    chance, chosen = module.gate(y).softmax(-1).topk(2, dim=-1)
    chance = chance / chance.sum(-1, keepdim=True)
    out = torch.stack([y, 2.0 * y], dim=-2) + chosen[..., None]
    return (out * chance[..., None]).sum(-2) @ torch.ones(12, 12)


def whole_experts(module, y):
    chance = F.softmax(module.gate(y), dim=-1)
    return sum((y * chance[..., n : n + 1]) @ torch.full((12, 12), n + 1.0) for n in range(4))


def expert_loss(module, y):
    chance = module.gate(y).softmax(dim=-1)
    load = F.one_hot(chance.argmax(-1), 4).float().mean((0, 1))
    return y + (load * chance.mean((0, 1))).sum()


def sampled(module, y):
    chosen = module.gate(y).softmax(-1).flatten(0, 1).multinomial(1)
    return y @ torch.ones(12, 12) + chosen.view(3, 5, 1)


OTHERS = {
    "a classifier": lambda module, y: module.gate(y).softmax(dim=-1),
    "a classifier of samples": lambda module, y: F.softmax(module.gate(y.mean(1)), dim=-1),
    "a loss": lambda module, y: F.nll_loss(module.gate(y).log_softmax(-1).flatten(0, 1), torch.zeros(15).long()),
    "a language model": lambda module, y: F.log_softmax(module.gate(y), dim=-1).argmax(-1),
    "experts": experts,
    "a mixture of all experts": whole_experts,
    "a loss of experts": expert_loss,
    "a sample": sampled,
    "a gate": lambda module, y: (y * module.gate(y).softmax(-1)[..., :1]) @ torch.ones(12, 3),
}


@pytest.mark.parametrize("name", ATTENTION)
def test_a_softmax_of_queries_and_keys_that_weighs_values_is_seen(name):
    function, shape = ATTENTION[name]
    model = nn.Sequential(nn.Identity(), made(By, function=function))
    torch.manual_seed(2)
    wanted = model(x())
    torch.manual_seed(2)
    with watch(model) as seen:
        assert torch.equal(model(x()), wanted)
    assert {name: m.shape for name, m in seen.items()} == {"1": shape}
    assert dict(seen.unseen) == {}


@pytest.mark.parametrize("name", LISTED)
def test_what_enters_a_product_and_is_no_map_is_listed_with_its_reason(name):
    function, reason = LISTED[name]
    model = nn.Sequential(nn.Identity(), made(By, function=function))
    wanted = model(x())
    with watch(model) as seen:
        assert torch.equal(model(x()), wanted)
    assert list(seen) == []
    assert list(seen.unseen) == ["1"]
    assert "computes a softmax of its own over" in seen.unseen["1"]
    assert reason in seen.unseen["1"]


@pytest.mark.parametrize("name", OTHERS)
def test_any_other_softmax_is_no_alarm(name):
    model = made(By, function=OTHERS[name])
    torch.manual_seed(2)
    wanted = model(x())
    torch.manual_seed(2)
    with watch(model) as seen:
        assert torch.equal(model(x()), wanted)
    assert (list(seen), dict(seen.unseen)) == ([], {})


def test_what_the_block_follows_is_let_go():
    kept = []
    model = made(By, function=lambda _, y: kept.append(scores(y).softmax(-1)) or y)
    with watch(model):
        model(x())
        ref = weakref.ref(kept.pop())
        assert ref() is None
