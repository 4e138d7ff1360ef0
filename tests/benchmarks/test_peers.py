"""Each peer gets our weights and must give our numbers; one that is missing or does not run is one line."""

import sys
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import headwise as hw
from benchmarks import peer_code, peers
from benchmarks.harness import QUICK, Absent, NotMeasuredError, WrongNumbersError, measure
from benchmarks.layer import Sizes
from benchmarks.peer_code import Built
from benchmarks.peers import PEERS, Peer, beside

SMALL = Sizes(B=2, L=7, E=48, H=3)
BY_NAME = {peer.name: peer for peer in PEERS}
UNCOMPILED = [name for name, peer in BY_NAME.items() if not peer.is_compiled]
KINDS = {
    "float32": {"dtype": torch.float32},
    "bfloat16": {"dtype": torch.bfloat16},
    "backward": {"has_backward": True},
}
BY_HAND, LLAMA_LIKE = BY_NAME["SDPA by hand"], Peer("a decoder", peer_code.by_hand, has_bias=False, is_decoder=True)


def is_here(peer):
    return not peer.package or find_spec(peer.package.replace("-", "_")) is not None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", UNCOMPILED)
def test_a_peer_gives_our_numbers_or_is_not_installed(name, kind):
    peer, found = BY_NAME[name], beside(BY_NAME[name], SMALL, **KINDS[kind])
    if is_here(peer):
        assert found.check() is None
        assert (found.beside, found.is_weighed) == (peer.label, True)
    else:
        assert found == Absent(found.name, name, str(SMALL), f"not installed: pip install {peer.package}")


def test_every_gradient_is_asked_for_on_both_sides():
    case = beside(BY_HAND, SMALL, has_backward=True)
    # the output, the gradient of x, and those of four weights and four biases
    assert [len(side()) for side in (case.ours, case.theirs)] == [10, 10]


