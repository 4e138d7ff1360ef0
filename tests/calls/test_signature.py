"""What a call takes: the keys of its **kwargs, masks by what is done with them, and a forward that is assigned."""

import torch
from torch import nn

from headwise.calls.argument_use import role_of
from headwise.calls.finder import find
from headwise.calls.signature import callee, parameters


class Keyed(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.ask, self.match = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x, **kwargs):
        context = kwargs["context"]
        bias = kwargs.pop("bias", 0.5)
        limit = kwargs.get("limit")
        if "limit" in kwargs and limit is not None:
            bias = bias + limit
        scores = self.ask(x) @ self.match(context).mT / x.shape[-1] ** 0.5
        return (scores + bias).softmax(-1) @ context


def test_what_is_read_out_of_kwargs_is_an_argument():
    assert [str(each) for each in parameters(callee(Keyed))] == ["x", "context", "bias=0.5", "limit=None"]
    assert [str(each) for each in parameters(Keyed(4).forward)] == ["x", "context", "bias=0.5", "limit=None"]
    assert find(Keyed, namespace={}).plans[0].call == {"x": ["B", "L", "D"], "context": ["B", "S", "D"]}


class Assigned(nn.Module):
    def __init__(self, width, kind="plain"):
        super().__init__()
        self.ask = nn.Linear(width, width)
        self.prepare(width)
        self.forward = self.plain if kind == "plain" else self.scaled

    def prepare(self, width):
        self.width = width

    def plain(self, tokens, memory):
        return (self.ask(tokens) @ memory.mT).softmax(-1) @ memory

    def scaled(self, tokens, memory):
        return (self.ask(tokens) @ memory.mT / self.width).softmax(-1) @ memory


def test_a_forward_that_is_assigned_is_called():
    assert [each.name for each in parameters(callee(Assigned))] == ["tokens", "memory"]
    assert find(Assigned, namespace={}).plans[0].call == {"tokens": ["B", "L", "D"], "memory": ["B", "S", "D"]}


class Silent(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.ask = nn.Linear(width, width)

    def train(self, mode=True):
        super().train(mode)

    def forward(self, x):
        return (self.ask(x) @ x.mT).softmax(-1) @ x


def test_a_train_that_returns_nothing_is_no_failure():
    plan = find(Silent, namespace={}).plans[0]
    assert plan.build(plan.sizes(0)).training is False


class Handed(nn.Module):
    """Masks by several names; `gate`, `scale` and `kinds` are none."""

    def __init__(self, width, vocabulary):
        super().__init__()
        self.table = nn.Embedding(vocabulary, width)

    def weigh(self, scores, closed, real):
        scores = scores.masked_fill(closed.bool()[:, None], float("-inf"))
        return scores - (1 - real[:, None]) * 1e9

    def forward(self, x, visited, real, open_to, gate, scale, kinds):
        scores = self.weigh(x @ x.mT * scale, visited, real=real)
        scores = torch.where(open_to, scores, torch.full_like(scores, -1e9))
        scores = scores.masked_fill((kinds == 0)[:, None], float("-inf"))
        return scores.softmax(-1) @ (x + self.table(kinds)) @ gate


def test_what_hides_scores_is_a_mask_whatever_it_is_called():
    roles = {each.name: role_of(each) for each in parameters(callee(Handed))}
    assert [name for name, role in roles.items() if role == "mask"] == ["visited", "real", "open_to"]


class Helped(nn.Module):
    """What it is given is put to use in helpers."""

    def forward(self, tokens, part, count=None):
        later = torch.arange(tokens.shape[1])[:, None] < torch.arange(tokens.shape[1])
        closed = self.apart(part) | later | ~self.there(tokens.shape[1], count)
        return (tokens @ tokens.mT).masked_fill(closed, float("-inf")).softmax(-1) @ tokens

    def apart(self, number):
        return number[:, :, None] != number[:, None, :]

    @staticmethod
    def there(length, ends):
        return (torch.arange(length) < ends.to("cpu").unsqueeze(-1))[:, None]


def test_what_helpers_do_tells_what_an_argument_is():
    roles = {each.name: role_of(each) for each in parameters(callee(Helped))}
    assert (roles["part"], roles["count"]) == ("segments", "lengths")


class Starred(nn.Module):
    """Is given keys and values as one, which a tensor of two samples would pass for."""

    def __init__(self, width, num_heads):
        super().__init__()
        self.ask, self.heads = nn.Linear(width, width), num_heads

    def forward(self, x, memory):
        return self.attend(self.ask(x).unflatten(-1, (self.heads, -1)).transpose(1, 2), *memory)

    def attend(self, q, k, v):
        return ((q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v).transpose(1, 2).flatten(2)


def test_what_a_call_is_given_in_parts_is_a_pair():
    plan = find(Starred, namespace={}).plans[0]
    assert plan.call["memory"] == {"_tuple": [["B", "H", "L", "d"], ["B", "H", "L", "d"]]}


def programmed(q, k, v, score_mod=None, mask_mod=None):
    s = q @ k.mT / q.shape[-1] ** 0.5
    s = s if score_mod is None else score_mod(s)
    return (s if mask_mod is None else s.masked_fill(~mask_mod(s), float("-inf"))).softmax(-1) @ v


def test_what_is_called_is_no_mask():
    roles = [role_of(each) for each in parameters(callee(programmed))]
    assert (roles[-1], find(programmed, namespace={}).plans[0].mask) == ("function", "")


class Valid(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.ask = nn.Linear(width, width)

    def forward(self, tokens, valid):
        scores = self.ask(tokens) @ tokens.mT / tokens.shape[-1] ** 0.5
        return scores.masked_fill(~valid[:, None], float("-inf")).softmax(-1) @ tokens


def test_a_mask_that_has_to_be_there_is_given_whatever_it_is_called():
    plan = find(Valid, namespace={}).plans[0]
    assert plan.mask == "valid"
    assert plan.call["_mask"] == {"argument": "valid", "means": "attend", "shape": ["B", "L"]}
