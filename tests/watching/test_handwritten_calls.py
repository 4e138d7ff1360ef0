"""Attention written by hand: its map is what the model computed, and the model runs as if nobody watched."""

import copy
import ctypes
import gc
import re
import weakref

import numpy as np
import pytest
import torch
from torch import nn

import headwise as hw
from headwise.errors import StaleMapError
from headwise.testing import assert_within_budget
from headwise.watching import watch
from tests.watching import styles
from tests.watching.styles import HELD, LAZY, B, E, H, L, Projected, S, split

STYLES = {**LAZY, **HELD, "masked once more": (styles.clipped_later, {"mask": styles.KEEP})}


def made(name, dtype=torch.float32):
    style, options = STYLES[name]
    torch.manual_seed(1)
    return Projected(style, **options).to(dtype)


def inputs(dtype=torch.float32):
    torch.manual_seed(3)
    return torch.randn(B, L, E, dtype=dtype), torch.randn(B, S, E, dtype=dtype)


def watched(model, *given, **options):
    """What a model has seen, its output compared with that of an unwatched run."""
    torch.manual_seed(2)
    wanted = model(*given)
    torch.manual_seed(2)
    with watch(model, **options) as seen:
        assert torch.equal(model(*given), wanted)
    return seen


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("name", STYLES)
def test_the_map_is_what_the_model_computed(name, mode):
    model = made(name)
    exact = copy.deepcopy(model).double()
    with mode():
        seen = watched(model, *inputs())
        torch.manual_seed(2)
        exact(*(t.double() for t in inputs()))
    assert dict(seen.unseen) == {}
    assert seen[""].dtype == torch.float32
    assert_within_budget(seen[""].dense(), exact.weights, model.weights)


@pytest.mark.parametrize("name", STYLES)
def test_scores_are_kept_only_where_queries_and_keys_are_not_proved(name):
    text = repr(watched(made(name), *inputs())[""])
    assert ("scores held: 0.0 MiB" in text) == (name in HELD)


