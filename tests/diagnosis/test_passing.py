"""Faults that pass as sound where one looks at one call alone, or at one kind of scores: each is found, and named."""

import pytest

from tests.diagnosis.written import HEAD, attend, blamed_in, found_in, line_of, marked

# other scores are added
BESIDE = """
other = self.cut(self.place(x))
s = q {scale} @ k.mT
near = q {scale} @ other.mT
y = (s + near).softmax(-1) @ v
"""
MIXED = """
s = torch.einsum("bhij,hg->bgij", q @ k.mT / math.sqrt({width}), self.mix)
y = s.softmax(-1) @ v
"""
MIXES = "self.mix = nn.Parameter(torch.randn(num_heads, num_heads))"
FLAGGED = """
s = q @ k.mT / math.sqrt(self.part)
if {flag}:
    keep = torch.ones(long, long, dtype=torch.bool).{half}()  # <-
    s = s.masked_fill(~keep, float("-inf"))
y = s.softmax(-1) @ v
"""
PACKED = """
class Attend(nn.Module):
    def __init__(self, width, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.packed, self.join = nn.Linear(width, {parts} * width), nn.Linear(width, width)

    def cut(self, t):
        return t.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def forward(self, x):
        {taken}
        q, k, v = self.cut(q), self.cut(k), self.cut(v)
        y = (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1) @ v
        y = y.transpose(1, 2).flatten(2)
        return self.join({given})
"""


def packed(taken, parts=3, given="y"):
    """A class whose queries, keys and values come from one projection."""
    return PACKED.format(taken=taken.replace("\n", "\n        "), parts=parts, given=given)


BESIDES = """
class Attend(nn.Module):
    def __init__(self, width, num_heads):
        super().__init__()
        self.num_heads, self.part = num_heads, width // num_heads
        self.ask, self.match, self.hold, self.join = (nn.Linear(width, width) for _ in range(4))

    def cut(self, t):
        return t.view(t.shape[0], -1, self.num_heads, self.part).transpose(1, 2)

    def forward(self, x, context, both=False):
        own = x
        if both:
            own = context = torch.cat((x, context), dim=1)
        q = self.cut(self.ask(x))
        {taken}
        y = (q @ k.mT / math.sqrt(self.part)).softmax(-1) @ v
        return self.join(y.transpose(1, 2).flatten(2))
"""


def beside(taken):
    """A class whose keys and values may be of another input."""
    return BESIDES.format(taken=taken)


