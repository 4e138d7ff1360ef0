"""What is said of a fault is true of the code at hand: what else it does, and all that it is of."""

from tests.diagnosis.written import HEAD, attend, found_in

CROSS = """
class Attend(nn.Module):
    def __init__(self, width, num_heads):
        super().__init__()
        self.num_heads, self.part = num_heads, width // num_heads
        {maps}

    def cut(self, t):
        return t.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def forward(self, x, memory):
        q, k, v = self.ask(x), self.match(memory), self.hold({values})
        q, k, v = self.cut(q), self.cut(k), self.cut(v)
        y = (q @ k.mT / math.sqrt(self.part)).softmax(-1) @ v
        return self.join(y.transpose(1, 2).flatten(2))
"""
FOUR = "self.ask, self.match, self.hold, self.join = (nn.Linear(width, width) for _ in range(4))"
LISTED = """
class One(nn.Module):
    def __init__(self, width, part):
        super().__init__()
        self.ask, self.match, self.hold = (nn.Linear(width, part) for _ in range(3))
        self.drop = nn.Dropout(0.3)

    def forward(self, x):
        s = self.ask(x) @ self.match(x).mT / self.ask.out_features ** 0.5
        return self.drop(s.softmax(-1)) @ self.hold(x)


class Attend(nn.Module):
    def __init__(self, width, num_heads):
        super().__init__()
        self.every = [One(width, width // num_heads) for _ in range(num_heads)]
        self.join = nn.Linear(width, width)

    def forward(self, x):
        return self.join(torch.cat([each(x) for each in self.every], dim=-1))
"""


def test_an_argument_that_makes_the_keys_is_not_said_to_change_nothing():
    (fault,) = found_in(HEAD + CROSS.format(maps=FOUR, values="x")).faults
    assert (fault.kind, fault.code) == ("input-mixed", "self.hold(x)")
    assert fault.what == "Keys and values come from two arguments: one projection takes x, the other takes memory."


def test_all_projections_that_are_one_are_named():
    maps = "self.ask = self.match = self.hold = nn.Linear(width, width); self.join = nn.Linear(width, width)"
    (fault,) = found_in(HEAD + CROSS.format(maps=maps, values="memory")).faults
    assert fault.kind == "projection-shared"
    assert fault.what == "q, k, v share one projection: ask, match, hold."


def test_dropout_that_eval_does_not_reach_is_told_with_the_list_that_hides_it():
    (fault,) = found_in(HEAD + LISTED).faults
    assert (fault.kind, fault.proved) == ("modules-unregistered", True)
    assert fault.source.strip().startswith("self.every = [")
    assert "eval() does not reach them" in fault.why


def test_dropout_that_is_called_outright_is_told_by_itself():
    found = found_in(HEAD + attend(body="y = F.dropout((q @ k.mT * self.part ** -0.5).softmax(-1), 0.2) @ v"))
    assert [each.kind for each in found.faults] == ["dropout-in-eval"]


def test_a_triangle_that_the_code_makes_asks_for_what_comes_before():
    body = """
    seen = torch.ones(long, long, dtype=torch.bool).tril()
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
    """
    assert found_in(HEAD + attend(body=body)).examined["causal"] is True
    assert str(found_in(HEAD + attend()).examined["causal"]).startswith("no: ")