def test_flex_attention_is_called_where_it_is_compiled(monkeypatch):
    compiled = []

    def compile_nothing(function, *, dynamic):
        compiled.append((function.__name__, dynamic))
        return F.scaled_dot_product_attention

    monkeypatch.setattr(torch, "compile", compile_nothing)
    assert beside(BY_NAME["FlexAttention compiled"], SMALL).check() is None
    assert compiled == [("flex_attention", False)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_layer_of_ours_is_refused(kind, monkeypatch):
    right = hw.MultiHeadAttention.forward
    monkeypatch.setattr(
        hw.MultiHeadAttention, "forward", lambda self, *inputs, **rules: right(self, *inputs, **rules) * 1.1
    )
    with pytest.raises(WrongNumbersError, match="ours is wrong in tensor 0"):
        beside(BY_HAND, SMALL, **KINDS[kind]).check()


def changed(change):
    """A peer that calls itself right and then changes what it gives."""

    def build(at, weights, dtype):
        module, call = peer_code.by_hand(at, weights, dtype)
        return Built(module, lambda x: change(call(x)))

    return Peer("changed", build)


def test_a_wrong_peer_is_refused():
    assert beside(changed(lambda out: out), SMALL, has_backward=True).check() is None
    with pytest.raises(WrongNumbersError, match="theirs is wrong in tensor 0"):
        beside(changed(lambda out: out * 1.01), SMALL).check()
    with pytest.raises(WrongNumbersError, match="theirs is wrong in tensor 1"):
        beside(changed(lambda out: 2 * out - out.detach()), SMALL, has_backward=True).check()


@pytest.mark.parametrize("bias", [0, 1, 2, 3])
def test_a_peer_that_forgets_a_bias_is_refused(bias):
    # that of the keys is not seen in the output, and only the gradients of parameters, which differ, would tell
    def build(at, weights, dtype):
        W, b, W_out, b_out = (t.clone() for t in weights)
        (*b.chunk(3), b_out)[bias].zero_()
        return peer_code.by_hand(at, (W, b, W_out, b_out), dtype)

    case = beside(Peer("forgetful", build), SMALL)
    if bias == 1:
        assert case.check() is None
    else:
        with pytest.raises(WrongNumbersError, match="theirs is wrong in tensor 0"):
            case.check()


def test_a_decoder_is_causal_and_rotary_on_our_side_and_in_the_definition():
    # by hand it is neither, and so it is refused
    with pytest.raises(WrongNumbersError, match="theirs is wrong in tensor 0"):
        beside(LLAMA_LIKE, SMALL).check()


@pytest.mark.parametrize("missing", ["Rotary", "causal"])
def test_our_layer_without_what_makes_it_a_decoder_is_refused(missing, monkeypatch):
    monkeypatch.setattr(hw, missing, lambda: None)
    with pytest.raises(WrongNumbersError, match="ours is wrong in tensor 0"):
        beside(LLAMA_LIKE, SMALL).check()


def test_a_peer_that_is_not_installed_is_one_line():
    found = beside(Peer("a peer", peer_code.by_hand, "no-such-package-of-attention"), SMALL)
    line = "not installed: pip install no-such-package-of-attention"
    assert found == Absent("forward", "a peer", "B=2 L=7 E=48 H=3", line)


def test_a_peer_is_named_with_the_version_of_its_package():
    assert Peer("torch itself", peer_code.by_hand, "torch").label.startswith("torch itself 2.")
    assert BY_HAND.label == "SDPA by hand"


def test_keras_on_another_backend_is_one_line(monkeypatch):
    keras = SimpleNamespace(backend=SimpleNamespace(backend=lambda: "jax"), layers=None)
    monkeypatch.setitem(sys.modules, "keras", keras)
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    monkeypatch.setattr(peers, "version", lambda package: "3.0")
    found = beside(BY_NAME["Keras on torch"], SMALL)
    assert (found.beside, found.reason) == ("Keras on torch 3.0", "keras runs on jax: set KERAS_BACKEND=torch")


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (RuntimeError("no compiler is found\nat line 3"), "it does not run here, no compiler is found$"),
        (NotImplementedError("no such head size: 5"), "it does not run here, no such head size: 5$"),
        (NotImplementedError(), "it does not run here, NotImplementedError$"),
        (RuntimeError("x" * 1000), "it does not run here, x{160}$"),
    ],
    ids=["compiler", "flex", "silent", "long"],
)
def test_a_peer_that_cannot_be_compiled_is_not_measured(error, sentence):
    def fails(x):
        raise error

    peer = Peer("refused", lambda at, weights, dtype: Built(nn.Identity(), fails), is_compiled=True)
    with pytest.raises(NotMeasuredError, match=sentence):
        measure(beside(peer, SMALL), QUICK)


def test_a_peer_that_is_not_compiled_may_not_fail():
    def fails(x):
        raise RuntimeError("a fault of 3")

    peer = Peer("broken", lambda at, weights, dtype: Built(nn.Identity(), fails))
    with pytest.raises(RuntimeError, match="a fault of 3"):
        beside(peer, SMALL).check()


@pytest.mark.parametrize("has_backward", [False, True])
def test_both_modules_are_in_training_where_gradients_are_asked_for(has_backward):
    modules = []

    def build(at, weights, dtype):
        modules.append(peer_code.by_hand(at, weights, dtype))
        return modules[-1]

    beside(Peer("seen", build), SMALL, has_backward=has_backward)
    assert modules[0].module.training is has_backward


def test_the_group_takes_every_peer_at_every_length_three_ways(monkeypatch):
    monkeypatch.setattr(peers, "PEERS", (BY_HAND, BY_NAME["Annotated style"]))
    monkeypatch.setattr(peers, "LENGTHS", (5, 7))
    monkeypatch.setattr(peers, "Sizes", lambda B, L: Sizes(B, L, E=48, H=3))
    cases = list(peers.peers())
    assert [case.check() for case in cases] == [None] * 12
    assert len({(case.name, case.beside, case.shape, case.dtype) for case in cases}) == 12
    assert {case.shape for case in cases if case.is_long} == {"B=4 L=7 E=48 H=3"}
