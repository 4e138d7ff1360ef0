"""Effect passes: several heads in one pass give what each gives by itself, and where copies mix they are refused."""

import json
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
    assert hw.head_effects(model, inputs, read, estimate=False).batch > 3


@pytest.mark.parametrize("by", ["mean", "patch"])
@pytest.mark.parametrize("kind", [Two, Twice])
def test_references_are_those_of_each_copy(kind, by):
    model, x = kind().eval(), given()
    with torch.no_grad(), hw.watch(model) as reference:
        model(given(seed=1))
    options = {"by": by, "reference": reference, "estimate": False}
    wanted = hw.head_effects(model, x, metric, batch=1, **options)
    assert_same(hw.head_effects(model, x, metric, batch=4, **options), wanted, model)


def test_a_pass_has_a_copy_for_each_head_and_an_unchanged_one(tmp_path):
    model, x, batches = Two().eval(), given(), []
    forward = model.forward
    model.forward = lambda x: (batches.append(len(x)), forward(x))[1]
    told, count = [], 0

    def failing(out):
        nonlocal count
        count += 1
        # the base, and the first pass: 2 heads, the unchanged copy, and the base once more
        if count == 6:
            raise Interrupted
        return metric(out)

    options = {"estimate": False, "batch": 2, "file": tmp_path / "e.json"}
    with pytest.raises(Interrupted):
        hw.head_effects(model, x, failing, **options)
    again = hw.head_effects(model, x, metric, progress=lambda key, values: told.append(values["done"]), **options)
    # the last head of five by itself
    assert batches == [2, 6, 6, 2, 6, 2]
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
        r"holds a tensor \(2, 2\), and \(8, 8\) for 4 copies",
    ),
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
    assert "the input of 400 tokens and 38400 bytes of output, 1 heads fit into 1024 tokens" in effects.alone
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
    monkeypatch.setattr("headwise.intervening.effect_passes.TOKENS", 30)
    batches, file = [], tmp_path / "e.json"

    def forward(inner, x):
        batches.append(len(x))
        if len(batches) == 4:
            # the first head by itself, after a second pass that failed
            raise Interrupted
        return inner(x) if len(batches) < 3 else inner(x) + x.mean()

    with pytest.raises(Interrupted):
        hw.head_effects(changed_by(forward), given(), metric, estimate=False, file=file)
    assert batches == [2, 6, 6, 2]
    assert all(row["measured"] is None for row in json.loads(file.read_text(encoding="utf-8"))["effects"])
