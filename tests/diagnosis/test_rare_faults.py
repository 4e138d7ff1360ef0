"""Faults that are seldom made, each beside the same put right: cut after it was shared, turned round, unread."""

import pytest

from tests.diagnosis import written
from tests.diagnosis.test_masks import attend
from tests.diagnosis.written import HEAD, blamed_in, found_in, marked

CUT = "s = s.softmax(-1)\nw = s.tril(){mark}\n{then}return self.join((w @ v).transpose(1, 2).flatten(2))"
PICTURE = (
    HEAD
    + """
class Attend(nn.Module):
    def __init__(self, dim, heads=3, dim_head=8):
        super().__init__()
        self.heads, self.scale = heads, dim_head ** -0.5
        self.three = nn.Conv2d(dim, heads * dim_head * 3, 1, bias=False)

    def forward(self, fmap):
        b, c, h, w = fmap.shape
        q, k, v = (t.reshape(b, self.heads, -1, h * w).mT for t in self.three(fmap).chunk(3, dim=1))
        y = (q @ k.mT * self.scale).softmax(-1) @ v
        return y.{merge}.reshape(b, -1, h, w){mark}
"""
)
FUSED = (
    HEAD
    + """
class Attend(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads, self.part = num_heads, embed_dim // num_heads
        self.ask, self.match, self.hold, self.join = (nn.Linear(embed_dim, embed_dim) for _ in range(4))

    def cut(self, t):
        return t.view(t.shape[0], -1, self.num_heads, self.part).transpose(1, 2)

    def forward(self, {given}):
{body}
"""
)
CAUSAL = """
        q, k, v = self.cut(self.ask(x)), self.cut(self.match(x)), self.cut(self.hold(x))
        y = F.scaled_dot_product_attention(q, k, v, is_causal={causal}){mark}
        return self.join(y.transpose(1, 2).flatten(2))
"""
TURNED = """
        q, k, v = self.cut(self.ask(x)), self.cut(self.match(x)), self.cut(self.hold(x))
        y = F.scaled_dot_product_attention(q, k, v)
        return self.join(y{turn}.transpose(1, 2).flatten(2)){mark}
"""
RANKS = """
        if x.ndim == 3:
            q, k, v = self.cut(self.ask(x)), self.cut(self.match({side})), self.cut(self.hold({side}))  # <-
            return self.join(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        n = x.shape[1]
        y = self(x.flatten(1, 2), m.flatten(1, 2))
        return y.unflatten(1, (n, -1))
"""
HIDDEN = "if mask is not None:\n    s = s.masked_fill(mask.{}.expand_as(s), float('-inf')){}"
DONE = "return self.join((s @ v).transpose(1, 2).flatten(2))"
DROPPED = "s = s.softmax(-1)\n{}{}\n" + DONE
DROPS = {"given": "x", "built": ", dropout=0.1", "made": "self.drop = nn.Dropout(dropout)"}
SHARED = "s = F.softmax(s, {}=-1){}\n" + DONE
THREE = "self.three = nn.Linear(embed_dim, 3 * embed_dim)"
SCORED = "\ns = q @ k.mT / math.sqrt(self.part)\ns = s.softmax(-1)\n" + DONE
PACKED = "b, n, e = x.shape\nq, k, v = self.three(x).split(e, dim={}){}\nq, k, v = map(self.cut, (q, k, v))" + SCORED
WIDE = (
    "b, n, e = x.shape\nq, k, v = self.three(x).reshape(b, n, 3, self.num_heads, {}).permute(2, 0, 3, 1, 4){}" + SCORED
)
BLOCK = (
    HEAD
    + """
class Look(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.part = heads, width // heads
        self.ask, self.match, self.hold, self.join = (nn.Linear(width, width) for _ in range(4))

    def cut(self, t):
        return t.view(t.shape[0], -1, self.heads, self.part).transpose(1, 2)

    def forward(self, x, y, mask=None):
        s = self.cut(self.ask(x)) @ self.cut(self.match(y)).mT / math.sqrt(self.part)
        if mask is not None:
            s = s.masked_fill(~mask.unsqueeze(1), -1e9)
        return self.join((s.softmax(-1) @ self.cut(self.hold(y))).transpose(1, 2).flatten(2))


class Attend(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.own, self.other = Look(width, heads), Look(width, heads)

    def forward(self, tgt, memory, tgt_mask=None, memory_mask=None):
        tgt = tgt + self.own(tgt, tgt, tgt_mask)
        return tgt + self.other(tgt, memory{given}){mark}
"""
)
# of each: the kind, the fault, and the same put right
CASES = {
    "weights of later keys are cut off when all had their share": (
        "mask-after-softmax",
        attend(CUT.format(mark="  # <-", then=""), given="x"),
        attend(CUT.format(mark="", then="w = w / w.sum(-1, keepdim=True)\n"), given="x"),
    ),
    "scores of later keys are cut down to 0": (
        "causal-zeroed",
        attend("s = s.tril()  # <-", given="x"),
        attend("s = s.tril()\ns = s.masked_fill(s == 0, float('-inf'))", given="x"),
    ),
    "heads are laid in the places of an image": (
        "merge-without-transpose",
        PICTURE.format(merge="contiguous()", mark="  # <-"),
        PICTURE.format(merge="mT", mark=""),
    ),
    "what torch's attention gives is turned round": (
        "value-changed",
        FUSED.format(given="x", body=TURNED.format(turn=".flip(2)", mark="  # <-")),
        FUSED.format(given="x", body=TURNED.format(turn="", mark="")),
    ),
    "a flag of the call that is on does nothing": (
        "causal-missing",
        FUSED.format(given="x, is_causal=True", body=CAUSAL.format(causal="False", mark="  # <-")),
        FUSED.format(given="x, is_causal=True", body=CAUSAL.format(causal="is_causal", mark="")),
    ),
    "the second input counts for another rank alone": (
        "input-ignored",
        FUSED.format(given="x, m", body=RANKS.format(side="x")),
        FUSED.format(given="x, m", body=RANKS.format(side="m")),
    ),
    "what is left of 1 is multiplied by infinity": (
        "mask-nan",
        attend("s = s + (1.0 - mask.type(torch.float32)[:, None, None, :]) * float('-inf')  # <-", given="x, mask"),
        attend("s = s + (1.0 - mask.type(torch.float32)[:, None, None, :]) * -1e4", given="x, mask"),
    ),
    "what dropout gives is thrown away": (
        "dropout-discarded",
        attend(DROPPED.format("self.drop(s)", "  # <-"), **DROPS),
        attend(DROPPED.format("s = self.drop(s)", ""), **DROPS),
    ),
    "an option that torch has not": (
        "raises",
        attend(SHARED.format("dims", "  # <-"), given="x"),
        attend(SHARED.format("dim", ""), given="x"),
    ),
    "features are split along the tokens": (
        "raises",
        attend(PACKED.format(1, "  # <-"), given="x", made=THREE),
        attend(PACKED.format(2, ""), given="x", made=THREE),
    ),
    "heads of the whole width each, of what has no name": (
        "raises",
        attend(WIDE.format("e", "  # <-"), given="x", made=THREE),
        attend(WIDE.format("self.part", ""), given="x", made=THREE),
    ),
    "a block keeps the mask of the memory to itself": (
        "mask-ignored",
        BLOCK.format(given="", mark="  # <-"),
        BLOCK.format(given=", memory_mask", mark=""),
    ),
    "whole queries are hidden, which leaves no number": (
        "mask-axis",
        attend(HIDDEN.format("view(x.shape[0], 1, -1, 1)", "  # <-"), given="x, mask=None"),
        attend(HIDDEN.format("view(x.shape[0], 1, 1, -1)", ""), given="x, mask=None"),
    ),
}
# what is like them and right
RIGHT = {
    "dropout in place": attend(
        "s = self.join((s.softmax(-1) @ v).transpose(1, 2).flatten(2))\nself.drop(s)\nreturn s",
        **{**DROPS, "made": "self.drop = nn.Dropout(0.1, inplace=True)"},
    ),
    "scores without a softmax of which those of later keys are cut off": attend(
        "return self.join((s.tril() @ v).transpose(1, 2).flatten(2))", given="x"
    ),
    "a flag of the call that asks for what is seen of others": FUSED.format(
        given="x, memory, is_causal=True",
        body=CAUSAL.format(causal="False", mark="")
        .replace("match(x)", "match(memory)")
        .replace("hold(x)", "hold(memory)"),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_fault_that_is_seldom_made_is_named_and_located(name):
    kind, wrong, _ = CASES[name]
    assert blamed_in(wrong)[:1] == marked(wrong, kind)


@pytest.mark.parametrize("name", CASES)
def test_put_right_it_is_sound(name):
    found = found_in(CASES[name][2])
    assert (found.verdict, found.faults) == ("sound", ())


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_like_them_and_right_has_no_fault(name):
    assert blamed_in(RIGHT[name]) == []


LATER_HIDDEN = """
s = (q @ k.mT * self.part ** -0.5).masked_fill(torch.ones(long, long).triu(1) == 1, float("-inf"))  # <-
y = self.drop(s) @ v
"""
SHARED_WITH_A_MASK = """
s = q @ k.mT * self.part ** -0.5
if mask is None:
    w = s  # <-
else:
    w = s.masked_fill(mask[:, None, None] == 0, float("-inf")).softmax(-1)
y = w @ v
"""
MADE_OF_ITSELF = """
if mask is not None:
    mask = mask.to(dtype=torch.bool)
y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=width ** -0.5)  # <-
"""


@pytest.mark.parametrize(
    ("kind", "body", "given"),
    [
        ("softmax-missing", LATER_HIDDEN, ""),
        ("softmax-missing", SHARED_WITH_A_MASK, "mask=None"),
        ("scale-wrong", MADE_OF_ITSELF, "mask=None"),
    ],
    ids=["all but one token makes NaN", "a mask is no option", "a name that is made of itself"],
)
def test_what_stands_beside_a_fault_hides_it_not(kind, body, given):
    source = HEAD + written.attend(made="self.drop = nn.Dropout(0.1)", body=body, given=given)
    assert blamed_in(source) == marked(source, kind)
