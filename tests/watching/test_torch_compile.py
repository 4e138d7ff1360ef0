"""Compiled code runs as it would unwatched: as often compiled, with the same bits, and listed as not seen."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention.flex_attention import flex_attention

from headwise.watching import watch
from tests.watching.models import Attend, Block, Mixed, heads, made, x

# torch.compile reads .grad of what is no leaf
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute")


class Backend:
    """A backend of torch.compile that counts its graphs."""

    def __init__(self):
        torch._dynamo.reset()
        self.graphs = 0

    def __call__(self, graph, inputs):
        self.graphs += 1
        return graph


@pytest.mark.parametrize("way", ["wrapper", "in place", "forward"])
def test_a_compiled_module_runs_its_compiled_code_and_is_listed(way):
    ran = []

    def backend(graph, inputs):
        ran.append("compiled")

        def run(*args):
            ran.append("run")
            return graph(*args)

        return run

    torch._dynamo.reset()
    block = made(Mixed)
    if way == "wrapper":
        block = torch.compile(block, backend=backend)
    elif way == "in place":
        block.compile(backend=backend)
    else:
        block.forward = torch.compile(block.forward, backend=backend)
    model, y = nn.Sequential(block, made(Attend)), x()
    wanted = model(y)
    assert ran == ["compiled", "run"]
    before = {name: vars(model[0]).get(name) for name in ("forward", "_compiled_call_impl")}
    with watch(model) as seen:
        got = model(y)
    assert torch.equal(got, wanted)
    assert ran == ["compiled", "run", "run"]
    assert list(seen) == ["1"]
    assert "is compiled" in seen.unseen["0"]
    assert {name: vars(model[0]).get(name) for name in before} == before
    assert torch.equal(model(y), wanted)
    assert ran == ["compiled", "run", "run", "run"]


MODELS = {"unflatten": Attend, "children": Block, "torch's own": Mixed}
# what is compiled of the watched model a
WAYS = {
    "a function": lambda a, options: torch.compile(lambda y: a(y), **options),
    "the module": lambda a, options: torch.compile(a, **options),
}


# every way, and each kind of model with some of them
TRIED = itertools.product(WAYS, ("it", "another"), (True, False))
CASES = [(kind, *tried) for kind, tried in zip(itertools.cycle(MODELS), TRIED, strict=False)]


@pytest.mark.parametrize(("kind", "way", "watched", "first"), CASES)
def test_compiled_code_around_a_watched_module_is_neither_refused_nor_compiled_anew(kind, way, watched, first):
    model, y, backend = made(MODELS[kind]), x(), Backend()
    wanted, other = model(y), made(Attend)
    function = WAYS[way](model, {"backend": backend, "fullgraph": True})
    if first:
        assert torch.equal(function(y), wanted)
    with watch(model if watched == "it" else other) as seen:
        assert torch.equal(function(y), wanted)
        assert torch.equal(function(y), wanted)
        assert backend.graphs == 1
        other(y)
    assert list(seen) == ([""] if watched == "another" else [])
    if watched == "it":
        assert "ran what torch.compile has made" in seen.unseen["(no module)" if way == "a function" else ""]
    for _ in range(2):
        assert torch.equal(function(y), wanted)
        with watch(model):
            assert torch.equal(function(y), wanted)
    assert backend.graphs == 1


def test_a_compiled_function_in_a_module_is_listed_and_the_rest_is_seen():
    backend = Backend()

    @torch.compile(backend=backend, fullgraph=True)
    def attend(q):
        return F.scaled_dot_product_attention(q, q, q)

    class Half(Block):
        def forward(self, y):
            y = super().forward(y)
            return attend(heads(y)).transpose(1, 2).flatten(2)

    model, y = nn.Sequential(made(Half), made(Attend)), x()
    wanted = model(y)
    with watch(model) as seen:
        assert torch.equal(model(y), wanted)
    assert backend.graphs == 1
    assert list(seen) == ["0.attn", "1"]
    assert list(seen.unseen) == ["0"]
    assert "ran what torch.compile has made of attend(), and nothing can be seen in there" in seen.unseen["0"]
    with watch(model, only="1") as seen:
        assert torch.equal(model(y), wanted)
    assert (list(seen), dict(seen.unseen)) == (["1"], {})


def test_what_a_compiled_function_leaves_to_python_is_seen():
    inner, backend = made(Attend), Backend()
    aside = torch.compiler.disable(lambda y: inner(y))

    @torch.compile(backend=backend)
    def function(y):
        return aside(y + 1.0) * 2.0

    wanted = function(x())
    graphs = backend.graphs
    with watch(inner) as seen:
        assert torch.equal(function(x()), wanted)
        inner(x())
    assert backend.graphs == graphs
    assert len(seen.calls("")) == 2
    assert torch._C._len_torch_function_stack() == 0


def test_compiled_code_that_fails_leaves_the_watch_listening():
    @torch.compile(backend=Backend(), fullgraph=True)
    def broken(y):
        return y.nonzero().tolist()

    @torch.compile(backend="eager")
    def wrong(y):
        return y @ y

    model = made(Attend)
    with watch(model) as seen:
        for function in (broken, wrong):
            with pytest.raises(RuntimeError):
                function(x())
        model(x())
    assert list(seen) == [""]


@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_flex_attention_is_listed():
    class Flex(nn.Module):
        def forward(self, y):
            q = heads(y)
            return flex_attention(q, q, q).transpose(1, 2).flatten(2)

    torch._dynamo.reset()
    model = nn.Sequential(Flex(), made(Attend))
    with torch.no_grad():
        wanted = model(x())
        with watch(model) as seen:
            assert torch.equal(model(x()), wanted)
    assert list(seen) == ["1"]
    assert list(seen.unseen) == ["0"]
    assert "torch.compile has made of flex_attention(), and" in seen.unseen["0"]


def test_a_compiled_model_is_listed_without_the_names_that_torch_gives_to_its_parts():
    class Broken(Attend):
        def forward(self, y):
            torch._dynamo.graph_break()
            return super().forward(y)

    for model in (made(Attend), made(Broken)):
        compiled = torch.compile(model, backend="eager")
        with watch(model) as seen:
            compiled(x())
        assert "ran what torch.compile has made, and nothing can be seen in there" in seen.unseen[""]
