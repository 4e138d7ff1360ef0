"""Traces made by hand, in a short notation: a source, and what each piece of it does."""

from headwise.dataflow import NamedAxis, Shape
from headwise.tracing.steps import Place, Problem, Step, Symbol, Trace

B, L, S = Symbol("B", "batch", 5), Symbol("L", "queries", 7), Symbol("S", "keys", 11)
H, d = Symbol("H", "heads", 13, "num_heads"), Symbol("d", "head_width", 17, "head_dim")
D = Symbol("D", "width", 221, "model_dim", "H*d")
SYMBOLS = (B, L, S, H, d, D)
SIZES = {each.name: each.size for each in SYMBOLS}


def shape(text):
    """The shape of "B L H*d"; an axis in round brackets, with _ for spaces, is scrambled: "B (H_L)"."""
    return Shape(tuple(axis(each) for each in text.split()))


def axis(text):
    said = text.replace("_", " ") if text.startswith("(") else text
    factors = said.strip("()").replace(" ", "*").split("*")
    size = 1
    for each in factors:
        size *= SIZES.get(each) or (int(each) if each.isdigit() else 0)
    return NamedAxis(said, size, text.startswith("("))


def place(source, code, *, file="code.py", after=0):
    """Where a piece of code stands in a source; after: a line after which it is looked for."""
    start = sum(len(line) + 1 for line in source.split("\n")[:after])
    at = source.index(code, start)
    before, inside = source[:at].split("\n"), code.split("\n")
    end = len(inside[-1]) + (len(before[-1]) if len(inside) == 1 else 0)
    return Place(file, len(before), len(before[-1]), len(before) + len(inside) - 1, end, code)


def step(source, code, op, inputs, outputs, *, calls=(), after=0, **more):
    """An operation: step(source, "self.q(x)", "linear", "B L D", "B L H*d"); several tensors are parted by ";"."""
    return Step(
        op,
        place(source, code, after=after),
        tuple(map(shape, filter(None, inputs.split(";")))),
        tuple(map(shape, filter(None, outputs.split(";")))),
        tuple(place(source, call) for call in calls),
        **more,
    )


def trace(source, *steps, symbols=SYMBOLS, file="code.py", **more):
    return Trace(f"{file}:Attention", {file: source}, symbols, steps, **more)


PLAIN = """\
class Attention(nn.Module):
    def split(self, x):
        x = x.view(*x.shape[:2], self.h, -1)
        return x.transpose(1, 2)

    def forward(self, q, k):
        q = self.split(self.to_q(q))
        k = self.split(self.to_k(k))
        return (q @ k.transpose(-2, -1)).softmax(-1)

    def other(self):
        return 1
"""


def plain(**more):
    """Two calls of one helper, and a product of what they give."""
    a, b = "self.split(self.to_q(q))", "self.split(self.to_k(k))"
    return trace(
        PLAIN,
        step(PLAIN, "self.to_q(q)", "linear", "B L D", "B L H*d", module="to_q"),
        step(PLAIN, "x.view(*x.shape[:2], self.h, -1)", "view", "B L H*d", "B L H d", calls=[a]),
        step(PLAIN, "x.transpose(1, 2)", "transpose", "B L H d", "B H L d", calls=[a]),
        step(PLAIN, "self.to_k(k)", "linear", "B S D", "B S H*d", module="to_k"),
        step(PLAIN, "x.view(*x.shape[:2], self.h, -1)", "view", "B S H*d", "B S H d", calls=[b]),
        step(PLAIN, "x.transpose(1, 2)", "transpose", "B S H d", "B H S d", calls=[b]),
        step(PLAIN, "k.transpose(-2, -1)", "transpose", "B H S d", "B H d S"),
        step(PLAIN, "q @ k.transpose(-2, -1)", "@", "B H L d;B H d S", "B H L S"),
        step(PLAIN, "(q @ k.transpose(-2, -1)).softmax(-1)", "softmax", "B H L S", "B H L S"),
        **more,
    )


def failing(setting="", reason="view on [B, S, D] asked for [B, L, H, d]: L is the query length, S was needed"):
    """A trace that ends at its first operation."""
    where = place(PLAIN, "x.view(*x.shape[:2], self.h, -1)")
    return trace(
        PLAIN,
        step(PLAIN, "self.to_q(q)", "linear", "B L D", "B L H*d"),
        problems=(Problem(where, "view", reason, "RuntimeError: shape '[5, 7]' is invalid", setting),),
        init={"model_dim": "H*d", "num_heads": "H"},
        call={"q": ["B", "L", "D"], "k": ["B", "S", "D"]},
    )
