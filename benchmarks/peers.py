"""The layer beside other people's: the same weights, the same numbers, then time and peak memory."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

import torch
from torch import Tensor

import headwise as hw
from benchmarks import peer_code
from benchmarks.harness import Absent, Case, Cases, NotMeasuredError, Tensors, same_numbers
from benchmarks.layer import Sizes, definition, differentiated, inputs, load, weights_of
from benchmarks.layer import torch_layer as fresh_layer
from benchmarks.peer_code import Built

LENGTHS = (128, 512, 2048)


@dataclass(frozen=True)
class Peer:
    """A peer and how it is built.

    package: what pip installs, "": nothing beyond torch. has_bias: of its four projections. is_decoder: it is causal
    and rotary, as a decoder's attention is; else neither. is_compiled: it is compiled, which may be refused.
    """

    name: str
    build: Callable[[Sizes, Tensors, torch.dtype], Built]
    package: str = ""
    has_bias: bool = True
    is_decoder: bool = False
    is_compiled: bool = False

    @property
    def label(self) -> str:
        """Its name and, where a package, its version."""
        return f"{self.name} {version(self.package)}" if self.package else self.name


PEERS = (
    Peer("SDPA by hand", peer_code.by_hand),
    Peer("nn.MultiheadAttention", peer_code.torch_layer),
    Peer("x-transformers", peer_code.x_transformers, "x-transformers", has_bias=False),
    Peer("Keras on torch", peer_code.keras, "keras"),
    Peer("HF BERT eager", peer_code.bert("eager"), "transformers"),
    Peer("HF BERT sdpa", peer_code.bert("sdpa"), "transformers"),
    Peer("HF Llama eager", peer_code.llama("eager"), "transformers", has_bias=False, is_decoder=True),
    Peer("HF Llama sdpa", peer_code.llama("sdpa"), "transformers", has_bias=False, is_decoder=True),
    Peer("FlexAttention compiled", peer_code.flex, is_compiled=True),
    Peer("d2l style", peer_code.folded_heads),
    Peer("Annotated style", peer_code.textbook),
)


def peers() -> Cases:
    """Forward in float32 and bfloat16, and forward and backward, of self-attention."""
    for L in LENGTHS:
        at = Sizes(4, L)
        for dtype, has_backward in ((torch.float32, False), (torch.bfloat16, False), (torch.float32, True)):
            for peer in PEERS:
                yield beside(peer, at, dtype, has_backward=has_backward)


def beside(peer: Peer, at: Sizes, dtype: torch.dtype = torch.float32, *, has_backward: bool = False) -> Case | Absent:
    """Our layer and a peer with its weights; Absent where the peer is not installed, or does not run here.

    Forward and backward go to the gradients of the input, which are compared, and of every parameter.
    """
    name = "f+b" if has_backward else "forward"
    try:
        label = peer.label
    except PackageNotFoundError:
        return Absent(name, peer.name, str(at), f"not installed: pip install {peer.package}")
    x, weights, weight_of_out = drawn(at, has_bias=peer.has_bias)
    x = x.to(dtype).requires_grad_(has_backward)
    weight = weight_of_out.to(dtype) if has_backward else None
    layer, mask = our_layer(peer, at, weights, dtype), hw.causal() if peer.is_decoder else None
    try:
        built = peer.build(at, weights, dtype)
    except NotMeasuredError as error:
        return Absent(name, label, str(at), str(error))
    theirs, ours = (runs(each, x, weight) for each in (built, Built(layer, lambda x: layer(x, mask=mask))))

    def defined(wanted: torch.dtype) -> Tensors:
        return defined_once(at, peer.has_bias, peer.is_decoder, has_backward, dtype, wanted)

    def compared(run: Callable[[], Tensors]) -> Callable[[], Tensors]:
        return lambda: run()[: 1 + has_backward]

    same = same_numbers(compared(ours), compared(theirs), defined, dtype)

    def check() -> None:
        if peer.is_compiled:
            compile_now(theirs)
        same()

    return Case(
        name, label, str(at), str(dtype).removeprefix("torch."), ours, theirs, check, is_weighed=True,
        is_long=at.L > LENGTHS[0],
    )  # fmt: skip


def drawn(at: Sizes, *, has_bias: bool) -> tuple[Tensor, Tensors, Tensor]:
    """x, the packed weights, and a weight for the output in a loss: the same each time."""
    torch.manual_seed(0)
    weights = weights_of(fresh_layer(at))
    # a layer without biases is one whose biases are 0
    weights = tuple(t if has_bias or t.ndim > 1 else torch.zeros_like(t) for t in weights)
    return inputs(at), weights, inputs(at)


# peers of one kind are held against the same numbers, which take longer than most of them
@functools.lru_cache(maxsize=12)
def defined_once(
    at: Sizes, has_bias: bool, is_decoder: bool, has_backward: bool, dtype: torch.dtype, wanted: torch.dtype
) -> Tensors:
    """Output, and gradient of x, of what `drawn` gives, rounded to dtype and computed plainly in the dtype wanted."""
    x, weights, weight_of_out = drawn(at, has_bias=has_bias)
    rounded = tuple(t.to(dtype) for t in weights)
    turn = peer_code.turned if is_decoder else None
    allowed = torch.ones(at.L, at.L, dtype=torch.bool).tril() if is_decoder else None
    weight = weight_of_out.to(dtype) if has_backward else None
    found = definition(x.to(dtype), rounded, at.H, wanted, weight_of_out=weight, turn=turn, allowed=allowed)
    return found[: 1 + has_backward]


def runs(built: Built, x: Tensor, weight_of_out: Tensor | None) -> Callable[[], Tensors]:
    """A forward of x in eval; given a weight of the output, one in training and its gradients, that of x first."""
    built.module.train(weight_of_out is not None)
    parameters = [p for p in built.module.parameters() if p.requires_grad]

    def run() -> Tensors:
        if weight_of_out is not None:
            return differentiated(built.call(x), [x, *parameters], weight_of_out)
        with torch.no_grad():
            return (built.call(x),)

    return run


def compile_now(run: Callable[[], object]) -> None:
    """Run what compiles at its first call; NotMeasuredError where the compiler refuses."""
    try:
        run()
    # torch's compilers and FlexAttention itself refuse with these
    except (RuntimeError, NotImplementedError) as error:
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise NotMeasuredError(f"it does not run here, {said[:160]}") from error


def our_layer(peer: Peer, at: Sizes, weights: Tensors, dtype: torch.dtype) -> hw.MultiHeadAttention:
    """Our layer with a peer's weights and its kind of positions."""
    position = hw.Rotary() if peer.is_decoder else None
    layer = hw.MultiHeadAttention(at.E, at.H, bias=peer.has_bias, position=position)
    load(layer, weights)
    return layer.to(dtype)
