"""To which layer a cache and a memory belong: through copies, pickles, wrappers and compiled programs."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import headwise as hw
from headwise.errors import CacheError, ShapeError

E, B, L = 12, 2, 5
MAKE: dict[str, Callable[[hw.MultiHeadAttention], hw.KVCache]] = {
    "growing": lambda layer: layer.cache(),
    "static": lambda layer: layer.cache(length=2 * L, batch=B),
    "window": lambda layer: layer.cache(window=2 * L),
}


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


@pytest.fixture
def x() -> Tensor:
    return torch.randn(B, L, E)


def attended(layer: nn.Module, x: Tensor, cache: hw.KVCache) -> Tensor:
    """The outputs at the last two tokens, of which the ones before are in the cache, or come first."""
    if cache.seen == 0:
        layer(x[:, :3], mask=hw.causal(), cache=cache)
    return layer(x[:, 3:], mask=hw.causal(), cache=cache)


def layers(count: int, **options: Any) -> list[hw.MultiHeadAttention]:
    return [hw.MultiHeadAttention(E, 3, **options) for _ in range(count)]


@pytest.mark.parametrize("kind", MAKE)
def test_a_cache_of_another_layer_is_refused_and_stays_as_it_is(kind: str, x: Tensor) -> None:
    (mine, alike), other = layers(2), hw.MultiHeadAttention(E, 3, num_kv_heads=1, head_dim=6)
    cache = MAKE[kind](mine)
    mine(x[:, :3], mask=hw.causal(), cache=cache)
    same = r"the layer that made it, but another of the same widths \(embed_dim=12, num_heads=3, .*head_dim=4\) was"
    with pytest.raises(CacheError, match=f"a cache belongs to {same}"):
        attended(alike, x, cache)
    both = "of embed_dim=12, num_heads=3, num_kv_heads=3, head_dim=4, but one of .*num_kv_heads=1, head_dim=6 was given"
    with pytest.raises(CacheError, match=both):
        attended(other, x, cache)
    assert cache.seen == 3
    assert torch.allclose(attended(mine, x, cache), mine(x, mask=hw.causal())[:, 3:], atol=1e-6)


def test_a_memory_of_another_layer_is_refused(x: Tensor) -> None:
    mine, alike = layers(2)
    memory = mine.memory(x)
    picked = memory.reorder(torch.tensor([1, 0]))
    assert torch.equal(mine(x[[1, 0]], picked), mine(x[[1, 0]], x[[1, 0]]))
    for each in (memory, picked, copy.deepcopy(memory)):
        with pytest.raises(CacheError, match="a memory belongs to the layer that made it, but another of the same"):
            alike(x, each)
    # one that a transform has taken apart knows its sizes only
    bare = hw.Memory(memory.k, memory.v)
    assert torch.equal(alike(x, bare), alike(x, hw.Memory(memory.k, memory.v, None)))
    with pytest.raises(ShapeError, match=r"keys \(B, Hk=1, Lk, D=4\).* holds \(2, 3, 5, 4\) and \(2, 3, 5, 4\)"):
        hw.MultiHeadAttention(E, 3, num_kv_heads=1)(x, bare)


def test_clones_of_a_layer_are_other_layers(x: Tensor) -> None:
    first = hw.MultiHeadAttention(E, 3)
    clones = nn.ModuleList([copy.deepcopy(first) for _ in range(2)])
    cache = first.cache()
    attended(first, x, cache)
    for clone in clones:
        with pytest.raises(CacheError, match="another of the same widths"):
            attended(clone, x, cache)
    with pytest.raises(CacheError, match="another of the same widths"):
        attended(clones[1], x, clones[0].cache())


@pytest.mark.parametrize("kind", MAKE)
def test_a_copied_cache_belongs_to_the_same_layer(kind: str, x: Tensor) -> None:
    # what assisted decoding, and a prompt that several answers share, do
    mine, alike = layers(2)
    prompt = MAKE[kind](mine)
    mine(x[:, :3], mask=hw.causal(), cache=prompt)
    want = mine(x, mask=hw.causal())[:, 3:]
    branch = prompt
    for _ in range(4):
        # copies of copies that no layer has used
        branch = copy.deepcopy(branch)
    with pytest.raises(CacheError, match="another of the same widths"):
        attended(alike, x, branch)
    assert torch.allclose(attended(mine, x, branch), want, atol=1e-6)
    assert prompt.seen == 3
    assert torch.allclose(attended(mine, x, copy.copy(prompt)), want, atol=1e-6)


@pytest.mark.parametrize("order", ["cache first", "layer first"])
@pytest.mark.parametrize("how", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))], ids=["copy", "pickle"])
def test_a_layer_and_its_cache_copied_at_once_belong_together(how: Any, order: str, x: Tensor) -> None:
    mine, alike = layers(2)
    cache = mine.cache()
    mine(x[:, :3], mask=hw.causal(), cache=cache)
    pair = how([cache, mine] if order == "cache first" else [mine, cache])
    again, layer = pair if order == "cache first" else pair[::-1]
    with pytest.raises(CacheError, match="another of the same widths"):
        attended(alike, x, again)
    assert torch.allclose(attended(layer, x, again), mine(x, mask=hw.causal())[:, 3:], atol=1e-6)
    with pytest.raises(CacheError, match="another of the same widths"):
        attended(layer, x, cache)
    # what the copied layer has added to it is not the original's
    with pytest.raises(CacheError, match="another of the same widths"):
        attended(mine, x, again)


def test_a_cache_pickled_alone_belongs_to_the_first_layer_of_its_widths(x: Tensor) -> None:
    # a prompt kept in a file, for a model that is built anew from its state_dict
    mine, alike = layers(2)
    cache = mine.cache()
    mine(x[:, :3], mask=hw.causal(), cache=cache)
    stored = pickle.loads(pickle.dumps(cache))
    with pytest.raises(CacheError, match="but one of embed_dim=12, num_heads=2, num_kv_heads=2, head_dim=6 was"):
        attended(hw.MultiHeadAttention(E, 2), x, stored)
    assert torch.allclose(attended(mine, x, copy.deepcopy(stored)), mine(x, mask=hw.causal())[:, 3:], atol=1e-6)
    attended(alike, x, stored)
    with pytest.raises(CacheError, match="another of the same widths"):
        attended(mine, x, stored)


def test_a_wrapped_moved_or_reloaded_layer_is_the_same_one(x: Tensor) -> None:
    mine = hw.MultiHeadAttention(E, 3)
    want, cache = mine(x, mask=hw.causal())[:, 3:], mine.cache()
    wrapped = torch.compile(mine, backend="eager")
    mine.load_state_dict(copy.deepcopy(mine.state_dict()))
    mine.requires_grad_(False).eval().to(torch.float32)
    # what FSDP2 does to the class, and DataParallel to the object
    mine.__class__ = type("FSDPMultiHeadAttention", (hw.MultiHeadAttention,), {})
    assert torch.allclose(attended(mine, x, wrapped.cache()), want, atol=1e-6)
    assert torch.allclose(attended(mine._replicate_for_data_parallel(), x, cache), want, atol=1e-6)


@pytest.mark.parametrize("kind", ["static", "window"])
def test_one_compiled_step_serves_all_layers_and_refuses_the_cache_of_another(kind: str, x: Tensor) -> None:
    torch.compiler.reset()
    graphs: list[Any] = []

    def counted(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph

    step = torch.compile(lambda layer, t, c: layer(t, mask=hw.causal(), cache=c), fullgraph=True, backend=counted)
    stack = nn.ModuleList(layers(6)).requires_grad_(False)
    caches = [MAKE[kind](layer) for layer in stack]
    for layer, cache in zip(stack, caches, strict=True):
        layer(x[:, :3], mask=hw.causal(), cache=cache)
        got = [step(layer, x[:, t : t + 1], cache) for t in (3, 4)]
        assert torch.allclose(torch.cat(got, dim=1), layer(x, mask=hw.causal())[:, 3:], atol=1e-5)
    assert len(graphs) == 1
    with pytest.raises(torch._dynamo.exc.Unsupported, match="a cache belongs to the layer that made it"):
        step(stack[0], x[:, :1], caches[1])


def test_a_compiled_model_refuses_caches_in_another_order(x: Tensor) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(layers(2))

        def forward(self, t: Tensor, caches: list[hw.KVCache]) -> Tensor:
            for layer, cache in zip(self.layers, caches, strict=True):
                t = t + layer(t, mask=hw.causal(), cache=cache)
            return t

    torch.compiler.reset()
    model = Model().requires_grad_(False)
    compiled, caches = torch.compile(model, backend="eager", fullgraph=True), []
    for _ in range(2):
        caches = [MAKE["static"](layer) for layer in model.layers]
        for t in range(2):
            compiled(x[:, t : t + 1], caches)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="a cache belongs to the layer that made it"):
        compiled(x[:, :1], caches[::-1])


def test_a_compiled_step_refuses_more_tokens_than_a_static_cache_has_slots(x: Tensor) -> None:
    torch.compiler.reset()
    mine = hw.MultiHeadAttention(E, 3).requires_grad_(False)
    cache = mine.cache(length=L - 1, batch=B)
    compiled = torch.compile(lambda t: mine(t, mask=hw.causal(), cache=cache), fullgraph=True, backend="eager")
    with pytest.raises(torch._dynamo.exc.Unsupported, match="length 4 cannot take 5 tokens at once: make it with len"):
        compiled(x)
