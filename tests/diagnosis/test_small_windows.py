"""Windows are narrower than what they are tried on: what one hides, lays over other layers, or lets a cache forget."""

import pytest

from tests.diagnosis.written import HEAD, PLAIN, attend, blamed_in, found_in, line_of

BAND = """
places = torch.arange(long)
ahead = places[:, None] - places
closed = {closed}
w = (q @ k.mT * self.part ** -0.5).masked_fill(closed, float("-inf")).softmax(-1)
y = w @ v
"""


def banded(closed):
    return HEAD + attend("self.window = window", BAND.format(closed=closed), extra="window")


@pytest.mark.parametrize(
    "closed", ["ahead.abs() > self.window", "(ahead < 0) | (ahead >= self.window)", "ahead.abs() >= self.window"]
)
def test_a_window_to_both_sides_or_to_earlier_keys_is_sound(closed):
    assert found_in(banded(closed)).verdict == "sound"


def test_a_window_that_hides_far_earlier_keys_and_no_later_ones_is_told():
    source = banded("ahead >= self.window")
    assert blamed_in(source) == [("causal-missing", line_of(source, "closed = "))]


def test_no_window_at_all_is_sound():
    assert found_in(HEAD + attend("", PLAIN)).verdict == "sound"


SHARED = '''
class Layer(nn.Module):
    def __init__(self, width, window, is_local):
        super().__init__()
        self.window, self.is_local = window, is_local
        self.ask, self.match, self.hold, self.join = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x, closed):
        if self.is_local:
            far = torch.ones_like(closed[0]).tril(-self.window)
            {laid}
        s = self.ask(x) @ self.match(x).mT * x.shape[-1] ** -0.5
        return x + self.join(s.masked_fill(closed, -1e4).softmax(-1) @ self.hold(x))


class Attend(nn.Module):
    """Every other layer looks at the last tokens only."""

    def __init__(self, width, window=8, depth=3):
        super().__init__()
        self.layers = nn.ModuleList(Layer(width, window, at % 2 == 0) for at in range(depth))

    def forward(self, x):
        closed = torch.ones(x.shape[0], x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        for layer in self.layers:
            x = layer(x, closed)
        return x
'''


def test_a_mask_that_one_layer_changes_for_all_is_told():
    source = HEAD + SHARED.format(laid="closed.logical_or_(far)")
    assert ("input-modified", line_of(source, "logical_or_")) in blamed_in(source)


@pytest.mark.parametrize("laid", ["closed = closed | far", "closed = closed.clone().logical_or_(far)"])
def test_a_mask_that_a_layer_changes_for_itself_is_sound(laid):
    assert found_in(HEAD + SHARED.format(laid=laid)).verdict == "sound"


KEEPER = """
class Recent:
    def __init__(self, window):
        self.window, self.keys, self.values, self.places, self.count = window, None, None, None, 0

    def put(self, k, v, places):
        self.count += places.shape[0]
        if self.keys is not None:
            k, v = torch.cat([self.keys, k], 2), torch.cat([self.values, v], 2)
            places = torch.cat([self.places, places])
        self.keys, self.values, self.places = (k[:, :, -self.window:], v[:, :, -self.window:], places[-self.window:])
        return k, v, places


def turned(t, places):
    angles = places[:, None] * 0.1 ** torch.arange(t.shape[-1] // 2)
    a, b = t.chunk(2, -1)
    return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1)


class Attend(nn.Module):
    def __init__(self, width, num_heads, window=16):
        super().__init__()
        self.num_heads, self.window = num_heads, window
        self.qkv, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def new_store(self):
        return Recent(self.window)

    def new_cache(self):
        return self.new_store()

    def forward(self, x, cache=None):
        n, long, width = x.shape
        q, k, v = self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        begin = 0 if cache is None else {begin}
        own = torch.arange(begin, begin + long)
        q, k, places = turned(q, own), turned(k, own), own
        if cache is not None:
            k, v, places = cache.put(k, v, places)
        ahead = own[:, None] - places
        closed = (ahead < 0) | (ahead >= self.window)
        w = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(closed, float("-inf")).softmax(-1)
        return self.join((w @ v).transpose(1, 2).reshape(n, long, width))
"""


def test_a_cache_that_a_method_gives_is_decoded_with_beyond_its_window():
    right = found_in(HEAD + KEEPER.format(begin="cache.count"))
    assert (right.verdict, right.examined["cache"]) == ("sound", True)
    source = HEAD + KEEPER.format(begin="0 if cache.keys is None else cache.keys.shape[2]")
    (fault,) = blamed_in(source)
    assert fault[0] == "position-cache"
    assert line_of(source, "begin = ") <= fault[1] <= line_of(source, "own = ")
