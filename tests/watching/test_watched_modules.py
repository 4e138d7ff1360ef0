"""Which modules only= takes, and that those it does not take cost nothing."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from headwise.errors import ArgumentError
from headwise.watching import watch
from tests.watching.models import Attend, Block, Handmade, heads, made, x

NAMES = ["layers.0.attn", "layers.1.attn", ""]
CHOICES = {
    "a name": ("layers.1.attn", NAMES[1:2]),
    "a name around it": ("layers.1", NAMES[1:2]),
    "a name that begins another": ("layers", NAMES[:2]),
    "a glob": ("*.0.*", NAMES[:1]),
    "the model": ("", NAMES),
    "several": (["layers.0", "*.1.attn"], NAMES[:2]),
    "a function": (lambda name: name.endswith("1.attn"), NAMES[1:2]),
    "a function, the model itself": (lambda name: name == "", NAMES[2:]),
}


@pytest.mark.parametrize("choice", CHOICES)
def test_only_what_is_chosen_is_seen(choice):
    only, names = CHOICES[choice]
    model, y = made(), x()
    wanted = model(y)
    with watch(model, only=only) as seen:
        assert torch.equal(model(y), wanted)
    assert list(seen) == names


def test_what_is_not_chosen_is_neither_hooked_nor_listened_to():
    model, listened = made(), []

    class Probe(nn.Module):
        def forward(self, y):
            listened.append(torch._C._len_torch_function_stack())
            return y

    model.layers.append(Block())
    for layer in model.layers:
        layer.mix.append(Probe())
    with watch(model, only="layers.1") as seen:
        hooked = [name for name, m in model.named_modules() if m._forward_hooks or m._forward_pre_hooks]
        model(x())
    assert hooked == ["layers.1", "layers.1.attn", "layers.1.mix.2"]
    assert listened == [0, 1, 0]
    assert list(seen) == ["layers.1.attn"]


def test_a_name_that_takes_nothing_is_refused_beside_others():
    with (
        pytest.raises(ArgumentError, match=r"each name in only= must take a module, but 'layers.7' of 2 takes none"),
        watch(made(), only=["layers.1", "layers.7"]),
    ):
        pass


def test_what_is_kept_is_made_by_a_function():
    with (
        pytest.raises(ArgumentError, match="keep must be a function of a map, but str came"),
        watch(made(), keep="entropy"),
    ):
        pass


def test_a_call_outside_of_what_is_chosen_is_not_seen():
    model, other, q = made(), nn.MultiheadAttention(12, 2), heads(x())
    with watch(model, only="layers.1") as seen:
        F.scaled_dot_product_attention(q, q, q)
        other(x(), x(), x())
        F.multi_head_attention_forward(
            x(), x(), x(), 12, 2, other.in_proj_weight, other.in_proj_bias, None, None, False, 0.0,
            other.out_proj.weight, other.out_proj.bias,
        )  # fmt: skip
    assert list(seen) == []


def test_a_function_that_takes_a_parent_does_not_take_what_its_children_call():
    class Parent(nn.Module):
        def __init__(self, attends):
            super().__init__()
            self.a, self.b, self.attends = made(Attend), made(Block), attends

        def forward(self, y):
            y = self.b(self.a(y))
            q = heads(y)
            return F.scaled_dot_product_attention(q, q, q).transpose(1, 2).flatten(2) if self.attends else y

    model = nn.Sequential(Parent(attends=True), Parent(attends=False))
    for names in (["0"], ["1"], ["0", "0.b.attn"], ["1.b"]):
        with watch(model, only=lambda name, names=names: name in names) as seen:
            model(x())
        assert sorted(seen) == [name for name in names if name in ("0", "0.b.attn")]
        assert all(len(seen.calls(name)) == 1 for name in seen)
        assert dict(seen.unseen) == {}


def test_torch_layers_are_chosen_by_the_name_of_their_attention():
    layer = nn.TransformerEncoderLayer(12, 2, 17, batch_first=True).eval()
    model = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
    with torch.no_grad(), watch(model, only="layers.1.self_attn") as seen:
        model(x())
    assert list(seen) == ["layers.1.self_attn"]
    with torch.no_grad(), watch(model, only="*.2") as seen:
        model(x())
    assert list(seen) == ["layers.2.self_attn"]


def test_a_choice_of_nothing_is_refused():
    with pytest.raises(ArgumentError, match=r"one of the model's 14 modules, but 'layer' takes none: .*layers.0"):
        watch(made(), only="layer").__enter__()


def test_a_compiled_module_is_listed_only_if_it_is_chosen():
    torch._dynamo.reset()
    model = nn.Sequential(torch.compile(made(Block), backend="eager"), made(Block), Handmade())
    with watch(model, only="1") as seen:
        pass
    assert dict(seen.unseen) == {}
    with watch(model, only="0") as seen:
        pass
    assert list(seen.unseen) == ["0"]
