"""A module that is at hand is examined as it is: in any dtype, with many heads, after a call, and left as it was."""

import functools

import pytest
import torch
from torch import nn

import headwise as hw
from headwise.errors import InputError
from headwise.wording import say


class Attention(nn.Module):
    def __init__(self, width=48, heads=12):
        super().__init__()
        self.heads = heads
        self.parts = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.sharpness = nn.Parameter(torch.ones(heads, 1, 1))
        self.seen = None

    def forward(self, x):
        parts = self.parts(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        q, k, v = parts
        self.seen = (q @ k.mT * self.sharpness).softmax(-1)
        return self.out((self.seen @ v).transpose(1, 2).flatten(2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_temperature_of_each_of_many_heads_is_learned_in_every_dtype(dtype):
    found = hw.doctor(Attention().to(dtype))
    assert (found.verdict, found.faults) == ("sound", ())


def test_without_the_temperature_the_scale_is_missing():
    class Plain(Attention):
        def forward(self, x):
            q, k, v = self.parts(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
            return self.out(((q @ k.mT).softmax(-1) @ v).transpose(1, 2).flatten(2))

    module = Plain()
    del module.sharpness
    assert [each.kind for each in hw.doctor(module.bfloat16()).faults] == ["scale-missing"]


def test_what_a_module_keeps_of_a_call_stays_there_with_its_graph():
    module = Attention().train()
    module(torch.randn(2, 3, 48))
    kept, weights = module.seen, {name: each.clone() for name, each in module.state_dict().items()}
    assert hw.doctor(module).verdict == "sound"
    assert module.seen is kept
    assert kept.grad_fn is not None
    assert module.training
    assert all(torch.equal(each, weights[name]) for name, each in module.state_dict().items())


def test_on_the_meta_device_nothing_is_examined_and_the_reason_is_said():
    with torch.device("meta"):
        module = Attention()
    found = hw.doctor(module)
    assert found.verdict == "not examined"
    assert "meta device" in found.reason


SURROUNDINGS = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "another device": lambda: torch.device("meta"),
}


@pytest.mark.parametrize("name", SURROUNDINGS)
def test_what_the_caller_has_set_about_a_diagnosis_changes_nothing_of_it(name):
    with SURROUNDINGS[name]():
        found = hw.doctor(Attention)
    assert (found.verdict, found.findings) == ("sound", hw.doctor(Attention).findings)
    assert not any(str(each).startswith("no: the check itself failed") for each in found.examined.values())


def test_of_torchs_own_layer_it_is_said_that_it_is_and_that_its_callers_are_examined():
    class Calling(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.layer = nn.MultiheadAttention(width, heads, batch_first=True)

        def forward(self, x):
            return self.layer(x, x, x, need_weights=False)[0]

    own, calling = hw.doctor(nn.MultiheadAttention), hw.doctor(Calling)
    assert (own.verdict, own.reason) == ("not examined", say("doctor.of_torch", lang="en"))
    assert calling.verdict == "sound", str(calling)
    assert calling.examined["ideal"] == f"no: {say('doctor.missed.torch_layer', lang='en')}"


def test_what_is_no_code_and_a_name_that_is_no_parameter_are_refused_in_the_words_of_python():
    with pytest.raises(InputError, match="3 came"):
        hw.doctor(3)
    with pytest.raises(InputError, match="call= names y"):
        hw.doctor(Attention, call={"y": ["B"]})


@pytest.mark.parametrize(
    ("given", "said", "sentence"),
    [
        ({"width": 48}, {"call": {"y": ["B"]}}, "^call= names y, which is no parameter: choose among x"),
        ({"widht": 48}, {}, "^init= names widht, which is no parameter: choose among width, heads"),
    ],
)
def test_what_a_partial_of_a_class_cannot_take_is_refused_as_of_the_class(given, said, sentence):
    with pytest.raises(InputError, match=sentence):
        hw.doctor(functools.partial(Attention, **given), **said)
