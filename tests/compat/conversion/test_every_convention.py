"""Every convention: its module is converted, proved, and given back as it was, from a module and from bare weights."""

import copy

import pytest
import torch

import headwise as hw
from tests.compat.conversion.sources import INSTALLED, TRANSFORMERS, X_MODULES, X_TRANSFORMERS, drawn
from tests.optional import require

SOURCES = {**INSTALLED, **TRANSFORMERS, **{f"x-transformers, {name}": made for name, made in X_TRANSFORMERS.items()}}
MODULES = {**SOURCES, **{f"x-transformers, {name}": made for name, made in X_MODULES.items()}}


def made(name):
    if name in TRANSFORMERS:
        require("transformers")
    if name.startswith("x-transformers"):
        require("x_transformers")
    return drawn(MODULES[name].build()).eval()


def bare(name, module):
    """What convert needs beside the weights."""
    if MODULES[name].bare:
        return MODULES[name].bare
    return {"config": module.config}


@pytest.mark.parametrize("name", MODULES)
def test_a_module_is_recognised_and_proved_against_itself(name):
    module = made(name)
    before = copy.deepcopy(module.state_dict())
    done = hw.compat.convert(module)
    report = done.report
    assert (report.convention, report.proved, report.against) == (MODULES[name].convention, True, "the module")
    assert report.largest < 1e-11
    assert report.largest_gradient < 1e-9
    assert all(torch.equal(before[key], weight) for key, weight in module.state_dict().items())
    assert not done.layer.training


@pytest.mark.parametrize("name", SOURCES)
def test_bare_weights_are_proved_against_the_formula_and_give_the_same_layer(name):
    module = made(name)
    prefix = "model.layers.1.self_attn." if hasattr(module, "layer_type") else "model."
    if name.endswith("sliding") and "gemma" in name:
        prefix = "model.layers.0.self_attn."
    weights = {f"{prefix}{key}": weight for key, weight in module.state_dict().items()}
    given = hw.compat.convert(weights, **bare(name, module))
    assert (given.report.convention, given.report.proved, given.report.against) == (
        MODULES[name].convention, True, "the formula",
    )  # fmt: skip
    wanted = hw.compat.convert(module)
    # dropout and a causal flag are no weights
    assert given.report.used == wanted.report.used
    assert given.layer.score == wanted.layer.score
    assert str(given.layer.position) == str(wanted.layer.position)
    for key, weight in wanted.layer.state_dict().items():
        assert torch.equal(given.layer.state_dict()[key], weight)


@pytest.mark.parametrize("name", SOURCES)
def test_the_way_back_gives_the_weights_that_were_used(name):
    module = made(name)
    if name == "gpt2, scaled by layer":
        with pytest.raises(hw.errors.ConversionError, match=r"scale=0\.176777 in place of 0\.353553"):
            hw.compat.to_state_dict(hw.compat.convert(module).layer, "gpt2")
        return
    done = hw.compat.convert(module)
    back = hw.compat.to_state_dict(done.layer, done.report.convention)
    used = {used.theirs for used in done.report.used}
    filled = {key: weight for key, weight in back.items() if key not in used}
    assert used <= back.keys()
    for key in used:
        torch.testing.assert_close(back[key], module.state_dict()[key])
    # a bias that they may have, and this module has not, is zero
    assert all(key.endswith("bias") and weight.abs().max() == 0 for key, weight in filled.items())


@pytest.mark.parametrize("name", MODULES)
def test_another_module_with_these_weights_is_refused(name):
    """The proof has teeth: a module that computes something else is not converted."""
    module = made(name)

    def doubled(_, __, output):
        if isinstance(output, tuple):
            return (output[0] * 1.0001, *output[1:])
        return output * 1.0001

    target = module.output.dense if hasattr(module, "output") else module
    target.register_forward_hook(doubled)
    with pytest.raises(hw.errors.ConversionError, match=r"differs from the module on '.*': outputs by \d"):
        hw.compat.convert(module)
