"""Mask lines: what is wrong with a mask that forward makes stands where it is made, and not where it is used."""

import pytest

from tests.diagnosis.written import HEAD, attend, blamed_in, marked

CUT = "tri = torch.ones(long, long, dtype=torch.bool).{square}\n"
FUSED = "y = F.scaled_dot_product_attention(\n    q, k, v,\n    attn_mask=bias,\n)"
WRITTEN = "s = q @ k.mT / math.sqrt(self.part)\ns = s + bias\ny = s.softmax(-1) @ v"
USES = [FUSED, WRITTEN]
# the square, and what makes numbers of it: wrongly and rightly
FILLED = [
    ("tril()", "torch.where(tri, float('-inf'), 0.0)", "torch.where(tri, 0.0, float('-inf'))"),
    (
        "triu(1)",
        "torch.zeros(long, long).masked_fill(~tri, -torch.inf)",
        "torch.zeros(long, long).masked_fill(tri, -torch.inf)",
    ),
]
PADDED = """
hide = torch.ones(n, long, long, dtype=torch.bool).triu(1)
if key_padding_mask is not None:
    hide = hide | key_padding_mask[{at}]{mark}
bias = torch.zeros(n, long, long).masked_fill(hide, -torch.inf)
bias = bias.unsqueeze(1)
"""


def filled(square, made, use, mark="", laid="bias[None, None]"):
    """Causal attention whose square is filled in a line of its own."""
    source = attend(body=f"{CUT.format(square=square)}bias = {made}{mark}\nbias = {laid}\n{use}")
    return HEAD + source.replace("Attend", "CausalAttend")


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize(("square", "wrong", "right"), FILLED)
def test_a_square_that_is_filled_the_wrong_way_round_stands_where_it_is_filled(square, wrong, right, use):
    source = filled(square, wrong, use, "  # <-")
    assert blamed_in(source, "CausalAttend") == marked(source, "causal-inverted")
    assert blamed_in(filled(square, right, use), "CausalAttend") == []


def test_an_inverted_square_of_two_axes_is_found_too():
    square, wrong, right = FILLED[0]
    source = filled(square, wrong, FUSED, "  # <-", laid="bias + 0")
    assert blamed_in(source, "CausalAttend") == marked(source, "causal-inverted")
    assert blamed_in(filled(square, right, FUSED, laid="bias + 0"), "CausalAttend") == []


def test_a_padding_mask_laid_over_queries_stands_where_it_is_laid():
    wrong, right = PADDED.format(at=":, :, None", mark="  # <-"), PADDED.format(at=":, None", mark="")
    source = HEAD + attend(body=wrong + FUSED, given="key_padding_mask=None")
    assert blamed_in(source) == marked(source, "mask-axis")
    assert blamed_in(HEAD + attend(body=right + FUSED, given="key_padding_mask=None")) == []


@pytest.mark.parametrize("use", ["s.masked_fill(mask, 0.0)", "torch.where(mask, 0.0, s)"])
def test_a_weak_number_that_stands_in_its_place_is_blamed_there_and_no_name_beside_it(use):
    body = f"s = q @ k.mT / math.sqrt(self.part)\nif mask is not None:\n    s = {use}  # <-\ny = s.softmax(-1) @ v"
    source = HEAD + attend(body=body, given="mask=None")
    assert blamed_in(source) == marked(source, "mask-weak-fill")


def test_padding_that_is_inverted_with_the_square_is_no_fault_of_its_own():
    body = """
hide = torch.ones(n, long, long, dtype=torch.bool).triu(1)
if key_padding_mask is not None:
    hide = hide | key_padding_mask[:, None]
bias = {made}
bias = bias.unsqueeze(1)
"""
    wrong, right = "torch.where(hide, 0.0, -torch.inf)", "torch.where(hide, -torch.inf, 0.0)"
    source = HEAD + attend(body=body.format(made=f"{wrong}  # <-") + FUSED, given="key_padding_mask=None")
    assert blamed_in(source.replace("Attend", "CausalAttend"), "CausalAttend") == marked(source, "causal-inverted")
    source = HEAD + attend(body=body.format(made=right) + FUSED, given="key_padding_mask=None")
    assert blamed_in(source.replace("Attend", "CausalAttend"), "CausalAttend") == []


WORDS = """
hide = 1.0 - attention_mask[{at}].to(x.dtype)
s = q @ k.mT / math.sqrt(self.part) + hide * -10000.0
y = s.softmax(-1) @ v
"""


@pytest.mark.parametrize(("at", "kinds"), [(":, None, None, :", []), (":, None, :, None", ["mask-axis"])])
def test_a_mask_of_keys_that_meets_all_keys_of_a_query_alike_lies_along_the_wrong_axis(at, kinds):
    body = WORDS.replace("{at}", at).replace(".to(x.dtype)", ".to(x.dtype)" + "  # <-" * bool(kinds))
    source = HEAD + attend(body=body, given="attention_mask")
    assert blamed_in(source, "Attend") == [each for kind in kinds for each in marked(source, kind)]


