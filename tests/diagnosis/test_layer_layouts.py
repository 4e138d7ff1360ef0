"""Which axis is the batch follows from what torch's layers get, where they are written for tokens first."""

import pytest
from torch import nn

import headwise as hw
from tests.diagnosis.written import HEAD, blamed_in, found_in, marked

BLOCK = (
    HEAD
    + """
class Attend(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm, self.mix = nn.LayerNorm(width), nn.MultiheadAttention(width, heads)

    def forward(self, tokens):
        {comment}
        t = self.norm(tokens){there}
        return tokens + self.mix(t, t, t, need_weights=False)[0]{back}
"""
)
PATCHES = """

class Mixed(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm, self.mix = nn.LayerNorm(width), None
        self.mix = nn.MultiheadAttention(width, heads{order})  # <-

    def forward(self, x):
        return self.norm(x + self.mix(x, x, x, need_weights=False)[0])


class Patched(nn.Module):
    "x: (batch, seq_len, features)."

    def __init__(self, features=5, seq_len=96, patch_len=8, width=64, heads=4):
        super().__init__()
        self.patch, self.count = patch_len, seq_len // patch_len
        self.embed = nn.Linear(features * patch_len, width)
        self.layers = nn.ModuleList([Mixed(width, heads) for _ in range(2)])

    def forward(self, x):
        y = self.embed(x.reshape(len(x), self.count, self.patch * x.shape[-1]))
        for layer in self.layers:
            y = layer(y)
        return y.mean(1)
"""
SILENT = "long = tokens.shape"
MOVES = [".transpose(0, 1)", ".permute(1, 0, 2)", ".swapaxes(1, 0)"]


@pytest.mark.parametrize("move", MOVES)
def test_a_forward_that_puts_tokens_first_itself_is_called_with_the_batch_first(move):
    found = found_in(BLOCK.format(comment=SILENT, there=move, back=move))
    assert found.verdict == "sound"
    assert "layout" not in found.examined


def test_a_forward_that_moves_no_axis_is_called_with_tokens_first():
    found = found_in(BLOCK.format(comment=SILENT, there="", back=""))
    assert (found.verdict, found.examined["layout"]) == ("sound", "[L, B, D]")


def test_a_layer_with_tokens_first_and_an_input_with_the_batch_first_are_at_odds():
    source = BLOCK.format(comment="# tokens: (batch, length, width)", there="", back="")
    assert [kind for kind, _ in blamed_in(source)] == ["batch-length-confused"]


@pytest.mark.parametrize(("order", "kinds"), [("", ["batch-length-confused"]), (", batch_first=True", [])])
def test_patches_of_each_sample_in_layers_with_tokens_first_are_told_where_a_layer_is_built(order, kinds):
    source = HEAD + PATCHES.replace("{order}", order)
    assert blamed_in(source, "Patched") == [each for kind in kinds for each in marked(source, kind)]


def test_a_decoder_that_puts_queries_and_memory_in_order_itself_is_sound():
    source = (
        HEAD
        + """
class Attend(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.mix = nn.MultiheadAttention(width, heads)

    def forward(self, query, memory):
        q, m = query.transpose(0, 1), memory.transpose(0, 1)
        return query + self.mix(q, m, m)[0].transpose(0, 1)
"""
    )
    assert (found := found_in(source)).verdict == "sound"
    assert found.examined["cross"] is True


class Turning(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm, self.mix = nn.LayerNorm(width), nn.MultiheadAttention(width, heads)

    def forward(self, tokens):
        t = self.norm(tokens).permute(1, 0, 2)
        return tokens + self.mix(t, t, t, need_weights=False)[0].permute(1, 0, 2)


@pytest.mark.parametrize("call", [{"tokens": ["B", "L", "D"]}, {"tokens": [2, 5, 12]}])
def test_letters_and_numbers_of_the_call_leave_it_sound(call):
    assert hw.doctor(Turning, call=call).verdict == "sound"


def test_a_trace_names_the_axes_of_a_forward_that_puts_tokens_first_itself():
    ops = hw.trace(Turning).to_dict()["ops"]
    first, moved = (next(op for op in ops if name in op["op"]) for name in ("norm", "permute"))
    assert (first["axes"], moved["axes"]) == (["B", "L", "D"], ["L", "B", "D"])


OWN = """

class Own(nn.MultiheadAttention):
    "x: (batch, num_patches, embed_dim)"

    def __init__(self, embed_dim, num_heads, dropout=0.0):
        {built}(embed_dim, num_heads, dropout=dropout{order})
        self.norm = nn.LayerNorm(embed_dim)

    def forward(self, x):
        h = self.norm(x)
        return x + super().forward(h, h, h, need_weights=False)[0]
"""


@pytest.mark.parametrize("built", ["super().__init__", "super(Own, self).__init__"])
@pytest.mark.parametrize(("order", "kinds"), [("", ["batch-length-confused"]), (", batch_first=True", [])])
def test_a_class_made_from_the_layer_is_told_where_it_builds_it(built, order, kinds):
    source = HEAD + OWN.replace("{built}", built).replace("{order})", order + ")" + "  # <-" * bool(kinds))
    assert blamed_in(source, "Own") == [each for kind in kinds for each in marked(source, kind)]
