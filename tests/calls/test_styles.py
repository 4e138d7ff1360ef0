"""For attention as strangers write it, a call is found that runs, with the roles that the code means."""

import dataclasses
import inspect
import time

import pytest
import torch
from torch import nn

from headwise.calls.finder import find
from tests.calls.styles import language, odd, textbook, vision

FILES = (textbook, language, vision, odd)
HELPERS = {"exists", "default"}
TARGETS = [
    pytest.param(target, vars(file), id=f"{file.__name__.split('.')[-1]}.{name}")
    for file in FILES
    for name, target in list(vars(file).items())
    if getattr(target, "__module__", "") == file.__name__
    and name not in HELPERS
    and not dataclasses.is_dataclass(target)
    and (inspect.isclass(target) or inspect.isfunction(target))
]
# three times what it takes on a machine that does nothing else
SECONDS = 4.5


@pytest.mark.parametrize(("target", "namespace"), TARGETS)
def test_a_call_is_found_that_runs_with_other_sizes_in_each_probe(target, namespace):
    start = time.thread_time()
    found = find(target, namespace=namespace)
    assert time.thread_time() - start < SECONDS
    assert found.plans
    for plan in found.plans:
        for probe in range(2):
            sizes = plan.sizes(probe)
            args, options = plan.arguments(sizes)
            with torch.no_grad():
                out = plan.build(sizes)(*args, **options)
            first = out[0] if isinstance(out, tuple) else out
            assert torch.isfinite(first).all()


def best(target, file):
    return find(target, namespace=vars(file)).plans[0]


def symbols(plan):
    return {each.name: each.equals for each in plan.symbols}


@pytest.mark.parametrize(
    ("target", "file", "init"),
    [
        (textbook.AladdinPersson, textbook, {"embed_size": "H*d", "heads": "H"}),
        (textbook.PaperMultiHead, textbook, {"n_head": "H", "d_model": "D", "d_k": "d", "d_v": "dv", "dropout": 0.0}),
        (textbook.Bloem, textbook, {"k": "D", "heads": "H"}),
        (vision.LucidAttention, vision, {"dim": "D", "heads": "H", "dim_head": "d"}),
        (vision.SetMAB, vision, {"dim_Q": "dim_Q", "dim_K": "dim_K", "dim_V": "H*d", "num_heads": "H"}),
        (odd.Linformer, odd, {"dim": "H*d", "seq_len": "L", "heads": "H"}),
        (language.GroupedRotary, language, {"hidden_size": "H*d", "num_heads": "H", "num_kv_heads": "Hkv"}),
        (vision.LocalWindows, vision, {"dim": "H*d", "heads": "H", "window_size": "window_size"}),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_a_constructor_is_given_what_its_parameters_mean(target, file, init):
    assert best(target, file).init == init


def test_a_width_that_the_heads_divide_is_derived_and_one_that_they_do_not_is_free():
    assert symbols(best(textbook.AladdinPersson, textbook))["D"] == "H*d"
    assert symbols(best(vision.LucidAttention, vision))["D"] == ""
    assert symbols(best(language.GroupedRotary, language))["H"] == "g*Hkv"


def test_a_head_width_that_is_rotated_in_pairs_is_even():
    assert {each.name: each.even for each in best(language.OwnRotary, language).symbols}["d"]
    assert not {each.name: each.even for each in best(vision.LucidAttention, vision).symbols}["d"]


class Halves(nn.Module):
    """Half a head is turned in pairs."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.half, self.q = heads, dim // heads // 2, nn.Linear(dim, dim)
        self.register_buffer("turn", torch.arange(0, self.half, 2) / self.half)

    def forward(self, x):
        q = self.q(x).view(*x.shape[:2], 2 * self.heads, self.half).transpose(1, 2)
        a, b = q[..., 0::2] * self.turn.cos(), q[..., 1::2] * self.turn.sin()
        q = torch.stack((a - b, a + b), -1).flatten(-2)
        return ((q @ q.mT).softmax(-1) @ q).transpose(1, 2).flatten(2)


def test_half_a_head_that_is_rotated_in_pairs_is_even():
    (plan,) = find(Halves, namespace=globals()).plans
    assert all(plan.sizes(probe)["d"] % 4 == 0 for probe in range(3))
    # no size is the same in all runs
    assert len({plan.sizes(probe)["H"] for probe in range(3)}) > 1


@pytest.mark.parametrize(
    ("target", "file", "call"),
    [
        (vision.SequenceFirst, vision, {"query": ["L", "B", "D"]}),
        (vision.SpatialSelf, vision, {"x": ["B", "D", "h", "w"]}),
        (odd.unbatched, odd, {"Q": ["L", "d"], "K": ["S", "d"], "V": ["S", "dv"]}),
        (odd.heads_last, odd, {"q": ["B", "L", "H", "d"], "k": ["B", "S", "H", "d"], "v": ["B", "S", "H", "dv"]}),
        (textbook.RaschkaSimple, textbook, {"x": ["L", "d_in"]}),
        (language.GPT, language, {"idx": {"_ids": ["B", "L"], "below": "vocab_size"}}),
        (vision.Perceiver, vision, {"x": ["B", "S", "D"], "latents": ["B", "L", "D"]}),
        (textbook.BahdanauAttention, textbook, {"query": ["B", "1", "D"], "keys": ["B", "S", "D"]}),
        (textbook.Seq2SeqAttention, textbook, {"hidden": ["B", "dec_hid_dim"], "encoder_outputs": ["S", "B", "2*D"]}),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_inputs_have_the_layout_that_the_code_reads(target, file, call):
    plan = best(target, file)
    assert {name: value for name, value in plan.call.items() if not name.startswith("_")} == call


@pytest.mark.parametrize(
    ("target", "file", "argument", "means", "shape"),
    [
        (textbook.AladdinPersson, textbook, "mask", "attend", ["B", "1", "L", "S"]),
        (textbook.PaperMultiHead, textbook, "mask", "attend", ["B", "L", "S"]),
        (textbook.D2lMultiHead, textbook, "valid_lens", "lengths", ["B"]),
        (language.T5Attention, language, "mask", "additive", ["B", "1", "L", "S"]),
        (odd.KvPair, odd, "memory_mask", "blocked", ["B", "S"]),
        (odd.KerasLike, odd, "attention_mask", "attend", ["B", "L", "S"]),
        (vision.DiffusersCross, vision, "mask", "attend", ["B", "S"]),
        (vision.DetrLayer, vision, "src_mask", "blocked", ["L", "L"]),
        (odd.scaled_dot_product, odd, "attn_mask", "attend", ["L", "S"]),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_a_mask_has_the_polarity_and_the_shape_that_the_code_gives_it(target, file, argument, means, shape):
    plan = best(target, file)
    assert plan.mask == argument
    assert plan.call["_mask"] == {"argument": argument, "means": means, "shape": shape}
