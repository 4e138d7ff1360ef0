"""A method that takes token after token is held to forward, unless it does something else."""

import pytest

import headwise as hw
from tests.diagnosis.kinds import TEMPLATES

STEPS = TEMPLATES["STEPS"].text
RESULT = "return self.out_proj(context.transpose(1, 2).flatten(2))[:, 0], (k, v)"


def faults_of(tmp_path, text):
    """The faults of a class in a file, and their lines."""
    file = tmp_path / "model.py"
    file.write_text(text, encoding="utf-8")
    return [(each.kind, each.line) for each in hw.doctor(f"{file}:Attention").faults]


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("torch.cat([state[0], k], dim=2), torch", "torch.cat([k, state[0]], dim=2), torch"),
        ("(q, k, v)\n        return self.out_proj(context.transpose(1, 2).flatten(2))[:, 0]",
         "(q, k, v, scale=1.0)\n        return self.out_proj(context.transpose(1, 2).flatten(2))[:, 0]"),
        ("if state is not None:", "if False:"),
    ],
    ids=["order", "scale", "forgets"],
)  # fmt: skip
def test_a_step_that_gives_other_results_is_a_fault(tmp_path, right, wrong):
    text = STEPS.replace(right, wrong)
    assert text != STEPS
    line = next(n for n, each in enumerate(text.splitlines(), 1) if "x[:, None]" in each)
    assert faults_of(tmp_path, text) == [("step-differs", line)]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # something is made of what forward gives
        ("flatten(2))[:, 0], (k, v)", "flatten(2))[:, 0].log_softmax(-1), (k, v)"),
        # nothing is kept
        ("def step(self, x, state=None):", "def step(self, x):\n        state = None"),
        # kept in fewer bits
        ("[:, 0], (k, v)", "[:, 0], (k.bfloat16(), v.bfloat16())"),
        # tokens with an axis of their own, as forward takes them
        ("self.split(x[:, None])", "self.split(x)"),
        # the state comes first
        (
            "return self.out_proj(context.transpose(1, 2).flatten(2))[:, 0], (k, v)",
            "return (k, v), self.out_proj(context.transpose(1, 2).flatten(2))[:, 0]",
        ),
        # another layer than those of forward
        ("self.split(x[:, None])", "self.split(self.norm(x)[:, None])"),
    ],
    ids=["made of it", "keeps nothing", "fewer bits", "axis", "state first", "more layers"],
)
def test_a_method_that_does_something_else_is_left(tmp_path, before, after):
    text = STEPS.replace(before, after)
    assert text != STEPS
    text = text.replace(
        "        self.n_heads = n_heads\n", "        self.n_heads, self.norm = n_heads, nn.LayerNorm(d_model)\n"
    )
    assert faults_of(tmp_path, text) == []


MADE = """
    def init_state(self, batch):
        shape = (batch, self.n_heads, 12, self.out_proj.in_features // self.n_heads)
        return {"k": self.out_proj.weight.new_zeros(shape), "v": self.out_proj.weight.new_zeros(shape), "at": 0}

    def step(self, x, state):
        q, k, v = self.split(x[:, None])
        at = state["at"]
        state["k"][:, :, at], state["v"][:, :, at] = k[:, :, 0], v[:, :, 0]
        state["at"] = at + 1
        k, v = state["k"]{part}, state["v"]{part}
        context = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.out_proj(context.transpose(1, 2).flatten(2))[:, 0]
"""


@pytest.mark.parametrize(("part", "kinds"), [("[:, :, : at + 1]", []), ("", ["step-differs"])])
def test_a_state_that_a_method_makes_and_a_step_changes_is_handed_on(tmp_path, part, kinds):
    text = STEPS[: STEPS.index("    def step(")] + MADE.replace("{part}", part).lstrip("\n")
    assert [kind for kind, _ in faults_of(tmp_path, text)] == kinds


def test_a_state_that_asks_for_more_than_a_batch_leaves_the_default(tmp_path):
    room = "    def init_cache(self, batch_size, longest):\n        return {}\n\n    def step("
    wrong = ("torch.cat([state[1], v], dim=2)", "torch.cat([v, state[1]], dim=2)")
    text = STEPS.replace("    def step(", room).replace(*wrong)
    assert [kind for kind, _ in faults_of(tmp_path, text)] == ["step-differs"]


ROLLING = """import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width, heads, window):
        super().__init__()
        self.heads, self.window = heads, window
        self.ask, self.both, self.out = nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(width, width)

    def cut(self, x):
        return [t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (self.ask(x), *self.both(x).chunk(2, -1))]

    def forward(self, x):
        q, k, v = self.cut(x)
        far = torch.arange(x.shape[1])[:, None] - torch.arange(x.shape[1])
        y = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=(far >= 0) & (far < self.window))
        return self.out(y.transpose(1, 2).flatten(2))

    def step(self, x, cache=None):
        q, k, v = self.cut(x)
        if cache is not None:
            k, v = (torch.cat([old, new], 2){kept} for old, new in zip(cache, (k, v)))
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).flatten(2)), (k, v)
"""


@pytest.mark.parametrize(
    ("kept", "kinds"), [("[:, :, -self.window :]", []), ("[:, :, : self.window]", ["step-differs"])]
)
def test_a_step_is_held_to_forward_beyond_a_window(tmp_path, kept, kinds):
    assert [kind for kind, _ in faults_of(tmp_path, ROLLING.replace("{kept}", kept))] == kinds