GIVEN = """
def attend(x, memory, wq, wk, wv, wo, num_heads=4):
    def cut(t):
        return t.unflatten(-1, (num_heads, -1)).transpose(1, 2)

    q = cut(x @ wq)
    k = cut(memory @ {match})
    v = cut(memory @ wv)
    y = (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1) @ v
    return y.transpose(1, 2).flatten(2) @ wo
"""
# the line of the fault ends with "# <-"
CASES = {
    "a flag of the call, off by default, hides what is before": (
        "causal-inverted", attend("", FLAGGED.format(flag="masked", half="triu"), given="masked=False")),
    "a flag of the constructor, off by default, hides what is before": (
        "causal-inverted", attend("self.one_way = one_way", FLAGGED.format(flag="self.one_way", half="triu"),
                                  extra="one_way=False")),
    "a flag that asks for a length besides": ("causal-inverted", attend("""
self.causal = causal
if causal:
    if max_len is None:
        raise ValueError("a length must be given")
    self.register_buffer("keep", torch.ones(max_len, max_len).tril())
""", """
s = q @ k.mT / math.sqrt(self.part)
if self.causal:
    s = s.masked_fill(self.keep[:long, :long] == 1, float("-inf"))  # <-
y = s.softmax(-1) @ v
""", extra="causal=False, max_len=None")),
    "torch's attention, which is not chosen by default, drops in evaluation": ("dropout-in-eval", attend(
        "self.fast, self.drop_share = fast, drop_share", """
if self.fast:
    y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.drop_share)  # <-
else:
    y = (q @ k.mT / math.sqrt(self.part)).softmax(-1) @ v
""", extra="drop_share=0.1, fast=False")),
    "a number that // makes 0": ("scale-factor-floored", attend("", """
y = (q @ k.mT * (1.0 // math.sqrt(self.part))).softmax(-1) @ v  # <-
""")),
    "a number that // makes 0, beside a triangle": ("scale-factor-floored", attend("", """
s = q @ k.mT * (1 // self.part ** 0.5)  # <-
late = torch.ones(long, long, dtype=torch.bool).triu(1)
y = s.masked_fill(late, float("-inf")).softmax(-1) @ v
""")),
    "a root that // rounds down": ("scale-factor-floored", attend("self.root = self.part ** 0.5 // 1  # <-", """
y = (q @ k.mT / self.root).softmax(-1) @ v
""")),
    "no root, though the words say that there is one": ("scale-wrong", attend("", """
# softmax(QK^T / sqrt(d)) V
y = (q @ k.mT / self.part).softmax(-1) @ v  # <-
""")),
    "the model's width under scores to which others are added": ("scale-wrong", attend(
        "self.place = nn.Linear(width, width)",
        BESIDE.format(scale="* x.shape[-1] ** -0.5").replace("s = q * x.shape[-1] ** -0.5 @ k.mT",
                                                             "s = q * x.shape[-1] ** -0.5 @ k.mT  # <-"))),
    "the model's width under scores that are mixed": (
        "scale-wrong", attend(MIXES, MIXED.format(width="width").replace("self.mix)", "self.mix)  # <-"))),
    "values that are weighed along the queries": ("weights-transposed", attend("", """
w = (q @ k.mT / math.sqrt(self.part)).softmax(-1)
y = w.mT @ v  # <-
""")),
    "a softmax over the queries, whichever stands first": ("softmax-axis", attend("", """
w = (k @ q.mT / math.sqrt(self.part)).softmax(-1)  # <-
y = w.mT @ v
""").replace("self.ask, self.match", "self.query, self.key").replace("self.ask(x)", "self.query(x)").replace(
        "self.match(x)", "self.key(x)")),
    "a length that has the other's name": ("key-uses-query-length", """
class Attend(nn.Module):
    def __init__(self, width, num_heads):
        super().__init__()
        self.num_heads, self.part = num_heads, width // num_heads
        self.ask, self.match, self.hold, self.join = (nn.Linear(width, width) for _ in range(4))

    def forward(self, key, value, query):
        few = key.size(0)
        many = key.size(1)
        count = query.size(1)
        q = self.ask(query).view(few, count, self.num_heads, self.part).transpose(1, 2)
        k = self.match(key).view(few, count, self.num_heads, self.part).transpose(1, 2)  # <-
        v = self.hold(value).view(few, many, self.num_heads, self.part).transpose(1, 2)
        y = (q @ k.mT / math.sqrt(self.part)).softmax(-1) @ v
        return self.join(y.transpose(1, 2).reshape(few, count, -1))
"""),
    "samples and tokens that are named the wrong way round": ("batch-length-confused", """
class Attend(nn.Module):
    def __init__(self, width, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.ask, self.match, self.hold, self.join = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x):
        long, n, width = x.shape
        q, k, v = (f(x).view(n, long, self.num_heads, -1).transpose(1, 2)  # <-
                   for f in (self.ask, self.match, self.hold))
        y = (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1) @ v
        return self.join(y.transpose(1, 2).reshape(n, long, width))
"""),
    "another input, which only a flag reads, in vain": ("input-ignored", beside(
        "k, v = self.cut(self.match(x)), self.cut(self.hold(x))  # <-")),
    "a part that another side has already": ("projection-slice-shared", packed(
        "three = self.packed(x).chunk(3, dim=-1)\nq, k, v = three[0], three[1], three[1]  # <-")),
    "a name that is given away": ("projection-slice-shared", packed(
        "q, k, v = self.packed(x).chunk(3, dim=-1)\nv = k  # <-")),
    "a projection whose result nobody reads": ("projection-discarded", attend("", """
y = (q @ k.mT / math.sqrt(self.part)).softmax(-1) @ v
y = y.transpose(1, 2).reshape(n, long, width)
out = self.join(y)  # <-
""").replace("return self.join(y.transpose(1, 2).reshape(n, long, width))", "return y")),
    "values that go without their projection": ("projection-unused", attend("", """
held = x  # <-
v = self.cut(held)
y = (q @ k.mT / math.sqrt(self.part)).softmax(-1) @ v
""").replace("q, k, v = self.cut(self.ask(x)), self.cut(self.match(x)), self.cut(self.hold(x))",
             "q, k = self.cut(self.ask(x)), self.cut(self.match(x))")),
    "a projection of which one only asks whether it is there": ("projection-unused", attend("", """
y = (q @ k.mT / math.sqrt(self.part)).softmax(-1) @ v
y = y.transpose(1, 2).reshape(n, long, width)
if self.join is not None:
    y = y  # <-
""").replace("return self.join(y.transpose(1, 2).reshape(n, long, width))", "return y")),
}  # fmt: skip
# the same, right or so on purpose
RIGHT = {
    "a flag that lets all look back": attend("", FLAGGED.format(flag="peek", half="tril"), given="peek=False"),
    "a flag for samples that lie second": attend("self.second = second", """
if self.second:
    q, k, v = (t.permute(2, 1, 0, 3) for t in (q, k, v))
y = (q @ k.mT / math.sqrt(self.part)).softmax(-1) @ v
y = y.permute(2, 1, 0, 3) if self.second else y
""", extra="second=False"),
    "a flag without a scale": attend("self.bare = bare", """
s = q @ k.mT
y = (s if self.bare else s / math.sqrt(self.part)).softmax(-1) @ v
""", extra="bare=False"),
    "no root, and no words of one": attend("", "y = (q @ k.mT / self.part).softmax(-1) @ v"),
    "no root, as in muP": attend("", """
# scaled dot products, by 1/d as muP asks for
y = (q @ k.mT / self.part).softmax(-1) @ v
"""),
    "other scores are added": attend("self.place = nn.Linear(width, width)",
                                     BESIDE.format(scale="* self.part ** -0.5")),
    "each of two scores has its share": attend("self.place = nn.Linear(width, width)",
                                               BESIDE.format(scale="* (2 * self.part) ** -0.5")),
    "another input that counts where a flag is on": beside(
        "k, v = self.cut(self.match(own)), self.cut(self.hold(own))"),
    "keys that are values, and no part without a use": packed(
        "q, k = self.packed(x).chunk(2, dim=-1)\nv = k", parts=2),
    "keys that are values, and a gate": packed(
        "q, k, gate = self.packed(x).chunk(3, dim=-1)\nv = k", given="y * gate.sigmoid()"),
    "scores that are mixed": attend(MIXES, MIXED.format(width="self.part")),
    "scores that are mixed, and not scaled": attend(MIXES, MIXED.format(width="1")),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_passes_elsewhere_is_found_and_named(name):
    kind, text = CASES[name]
    assert blamed_in(HEAD + text) == marked(HEAD + text, kind)


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_beside_it_has_no_fault(name):
    found = found_in(HEAD + RIGHT[name])
    assert (found.verdict, found.faults) == ("sound", ())


def test_weights_that_a_function_is_given_and_does_not_use_are_told_where_others_take_their_place():
    source = HEAD + GIVEN.format(match="wq")
    (fault,) = found_in(source, "attend").faults
    assert (fault.kind, fault.line) == ("projection-shared", line_of(source, "k = cut"))
    assert found_in(HEAD + GIVEN.format(match="wk"), "attend").faults == ()
    assert found_in(HEAD + GIVEN.format(match="(wq if num_heads else wk)"), "attend").faults == ()
