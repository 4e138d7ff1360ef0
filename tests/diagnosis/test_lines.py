"""The line that is named is where a person would edit, also where the operation that shows the fault lies elsewhere."""

import pytest

from tests.diagnosis.written import HEAD, attend, blamed_in, found_in, line_of, marked

# a rotation in each of three styles, right; the faults below change one line of them
HALVES = """
def swing(t):
    low, high = t[..., : t.shape[-1] // 2], t[..., t.shape[-1] // 2 :]
    return torch.cat((-high, low), dim=-1)

def spin(q, k, cosine, sine):
    new_q = q * cosine + swing(q) * sine
    new_k = k * cosine + swing(k) * sine
    return new_q, new_k

def angles(count, width):
    speeds = 10000 ** (-torch.arange(0, width, 2) / width)
    turn = torch.arange(count)[:, None] * speeds
    turn = torch.cat((turn, turn), dim=-1)
    return turn.cos(), turn.sin()
"""
PAIRS = """
def spin(q, k, cosine, sine):
    a, b = q.unflatten(-1, (-1, 2)).unbind(-1)
    c, d = k.unflatten(-1, (-1, 2)).unbind(-1)
    first = a * cosine - b * sine
    second = a * sine + b * cosine
    third = c * cosine - d * sine
    fourth = c * sine + d * cosine
    return torch.stack((first, second), -1).flatten(-2), torch.stack((third, fourth), -1).flatten(-2)

def angles(count, width):
    speeds = 10000 ** (-torch.arange(0, width, 2) / width)
    turn = torch.arange(count)[:, None] * speeds
    return turn.cos(), turn.sin()
"""
TURNED = """
cosine, sine = angles(long, self.part)
q, k = spin(q, k, cosine, sine)
y = (q @ k.mT / math.sqrt(self.part)).softmax(-1) @ v
"""
ROTATIONS = {
    "a half is not negated": (HALVES, "torch.cat((-high, low), dim=-1)", "torch.cat((high, low), dim=-1)"),
    "halves are negated twice": (HALVES, "torch.cat((-high, low), dim=-1)", "torch.cat((-high, -low), dim=-1)"),
    "angles lie in pairs": (
        HALVES, "turn = torch.cat((turn, turn), dim=-1)", "turn = turn.repeat_interleave(2, dim=-1)",
    ),
    "keys stay as they are": (HALVES, "new_k = k * cosine + swing(k) * sine", "new_k = k"),
    "keys meet the sine twice": (HALVES, "new_k = k * cosine", "new_k = k * sine"),
    "a sign of the queries": (PAIRS, "first = a * cosine - b", "first = a * cosine + b"),
    "a sign of the keys": (PAIRS, "fourth = c * sine + d", "fourth = c * sine - d"),
}  # fmt: skip


@pytest.mark.parametrize("style", [HALVES, PAIRS])
def test_a_rotation_that_is_right_is_sound(style):
    found = found_in(HEAD + style + attend("", TURNED))
    assert (found.verdict, found.faults) == ("sound", ())


@pytest.mark.parametrize("name", ROTATIONS)
def test_a_rotation_is_blamed_at_the_operation_that_breaks_it(name):
    style, right, wrong = ROTATIONS[name]
    assert right in style
    source = HEAD + style.replace(right, wrong) + attend("", TURNED)
    line = line_of(source, wrong)
    (fault,) = found_in(source).faults
    kind = "rotary-keys-missing" if name == "keys stay as they are" else "rotary-wrong"
    assert (fault.kind, fault.line) == (kind, line)
    # keys that never meet the angles have no operation that could be put right
    assert fault.proved == (name != "keys stay as they are")


@pytest.mark.parametrize("order", ["bhij", "bihj"])
def test_a_rotation_is_right_in_whichever_order_the_axes_of_the_scores_stand(order):
    scores = f'torch.einsum("bhid,bhjd->{order}", q, k) / self.part ** 0.5'
    weighed = f'torch.einsum("{order},bhjd->bhid", ({scores}).softmax(-1), v)'
    forward = TURNED.replace("(q @ k.mT / math.sqrt(self.part)).softmax(-1) @ v", weighed)
    assert forward != TURNED
    found = found_in(HEAD + HALVES + attend("", forward))
    assert (found.verdict, found.faults) == ("sound", ())


