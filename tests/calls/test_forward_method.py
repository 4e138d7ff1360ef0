"""A class of modules without forward is refused before any call of it is tried, and its own methods are named."""

import pytest
import torch
from torch import nn

import headwise as hw
from headwise.calls.forward_method import lacks_forward, methods_of
from headwise.errors import InputError


class Attend(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.proj = nn.Linear(dim, dim)

    def attend(self, x):
        return self.proj(x).softmax(-1) @ x.mT


class Bare(nn.Module):
    pass


@pytest.mark.parametrize(
    ("target", "lang", "said"),
    [
        (Attend(16, 2), "en", "Attend must define forward, which nn.Module calls, but it defines only attend: rename"),
        (Attend, "zh", "Attend 必须定义 nn.Module 要调用的 forward，但它只定义了 attend"),
        (Bare, "en", "Bare must define forward, which nn.Module calls, but it defines no method: add a forward"),
    ],
)
def test_a_class_without_forward_is_refused_at_once(target, lang, said, monkeypatch):
    def search(*_, **__):
        raise AssertionError("a call was looked for")

    monkeypatch.setattr("headwise.tracing.entry_point.find_call", search)
    monkeypatch.setattr("headwise.pages.code_call.find", search)
    for command in (hw.trace, hw.look):
        with pytest.raises(InputError, match=said):
            command(target, lang=lang)
    diagnosis = hw.doctor(target, lang=lang)
    assert (diagnosis.verdict, diagnosis.reason[: len(said)]) == ("not examined", said)


class Assigned(Attend):
    def __init__(self, dim, heads):
        super().__init__(dim, heads)
        self.forward = self.attend


class Static(nn.Module):
    @staticmethod
    def attend(x):
        return x


class Whole(nn.Module):
    def forward(self, x):
        return x


def test_a_forward_that_is_assigned_or_scripted_counts():
    assert not any(map(lacks_forward, (Assigned, Assigned(16, 2), torch.jit.script(Whole()), torch.jit.ScriptModule)))
    assert lacks_forward(Static)
    assert [each.__name__ for each in methods_of(Static)] == ["attend"]
