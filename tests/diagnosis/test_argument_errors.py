"""Code that fails whatever its inputs are is faulty where it fails; a guessed call is never held against it."""

import pytest

from tests.diagnosis.written import HEAD, PLAIN, attend, blamed_in, found_in, marked

LAYERED = (
    HEAD
    + """
class Attend(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        {layers}

    def forward(self, x):
        {body}
"""
)
ONE = "self.mix = nn.MultiheadAttention(width, heads, batch_first=True)"
SEVERAL = "self.mix = nn.ModuleList(nn.MultiheadAttention(width, heads, batch_first=True) for _ in range(3))"
INNER = """
class Gate(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.lift = nn.Linear(width, width)

    def forward(self, t):
        return self.lift(t).sigmoid()
"""

FAILING = {
    "a layer made in forward with one size": HEAD + attend("", "v = nn.Linear(x)  # <-\n" + PLAIN),
    "a layer called with more than it takes": HEAD + attend(
        "self.last = nn.Linear(width, width)", PLAIN + "y = self.last(y, k)  # <-"
    ),
    "a module of the file called with more than it takes": HEAD + INNER + attend(
        "self.gate = Gate(width)", "v = self.cut(self.gate(x, x))  # <-\n" + PLAIN
    ),
    "the pair that torch's layer returns is added": LAYERED.format(
        layers=ONE, body="return self.norm(x + self.mix(x, x, x))  # <-"
    ),
    "a size that is called": HEAD + attend("", "last = x.shape(1)  # <-\n" + PLAIN),
    "a list of layers that is called": LAYERED.format(
        layers=SEVERAL, body="y, _ = self.mix(x, x, x)  # <-\n        return self.norm(y)"
    ),
}  # fmt: skip


@pytest.mark.parametrize("source", FAILING.values(), ids=FAILING)
def test_code_that_fails_whatever_its_inputs_are_is_faulty_there(source):
    assert blamed_in(source) == marked(source, "raises")


PAIRED = (
    HEAD
    + """
class Attend(nn.Module):
    def __init__(self, width, grid, heads):
        super().__init__()
        self.rows, self.columns = grid[0], grid[1]
        self.mix = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, x, options):
        x = x.view(x.shape[0], self.rows * self.columns, -1)
        return self.mix(x, x, x)[0] * options["gain"]
"""
)
HANDED = (
    HEAD
    + """
class Attend(nn.Module):
    def __init__(self, width, inner_attention):
        super().__init__()
        self.inner, self.norm = inner_attention, nn.LayerNorm(width)

    def forward(self, x, state):
        y, state = self.inner(self.norm(x), state, use_cache=True)
        return x + y, state
"""
)
SWITCHED = (
    HEAD
    + """
class Attend(nn.Module):
    def __init__(self, width, heads, is_gated):
        super().__init__()
        self.mix = nn.MultiheadAttention(width, heads, batch_first=True)
        if is_gated:
            self.gate = nn.Bilinear(width, width, width)
        else:
            self.gate = nn.Linear(width, width)

    def forward(self, x):
        return self.gate(x, self.mix(x, x, x)[0])
"""
)


@pytest.mark.parametrize(
    "source", [PAIRED, HANDED, SWITCHED], ids=["sizes in a pair", "a layer from outside", "a switch"]
)
def test_what_another_argument_would_let_pass_is_no_fault(source):
    assert blamed_in(source) == []


DISTANCES = (
    HEAD
    + """
class Attend(nn.Module):
    def __init__(self, cities, width, heads):
        super().__init__()
        self.heads = heads
        self.near = nn.Sequential(nn.Linear(1, heads), nn.GELU(), nn.Linear(heads, heads))
        self.rows, self.qkv, self.join = nn.Linear(cities, width), nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, distances):
        near = self.near(distances.unsqueeze(-1)).permute(0, 3, 1, 2)
        h = self.rows(distances)
        b, n, c = h.shape
        q, k, v = self.qkv(h).view(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        w = (q @ k.transpose(-2, -1) * (c // self.heads) ** -0.5 + near).softmax(-1)
        return self.join((w @ v).transpose(1, 2).reshape(b, n, c))
"""
)
BUILT = {"width": "H*d", "heads": "H"}


@pytest.mark.parametrize("cities", [None, "L", "cities", 12])
def test_a_width_that_is_declared_as_a_length_is_as_long_in_the_call(cities):
    init = None if cities is None else {"cities": cities, **BUILT}
    assert (found := found_in(DISTANCES, init=init)).verdict == "sound"
    assert not found.faults


def test_a_width_that_no_layer_took_before_is_a_guess_of_the_call():
    source = (
        HEAD
        + """
class Attend(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.wide, self.narrow = nn.Linear(width + 1, width), nn.Linear(width, width)
        self.mix = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, pair):
        a, b = pair.split([self.wide.in_features, self.narrow.in_features], dim=pair.ndim - 1)
        return self.mix(self.wide(a), self.narrow(b), self.narrow(b))[0]
"""
    )
    assert blamed_in(source) == []