def test_values_that_are_turned_are_blamed_where_only_they_are():
    inner = "\ndef both(t, cosine, sine):\n    return spin(t, t, cosine, sine)[0]\n"
    forward = TURNED.replace(
        "q, k = spin(q, k, cosine, sine)",
        "q, k = both(q, cosine, sine), both(k, cosine, sine)\nv = both(v, cosine, sine)",
    )
    source = HEAD + HALVES + inner + attend("", forward)
    line = line_of(source, "v = both")
    assert [(each.kind, each.line, each.proved) for each in found_in(source).faults] == [
        ("rotary-on-values", line, True)
    ]


GIVEN = """
class Attend(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.part = heads, dim // heads
        self.ask, self.match, self.hold, self.join = (nn.Linear(dim, dim) for _ in range(4))

    def forward(self, x, freqs_cis):
        n, long, dim = x.shape
        q, k, v = (f(x).view(n, long, self.heads, self.part) for f in (self.ask, self.match, self.hold))
        q, k = (torch.view_as_complex(t.reshape(n, long, self.heads, -1, 2)) for t in (q, k))
        q, k = q * freqs_cis[:, None], k * freqs_cis[:, None]
        q, k, v = (t.transpose(1, 2) for t in (torch.view_as_real(q).flatten(3), torch.view_as_real(k).flatten(3), v))
        return self.join(((q @ k.mT / math.sqrt(self.part)).softmax(-1) @ v).transpose(1, 2).reshape(n, long, dim))
"""


def test_angles_that_are_given_meet_queries_and_keys():
    found = found_in(HEAD + GIVEN)
    assert (found.verdict, found.faults) == ("sound", ())
    source = HEAD + GIVEN.replace("k * freqs_cis[:, None]", "k")
    assert source != HEAD + GIVEN
    assert [each.kind for each in found_in(source).faults] == ["rotary-keys-missing"]