@pytest.mark.parametrize("name", ["textbook", "masked by -inf", "capped", "floored", "additive"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_seen_too(name, dtype):
    model = made(name, dtype)
    m = watched(model, *inputs(dtype))[""]
    # the model rounds weights to its dtype
    assert float((m.dense() - model.weights.float()).abs().max()) <= 8 * torch.finfo(dtype).eps


@pytest.mark.parametrize("name", ["textbook", "folded", "floored", "additive"])
def test_every_statistic_and_a_file_come_of_both_kinds(name, tmp_path):
    model = made(name)
    m = watched(model, *inputs())[""]
    dense = m.dense()
    assert torch.allclose(m.received(), dense.sum(2))
    assert torch.allclose(m.entropy(), torch.special.entr(dense).sum(-1), atol=1e-6)
    assert torch.allclose(m.topk(2)[0], dense.topk(2).values)
    assert torch.allclose(m.mean_heads().dense(), dense.mean(1, keepdim=True))
    assert m.pooled(2, 3).shape == (*dense.shape[:2], 2, 3)
    assert torch.isfinite(m.max_logit()).all()
    assert m.distance().shape == dense.shape[:2]
    assert torch.allclose(m.logits[:].softmax(-1), dense, atol=1e-7)
    m.save(tmp_path / "map.safetensors")
    again = hw.AttentionMap.load(tmp_path / "map.safetensors")
    assert torch.equal(again.dense(), dense)
    assert ("scores held" in repr(again)) == (name in HELD)


@pytest.mark.parametrize("name", ["textbook", "tempered", "masked by -1e9", "clamped"])
def test_gradients_of_the_model_are_those_of_an_unwatched_run(name):
    grads = []
    for around in (False, True):
        model, given = made(name), inputs()
        if around:
            with watch(model):
                out = model(*given)
        else:
            out = model(*given)
        out.square().sum().backward()
        grads.append([p.grad for p in model.parameters() if p.grad is not None])
    assert grads[0]
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


@pytest.mark.parametrize("name", ["textbook", "clamped"])
def test_maps_lead_back_to_queries_and_keys_where_that_is_asked_for(name):
    model, given = made(name), inputs()
    with watch(model, grad=True) as seen:
        model(*given)
    seen[""].entropy().sum().backward()
    grads = model.q.weight.grad, model.k.weight.grad
    model.zero_grad()
    style, options = STYLES[name]
    weights = style(model, model.q(given[0]), model.k(given[1]), model.v(given[1]), **options)[1]
    torch.special.entr(weights).sum().backward()
    assert torch.allclose(grads[0], model.q.weight.grad, atol=1e-5)
    assert torch.allclose(grads[1], model.k.weight.grad, atol=1e-5)
    with watch(model) as seen:
        model(*given)
    assert not seen[""].entropy().requires_grad


@pytest.mark.parametrize("name", ["textbook", "clamped"])
def test_nothing_but_maps_is_kept_and_with_keep_nothing_at_all(name):
    refs = []

    class Spied(Projected):
        def forward(self, x, y):
            q = self.q(x)
            refs.append(weakref.ref(q))
            out, _ = self.attend(self, q, self.k(y), self.v(y))
            return self.out(out)

    model = Spied(STYLES[name][0])
    with torch.no_grad(), watch(model, keep=lambda m: m.entropy()) as seen:
        model(*inputs())
        gc.collect()
        assert refs[0]() is None
    assert seen[""].shape == (B, H, L)


class Changed(nn.Module):
    """Attention in which something is written that was read before."""

    def __init__(self, change):
        super().__init__()
        self.change, self.weights = change, None

    def forward(self, x):
        q, k = split(x).clone(), split(x).clone()
        scores = q @ k.mT
        scores = self.change(q, scores)
        weights = scores.softmax(-1)
        self.weights = weights.detach().clone()
        return weights @ k


CHANGES = {
    "queries": lambda q, scores: (q.mul_(2.0), scores)[1],
    "a view of the scores": lambda q, scores: (scores[..., 0].fill_(3.0), scores)[1],
    "scores given as out": lambda q, scores: torch.mul(scores.detach(), 3.0, out=torch.empty_like(scores)),
    "scores given as out in place": lambda q, scores: torch.mul(scores := scores.detach(), 3.0, out=scores),
    "scores by copy": lambda q, scores: scores.detach().copy_(scores.detach().flip(-1)),
}


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("name", CHANGES)
def test_what_is_written_on_the_way_is_in_the_map_as_the_model_had_it(name, mode):
    model = Changed(CHANGES[name])
    with mode():
        m = watched(model, inputs()[0])[""]
    assert torch.equal(m.dense(), model.weights)


class Late(nn.Module):
    """Attention in which something is written between the softmax and the product with the values."""

    def __init__(self, scores, change):
        super().__init__()
        self.scores, self.change, self.weights = scores, change, None

    def forward(self, x):
        q, k, v = split(x).clone(), split(x).clone(), split(x)
        scores = self.scores(q, k)
        weights = scores.softmax(-1)
        self.change(k, scores, weights)
        self.weights = weights.clone()
        return weights @ v


def product(q, k):
    return q @ k.mT / 2


def clamped_product(q, k):
    return product(q, k).clamp(max=1.0)


def numbers_at(tensor):
    """The numbers of a tensor by their address in memory, as foreign code has them."""
    return (ctypes.c_float * tensor.numel()).from_address(tensor.data_ptr())


# memory of a tensor in other hands, where no function of torch is heard that writes to it
LOANS = {
    "numpy": lambda t: t.detach().numpy().reshape(-1),
    "an array": lambda t: np.asarray(t.detach()).reshape(-1),
    "an address": lambda t: numbers_at(t.detach()),
}


def overwrite(numbers):
    # the second of 5 rows: those that prove a map are the first, the middle and the last
    numbers[L : 2 * L] = [0.25] * L


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad])
@pytest.mark.parametrize("name", LOANS)
def test_scores_that_are_written_by_others_are_in_the_map_as_the_model_had_them(name, mode):
    model = Changed(lambda _, scores: (overwrite(LOANS[name](scores)), scores)[1])
    with mode():
        m = watched(model, inputs()[0])[""]
    assert torch.equal(m.dense(), model.weights)


def test_an_array_of_scores_that_is_written_after_the_softmax_leaves_the_map_as_the_model_had_it():
    arrays = []
    model = Changed(lambda _, scores: (arrays.append(scores.detach().numpy()), scores)[1])
    seen = watched(model, inputs()[0])
    arrays[-1].fill(3.0)
    assert torch.equal(seen[""].dense(), model.weights)


@pytest.mark.parametrize("name", LOANS)
def test_weights_are_a_map_if_others_read_them_and_none_if_others_write_to_them(name):
    with torch.no_grad():
        read = watched(model := Late(product, lambda _k, _s, w: LOANS[name](w)), inputs()[0])
        written = watched(Late(product, lambda _k, _s, w: overwrite(LOANS[name](w))), inputs()[0])
    assert torch.allclose(read[""].dense(), model.weights, rtol=0, atol=torch.finfo(torch.float32).eps)
    assert list(written) == []
    assert "changed in memory that was lent, as by numpy()" in written.unseen[""]


