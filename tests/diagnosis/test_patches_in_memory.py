"""Patches of what is in memory: tried on a copy of its definition, which leaves the person's own as it is."""

import linecache
import sys
import types

import pytest
import torch

import headwise as hw
from headwise.diagnosis.patches.redefinition import redefined
from headwise.source import Edit
from tests.diagnosis.written import HEAD, attend

UNSCALED = attend(body="w = (q @ k.mT).softmax(-1)\ny = w @ v")
SCALED = "w = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)"
OWNER = """
class Owner(nn.Module):
    def __init__(self, width, num_heads):
        super().__init__()
        self.attention = Attend(width, num_heads, )

    def forward(self, x):
        return x + self.attention(x)
"""


@pytest.fixture
def module(request, tmp_path):
    """A module that is imported from a file, by its source."""
    made = types.ModuleType("patched_in_memory")
    made.__file__ = str(tmp_path / "patched_in_memory.py")
    sys.modules[made.__name__] = made
    text = HEAD + request.param
    linecache.cache[made.__file__] = (len(text), None, text.splitlines(keepends=True), made.__file__)
    exec(compile(text, made.__file__, "exec"), vars(made))
    yield made
    del sys.modules[made.__name__], linecache.cache[made.__file__]


@pytest.mark.parametrize("module", [UNSCALED, UNSCALED + OWNER], indirect=True, ids=["class", "owner"])
def test_a_class_at_hand_has_the_patch_that_its_file_has_and_stays_as_it_is(module):
    target = getattr(module, "Owner", module.Attend)
    names, lines = dict(vars(module)), list(linecache.getlines(module.__file__))
    (fault,) = hw.doctor(target).faults
    assert (fault.kind, fault.patch, fault.proved) == ("scale-missing", SCALED, True)
    assert vars(module) == names
    assert linecache.getlines(module.__file__) == lines


@pytest.mark.parametrize("module", [UNSCALED + OWNER], indirect=True)
def test_a_model_at_hand_is_mended_with_its_own_weights_in_a_copy(module):
    model = module.Owner(12, 3)
    x = torch.randn(2, 5, 12)
    before = model(x)
    (fault,) = hw.doctor(model).faults
    assert (fault.kind, fault.patch) == ("scale-missing", SCALED)
    assert type(model.attention) is module.Attend
    assert torch.equal(model(x), before)


@pytest.mark.parametrize(
    "module",
    ["seen = []\n\n\ndef keep(kind):\n    seen.append(kind)\n    return kind\n\n\n@keep" + UNSCALED],
    indirect=True,
)
def test_what_a_decorator_registers_is_registered_once(module):
    (fault,) = hw.doctor(module.Attend).faults
    assert (fault.kind, fault.patch) == ("scale-missing", "")
    assert module.seen == [module.Attend]


@pytest.mark.parametrize("module", [UNSCALED], indirect=True)
def test_an_edit_outside_of_all_definitions_is_not_run(module):
    text = "".join(linecache.getlines(module.__file__))
    edit = Edit(2, 0, 2, 0, "raise SystemExit\n")
    block = redefined(module.Attend, vars(module), text, [edit])
    with pytest.raises(LookupError, match=r"lines \[2\] are in no definition"):
        block.__enter__()
    assert "".join(linecache.getlines(module.__file__)) == text


KEPT = """
KINDS = {{}}


class Kept(nn.Module):
    def __init_subclass__(cls, **options):
        super().__init_subclass__(**options)
        KINDS[cls.__name__] = cls
{used}

"""


@pytest.mark.parametrize(
    "module",
    [
        KEPT.format(used="") + UNSCALED.replace("(nn.Module)", "(Kept)"),
        "CALLS = []\n" + UNSCALED.replace("    def __init__", "    CALLS.append(1)\n\n    def __init__", 1),
        UNSCALED + "\n\nKINDS = {'plain': Attend}\n",
    ],
    indirect=True,
    ids=["a base that hears of its classes", "a statement of the class", "a table of classes"],
)
def test_what_a_definition_does_besides_is_done_once(module):
    before = {name: list(value) for name, value in vars(module).items() if name in ("CALLS", "KINDS")}
    (fault,) = hw.doctor(module.Attend).faults
    assert (fault.kind, fault.patch) == ("scale-missing", "")
    assert {name: list(getattr(module, name)) for name in before} == before
    assert all(kind is module.Attend for kind in getattr(module, "KINDS", {}).values() if kind.__name__ == "Attend")