# the line of the fault ends with "# <-"
CASES = {
    "the number that fills has a name": ("mask-weak-fill", attend("", """
s = q @ k.mT / math.sqrt(self.part)
if padding_mask is not None:
    least = -torch.finfo(s.dtype).tiny  # <-
    hidden = ~padding_mask[:, None, None, :]
    s = s.masked_fill(hidden, least)
y = s.softmax(-1) @ v
""", given="padding_mask=None")),
    "the number that fills is handed to a function": ("mask-weak-fill", """
def closed(s, padding_mask, number=float("-inf")):
    return s.masked_fill(~padding_mask[:, None, None, :], number)
""" + attend("", """
s = q @ k.mT / math.sqrt(self.part)
if padding_mask is not None:
    s = closed(s, padding_mask, number=-1e-6)  # <-
y = s.softmax(-1) @ v
""", given="padding_mask=None")),
    "the number that fills is a default": ("mask-weak-fill", """
def closed(
    s,
    padding_mask,
    number=-1e-6,  # <-
):
    return s.masked_fill(~padding_mask[:, None, None, :], number)
""" + attend("", """
s = q @ k.mT / math.sqrt(self.part)
if padding_mask is not None:
    s = closed(s, padding_mask)
y = s.softmax(-1) @ v
""", given="padding_mask=None")),
    "a width that only the scale asks for": ("scale-wrong", attend("", """
scores = q @ k.mT
wide = self.part * self.num_heads  # <-
y = (scores / (wide ** 0.5)).softmax(-1) @ v
""")),
    "a width that others ask for too": ("scale-wrong", attend("", """
wide = x.shape[-1]
y = (q @ k.mT / math.sqrt(wide)).softmax(-1) @ v  # <-
y = y.reshape(n, self.num_heads, long, wide // self.num_heads)
""")),
    "a share that is dropped always": ("dropout-in-eval", attend("self.drop_share = drop_share", """
share = self.drop_share  # <-
y = F.scaled_dot_product_attention(q, k, v, dropout_p=share)
""", extra="drop_share=0.0")),
    "copies that a function makes are one": ("projection-shared", """
def several(layer, count):
    return nn.ModuleList([layer for _ in range(count)])  # <-


class Attend(nn.Module):
    def __init__(self, width, num_heads):
        super().__init__()
        self.num_heads, self.part = num_heads, width // num_heads
        self.maps = several(nn.Linear(width, width), 4)

    def forward(self, query, key, value):
        q, k, v = (f(t).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
                   for f, t in zip(self.maps, (query, key, value)))
        y = (q @ k.mT / math.sqrt(self.part)).softmax(-1) @ v
        return self.maps[-1](y.transpose(1, 2).flatten(2))
"""),
    "values are made of keys, in another order of arguments": ("input-ignored", """
class Attend(nn.Module):
    def __init__(self, width, num_heads):
        super().__init__()
        self.num_heads, self.part = num_heads, width // num_heads
        self.ask, self.match, self.hold, self.join = (nn.Linear(width, width) for _ in range(4))

    def cut(self, t):
        return t.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def forward(self, value, key, query):
        q = self.cut(self.ask(query))
        k = self.cut(self.match(key))
        v = self.cut(self.hold(key))  # <-
        y = (q @ k.mT / math.sqrt(self.part)).softmax(-1) @ v
        return self.join(y.transpose(1, 2).flatten(2))
"""),
    "a length of the keys, measured on the queries": ("key-uses-query-length", """
class Attend(nn.Module):
    def __init__(self, width, num_heads):
        super().__init__()
        self.num_heads, self.part = num_heads, width // num_heads
        self.ask, self.match, self.hold, self.join = (nn.Linear(width, width) for _ in range(4))

    def forward(self, query, key, value):
        n, long, width = query.shape
        far = query.size(1)  # <-
        q = self.ask(query).view(n, long, self.num_heads, self.part).transpose(1, 2)
        k = self.match(key).view(n, far, self.num_heads, self.part).transpose(1, 2)
        v = self.hold(value).view(n, far, self.num_heads, self.part).transpose(1, 2)
        y = (q @ k.mT / math.sqrt(self.part)).softmax(-1) @ v
        return self.join(y.transpose(1, 2).reshape(n, long, width))
"""),
    "the last projection is left out": ("projection-unused", """
class Attend(nn.Module):
    def __init__(self, width, num_heads):
        super().__init__()
        self.num_heads, self.part = num_heads, width // num_heads
        self.ask, self.match, self.hold, self.join = (nn.Linear(width, width) for _ in range(4))

    def cut(self, t):
        return t.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def forward(self, x):
        q, k, v = self.cut(self.ask(x)), self.cut(self.match(x)), self.cut(self.hold(x))
        y = (q @ k.mT / math.sqrt(self.part)).softmax(-1) @ v
        joined = y.transpose(1, 2).flatten(2)
        out = joined  # <-
        return out
"""),
    "three at once, cut into heads by a view": ("split-without-transpose", """
class Attend(nn.Module):
    def __init__(self, width, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.three, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        n, long, width = x.shape
        part = width // self.num_heads
        q, k, v = self.three(x).reshape(n, 3, self.num_heads, long, part).unbind(1)  # <-
        y = (q @ k.mT / math.sqrt(part)).softmax(-1) @ v
        return self.join(y.transpose(1, 2).flatten(2))
"""),
    "one part of packed weights for two": ("projection-shared", """
class Attend(nn.Module):
    def __init__(self, width, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.packed = nn.Parameter(torch.randn(3 * width, width) / width ** 0.5)
        self.join = nn.Linear(width, width)

    def cut(self, t):
        return t.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def forward(self, query, key, value):
        first, second, third = self.packed.chunk(3)
        q = self.cut(F.linear(query, first))
        k = self.cut(F.linear(key, first))  # <-
        v = self.cut(F.linear(value, third))
        y = (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1) @ v
        return self.join(y.transpose(1, 2).flatten(2))
"""),
    "the triangle that is closed is the one to see": ("causal-inverted", attend("", """
s = q @ k.mT / math.sqrt(self.part)
hidden = torch.ones(long, long, dtype=torch.bool).tril()  # <-
y = s.masked_fill(hidden, float("-inf")).softmax(-1) @ v
""")),
    "the triangle to see is closed": ("causal-inverted", attend("", """
s = q @ k.mT / math.sqrt(self.part)
keep = torch.ones(long, long, dtype=torch.bool).tril()
y = s.masked_fill(keep, float("-inf")).softmax(-1) @ v  # <-
""")),
    "the triangle to see, beside buckets": ("causal-inverted", attend("self.near = nn.Embedding(9, num_heads)", """
far = torch.arange(long)[None, :] - torch.arange(long)[:, None]
far = -torch.min(far, torch.zeros_like(far))
far = torch.where(far < 4, far, 4 + (far > 2).long())
s = q @ k.mT / math.sqrt(self.part) + self.near(far).permute(2, 0, 1)
keep = torch.ones(long, long, dtype=torch.bool).triu()  # <-
y = s.masked_fill(~keep, float("-inf")).softmax(-1) @ v
""")),
    "a triangle by hand, beside a bias": ("causal-offset", attend("self.near = nn.Embedding(99, num_heads)", """
i, j = torch.arange(long)[:, None], torch.arange(long)[None, :]
apart = (i - j).clamp(min=0)
small = apart < 2
bias = self.near(torch.where(small, apart, 3)).permute(2, 0, 1)
s = q @ k.mT / math.sqrt(self.part)
s = s + bias
seen = j < i + 2  # <-
y = torch.where(seen, s, -1e9).softmax(-1) @ v
""")),
    "heads that are mixed twice by one layer": ("projection-unused", attend("""
self.before = nn.Linear(num_heads, num_heads)
self.after = nn.Linear(num_heads, num_heads)
""", """
s = self.before((q @ k.mT * self.part ** -0.5).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
w = self.before(s.softmax(-1).permute(0, 2, 3, 1))  # <-
y = w.permute(0, 3, 1, 2) @ v
""")),
    "a layer of one head's width that nothing calls": ("projection-unused", attend("""
self.mix = nn.Linear(self.part, self.part)  # <-
""", """
y = (q @ k.mT * self.part ** -0.5).softmax(-1) @ v
""")),
    "heads of a picture that are one": ("heads-not-split", """
class Attend(nn.Module):
    def __init__(self, channels, num_heads=3, hidden=8):
        super().__init__()
        self.num_heads, self.hidden = num_heads, hidden
        self.ask, self.match, self.hold = (nn.Conv2d(channels, num_heads * hidden, 1) for _ in range(3))
        self.join = nn.Conv2d(num_heads * hidden, channels, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        q = self.ask(x).reshape(b, -1, h * w).mT  # <-
        k = self.match(x).reshape(b, -1, h * w)
        v = self.hold(x).reshape(b, -1, h * w).mT
        y = (q @ k * self.hidden ** -0.5).softmax(-1) @ v
        return x + self.join(y.mT.reshape(b, -1, h, w))
"""),
    "heads of tokens that are one": ("heads-not-split", """
class Attend(nn.Module):
    def __init__(self, width, heads=4, head_features=16):
        super().__init__()
        self.heads, self.scale = heads, head_features ** -0.5
        self.ask, self.match, self.hold = (nn.Linear(width, heads * head_features) for _ in range(3))
        self.join = nn.Linear(heads * head_features, width)

    def forward(self, x):
        q, k, v = self.ask(x), self.match(x), self.hold(x)  # <-
        w = torch.softmax(torch.bmm(q, k.mT) * self.scale, dim=-1)
        return self.join(torch.bmm(w, v))
"""),
    "heads that are one": ("heads-not-split", """
class Attend(nn.Module):
    def __init__(self, width, num_heads):
        super().__init__()
        self.num_heads, self.width = num_heads, width
        self.ask, self.match, self.hold, self.join = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x):
        q = self.ask(x).view(x.shape[0], -1, 1, self.width)  # <-
        k = self.match(x).view(x.shape[0], -1, 1, self.width)
        v = self.hold(x).view(x.shape[0], -1, 1, self.width)
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        y = (q @ k.mT / math.sqrt(self.width // self.num_heads)).softmax(-1) @ v
        return self.join(y.transpose(1, 2).flatten(2))
"""),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_fault_is_located_where_a_person_would_edit(name):
    kind, text = CASES[name]
    assert blamed_in(HEAD + text) == marked(HEAD + text, kind)
