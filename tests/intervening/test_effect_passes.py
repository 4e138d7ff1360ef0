"""Effect passes: several heads in one pass give what each gives by itself, and where copies mix they are refused."""

import json
import math
import sys
from contextlib import contextmanager

import pytest
import torch
from torch import nn

import headwise as hw
from headwise.errors import ArgumentError, InputError
from headwise.intervening.head_outputs import PatchedOutput
from tests.intervening.test_head_effects import Interrupted, Twice, Two, given, metric
from tests.watching import families


class Sdpa(nn.Module):
    """Attention by F.scaled_dot_product_attention, of a batch and its padding."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        self.qkv, self.out = nn.Linear(12, 36), nn.Linear(12, 7)

    def forward(self, x, keep):
        q, k, v = (t.unflatten(-1, (3, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
        out = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=keep[:, None, None])
        return {"out": self.out(out.transpose(1, 2).flatten(2)), "length": 5, "cache": Cache()}


def encoder():
    torch.manual_seed(4)
    layer = nn.TransformerEncoderLayer(12, 4, dim_feedforward=17, batch_first=True, dtype=torch.float64)
    return nn.TransformerEncoder(layer, 2).eval(), (given(),), metric


def multi_head():
    torch.manual_seed(4)
    model = nn.MultiheadAttention(12, 3, batch_first=True, dtype=torch.float64).eval()
    return model, {"query": given(), "key": given(1), "value": given(2)}, lambda out: metric(out[0])


def sdpa():
    keep = torch.ones(2, 5).bool()
    keep[1, 3:] = False
    return Sdpa().double().eval(), {"x": given(), "keep": keep}, lambda out: metric(out["out"])


def family(name, implementation):
    # eager models compute their softmax in float32, whatever they are
    return (
        families.build(name, implementation),
        families.FAMILIES[name].inputs(),
        lambda out: metric(families.first(out)),
    )


MODELS = {
    "headwise": lambda: (Two().eval(), {"x": given(), "scale": 0.5}, metric),
    "sdpa": sdpa,
    "encoder": encoder,
    "nn.MultiheadAttention": multi_head,
    **{
        f"{name} {kind}": lambda name=name, kind=kind: family(name, kind)
        for name, kind in (
            ("bert", "sdpa"), ("bert", "eager"), ("llama", "sdpa"), ("gemma2", "eager"), ("t5", "eager"),
            ("whisper", "sdpa"), ("vit", "eager"),
        )
    },
}  # fmt: skip


def assert_same(effects, wanted, model):
    """Within the rounding that a pass allows an unchanged copy, of the metric."""
    eps = torch.finfo(next(model.parameters()).dtype).eps
    room = eps**0.75 * max(1.0, abs(wanted.base))
    torch.testing.assert_close(effects.measured, wanted.measured, rtol=0, atol=room, equal_nan=True)
    assert float(wanted.measured.nan_to_num(1.0).abs().min()) > room


@pytest.mark.needs("transformers")
@pytest.mark.parametrize("name", MODELS)
def test_several_heads_in_a_pass_have_the_effects_of_each_by_itself(name):
    model, inputs, read = MODELS[name]()
    wanted = hw.head_effects(model, inputs, read, estimate=False, batch=1)
    assert (wanted.batch, wanted.alone) == (1, "")
    # an odd size, so that a pass spans layers and the last is smaller
    effects = hw.head_effects(model, inputs, read, estimate=False, batch=3)
    assert effects.batch == 3
    assert_same(effects, wanted, model)
    effects = hw.head_effects(model, inputs, read, estimate=False)
    assert effects.batch == sum(effects.heads)


@pytest.mark.parametrize("by", ["mean", "patch"])
@pytest.mark.parametrize("kind", [Two, Twice])
def test_references_are_those_of_each_copy(kind, by):
    model, x = kind().eval(), given()
    with torch.no_grad(), hw.watch(model) as reference:
        model(given(seed=1))
    options = {"by": by, "reference": reference, "estimate": False}
    wanted = hw.head_effects(model, x, metric, batch=1, **options)
    assert_same(hw.head_effects(model, x, metric, batch=4, **options), wanted, model)


def test_a_pass_has_a_copy_for_each_head_between_two_unchanged_ones(tmp_path):
    model, x, batches = Two().eval(), given(), []
    forward = model.forward
    model.forward = lambda x: (batches.append(len(x)), forward(x))[1]
    told, count = [], 0

    def failing(out):
        nonlocal count
        count += 1
        # the base, and the first pass: 2 heads, the last unchanged copy, and the base once more
        if count == 6:
            raise Interrupted
        return metric(out)

    options = {"estimate": False, "batch": 2, "file": tmp_path / "e.json"}
    with pytest.raises(Interrupted):
        hw.head_effects(model, x, failing, **options)
    again = hw.head_effects(model, x, metric, progress=lambda key, values: told.append(values["done"]), **options)
    # one head of the first pass by itself, and the last head of five
    assert batches == [2, 8, 2, 8, 2, 8, 2, 2]
    assert told == [2, 4]
    assert_same(again, hw.head_effects(Two().eval(), x, metric, estimate=False, batch=1), model)


def changed_by(forward):
    model = Two().eval()
    inner = model.forward
    model.forward = lambda x: forward(inner, x)
    return model


class Cache:
    """What an output may hold beside its tensors."""

    size = 2.0


def with_norm():
    """A model whose norm takes its statistics of the batch in eval mode, too."""
    norm = nn.BatchNorm1d(12, affine=False, track_running_stats=False).double().eval()
    return changed_by(lambda inner, x: norm(inner(x).transpose(1, 2)).transpose(1, 2))


def keeping():
    """A model whose last hidden state is read elsewhere than in its output."""
    model = Two().eval()
    inner = model.forward

    def forward(x):
        model.state = inner(x)
        return model.state * 1.0

    model.forward = forward
    return model, lambda out: metric(model.state)


def hooked():
    model = Two().eval()
    model.second.register_forward_hook(lambda module, args, out: None)
    return model


class OneSampleError(Exception):
    """What a model of a user raises."""


def of_one_sample(x):
    if len(x) > 2:
        raise OneSampleError("one sample only")
    return x


def mixed_within(out):
    """Adds to each copy of 2 but the first and the last two the one after it."""
    return torch.cat([out[:2], out[2:-4] + out[4:-2], out[-4:]]) if len(out) > 6 else out


# a model, its input and metric, and why its heads are measured one at a time
MIXED = {
    "training": (lambda: (Two(), given(), metric), "is in training mode"),
    "hooks": (lambda: (hooked(), given(), metric), '"second" has forward hooks'),
    "statistics of the batch": (lambda: (with_norm(), given(), metric), "so the model mixes its batch"),
    "batch on another axis": (
        lambda: (changed_by(lambda inner, x: inner(x.transpose(0, 1)).transpose(0, 1)), given(), metric),
        "does not run on",
    ),
    "no batch": (lambda: (Two().eval(), given()[0], lambda out: out[1, 3]), "does not run on"),
    "a number of the whole batch": (
        lambda: (changed_by(lambda inner, x: inner(x).sum()), given(), lambda out: out), r"holds a tensor \(\)",
    ),
    "a product of the batch": (
        lambda: (changed_by(lambda inner, x: inner(x)[:, 0] @ inner(x)[:, 1].T), given(), lambda out: out[0, 1]),
        r"holds a tensor \(2, 2\), and \(10, 10\) for 5 copies",
    ),
    "earlier by later": (
        lambda: (changed_by(lambda inner, x: (y := inner(x)) + torch.cat([y[2:], y[:2] * 0])), given(), metric),
        "an unchanged first copy .* so the model mixes its batch",
    ),
    "a middle copy": (
        lambda: (changed_by(lambda inner, x: mixed_within(inner(x))), given(), metric),
        'does not run|the copy with head . of "first" changed gives .* so the model mixes its batch',
    ),
    "half precision": (
        lambda: (Two().eval().bfloat16(), given().bfloat16(), metric), "the output is torch.bfloat16, whose rounding",
    ),
    "half inside": (
        lambda: (changed_by(lambda inner, x: inner(x).double()).half(), given().half(), metric), '" is torch.float16',
    ),
    "a model's own exception": (
        lambda: (changed_by(lambda inner, x: inner(of_one_sample(x))), given(), metric), "one sample only",
    ),
    "a metric that writes": (lambda: (Two().eval(), given(), lambda out: metric(out.mul_(2))), "metric writes into"),
    "state": (lambda: (*[(m := keeping())[0], given(), m[1]],), "reads more than that"),
    "other inputs": (
        lambda: (changed_by(lambda inner, x: inner(x["x"])), ({"x": given(), "n": {1}},), metric), "hold a set",
    ),
    "two batches": (
        lambda: (changed_by(lambda inner, x: inner(x[0])), ((given(), given(batch=3)),), metric), r"are \[2, 3\]",
    ),
    "a metric of what is not split": (
        lambda: (changed_by(lambda inner, x: {"out": inner(x), "cache": Cache()}), given(),
                 lambda out: metric(out["out"]) * out["cache"].size),
        "metric reads a Cache",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MIXED)
def test_copies_that_cannot_be_told_apart_are_measured_alone_or_refused(name):
    make, reason = MIXED[name]
    effects = hw.head_effects(*make(), estimate=False)
    wanted = hw.head_effects(*make(), estimate=False, batch=1)
    assert effects.batch == 1
    assert torch.equal(effects.measured.nan_to_num(), wanted.measured.nan_to_num())
    with pytest.raises(ArgumentError, match=r"batch=3 heads cannot be measured in one pass: .*" + reason):
        hw.head_effects(*make(), estimate=False, batch=3)
    assert effects.alone


def test_a_long_input_is_measured_one_head_at_a_time_where_no_batch_is_asked_for():
    model, x = Two().eval(), torch.randn(2, 200, 12).double()
    effects = hw.head_effects(model, x, metric, estimate=False)
    assert effects.batch == 1
    assert "the input of 400 tokens and 38400 bytes of output, 0 heads fit into 1024 tokens" in effects.alone
    assert effects.to_dict()["batch"] == 1


def test_wrong_options_are_refused():
    with pytest.raises(ArgumentError, match=r"batch must be an integer >= 1.* but 0 came"):
        hw.head_effects(Two(), given(), metric, batch=0)
    with pytest.raises(InputError, match=r"one of en, zh, but came as fr"):
        hw.head_effects(Two(), given(), metric, lang="fr")


def test_the_bar_is_in_the_language_asked_for(monkeypatch):
    asked = []

    @contextmanager
    def bar(lang):
        asked.append(lang)
        yield lambda key, values: None

    # the name of the module is that of the function, too
    monkeypatch.setattr(sys.modules[hw.head_effects.__module__], "progress_bar", bar)
    for options in ({}, {"lang": "zh"}):
        hw.head_effects(Two().eval(), given(), metric, estimate=False, **options)
    assert asked == ["en", "zh"]


def test_a_restarted_patch_begins_with_the_first_call_of_its_run():
    model, x = Twice().eval(), given()
    with torch.no_grad(), hw.watch(model) as run:
        model(x)
    first, second = run.outputs("layer")
    patch = PatchedOutput(run, lambda _: "layer", "output()")
    arguments = (torch.zeros_like(first), torch.arange(3), torch.arange(5), 0)
    assert torch.equal(patch(*arguments), first)
    assert torch.equal(patch(*arguments), second)
    assert torch.equal(patch.restarted()(*arguments), first)
    with pytest.raises(ArgumentError, match="has 2 calls in the watched run, but this is one more"):
        patch(*arguments)


def test_a_file_forgets_the_passes_of_a_model_that_mixes_later(tmp_path, monkeypatch):
    monkeypatch.setattr("headwise.intervening.effect_passes.LEAST", 2)
    monkeypatch.setattr("headwise.intervening.effect_passes.TOKENS", 40)
    batches, file = [], tmp_path / "e.json"

    def forward(inner, x):
        batches.append(len(x))
        if len(batches) == 5:
            # the first head by itself, after a second pass that failed
            raise Interrupted
        return inner(x) if len(batches) < 4 else inner(x) + x.mean()

    with pytest.raises(Interrupted):
        hw.head_effects(changed_by(forward), given(), metric, estimate=False, file=file)
    assert batches == [2, 8, 2, 8, 2]
    assert all(row["measured"] is None for row in json.loads(file.read_text(encoding="utf-8"))["effects"])


def with_earlier(inner, x):
    """Each batch element takes what the one after it gives."""
    y = inner(x)
    return y + torch.cat([y[2:], torch.zeros_like(y[:2])])


def test_a_file_that_several_heads_a_pass_wrote_is_measured_again_where_copies_mix(tmp_path):
    file, model, x = tmp_path / "e.json", Two().eval(), given()
    hw.head_effects(model, x, metric, estimate=False, batch=3, file=file)
    kept = json.loads(file.read_text(encoding="utf-8"))
    assert kept["batch"] == 3
    assert [row["batch"] for row in kept["effects"]] == [3, 3, 3, 2, 2]
    # two heads are left, in whose pass the model mixes its batch
    for row in kept["effects"]:
        row["measured"] = 7.0 if row["name"] == "first" else None
    file.write_text(json.dumps(kept), encoding="utf-8")
    mixing = changed_by(lambda inner, x: with_earlier(inner, x) if len(x) > 2 else inner(x))
    with pytest.raises(ArgumentError, match=r"batch=2 heads .*mixes its batch"):
        hw.head_effects(mixing, x, metric, estimate=False, batch=2, file=file)
    rows = json.loads(file.read_text(encoding="utf-8"))["effects"]
    assert all(row["measured"] is None for row in rows)
    file.write_text(json.dumps(kept), encoding="utf-8")
    wanted = hw.head_effects(Two().eval(), x, metric, estimate=False, batch=1)
    for given_batch in (None, 1):
        file.write_text(json.dumps(kept), encoding="utf-8")
        effects = hw.head_effects(mixing, x, metric, estimate=False, batch=given_batch, file=file)
        assert torch.equal(effects.measured.nan_to_num(), wanted.measured.nan_to_num())
        assert effects.batch == json.loads(file.read_text(encoding="utf-8"))["batch"] == 1


def test_a_file_without_passes_of_several_heads_is_read(tmp_path):
    file, x = tmp_path / "e.json", given()
    effects = hw.head_effects(Two().eval(), x, metric, estimate=False, batch=1, file=file)
    kept = json.loads(file.read_text(encoding="utf-8"))
    for row in kept["effects"]:
        del row["batch"]
    file.write_text(json.dumps(kept), encoding="utf-8")
    told = []
    again = hw.head_effects(
        Two().eval(), x, metric, estimate=False, file=file, progress=lambda key, values: told.append(key)
    )
    assert not told
    assert torch.equal(again.measured.nan_to_num(), effects.measured.nan_to_num())
    assert (again.batch, again.alone) == (1, "no pass had more than one head left to measure")


def test_a_metric_of_nan_is_measured_in_any_batch():
    effects = hw.head_effects(Two().eval(), given(), lambda out: out[0, 0, 0] * math.nan, estimate=False, batch=3)
    assert (effects.batch, bool(effects.measured.isnan().all())) == (3, True)


def test_hooks_of_all_modules_meet_one_head_at_a_time():
    met = []
    hook = nn.modules.module.register_module_forward_hook(lambda module, args, out: met.append(len(args[0])))
    try:
        effects = hw.head_effects(Two().eval(), given(), metric, estimate=False)
    finally:
        hook.remove()
    assert effects.alone.startswith("forward hooks are registered for all modules")
    assert set(met) == {2}


class Plain(nn.Module):
    """Attention by F.scaled_dot_product_attention without children, which torch.fx can trace."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(12, 12, generator=torch.Generator().manual_seed(1)).double())

    def forward(self, x):
        q = (x @ self.weight).unflatten(-1, (3, 4)).transpose(1, 2)
        return nn.functional.scaled_dot_product_attention(q, q, q).transpose(1, 2).flatten(2)


def test_a_traced_layer_without_children_is_measured():
    wanted = hw.head_effects(nn.Sequential(Plain()).eval(), given(), metric, estimate=False)
    traced = nn.Sequential(torch.fx.symbolic_trace(Plain())).eval()
    assert torch.equal(hw.head_effects(traced, given(), metric, estimate=False).measured, wanted.measured)