# what is written to weights, and the name that the reason gives it
WRITES = {
    "one head": (lambda _k, _s, w: w[:, 0].zero_(), "zero"),
    "an assignment to one head": (lambda _k, _s, w: w[:, 0].fill_(0.5), "fill"),
    "the diagonal": (lambda _k, _s, w: torch.diagonal(w, dim1=-2, dim2=-1).fill_(0.0), "fill"),
    "a view of a view": (lambda _k, _s, w: w[0, 1][2].mul_(0.5), "mul"),
    "weights without their graph": (lambda _k, _s, w: w.detach()[..., 0].zero_(), "zero"),
    "the data": (lambda _k, _s, w: w.data[:, 1].__setitem__(0, 0.25), "setitem"),
    "other data": (lambda _k, _s, w: setattr(w, "data", w.data * 0.5), "set"),
    "a result given as out": (lambda _k, _s, w: torch.mul(w[:, 1], 0.5, out=w[:, 1]), "mul"),
    "a product given as out": (lambda k, _s, w: torch.matmul(k, k.mT, out=w), "matmul"),
    "by an activation": (lambda _k, _s, w: nn.Threshold(0.2, 0.0, inplace=True)(w[:, 0]), "threshold"),
    "by several at once": (lambda _k, _s, w: torch._foreach_mul_([w[:, 0], w[:, 1]], 0.5), "foreach_mul"),
}


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("name", WRITES)
def test_weights_that_are_written_through_a_view_are_no_map(name, mode):
    change, function = WRITES[name]
    with mode():
        seen = watched(Late(product, change), inputs()[0])
    assert list(seen) == []
    assert f"but {function} changes its weights before they meet the values" in seen.unseen[""]


def test_weights_that_are_written_where_no_function_is_heard_are_no_map():
    def change(_k, _s, weights):
        with torch._C.DisableTorchFunction():
            weights[:, 0].zero_()

    with torch.no_grad():
        seen = watched(Late(product, change), inputs()[0])
    assert list(seen) == []
    assert "but a write in place changes its weights before they meet the values" in seen.unseen[""]


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("is_training", [False, True])
def test_dropout_in_place_leaves_the_map_as_it_was(mode, is_training):
    class Dropped(nn.Module):
        def __init__(self):
            super().__init__()
            self.drop, self.weights = nn.Dropout(0.4, inplace=True), None

        def forward(self, x):
            weights = product(split(x), split(x)).softmax(-1)
            self.weights = weights.detach().clone()
            return self.drop(weights) @ split(x)

    model = Dropped().train(is_training)
    with mode():
        seen = watched(model, inputs()[0])
    assert torch.equal(seen[""].dense(), model.weights)


# what is written after the softmax, and how the map comes about
LATE = {
    "keys": (product, lambda k, _s, _w: k.zero_()),
    "a view of the keys": (product, lambda k, _s, _w: k[:, 0, 1].fill_(3.0)),
    "data of the keys": (product, lambda k, _s, _w: k.data.mul_(3.0)),
    "keys given as out": (product, lambda k, _s, _w: torch.mul(k, 3.0, out=k)),
    "scores of queries and keys": (product, lambda _k, s, _w: s.zero_()),
}


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("name", LATE)
def test_what_is_written_after_the_softmax_leaves_the_map_as_the_model_had_it(name, mode):
    model = Late(*LATE[name])
    with mode():
        seen = watched(model, inputs()[0])
    assert dict(seen.unseen) == {}
    assert torch.allclose(seen[""].dense(), model.weights, rtol=0, atol=torch.finfo(torch.float32).eps)


# where neither queries and keys nor scores are left as the softmax had them
LOST = {
    "scores": (clamped_product, lambda _k, s, _w: s.zero_()),
    "a view of the scores": (clamped_product, lambda _k, s, _w: s[:, 1].zero_()),
    "data of the scores": (clamped_product, lambda _k, s, _w: s.data.zero_()),
    "scores and keys": (product, lambda k, s, _w: (k.zero_(), s.zero_())),
}


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("name", LOST)
def test_scores_that_are_written_after_the_softmax_are_no_map(name, mode):
    with mode():
        seen = watched(Late(*LOST[name]), inputs()[0])
    assert list(seen) == []
    assert "changed in place before their product" in seen.unseen[""]


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("scores", [product, clamped_product])
def test_a_softmax_in_the_place_of_its_scores_is_seen_as_it_was(scores, mode):
    class Replaced(nn.Module):
        weights = None

        def forward(self, x):
            made = scores(split(x), split(x)).masked_fill(torch.arange(L) > 3, float("-inf"))
            torch.softmax(made, -1, out=made)
            self.weights = made.clone()
            return made @ split(x)

    model = Replaced()
    with mode():
        m = watched(model, inputs()[0])[""]
    assert torch.allclose(m.dense(), model.weights, rtol=0, atol=torch.finfo(torch.float32).eps)
    assert ("scores held" in repr(m)) == (scores is clamped_product)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_of_one_buffer_for_the_scores_of_all_heads_what_has_been_overwritten_is_listed(mode):
    class Buffered(nn.Module):
        weights = None

        def forward(self, x):
            q, buffer, made = split(x), torch.empty(B, L, L), []
            for h in range(H):
                torch.bmm(q[:, h], q[:, h].mT, out=buffer).clamp_(max=1.0)
                made.append(buffer.softmax(-1))
            self.weights = made
            return torch.stack([made[h] @ q[:, h] for h in range(H)])

    model = Buffered()
    with mode():
        seen = watched(model, inputs()[0])
    assert torch.equal(seen[""].dense()[:, 0], model.weights[-1])
    assert f"computes a softmax of its own over ({B}, {L}, {L}), but its scores have been changed" in seen.unseen[""]


