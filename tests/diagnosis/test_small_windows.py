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


def banded(closed, words="the last tokens, a sliding window", extra="window"):
    source = attend("self.window = window", BAND.format(closed=closed), extra=extra)
    return HEAD + source.replace("(nn.Module):", f'(nn.Module):\n    """Attends to {words}."""\n', 1)


@pytest.mark.parametrize(
    "closed", ["ahead.abs() > self.window", "(ahead < 0) | (ahead >= self.window)", "ahead.abs() >= self.window"]
)
def test_a_window_to_both_sides_or_to_earlier_keys_is_sound(closed):
    assert found_in(banded(closed)).verdict == "sound"


def test_a_window_that_hides_far_earlier_keys_and_no_later_ones_is_told():
    source = banded("ahead >= self.window")
    assert blamed_in(source) == [("causal-missing", line_of(source, "closed = "))]


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        ("what is near", "window"),
        ("a sliding window", "window, right=None"),
        ("a sliding window, of both sides", "window, look_ahead=None"),
    ],
)
def test_a_window_whose_sides_are_a_choice_is_sound(words, extra):
    assert blamed_in(banded("ahead >= self.window", words, extra)) == []


def test_half_a_window_is_none_of_one_token():
    assert found_in(banded("ahead.abs() > (self.window - 1) // 2")).verdict == "sound"


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


HIDING = """
class Hide(nn.Module):
    def forward(self, s):
        return s.masked_fill_(torch.ones_like(s[0], dtype=torch.bool).triu(1), float("-inf"))


class Attend(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.ask, self.match, self.hold = (nn.Linear(width, width) for _ in range(3))
        self.hide = Hide()

    def forward(self, x):
        s = self.ask(x) @ self.match(x).mT * x.shape[-1] ** -0.5
        {made}
        return w.softmax(-1) @ self.hold(x)
"""


@pytest.mark.parametrize("made", ["w = self.hide(s)", "w = s + self.hide(torch.zeros_like(s))"])
def test_a_module_that_hides_in_place_is_sound(made):
    assert found_in(HEAD + HIDING.format(made=made)).verdict == "sound"


def test_what_all_layers_hide_alike_is_no_mask_of_one_of_them():
    source = SHARED.format(laid="closed.logical_or_(far)").replace("if self.is_local:", "if True:")
    assert "input-modified" not in [kind for kind, _ in blamed_in(HEAD + source)]


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


CROSSED = """
class Heads(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.ask, self.match, self.hold = (nn.Linear(width, width) for _ in range(3))

    def kept(self, x):
        return self.match(x), self.hold(x)

    def forward(self, x, k, v, closed):
        s = self.ask(x) @ k.mT * x.shape[-1] ** -0.5
        return s.masked_fill(closed, float("-inf")).softmax(-1) @ v


class Attend(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.own, self.other = Heads(width), Heads(width)

    def forward(self, x, feats, cache=None):
        k, v = self.own.kept(x)
        if cache is not None:
            if "own" in cache:
                k, v = torch.cat([cache["own"][0], k], 1), torch.cat([cache["own"][1], v], 1)
            cache["own"] = k, v
            if "other" not in cache:
                cache["other"] = self.other.kept(feats)
        later = torch.ones(x.shape[1], k.shape[1], dtype=torch.bool).triu(k.shape[1] - x.shape[1] + 1)
        x = x + self.own(x, k, v, later)
        k, v = self.other.kept(feats) if cache is None else cache["other"]
        return x + self.other(x, k, v, torch.zeros_like(k[0, :, 0], dtype=torch.bool))
"""


def test_a_memory_that_is_kept_once_is_handed_over_whole():
    found = found_in(HEAD + CROSSED)
    assert (found.verdict, found.examined["cache"]) == ("sound", True)


LAID = """
far = (places[:, None] - places).abs() >= self.window
{joined}
y = (q @ k.mT * self.part ** -0.5 + attention_mask).softmax(-1) @ v
"""
LOW = "torch.finfo(q.dtype).min"


def laid(joined):
    lines = "places = torch.arange(long)\n" + LAID.format(joined=joined)
    return HEAD + attend("self.window = window", lines, extra="window", given="attention_mask")


JOINED = {
    "filled with a lowest number": f"attention_mask = attention_mask.masked_fill(far, {LOW})",
    "added, times a lowest number": f"attention_mask = attention_mask + far.to(q.dtype) * {LOW}",
    "filled, in the scores": f"attention_mask = attention_mask + torch.zeros(long, long).masked_fill(far, {LOW})",
}


@pytest.mark.parametrize("joined", JOINED.values(), ids=JOINED)
def test_a_mask_and_a_window_that_leave_some_queries_nothing_together_are_softmax_by_the_definition(joined):
    found = found_in(laid(joined))
    assert (found.verdict, found.examined["comparison"]) == ("sound", "softmax(q·kᵀ/√d)")


def test_queries_that_weigh_all_keys_alike_follow_no_softmax_of_scores_where_nothing_hides_their_keys():
    scaled = "* (places[:, None] < 2) + attention_mask)"
    source = laid(JOINED["filled with a lowest number"]).replace("+ attention_mask)", scaled)
    assert found_in(source).examined["comparison"] != "softmax(q·kᵀ/√d)"
