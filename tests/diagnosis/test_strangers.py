"""Faults in the forms in which strangers write them: each is found, named, and located where it was made."""

import pytest

from tests.diagnosis.written import HEAD, PLAIN, attend, blamed_in, found_in, marked

# the line of the fault ends with "# <-"
CASES = {
    "a number that the constructor makes of the model's width": ("scale-wrong", attend(
        "self.factor = width ** -0.5  # <-",
        "y = (q @ k.mT * self.factor).softmax(-1) @ v",
    )),
    "a number that another constructor is handed": ("scale-wrong", """
class Core(nn.Module):
    def __init__(self, heat):
        super().__init__()
        self.heat = heat

    def forward(self, q, k, v):
        return torch.softmax(q @ k.mT / self.heat, -1) @ v
""" + attend("self.core = Core(heat=width ** 0.5)  # <-", "y = self.core(q, k, v)")),
    "a local number": ("scale-wrong", attend("", """
shrink = width ** -0.5  # <-
y = (q @ k.mT * shrink).softmax(-1) @ v
""")),
    "a softmax made over the wrong axis": ("softmax-axis", attend(
        "self.share = nn.Softmax(dim=-2)  # <-",
        "y = self.share(q @ k.mT / math.sqrt(self.part)) @ v",
    )),
    "a triangle that is kept, with one column too many": ("causal-offset", attend("""
keep = torch.ones(most, most).tril(1)  # <-
self.register_buffer("keep", keep)
""", """
s = q @ k.mT / math.sqrt(self.part)
s = s.masked_fill(self.keep[:long, :long] == 0, float("-inf"))
y = s.softmax(-1) @ v
""", extra="most=64")),
    "a triangle that is right, used the wrong way round": ("causal-inverted", attend("""
self.register_buffer("keep", torch.ones(64, 64).tril())
""", """
s = q @ k.mT / math.sqrt(self.part)
s = s.masked_fill(self.keep[:long, :long] == 1, float("-inf"))  # <-
y = s.softmax(-1) @ v
""")),
    "later keys are taken away after the softmax": ("mask-after-softmax", attend("""
self.register_buffer("late", torch.ones(64, 64).triu(1).bool())
""", """
w = (q @ k.mT / math.sqrt(self.part)).softmax(-1)
w = w.masked_fill(self.late[:long, :long], 0.0)  # <-
y = w @ v
""")),
    "torch's attention drops in evaluation, by an attribute that is nothing by default": ("dropout-in-eval", attend(
        "self.drop_share = drop_share",
        "y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.drop_share)  # <-",
        extra="drop_share=0.0",
    )),
    "torch's attention drops in evaluation, by a number": ("dropout-in-eval", attend("", """
y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.2)  # <-
""")),
    "a flag that is on by default and does nothing": ("causal-missing", attend("self.causal = causal", """
s = q @ k.mT / math.sqrt(self.part)
if self.causal and long < 0:
    s = s + torch.full((long, long), float("-inf")).triu(1)
y = s.softmax(-1) @ v  # <-
""", extra="causal=True")),
    "a flag that works beside a mask only": ("causal-missing", attend("self.is_causal = is_causal", """
s = q @ k.mT / math.sqrt(self.part)
if keep is not None:
    if self.is_causal:
        keep = keep & torch.ones(long, long, dtype=torch.bool).tril()
    s = s.masked_fill(~keep, float("-inf"))
y = s.softmax(-1) @ v  # <-
""", extra="is_causal=False", given="keep=None")),
    "scaled before torch's attention scales": ("scale-twice", attend("", """
q = q * self.part ** -0.5  # <-
y = F.scaled_dot_product_attention(q, k, v)
""")),
    "scaled before and after, and shifted": ("scale-twice", attend("", """
q = q / self.part ** 0.5
s = (q @ k.mT) / self.part ** 0.5  # <-
s = s - s.amax(dim=-1, keepdim=True)
y = s.softmax(-1) @ v
""")),
    "turned and viewed": ("view-noncontiguous", """
class Attend(nn.Module):
    def __init__(self, width, num_heads):
        super().__init__()
        self.num_heads, self.part = num_heads, width // num_heads
        self.ask, self.match, self.hold, self.join = (nn.Linear(width, width) for _ in range(4))

    def cut(self, t):
        return t.view(t.shape[0], -1, self.num_heads, self.part).transpose(1, 2)

    def forward(self, query, key, value):
        q, k, v = self.cut(self.ask(query)), self.cut(self.match(key)), self.cut(self.hold(value))
        y = (q @ k.mT / math.sqrt(self.part)).softmax(-1) @ v
        n, h, long, part = y.shape
        return self.join(y.transpose(1, 2).view(n, long, h * part))  # <-
"""),
    "the root of a number": ("raises", attend("", """
y = (q @ k.mT / torch.sqrt(self.part)).softmax(-1) @ v  # <-
""")),
    "a method that tensors have not": ("wrong-attribute", attend("", """
w = (q @ k.mT / math.sqrt(self.part)).softmaxed(-1)  # <-
y = w @ v
""")),
    "a fill that is nearly nothing, beside a triangle": ("mask-weak-fill", attend("", """
s = q @ k.mT / math.sqrt(self.part)
if padding_mask is not None:
    s = s.masked_fill(~padding_mask[:, None, None, :], 1e-9)  # <-
late = torch.ones(long, long, dtype=torch.bool).triu(1)
y = s.masked_fill(late, float("-inf")).softmax(-1) @ v
""", given="padding_mask=None")),
    "a mask that does the opposite of what its words say": ("mask-inverted", attend("", """
'''padding_mask: True marks a padded token'''
s = q @ k.mT / math.sqrt(self.part)
s = s.masked_fill(~padding_mask[:, None, None, :], float("-inf"))  # <-
y = s.softmax(-1) @ v
""", given="padding_mask")),
    "weights are given what is meant for scores": ("mask-after-softmax", attend("", """
w = (q @ k.mT / math.sqrt(self.part)).softmax(-1)
if key_mask is not None:
    w = w.masked_fill(~key_mask[:, None, None, :], float("-inf"))  # <-
y = w @ v
""", given="key_mask=None")),
    "every sample is as long as the longest": ("mask-broadcast", attend("", """
s = q @ k.mT / math.sqrt(self.part)
keep = torch.arange(long)[None, :] < text_lengths.max()  # <-
y = s.masked_fill(~keep[:, None, None, :], float("-inf")).softmax(-1) @ v
""", given="text_lengths")),
    "a mask that is added to nothing": ("mask-ignored", attend("", """
s = q @ k.mT / math.sqrt(self.part)
if mask is not None:
    s + mask[:long, :long]  # <-
y = s.softmax(-1) @ v
""", given="mask=None")),
    "samples last in the mask, and a fill of nothing": ("mask-weak-fill", """
class Attend(nn.Module):
    def __init__(self, width, num_heads):
        super().__init__()
        self.num_heads, self.part = num_heads, width // num_heads
        self.ask, self.match, self.hold, self.join = (nn.Linear(width, width) for _ in range(4))

    def forward(self, query, key, value, mask=None):
        seq_len, batch_size, width = query.shape
        q, k, v = (f(t).view(t.shape[0], batch_size, self.num_heads, self.part)
                   for f, t in ((self.ask, query), (self.match, key), (self.hold, value)))
        s = torch.einsum("inhd,jnhd->ijnh", q, k) / math.sqrt(self.part)
        if mask is not None:
            s = s.masked_fill(mask.unsqueeze(-1) == 0, 1e-20)  # <-
        y = torch.einsum("ijnh,jnhd->inhd", s.softmax(dim=1), v)
        return self.join(y.reshape(seq_len, batch_size, width))
"""),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_fault_is_named_and_located_where_it_was_made(name):
    kind, text = CASES[name]
    assert blamed_in(HEAD + text) == marked(HEAD + text, kind)


def test_what_the_last_projection_refuses_is_examined():
    source = HEAD + attend("", PLAIN).replace("self.join(y.transpose(1, 2).reshape(n, long, width))", "self.join(y)")
    found = found_in(source)
    assert [each.line for each in found.faults] == [source.splitlines().index("        return self.join(y)") + 1]


@pytest.mark.parametrize("name", ["a number that the constructor makes of the model's width", "the root of a number"])
def test_without_the_fault_there_is_none(name):
    mended = {"width ** -0.5": "self.part ** -0.5", "torch.sqrt(self.part)": "math.sqrt(self.part)"}
    source = HEAD + CASES[name][1]
    for wrong, right in mended.items():
        source = source.replace(wrong, right)
    found = found_in(source)
    assert (found.verdict, found.faults) == ("sound", ())


TWO_WAYS = """
if self.fast:
    y = F.scaled_dot_product_attention(q, k, v, is_causal=self.is_causal)
else:
    s = q @ k.mT / math.sqrt(self.part)
    {masked}
    y = s.softmax(-1) @ v  # <-
"""


@pytest.mark.parametrize("asks", ["headwise", "init", "default"])
def test_a_flag_of_the_fused_way_is_excused_in_the_other_only_where_nobody_asked_for_it(asks):
    made, extra = "self.is_causal, self.fast = is_causal, fast", f"is_causal={asks == 'default'}, fast=False"
    masked = TWO_WAYS.format(masked="s = s if mask is None else s.masked_fill(mask, float('-inf'))")
    source = HEAD + attend(made, masked, extra=extra, given="mask=None")
    declared = {"width": "H*d", "num_heads": "H", "is_causal": True} if asks == "init" else None
    found = found_in(source, init=declared)
    if asks == "headwise":
        assert (found.verdict, found.faults) == ("sound", ())
        assert found.examined["causal"] == "no: is_causal is read only in a branch that was not run"
    else:
        assert [(each.kind, each.line) for each in found.faults] == marked(source, "causal-missing")


def test_a_flag_of_the_fused_way_is_missed_in_the_other_where_no_mask_may_come():
    made, extra = "self.is_causal, self.fast = is_causal, fast", "is_causal=False, fast=False"
    source = HEAD + attend(made, TWO_WAYS.format(masked="pass"), extra=extra)
    assert blamed_in(source) == marked(source, "causal-missing")


CONFIGURED = """
class Config:
    width, num_heads, share = 64, 4, {share}

class Attend(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads, self.share = config.num_heads, config.share
        self.packed = nn.Linear(config.width, 3 * config.width)

    def forward(self, x):
        q, k, v = self.packed(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return ((q @ k.mT).softmax(-1) @ v).transpose(1, 2).flatten(2)  # <-
"""


def test_a_share_of_one_in_a_config_excuses_no_missing_scale():
    source = HEAD + CONFIGURED.format(share="1.0")
    assert blamed_in(source) == marked(source, "scale-missing")