def test_scores_that_are_written_after_the_call_are_refused_when_they_are_read():
    kept = []

    class Keeping(nn.Module):
        def forward(self, x):
            kept.append((split(x) @ split(x).mT).clamp(max=1.0))
            return kept[-1].softmax(-1) @ split(x)

    with torch.no_grad():
        m = watched(Keeping(), inputs()[0])[""]
    kept[-1].zero_()
    with pytest.raises(StaleMapError, match=re.escape(f"attn_bias ({B}, {H}, {L}, {L}) must stay as it was")):
        m.entropy()


@pytest.mark.parametrize("is_cleaned", [False, True])
def test_a_row_without_a_key_is_nan_as_in_the_model_or_zero_where_that_cleans_it(is_cleaned):
    class Rows(nn.Module):
        def forward(self, x):
            scores = (split(x) @ split(x).mT).masked_fill(torch.arange(L)[:, None] == 2, float("-inf"))
            weights = scores.softmax(-1)
            if is_cleaned:
                return weights.nan_to_num(0.0) @ split(x)
            return torch.nan_to_num(weights @ split(x))

    m = watched(Rows(), inputs()[0])[""]
    row = m[0, 1, 2]
    assert bool((row == 0).all()) if is_cleaned else bool(row.isnan().all())
    assert bool((m[0, 1, 3].sum() - 1).abs() < 1e-6)


def test_layers_names_calls_nested_watches_and_what_is_taken():
    model = nn.ModuleDict({"first": made("textbook"), "second": made("floored")})
    given = inputs()
    with watch(model) as outer, watch(model["first"]) as inner:
        model["first"](*given)
        model["second"](*given)
        model["second"](*given)
    assert [list(outer), list(inner)] == [["first", "second"], [""]]
    assert len(outer.calls("second")) == 2
    assert torch.equal(inner[""].dense(), outer["first"].dense())
    with watch(model, only="second") as seen:
        model["first"](*given)
        model["second"](*given)
    assert list(seen) == ["second"]
    assert dict(seen.unseen) == {}


def test_autocast_computes_in_half_and_so_does_the_map():
    model = made("textbook")
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        m = watched(model, *inputs())[""]
    assert float((m.dense() - model.weights.float()).abs().max()) <= 8 * torch.finfo(torch.bfloat16).eps
    assert m.logits[:].softmax(-1).shape == (B, H, L, S)


def test_compiled_parts_are_listed_and_tensors_of_a_transform_are_too():
    compiled = made("textbook")
    compiled.forward = torch.compile(compiled.forward, backend="eager")
    with torch.no_grad(), watch(compiled) as seen:
        compiled(*inputs())
    assert (list(seen), list(seen.unseen)) == ([], [""])

    class Mapped(nn.Module):
        def forward(self, x):
            return torch.vmap(lambda t: (t @ t.mT).softmax(-1) @ t)(x)

    with torch.no_grad():
        seen = watched(Mapped(), inputs()[0])
    assert list(seen) == []
    assert "torch.func transform" in seen.unseen[""]


def test_a_long_map_of_queries_and_keys_holds_no_square():
    length = 1024

    class Long(nn.Module):
        def forward(self, x):
            scores = (x @ x.mT / 8.0).masked_fill(torch.ones(length, length).tril() == 0, float("-inf"))
            return scores.softmax(-1) @ x

    with torch.no_grad():
        m = watched(Long(), torch.randn(1, length, 64))[""]
    call, _ = m.stored()
    numbers = sum(t.untyped_storage().nbytes() for t in (call.q, call.k))
    assert call.attn_bias is None
    assert numbers <= 2 * 4 * length * 64
