"""Head effects: each against the head changed by hand, and the estimates against small changes."""

import copy
import math

import pytest
import torch
from torch import nn

import headwise as hw
from headwise.errors import ArgumentError
from tests.watching import families


class Two(nn.Module):
    """Two layers of unequal heads, with a residual and a nonlinearity between them."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.first = hw.MultiHeadAttention(12, 3).double()
        self.second = hw.MultiHeadAttention(12, 2).double()
        self.runs = 0

    def forward(self, x, scale=1.0):
        self.runs += 1
        return self.second(x + self.first(x).tanh() * scale)


def given(seed=0, batch=2):
    return torch.randn(batch, 5, 12, generator=torch.Generator().manual_seed(seed)).double()


def metric(out):
    return out[0, 1, 3] + out.square().mean()


def without(model, layer, head, count):
    """The same model with the columns of a head in the output projection as zeros."""
    other = copy.deepcopy(model)
    part = getattr(other, layer)
    part.out_proj.weight.data.unflatten(1, (count, -1))[:, head] = 0
    return other


def test_a_measured_effect_is_that_of_the_head_taken_out_by_hand():
    model, x = Two(), given()
    effects = hw.head_effects(model, x, metric)
    assert (effects.names, effects.heads, effects.by) == (("first", "second"), (3, 2), "zero")
    base = metric(model(x)).item()
    assert effects.base == pytest.approx(base, abs=1e-12)
    for n, (layer, count) in enumerate((("first", 3), ("second", 2))):
        for head in range(count):
            wanted = metric(without(model, layer, head, count)(x)).item() - base
            assert float(effects.measured[n, head]) == pytest.approx(wanted, abs=1e-12)
    assert math.isnan(effects.measured[1, 2])
    assert math.isnan(effects.estimated[1, 2])


@pytest.mark.parametrize("by", ["zero", "mean", "patch"])
def test_estimates_are_the_slope_of_a_small_part_of_the_change(by):
    model, x = Two(), given()
    with torch.no_grad(), hw.watch(model) as reference:
        model(given(seed=1))
    effects = hw.head_effects(model, x, metric, by=by, reference=reference, measure=False)
    assert effects.measured is None
    share = 1e-6
    with torch.no_grad(), hw.watch(model) as seen:
        base = float(metric(model(x)))
    for n, name in enumerate(effects.names):
        (outputs,), (others,) = seen.outputs(name), reference.outputs(name)
        to = {"zero": torch.zeros_like(outputs), "mean": others.mean(dim=(0, 2))[None, :, None], "patch": others}[by]
        for head in range(effects.heads[n]):
            moved = (outputs + share * (to - outputs)).clone()
            with torch.no_grad(), hw.watch(model) as target:
                model(x)
            # the outputs to patch from: those of the run, moved a little
            target.outputs = lambda _, moved=moved: [moved]
            with torch.no_grad(), hw.intervene(model) as edits:
                edits[name].output(target, heads=head)
                slope = (float(metric(model(x))) - base) / share
            assert float(effects.estimated[n, head]) == pytest.approx(slope, abs=2e-5)


@pytest.mark.parametrize("by", ["mean", "patch"])
def test_effects_by_a_reference_are_those_of_its_edits(by):
    model, x = Two(), given()
    with torch.no_grad(), hw.watch(model) as reference:
        model(given(seed=1))
    effects = hw.head_effects(model, {"x": x, "scale": 0.5}, metric, by=by, reference=reference, estimate=False)
    base = metric(model(x, 0.5)).item()
    with torch.no_grad(), hw.intervene(model) as edits:
        target = edits.find("second")
        target.mean(1, over=reference) if by == "mean" else target.output(reference, 1)
        wanted = float(metric(model(x, 0.5))) - base
    assert float(effects.measured[1, 1]) == pytest.approx(wanted, abs=1e-12)
    assert effects.estimated is None


def test_means_of_the_run_itself_need_no_reference():
    model, x = Two(), given()
    with torch.no_grad(), hw.watch(model) as seen:
        model(x)
    wanted = hw.head_effects(model, x, metric, by="mean", reference=seen)
    effects = hw.head_effects(model, x, metric, by="mean")
    torch.testing.assert_close(effects.measured, wanted.measured, equal_nan=True)
    torch.testing.assert_close(effects.estimated, wanted.estimated, equal_nan=True)


class Twice(nn.Module):
    """One layer that runs twice."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.layer = hw.MultiHeadAttention(12, 3).double()

    def forward(self, x):
        return self.layer(self.layer(x).tanh() + x)