KEPT = """
seen = torch.ones(longest, longest).{square}
self.register_buffer("seen", seen.bool())
"""


@pytest.mark.parametrize(("square", "kinds"), [("tril()", []), ("tril(1)  # <-", ["causal-offset"])])
def test_a_square_that_a_constructor_keeps_stands_where_it_is_made(square, kinds):
    body = "near = self.seen[:long, :long]\ns = q @ k.mT / math.sqrt(self.part)\n"
    body += "y = s.masked_fill(~near, -torch.inf).softmax(-1) @ v"
    made = KEPT.replace("{square}", square)
    source = HEAD + attend(made=made, body=body, extra="longest").replace("Attend", "CausalAttend")
    assert blamed_in(source, "CausalAttend") == [each for kind in kinds for each in marked(source, kind)]


HISTORY = """

class History(nn.Module):
    def __init__(self, items=11, width=24, heads=3):
        super().__init__()
        self.heads, self.items = heads, nn.Embedding(items, width, padding_idx=0)
        self.three = nn.Linear(width, 3 * width)

    def attend(self, x, near):
        b, n, d = x.shape
        q, k, v = self.three(x).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        s = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(~near, -1e9)
        return (s.softmax(-1) @ v).transpose(1, 2).reshape(b, n, d)

    def forward(self, ids):
        kept = ids != 0
        n = ids.shape[1]
        square = torch.ones(n, n, dtype=torch.bool).{square}
        near = square[None, None] & kept[:, None, None]
        return (self.items(ids) + self.attend(self.items(ids), near)) * kept[..., None]
"""


def test_a_square_that_is_joined_to_padding_of_ids_stands_where_it_is_made():
    source = HEAD + HISTORY.replace("{square}", "tril(diagonal=1)  # <-")
    assert blamed_in(source, "History") == marked(source, "causal-offset")
    assert blamed_in(HEAD + HISTORY.replace("{square}", "tril()"), "History") == []


LATER = """
s = q @ k.mT / math.sqrt(self.part)
s = s.masked_fill(~valid[:, {at}], -torch.inf){mark}
y = (s.softmax(-1) @ v).masked_fill(~valid[:, None, :, None], 0.0)
"""


@pytest.mark.parametrize(("at", "kinds"), [("None, None, :", []), ("None, :, None", ["mask-axis"])])
def test_the_axis_of_a_mask_is_told_where_it_meets_the_scores_and_not_where_it_is_used_later(at, kinds):
    body = LATER.replace("{at}", at).replace("{mark}", "  # <-" * bool(kinds))
    source = HEAD + attend(body=body, given="valid")
    assert blamed_in(source, "Attend") == [each for kind in kinds for each in marked(source, kind)]


SLOPED = """
far = (torch.arange(long)[:, None] - torch.arange(long)).clamp(min=0)
bias = {sign}(0.5 ** torch.arange(1, self.num_heads + 1))[:, None, None] * far{mark}
s = (q @ k.mT / math.sqrt(self.part) + bias).masked_fill(far.new_ones(long, long).triu(1) > 0, -torch.inf)
y = s.softmax(-1) @ v
"""


@pytest.mark.parametrize(("sign", "kinds"), [("-", []), ("", ["distance-bias-sign"])])
def test_a_bias_of_distance_that_grows_is_told_where_it_is_made(sign, kinds):
    body = SLOPED.replace("{sign}", sign).replace("{mark}", "  # <-" * bool(kinds))
    source = HEAD + attend(body=body).replace("Attend", "CausalAttend")
    assert blamed_in(source, "CausalAttend") == [each for kind in kinds for each in marked(source, kind)]


LOCAL = """
from dataclasses import dataclass

@dataclass
class Local:
    width: int = 24
    heads: int = 3
    window: int = 8
    causal: bool = True

class Window(nn.Module):
    def __init__(self, config: Local):
        super().__init__()
        {told}
        self.config, self.three = config, nn.Linear(config.width, 3 * config.width)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.three(x).view(b, n, 3, self.config.heads, -1).permute(2, 0, 3, 1, 4)
        far = torch.arange(n)[:, None] - torch.arange(n)
        far = far if {asked} else far.abs()
        near = {near}
        s = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(~near, -torch.inf)
        return (s.softmax(-1) @ v).transpose(1, 2).reshape(b, n, d)
"""


@pytest.mark.parametrize(
    ("near", "asked", "told", "kinds"),
    [
        ("(far >= 0) & (far < self.config.window)", "self.config.causal", "", []),
        ("far < self.config.window", "self.config.causal", "", ["causal-missing"]),
        ("far < self.config.window", "self.causal", "self.causal = False", []),
    ],
)
def test_a_config_says_that_a_class_looks_back(near, asked, told, kinds):
    source = HEAD + LOCAL.replace("{near}", near).replace("{asked}", asked).replace("{told}", told)
    assert [kind for kind, _ in blamed_in(source, "Window")] == kinds
