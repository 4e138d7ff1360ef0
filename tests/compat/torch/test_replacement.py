"""Replacing swaps every nn.MultiheadAttention in place, keeps all that hangs on it, and accounts for each."""

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from headwise.compat.torch import MultiheadAttention
from headwise.compat.torch.replacement import Left, Replaced, replace
from headwise.errors import ArgumentError
from tests.compat.agreement import randn

E = 8


class Own(nn.MultiheadAttention):
    def forward(self, *args: Any, **options: Any) -> Any:
        return super().forward(*args, **options)


class Model(nn.Module):
    """Attention in several places, one of them shared, one a subclass's."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.MultiheadAttention(E, 2, batch_first=True)
        self.blocks = nn.ModuleList([nn.MultiheadAttention(E, 4, dropout=0.5), self.first])
        self.other = Own(E, 2)
        self.out = nn.Linear(E, E)


def test_it_names_what_it_swapped_and_what_it_left() -> None:
    model = Model()
    told = replace(model)
    assert told.swapped == ("first", "blocks.0", "blocks.1")
    (left,) = told.left
    assert left.name == "other"
    assert left.why == "is a subclass, tests.compat.torch.test_replacement.Own, which may compute something else"
    assert str(told).splitlines() == [
        "swapped 3 of 4",
        "  first",
        "  blocks.0",
        "  blocks.1",
        "left 1",
        "  other: is a subclass, tests.compat.torch.test_replacement.Own, which may compute something else",
    ]


def test_a_shared_module_stays_one() -> None:
    model = Model()
    before = model.first
    replace(model)
    assert model.first is model.blocks[1] is before
    assert type(before) is MultiheadAttention
    assert len(before._forward_pre_hooks) == 1


def test_parameters_modes_and_hooks_stay_the_very_same() -> None:
    model = Model().double()
    first = model.first.eval()
    first.in_proj_weight.requires_grad_(False)
    heard: list[str] = []
    handle = first.register_forward_hook(lambda *_: heard.append("hook"))
    before = dict(model.named_parameters())
    replace(model)
    assert all(after is before[name] for name, after in model.named_parameters())
    assert [m.training for m in (model.first, model.blocks[0])] == [False, True]
    assert not model.first.in_proj_weight.requires_grad
    assert model.blocks[0].dropout == 0.5
    x = randn(2, 3, E)
    model.first(x, x, x)
    handle.remove()
    model.first(x, x, x)
    assert heard == ["hook"]


def test_an_optimizer_made_before_goes_on() -> None:
    model = nn.TransformerEncoderLayer(E, 2, 16, 0.0, batch_first=True)
    other = copy.deepcopy(model)
    x = randn(2, 3, E).float()
    for m in (model, other):
        optimizer = torch.optim.SGD(m.parameters(), lr=0.1)
        if m is model:
            replace(m)
        for _ in range(3):
            optimizer.zero_grad()
            m(x).square().mean().backward()
            optimizer.step()
    torch.testing.assert_close(model.state_dict(), other.state_dict())


def test_the_old_numbers_come_out_and_the_state_dict_loads_either_way() -> None:
    model = Model().eval()
    theirs = copy.deepcopy(model)
    replace(model)
    x = randn(2, 3, E).float()
    with torch.no_grad():
        torch.testing.assert_close(model.first(x, x, x), theirs.first(x, x, x))
    theirs.load_state_dict(model.state_dict())
    model.load_state_dict(theirs.state_dict())


def test_strict_torch_is_handed_on_and_said() -> None:
    model = Model()
    told = replace(model, strict_torch=True)
    assert str(told).startswith("swapped 3 of 4, strict_torch=True\n")
    assert model.first.strict_torch
    assert not model.first._forward_pre_hooks


def test_a_second_time_finds_nothing_to_do() -> None:
    model = nn.Sequential(nn.MultiheadAttention(E, 2))
    replace(model)
    told = replace(model, strict_torch=True)
    assert told == Replaced((), (Left("0", "is headwise's already, with strict_torch=False"),), True)


def test_what_may_compute_something_else_is_left_with_the_reason() -> None:
    model = nn.ModuleDict({name: nn.MultiheadAttention(E, 2) for name in ("orthogonal", "patched")})
    parametrizations.orthogonal(model["orthogonal"], "in_proj_weight")
    model["patched"].forward = lambda *_: None  # type: ignore[method-assign]
    model["quantizable"] = torch.ao.nn.quantizable.MultiheadAttention(E, 2)
    reasons = {each.name: each.why for each in replace(model).left}
    assert reasons["patched"] == "has a forward of its own, put on the object"
    assert "ParametrizedMultiheadAttention, which may" in reasons["orthogonal"]
    assert "quantizable.modules.activation.MultiheadAttention, which may" in reasons["quantizable"]


def test_a_model_without_any_says_so_and_warns() -> None:
    sentence = "the model holds no nn.MultiheadAttention, and nothing was swapped: convert other attention"
    with pytest.warns(UserWarning, match=sentence):
        replaced = replace(nn.Linear(1, 1))
    assert str(replaced).startswith(sentence)


@pytest.mark.parametrize("cls", [nn.MultiheadAttention, MultiheadAttention])
def test_a_model_that_is_itself_one_is_refused_and_left(cls: type[nn.MultiheadAttention]) -> None:
    model = cls(E, 2)
    with pytest.raises(ArgumentError, match=rf"is itself {cls.__module__}\.MultiheadAttention: build a"):
        replace(model)
    assert type(model) is cls


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(ArgumentError, match="but dict came"):
        replace({})  # type: ignore[arg-type]


def test_a_model_compiled_before_computes_by_the_laws_after() -> None:
    torch.compiler.reset()
    model = nn.ModuleDict({"attn": nn.MultiheadAttention(E, 2, batch_first=True)})
    step = torch.compile(lambda x, padding: model["attn"](x, x, x, key_padding_mask=padding)[0], backend="aot_eager")
    x, padding = randn(2, 3, E).float(), torch.ones(2, 3, dtype=torch.bool)
    # dynamo asks what it met before for its .grad, of which torch warns where gradients are on
    with torch.no_grad():
        assert step(x, padding).isnan().any()
        replace(model)
        assert step(x, padding).isfinite().all()