def test_calls_of_a_layer_that_runs_twice_are_patched_from_those_of_the_other_run():
    model, x = Twice(), given()
    with torch.no_grad(), hw.watch(model) as seen:
        model(x)
    effects = hw.head_effects(model, x, metric, by="patch", reference=seen)
    torch.testing.assert_close(effects.measured, torch.zeros(1, 3).double(), rtol=0, atol=1e-12)
    torch.testing.assert_close(effects.estimated, torch.zeros(1, 3).double(), rtol=0, atol=1e-12)


def test_a_frozen_model_of_token_ids_has_estimates_of_every_head():
    model = families.build("bert", "sdpa").double().requires_grad_(False)
    inputs = families.FAMILIES["bert"].inputs()
    effects = hw.head_effects(model, inputs, lambda out: out.last_hidden_state[0, 2, 3])
    assert effects.measured.shape == effects.estimated.shape == (2, 4)
    # the last layer's norm is all that bends its effects
    ranks = torch.corrcoef(torch.stack([effects.measured.flatten(), effects.estimated.flatten()]))
    assert float(ranks[0, 1]) > 0.5
    assert all(parameter.grad is None for parameter in model.parameters())


class Interrupted(KeyboardInterrupt):
    pass


def test_a_run_goes_on_from_its_file_with_the_same_numbers(tmp_path):
    model, x, file = Two(), given(), tmp_path / "effects.json"
    whole = hw.head_effects(model, x, metric, estimate=False)
    count = 0

    def failing(out):
        nonlocal count
        count += 1
        if count == 4:
            raise Interrupted
        return metric(out)

    with pytest.raises(Interrupted):
        hw.head_effects(model, x, failing, estimate=False, file=file)
    before = model.runs
    again = hw.head_effects(model, x, metric, estimate=False, file=file)
    # the base, and three heads of five
    assert model.runs - before == 4
    torch.testing.assert_close(again.measured, whole.measured, equal_nan=True)
    with pytest.raises(ArgumentError, match=r"is of another run: its metric is .* by 'zero' over 2 layers"):
        hw.head_effects(model, 2 * x, metric, estimate=False, file=file)
    runs = []
    for seed in (1, 2):
        with torch.no_grad(), hw.watch(model) as reference:
            model(given(seed=seed))
        runs.append(reference)
    patched = tmp_path / "patched.json"
    hw.head_effects(model, x, metric, by="patch", reference=runs[0], estimate=False, file=patched)
    with pytest.raises(ArgumentError, match="is of another reference run"):
        hw.head_effects(model, x, metric, by="patch", reference=runs[1], estimate=False, file=patched)
    file.write_text("{}")
    with pytest.raises(ArgumentError, match="holds no effects of heads"):
        hw.head_effects(model, x, metric, estimate=False, file=file)


def test_the_largest_come_first_and_a_table_is_read_back_as_plain_values():
    effects = hw.head_effects(Two(), given(), metric)
    top = effects.top(5)
    assert [abs(row.measured) for row in top] == sorted((abs(row.measured) for row in top), reverse=True)
    assert {(row.name, row.head) for row in top} == set(effects.places())
    kept = effects.to_dict()
    assert [row["measured"] for row in kept["effects"]] == [
        *effects.measured[0].tolist(),
        *effects.measured[1, :2].tolist(),
    ]
    assert str(effects).splitlines()[0].startswith("2 layers, 5 heads, by zero: the metric is ")
    assert effects.top(0) == []


def test_a_picture_has_a_square_for_every_head():
    effects = hw.head_effects(Two(), given(), metric)
    ax = effects.plot()
    assert ax.images[0].get_array().shape == (2, 3)
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["first", "second"]


REFUSED = [
    ({"by": "half"}, r"by must be .* but 'half' came"),
    ({"by": "patch"}, r'by="patch" needs reference='),
    ({"measure": False, "estimate": False}, "measures or estimates"),
    ({"metric": lambda out: out}, r"metric must give one number, but gave \(2, 5, 12\)"),
    ({"metric": lambda out: out.sum().item()}, r"a tensor with a gradient for an estimate, but gave float"),
]


@pytest.mark.parametrize(("options", "sentence"), REFUSED)
def test_what_cannot_be_answered_is_refused_in_one_sentence(options, sentence):
    asked = {"metric": metric, **options}
    with pytest.raises(ArgumentError, match=sentence):
        hw.head_effects(Two(), given(), **asked)


def test_a_model_without_attention_is_refused():
    with pytest.raises(ArgumentError, match="none was: it has none"):
        hw.head_effects(nn.Linear(12, 12), given().float(), metric)
