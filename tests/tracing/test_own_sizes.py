"""Sizes of their own: what the code does not tie together has names of its own in a trace."""

import pytest
import torch
from torch import nn

import headwise as hw
from headwise.calls import Named, Plan
from headwise.tracing.legend import legend


class Resampler(nn.Module):
    """x: (batch, media, frames, patches, dim)"""

    def __init__(self, dim, heads=2, num_latents=6, ff_mult=3, max_frames=9):
        super().__init__()
        self.heads = heads
        self.latents = nn.Parameter(torch.randn(num_latents, dim))
        self.times = nn.Parameter(torch.randn(max_frames, 1, dim))
        self.kv = nn.Linear(dim, 2 * dim)
        self.wide, self.narrow = nn.Linear(dim, ff_mult * dim), nn.Linear(ff_mult * dim, dim)

    def forward(self, x):
        b, m, f, p, d = x.shape
        x = (x + self.times[:f]).reshape(b, m, f * p, d)
        q = self.latents.expand(b, m, -1, -1)
        k, v = self.kv(torch.cat((x, q), dim=-2)).chunk(2, dim=-1)
        out = ((q @ k.mT) * d**-0.5).softmax(dim=-1) @ v
        return self.narrow(self.wide(out).relu())


class Crossed(nn.Module):
    def __init__(self, d_x, d_y, heads, d_k, d_out):
        super().__init__()
        self.heads, self.d_k = heads, d_k
        self.q = nn.Linear(d_x, heads * d_k)
        self.kv = nn.Linear(d_y, 2 * heads * d_k)
        self.o = nn.Linear(heads * d_k, d_out)

    def forward(self, x, y):
        q = self.q(x).unflatten(-1, (self.heads, self.d_k)).transpose(1, 2)
        k, v = (t.unflatten(-1, (self.heads, self.d_k)).transpose(1, 2) for t in self.kv(y).chunk(2, dim=-1))
        out = (q @ k.mT / self.d_k**0.5).softmax(-1) @ v
        return self.o(out.transpose(1, 2).flatten(2))


class Blocks(nn.Module):
    def __init__(self, dim, heads, window=16):
        super().__init__()
        self.heads, self.window = heads, window
        self.qkv = nn.Linear(dim, 3 * dim)

    def forward(self, x):
        b, n, d = x.shape
        x = nn.functional.pad(x, (0, 0, 0, -n % self.window))
        q, k, v = self.qkv(x).unflatten(1, (-1, self.window)).unflatten(-1, (3, self.heads, -1)).unbind(3)
        q, k, v = (t.transpose(2, 3) for t in (q, k, v))
        out = ((q @ k.mT) * q.shape[-1] ** -0.5).softmax(-1) @ v
        return out.transpose(2, 3).reshape(b, -1, d)[:, :n]


class Turns(nn.Module):
    """Linear attention, a piece after the other."""

    def __init__(self, dim, piece=64):
        super().__init__()
        self.piece, self.qkv = piece, nn.Linear(dim, 3 * dim)

    def forward(self, x):
        state, out = 0, []
        for part in x.split(self.piece, dim=1):
            q, k, v = self.qkv(part).chunk(3, dim=-1)
            state = state + k.softmax(-1).mT @ v
            out.append(q.softmax(-1) @ state)
        return torch.cat(out, dim=1)


class Tied(nn.Module):
    def __init__(self, dim_in, dim_out, heads, layers=3):
        super().__init__()
        self.qkv = nn.ModuleList(nn.Linear(dim_in, 3 * dim_out) for _ in range(layers))
        self.heads = heads

    def forward(self, x):
        for layer in self.qkv:
            q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in layer(x).chunk(3, dim=-1))
            x = x + ((q @ k.mT * q.shape[-1] ** -0.5).softmax(-1) @ v).transpose(1, 2).flatten(2)
        return x


def shapes(trace, op):
    return [str(output) for step in trace.steps if step.op == op for output in step.outputs]


