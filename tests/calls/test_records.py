"""Records: a dictionary, an object or a tuple that a call takes apart is called by its parts, and judged like them."""

import dataclasses
import typing

import pytest
import torch
from torch import nn

import headwise as hw
from headwise.calls.argument_use import role_of
from headwise.calls.finder import find
from headwise.calls.signature import callee, parameters, whole


@dataclasses.dataclass
class Turns:
    asked: torch.Tensor
    answered: torch.Tensor
    is_real: torch.Tensor

    @property
    def width(self):
        return self.asked.shape[-1]


class Keyed(nn.Module):
    """Its batch is a dictionary, part of which another method reads."""

    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.table = nn.Embedding(vocab_size, d_model)
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(d_model, d_model) for _ in range(3))

    def hidden(self, batch):
        closed = ~batch["attention_mask"][:, None, :].bool()
        return closed | batch["blocked"] if "blocked" in batch else closed

    def forward(self, batch):
        x = self.table(batch["input_ids"])
        scores = self.q_proj(x) @ self.k_proj(x).mT / x.shape[-1] ** 0.5
        scores = scores.masked_fill(self.hidden(batch), float("-inf"))
        weights = scores.softmax(-1)
        shift = batch.get("shift")
        return weights @ self.v_proj(x) + (0 if shift is None else shift)


class Standing(Keyed):
    """As above, but its mask closes queries, not keys."""

    def hidden(self, batch):
        return ~batch["attention_mask"][:, :, None].bool()


class Dotted(nn.Module):
    """Its turns are an object of a class of the file."""

    def __init__(self, width):
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(width, width) for _ in range(3))

    def forward(self, turns: Turns):
        scores = self.q_proj(turns.asked) @ self.k_proj(turns.answered).mT / turns.width**0.5
        return scores.masked_fill(~turns.is_real.bool()[:, None], -1e4).softmax(-1) @ self.v_proj(turns.answered)


class Placed(nn.Module):
    """Its inputs are a tuple."""

    def __init__(self, width):
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(width, width) for _ in range(3))

    def forward(self, inputs):
        query, memory = inputs
        scores = self.q_proj(query) @ self.k_proj(memory).mT / query.shape[-1] ** 0.5
        return scores.softmax(-1) @ self.v_proj(memory)


def attend(sample):
    return (sample["q"] @ sample["k"].mT / sample["q"].shape[-1] ** 0.5).softmax(-2) @ sample["v"]


def taken(target: typing.Any) -> list[str]:
    return [str(parameter) for parameter in parameters(callee(whole(target, None)[0]))]


def test_the_parts_of_a_record_are_what_a_call_takes():
    assert taken(Keyed) == ["input_ids", "attention_mask", "blocked=None", "shift=None"]
    assert taken(Keyed(11, 6)) == taken(Keyed)
    assert taken(Dotted) == ["asked", "answered", "is_real"]
    assert taken(Placed) == ["query", "memory"]
    assert taken(attend) == ["q", "k", "v"]


class Sliced(nn.Module):
    """What it reads by name it also reads otherwise."""

    def forward(self, x):
        return x["a"] @ x["b"].mT if isinstance(x, dict) else x @ x.mT


class Cached(nn.Module):
    def forward(self, x, cache):
        return x @ cache["k"].mT


class Measured(nn.Module):
    """A shape is no tuple of inputs."""

    def forward(self, x):
        rows, width = x.shape
        return x @ x.mT / width * rows


def test_what_is_no_record_stays_what_it_is():
    assert taken(Sliced) == ["x"]
    assert taken(Cached) == ["x", "cache"]
    assert taken(Measured) == ["x"]


def test_what_a_person_says_of_a_record_binds():
    assert whole(Keyed, None, {"batch": {"_expr": "{}"}})[0] is Keyed
    found = find(whole(Keyed, None)[0], namespace=globals())
    assert {"input_ids", "_mask"} <= found.plans[0].call.keys()


@pytest.mark.parametrize("kind", [Keyed, Dotted, Placed])
def test_right_code_that_takes_a_record_is_sound(kind):
    assert hw.doctor(kind).verdict == "sound"


def test_what_is_wrong_in_a_record_is_found_where_it_is_read():
    found = hw.doctor(Standing).faults
    assert [(each.kind, each.source.strip()) for each in found] == [
        ("mask-axis", 'return ~batch["attention_mask"][:, :, None].bool()')
    ]
    found = hw.doctor(attend).faults
    assert [(each.kind, each.proved) for each in found] == [("softmax-axis", True)]


def test_a_module_keeps_its_weights_and_its_class():
    module = Placed(6)
    as_called, _ = whole(module, None)
    assert as_called is not module
    assert type(module) is Placed
    assert isinstance(as_called, Placed)
    assert all(a is b for a, b in zip(module.parameters(), as_called.parameters(), strict=True))
    q, m = torch.randn(2, 3, 6), torch.randn(2, 5, 6)
    torch.testing.assert_close(as_called(query=q, memory=m), module((q, m)), rtol=0, atol=0)
    torch.testing.assert_close(as_called(inputs=(q, m)), module((q, m)), rtol=0, atol=0)


def test_a_trace_names_the_axes_of_the_parts():
    text = str(hw.trace(Placed))
    assert "[B, L, D] @ [B, D, S]" in text
    assert "B" in str(hw.trace(attend))


class Twice(nn.Module):
    """Both of its records have a part of one name."""

    def forward(self, source, target):
        return source["x"] @ target["x"].mT


class Beside(nn.Module):
    """A part has the name of an argument."""

    def forward(self, batch, mask=None):
        return batch["mask"] if mask is None else mask


class Worded(nn.Module):
    def forward(self, batch):
        return batch["from"] @ batch["to"].mT


class Thrown(nn.Module):
    def forward(self, inputs):
        x, _, _ = inputs
        return x


class Listed(nn.Module):
    """Keeps each class that is made of it."""

    made: typing.ClassVar[list[type]] = []

    def __init_subclass__(cls):
        Listed.made.append(cls)


class Own(Listed):
    def forward(self, batch):
        return batch["x"] @ batch["y"].mT


@pytest.mark.parametrize("kind", [Twice, Beside, Worded, Thrown, Own])
def test_a_record_whose_parts_have_no_names_of_their_own_stays_closed(kind):
    assert whole(kind, None)[0] is kind
    assert Listed.made == [Own]


class Rest(nn.Module):
    """Takes its batch by place alone, and what else there is by names."""

    def forward(self, batch, /, times=1, **rest):
        return (batch["x"] + batch["y"]) * times * rest["scale"]


def test_what_is_handed_over_as_it_is_written_is_handed_on():
    module, _ = whole(Rest(), None)
    x, y = torch.randn(2, 3), torch.randn(2, 3)
    torch.testing.assert_close(module(x, y, times=2, scale=3.0), (x + y) * 2 * 3.0, rtol=0, atol=0)
    torch.testing.assert_close(module({"x": x, "y": y}, times=2, scale=3.0), (x + y) * 2 * 3.0, rtol=0, atol=0)


class Helped(nn.Module):
    """A helper takes a tuple apart, and a mask beside it."""

    def __init__(self, width):
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(width, width) for _ in range(3))

    def attend(self, streams, there):
        q, k, v = streams
        s = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~there[:, None], float("-inf"))
        return s.softmax(-1) @ v

    def forward(self, x, items):
        return self.attend([part(x) for part in self.parts], items)


def test_a_mask_beside_a_tuple_is_found():
    assert [(each.name, role_of(each)) for each in parameters(callee(Helped))] == [("x", ""), ("items", "mask")]
