"""A softmax of a model's own is listed where it weighs values, and a classifier's or a router's is not."""

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


ATTENTION = {
    "4 axes": lambda _, y: F.softmax(scores(y), dim=-1) @ heads(y),
    "5 axes": five_axes,
    "3 axes": lambda _, y: torch.bmm(nn.Softmax(dim=-1)(torch.bmm(y, y.mT)), y),
    "2 axes": lambda _, y: torch.mm((y[0] @ y[0].T).softmax(-1), y[0]),
    "the log": lambda _, y: scores(y).log_softmax(-1).exp() @ heads(y),
    "the log of F": lambda _, y: torch.matmul(torch.exp(F.log_softmax(scores(y), dim=-1)), heads(y)),
    "dropout, a cast and a mask": lambda _, y: (
        F.dropout(torch.softmax(scores(y).double(), dim=-1), 0.5).to(y.dtype).masked_fill(y[:, None, :, :1] > 3, 0.0)
        @ heads(y)
    ),
    "a column for a sink": lambda _, y: F.softmax(F.pad(scores(y), (0, 1)), dim=-1)[..., :-1] @ heads(y),
    "moved axes": lambda _, y: heads(y).mT @ scores(y).softmax(dim=-1).transpose(-1, -2).contiguous(),
    "heads one by one": by_heads,
    "a band": lambda _, y: F.pad(y[..., :3].softmax(-1), (0, 2)).flatten(1)[:, :-5].view(3, 5, 4).bmm(y[:, :4]),
    "written in place": lambda _, y: torch.bmm(torch.softmax(torch.bmm(y, y.mT), -1).mul_(0.5), y),
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
def test_a_softmax_whose_result_enters_a_product_is_listed(name):
    model = nn.Sequential(nn.Identity(), made(By, function=ATTENTION[name]))
    torch.manual_seed(2)
    wanted = model(x())
    torch.manual_seed(2)
    with watch(model) as seen:
        assert torch.equal(model(x()), wanted)
    assert list(seen) == []
    assert list(seen.unseen) == ["1"]
    assert "computes a softmax of its own over" in seen.unseen["1"]


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