def test_numbers_by_default_and_axes_of_inputs_have_the_names_that_the_code_gives_them():
    trace = hw.trace(Resampler)
    assert shapes(trace, "cat") == ["[B, media, frames*patches+num_latents, D]"]
    assert shapes(trace, "relu") == ["[B, media, num_latents, D*ff_mult]"]
    assert shapes(trace, "softmax") == ["[B, media, num_latents, frames*patches+num_latents]"]
    assert trace.call["x"] == ["B", "media", "frames", "patches", "D"]
    sizes = {symbol.name: symbol.size for symbol in trace.symbols}
    assert (sizes["num_latents"], sizes["ff_mult"]) == (6, 3)


def test_widths_that_nothing_ties_have_one_name_each():
    trace = hw.trace(Crossed)
    assert (trace.call["x"], trace.call["y"]) == (["B", "L", "d_x"], ["B", "S", "d_y"])
    assert shapes(trace, "linear") == ["[B, L, H*d]", "[B, S, 2*H*d]", "[B, L, D]"]
    assert {each.name: (each.said, each.equals) for each in trace.symbols}["D"] == ("d_out", "")


def test_widths_that_a_sum_ties_keep_one_name_and_a_count_of_layers_stays():
    trace = hw.trace(Tied)
    assert trace.init == {"dim_in": "H*d", "dim_out": "H*d", "heads": "H", "layers": 2}
    assert shapes(trace, "+") == ["[B, L, D]"]


def test_what_is_filled_up_to_whole_windows_is_counted_in_them():
    trace = hw.trace(Blocks)
    assert shapes(trace, "pad") == ["[B, ceil(L/window)*window, D]"]
    assert shapes(trace, "softmax") == ["[B, ceil(L/window), H, window, window]"]
    assert next(each.size for each in trace.symbols if each.name == "window") == 16


def test_of_a_loop_the_first_turns_and_the_last_are_shown():
    trace = hw.trace(Turns)
    assert shapes(trace, "linear") == ["[B, piece, 3*D]", "[B, L%piece, 3*D]"]


def test_what_a_person_says_is_kept():
    trace = hw.trace(Resampler, init={"dim": "D"})
    assert trace.init == {"dim": "D", "heads": "H"}
    assert shapes(trace, "softmax") == ["[B, media, 6, frames*patches+6]"]


@pytest.mark.parametrize(
    ("target", "said"),
    [(Blocks, {"L sequence length"}), (Crossed, {"L query length", "S key length"}), (Resampler, set())],
)
def test_only_where_scores_tell_them_apart_lengths_are_of_queries_and_keys(target, said):
    assert {each for each in legend(hw.trace(target)) if "length" in each} == said


class Halved(nn.Module):
    """The width of a head is not what has its name."""

    def __init__(self, dim, num_heads):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, dim // num_heads // 2
        self.qkv = nn.Linear(dim, 3 * dim)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.num_heads, 2 * self.head_dim)) for t in self.qkv(x).chunk(3, dim=-1))
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * (2 * self.head_dim) ** -0.5
        return torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v).flatten(2)


def test_a_symbol_has_no_name_whose_value_is_another_size():
    assert {each.name: each.said for each in hw.trace(Halved).symbols}["d"] == ""


def test_a_window_is_smaller_than_what_it_is_laid_over():
    free = (
        Named("B", "batch"), Named("L", "queries"), Named("H", "heads"), Named("d", "head_width"),
        Named("window", "parameter", "window_size", is_small=True),
    )  # fmt: skip
    sides = (Named("h", "parameter", "height", is_small=True), Named("w", "parameter", "width", is_small=True))
    for probe in range(8):
        sizes = Plan(None, "self", {}, {}, free).sizes(probe)
        assert sizes["window"] < sizes["L"]
        image = Plan(None, "self", {}, {}, (*free, *sides)).sizes(probe)
        assert image["window"] < min(image["h"], image["w"], image["L"])
        assert len(set(image.values())) == len(image)


def test_letters_that_a_person_declares_are_kept():
    call = {"x": ["B", "L", "S", "n", "D"]}
    assert hw.trace(Resampler, init={"dim": "D", "heads": "H"}, call=call).call["x"] == call["x"]
