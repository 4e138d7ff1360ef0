"""Stated arguments: what annotations, defaults, words and errors say of how an argument is given."""

from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from headwise.calls import Named, Plan, find, other_lengths
from tests.diagnosis.written import HEAD, found_in


def plans_of(target):
    """The calls that are found for a target, by what is given to each argument."""
    return [plan.call for plan in find(target, namespace=globals()).plans]


def built(target):
    """What the constructor of a target is given."""
    return find(target, namespace=globals()).plans[0].init


class Windowed(nn.Module):
    def __init__(self, dim, window_size: tuple[int, int], shift_size: tuple[int, int]):
        super().__init__()
        if any(not 0 <= shift < side for shift, side in zip(shift_size, window_size, strict=True)):
            raise ValueError("a window is shifted by less than its sides")
        self.sides, self.shift, self.make = window_size, shift_size, nn.Linear(dim, dim)

    def forward(self, x):
        B, H, W, D = x.shape
        h, w = self.sides
        y = torch.roll(x, (-self.shift[0], -self.shift[1]), (1, 2)).reshape(B, H // h, h, W // w, w, D).transpose(2, 3)
        y = y.flatten(3, 4)
        return self.make((y @ y.mT / D**0.5).softmax(-1) @ y)


def test_sizes_that_an_annotation_says_are_several_are_several():
    assert built(Windowed)["shift_size"] == {"_tuple": ["shift_size_h", "shift_size_w"]}
    symbols = {symbol.name: symbol.equals for symbol in find(Windowed, namespace={}).plans[0].symbols}
    assert (symbols["shift_size_h"], symbols["shift_size_w"]) == ("window_size_h//2", "window_size_w//2")


class Decoding(nn.Module):
    def __init__(self, m=24, p=24):
        super().__init__()
        self.start, self.score, self.cell = nn.Linear(m, p), nn.Linear(p, m), nn.LSTMCell(m, p)

    def forward(self, x):
        h = s = self.start(x.mean(1))
        weights = torch.softmax((x @ self.score(h)[..., None]).squeeze(-1), dim=1)
        return self.cell((weights[..., None] * x).sum(1), (h, s))[0]


def test_a_whole_number_by_default_is_no_dropout_rate_whatever_it_is_called():
    plan = find(Decoding, namespace={}).plans[0]
    assert plan.init.get("p") != 0.0
    assert plan.build(plan.sizes(0)).cell.hidden_size > 1


class Interest(nn.Module):
    def __init__(self, n_items, n_dense, width=16):
        super().__init__()
        self.items, self.dense = nn.Embedding(n_items, width), nn.Linear(n_dense, width)
        self.out = nn.Linear(2 * width, 1)

    def forward(self, dense, item, history):
        candidate, clicks = self.items(item), self.items(history)
        weights = torch.softmax((candidate.unsqueeze(1).expand_as(clicks) * clicks).sum(-1), dim=1)
        user = (weights[:, None] @ clicks).squeeze(1)
        return self.out(torch.cat([self.dense(dense), user], dim=-1))


def test_what_a_layer_of_weights_takes_beside_token_numbers_is_features():
    (call,) = plans_of(Interest)
    assert call["dense"] == ["B", "n_dense"]
    assert call["history"]["_ids"] == ["B", "L"]


class Forecast(nn.Module):
    """x: (B, L, width)."""

    def __init__(self, width):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))

    def forward(self, x: torch.Tensor, enc_len: int, lengths: torch.Tensor | None = None):
        if lengths is None:
            lengths = torch.full((x.shape[0],), enc_len)
        hidden = (torch.arange(enc_len) >= lengths[:, None])[:, None]
        hidden = F.pad(hidden, (0, x.shape[1] - enc_len))
        scores = self.q(x[:, enc_len:]) @ self.k(x).mT / x.shape[-1] ** 0.5
        return scores.masked_fill(hidden, -1e9).softmax(-1) @ self.v(x)


def test_a_whole_number_by_its_type_is_a_count_and_nobody_says_of_which_part_lengths_are():
    (call,) = plans_of(Forecast)
    assert call == {"x": ["B", "L", "D"], "enc_len": "L//2"}


class Recurrent(nn.Module):
    def __init__(self, embed_size, hidden_size, output_size):
        super().__init__()
        assert embed_size != hidden_size
        self.table, self.rnn = nn.Embedding(output_size, embed_size), nn.GRU(embed_size, hidden_size, batch_first=True)
        self.key = nn.Linear(hidden_size, hidden_size)

    def forward(self, words, encoded, hidden):
        """words (B, T), encoded (B, S, H), hidden (1, B, H)"""
        states, _ = self.rnn(self.table(words), hidden)
        return (states @ self.key(encoded).mT).softmax(-1) @ encoded


def test_states_of_recurrent_layers_and_what_they_attend_to_are_as_wide_as_the_layers():
    call, init = plans_of(Recurrent)[0], built(Recurrent)
    assert init["hidden_size"] != init["embed_size"]
    assert call["encoded"] == ["B", "S", init["hidden_size"]]
    assert call["hidden"] == ["1", "B", init["hidden_size"]]


class Cell(nn.Module):
    def __init__(self, width, hid_dim):
        super().__init__()
        assert width != hid_dim
        self.cell, self.ask = nn.LSTMCell(width, hid_dim), nn.Linear(hid_dim, width)

    def forward(self, encoded, state):
        weights = (self.ask(state[0])[:, None] @ encoded.mT).softmax(-1)
        return self.cell((weights @ encoded).squeeze(1), state)[0]


def test_the_states_of_a_cell_are_as_wide_as_it():
    call, init = plans_of(Cell)[0], built(Cell)
    assert init["hid_dim"] != init["width"]
    assert call["state"] == {"_tuple": [["B", init["hid_dim"]], ["B", init["hid_dim"]]]}


class Story(nn.Module):
    """story: (bs, n_lines, n_words), query: (bs, n_words), of word ids"""

    def __init__(self, vocab_size, width, hops=2):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(vocab_size, width) for _ in range(hops + 1))

    def read(self, table, ids):
        return table(ids).sum(-2)

    def forward(self, story, query):
        u = self.read(self.tables[0], query)
        for hop in range(len(self.tables) - 1):
            m, c = self.read(self.tables[hop], story), self.read(self.tables[hop + 1], story)
            u = u + ((m @ u[..., None]).squeeze(-1).softmax(-1)[:, None] @ c).squeeze(1)
        return u


def test_a_table_that_is_handed_on_looks_whole_numbers_up_all_the_same():
    call = plans_of(Story)[0]
    assert call["story"]["_ids"][1:] == ["L", "n_words"]
    assert call["query"]["_ids"] == ["B", "n_words"]


class Boxes(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.at = (nn.Linear(width, width) for _ in range(4))

    def split(self, t):
        return t.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, tgt, memory, query_pos, query_sine_embed, pos, hidden=None):
        tgt = tgt + (self.q(tgt) @ self.k(tgt + query_pos).mT).softmax(-1) @ self.v(tgt)
        q, k, v = self.split(self.q(tgt + query_pos)), self.split(self.k(memory)), self.split(self.v(memory))
        q, k = torch.cat([q, self.split(self.at(query_sine_embed))], -1), torch.cat([k, self.split(self.at(pos))], -1)
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if hidden is not None:
            scores = scores.masked_fill(hidden[:, None, None], -1e9)
        return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


class ToldBoxes(Boxes):
    """
    tgt, query_pos, query_sine_embed: [bs, num_queries, width]
    memory, pos: [bs, hw, width]
    """


@pytest.mark.parametrize("target", [Boxes, ToldBoxes])
def test_the_positions_of_keys_are_as_many_as_keys(target):
    found = find(target, namespace={})
    assert found.plans[0].call["pos"] == ["B", "S", "D"]
    assert found.plans[0].call["query_pos"] == ["B", "L", "D"]
    assert found.failures == ()


class Announced(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))

    def forward(self, x, locations):
        """x (B, L, width), locations (B, L) bool"""
        number = locations.long().cumsum(dim=-1)
        scores = self.q(x) @ self.k(x).mT / x.shape[-1] ** 0.5
        return scores.masked_fill(number[:, :, None] != number[:, None], -1e9).softmax(-1) @ self.v(x)


def test_what_is_counted_along_the_tokens_is_no_mask_of_them():
    assert all(not plan.mask for plan in find(Announced, namespace={}).plans)


class Pictures(nn.Module):
    def __init__(self, in_ch=3, patch=2, width=24, txt_dim=16):
        super().__init__()
        self.cut = nn.Conv2d(in_ch, width, patch, patch)
        self.told, self.q, self.k = nn.Linear(txt_dim, width), nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x, txt):
        """x (B, C, H, W), txt (B, L, txt_dim)"""
        image, text = self.cut(x).flatten(2).mT, self.told(txt)
        return (self.q(image) @ self.k(text).mT / text.shape[-1] ** 0.5).softmax(-1) @ text


def test_an_image_is_of_whole_patches_where_a_class_cuts_it_into_them():
    plan = find(Pictures, namespace={}).plans[0]
    sizes = plan.sizes(0)
    height, width = (int(eval(str(side), {}, dict(sizes))) for side in plan.call["x"][2:])
    assert height % plan.build(sizes).cut.kernel_size[0] == width % plan.build(sizes).cut.kernel_size[0] == 0


class Blocks(nn.Module):
    def __init__(self, dim, heads, w):
        super().__init__()
        self.heads, self.w, self.qkv = heads, w, nn.Linear(dim, 3 * dim)

    def forward(self, x):
        B, T, D = x.shape
        blocks = F.pad(x, (0, 0, 0, -T % self.w)).reshape(B, -1, self.w, D)
        q, k, v = self.qkv(blocks).unflatten(-1, (3, self.heads, -1)).permute(3, 0, 1, 4, 2, 5)
        y = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v
        return y.transpose(2, 3).reshape(B, -1, D)[:, :T]


def test_a_window_may_be_called_as_the_side_of_an_image_is():
    assert plans_of(Blocks) == [{"x": ["B", "L", "D"]}]


@dataclass
class Settings:
    width: int
    n_heads: int
    dropout: float = 0.0


class Recorded(nn.Module):
    """x (B, T, width); step (B, T) number of the step in its episode; lengths (B,) long, how many steps there are."""

    def __init__(self, **kwargs):
        super().__init__()
        settings = Settings(**kwargs)
        self.heads = settings.n_heads
        self.steps = nn.Embedding(64, settings.width)
        self.make = nn.Linear(settings.width, 3 * settings.width)

    def forward(self, x, step, lengths):
        q, k, v = (
            t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.make(x + self.steps(step)).chunk(3, -1)
        )
        there = torch.arange(x.shape[1]) < lengths[:, None]
        return F.scaled_dot_product_attention(q, k, v, attn_mask=there[:, None, None]).transpose(1, 2).flatten(2)


def test_fields_of_a_record_that_is_made_of_all_keywords_are_arguments():
    assert built(Recorded) == {"width": "H*d", "n_heads": "H"}


def test_a_number_of_each_step_counts_no_keys_and_whole_lengths_do():
    masked = next(call for call in plans_of(Recorded) if "_mask" in call)
    assert (masked["_mask"]["argument"], masked["_mask"]["means"]) == ("lengths", "lengths")
    assert masked["step"]["_ids"] == ["B", "L"]


class Captions(nn.Module):
    """tokens (B, L, text_dim), features of the words; regions (B, R, dim)"""

    def __init__(self, text_dim, dim):
        super().__init__()
        self.ask, self.match = nn.Linear(text_dim, dim), nn.Linear(dim, dim)

    def forward(self, tokens, regions):
        scores = self.ask(tokens) @ self.match(regions).mT / self.match.in_features**0.5
        return scores.softmax(-1) @ regions


def test_what_is_called_tokens_and_has_a_width_holds_features():
    assert all(isinstance(call["tokens"], list) for call in plans_of(Captions))


class Placeholder(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.device_of = heads, nn.Parameter(torch.empty(0))
        self.make = nn.Linear(width, heads * (width // heads), bias=False)

    def forward(self, x):
        q = self.make(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        return (q @ q.mT / q.shape[-1] ** 0.5).softmax(-1) @ q


def test_a_vector_without_entries_is_built_and_a_matrix_without_is_not():
    plan = find(Placeholder, namespace={}).plans[0]
    assert all(plan.build(plan.sizes(probe)).make.weight.numel() for probe in (-1, 0, 1))


class Pooled(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.ask, self.score = nn.Linear(width, 6), nn.Linear(6, 1)

    def forward(self, x, lengths=None):
        # x: (batch, tokens, width)
        tokens = x.shape[-2]
        scores = self.score(torch.tanh(self.ask(x))).squeeze(-1)
        if lengths is not None:
            counts = (lengths * tokens).round()
            scores = scores.masked_fill(torch.arange(tokens) >= counts[:, None], float("-inf"))
        return (scores.softmax(-1)[..., None] * x).sum(1)


class Shared(Pooled):
    """Pools tokens.

    lengths : torch.Tensor
        (batch,), relative to the longest sample of the batch.
    """

    def forward(self, x, lengths=None):
        counts = None if lengths is None else torch.einsum("b,->b", lengths, torch.tensor(1.0))
        return super().forward(x, counts)


@pytest.mark.parametrize("kind", [Pooled, Shared])
def test_lengths_that_are_multiplied_by_a_size_are_shares_of_it(kind):
    masked = next(call for call in plans_of(kind) if "_mask" in call)
    assert (masked["_mask"]["means"], masked["_mask"]["share"]) == ("lengths", True)


class Nodes(nn.Module):
    def __init__(self, width, edge_dim, heads):
        super().__init__()
        self.heads, self.qkv, self.edge = heads, nn.Linear(width, 3 * width), nn.Linear(edge_dim, heads)

    def forward(self, h, e, adj):
        """h: (B, N, width); e: (B, N, N, edge_dim); adj: (B, N, N) bool, True where j is a neighbour of i."""
        B, N, _ = h.shape
        q, k, v = self.qkv(h).view(B, N, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        s = q @ k.mT / q.shape[-1] ** 0.5 + self.edge(e).permute(0, 3, 1, 2)
        return s.masked_fill(~adj[:, None], float("-inf")).softmax(-1) @ v


def test_what_has_a_shape_is_a_tensor_whatever_it_is_called_and_edges_hide_what_has_none():
    plan = find(Nodes, namespace={}).plans[0]
    assert (plan.setting, plan.call["h"], plan.call["e"]) == ("self", ["B", "L", "D"], ["B", "L", "L", "edge_dim"])
    assert plan.call["_mask"] == {"argument": "adj", "means": "attend", "shape": ["B", "L", "L"]}


class Sides(nn.Module):
    def __init__(self, c_in, per_head, heads, across=False):
        super().__init__()
        self.heads, self.across = heads, across
        self.qkv, self.bias = nn.Linear(c_in, 3 * heads * per_head), nn.Linear(c_in, heads)

    def forward(self, z, mask=None):
        """z: [*, I, J, c_in], I == J; mask: [*, I, J], 1 for pairs that are there."""
        mask = z.new_ones(z.shape[:-1]) if mask is None else mask
        if self.across:
            z, mask = z.transpose(-2, -3), mask.transpose(-1, -2)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(-2, -3) for t in self.qkv(z).chunk(3, dim=-1))
        s = q @ k.mT / q.shape[-1] ** 0.5 + (mask - 1)[..., :, None, None, :] * 1e9
        s = s + self.bias(z).movedim(-1, -3).unsqueeze(-4)
        y = (s.softmax(-1) @ v).transpose(-2, -3).flatten(-2)
        return y.transpose(-2, -3) if self.across else y


@pytest.mark.parametrize("target", [Sides, Sides(16, 4, 2, across=True).eval()])
@pytest.mark.parametrize("init", [None, {"c_in": 16, "per_head": 4, "heads": 2, "across": True}])
def test_words_tell_the_shapes_of_a_module_too_and_of_what_is_declared_to_be_built(target, init):
    if init is not None and not isinstance(target, type):
        return
    call = find(target, namespace={}, init=init).plans[0].call
    assert [str(axis) for axis in call["z"]][:3] == ["B", "L", "L"]


class Frames(nn.Module):
    def __init__(self, width, max_frames):
        super().__init__()
        self.max_frames = max_frames
        self.at, self.qkv = nn.Parameter(torch.zeros(max_frames, 1, width)), nn.Linear(width, 3 * width)

    def forward(self, x):
        """x: (batch, frames, patches, width)."""
        frames = x.shape[1]
        assert frames <= self.max_frames, "more frames than there are places"
        q, k, v = self.qkv((x + self.at[:frames]).flatten(1, 2)).chunk(3, dim=-1)
        return F.scaled_dot_product_attention(q, k, v)


def test_a_module_is_called_with_as_many_tokens_as_it_keeps_a_number_of():
    found = find(Frames(12, 6).eval(), namespace={})
    plan = found.plans[0]
    assert plan.sizes(0)[plan.call["x"][1]] <= 6


class PatchesOfFrames(nn.Module):
    """Pools patches.

    lengths: (batch,), the frames of each sample.
    Uses relative positions elsewhere.
    """

    def __init__(self, width):
        super().__init__()
        self.ask, self.score = nn.Linear(width, 6), nn.Linear(6, 1)

    def forward(self, x, lengths=None):
        # x: (batch, frames, patches, width); lengths count frames
        # relative places are added before
        frames, patches = x.shape[1], x.shape[2]
        flat = x.flatten(1, 2)
        scores = self.score(torch.tanh(self.ask(flat))).squeeze(-1)
        if lengths is not None:
            real = lengths * patches
            scores = scores.masked_fill(torch.arange(frames * patches) >= real[:, None], float("-inf"))
        return (scores.softmax(-1)[..., None] * flat).sum(1)


def test_lengths_beside_other_words_and_other_sizes_are_counts():
    masked = [call["_mask"] for call in plans_of(PatchesOfFrames) if "_mask" in call]
    assert masked
    assert not any("share" in mask for mask in masked)


class Grid(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)

    def forward(self, x, h, w):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        y = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v
        image = y.unflatten(1, (h, w))
        w = image.mean(1)
        return w.expand(w.shape) + y.mean(1, keepdim=True)


def test_a_side_of_an_image_is_a_number_though_its_name_is_given_away_later():
    call = plans_of(Grid)[0]
    assert (call["h"], call["w"]) == ("h", "w")


class Across(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.q, self.kv = nn.Linear(width, width), nn.Linear(width, 2 * width)

    def forward(self, x, context):
        k, v = self.kv(context).chunk(2, dim=-1)
        return F.scaled_dot_product_attention(self.q(x), k, v)


@pytest.mark.parametrize(("keys", "settings"), [("M", {"cross"}), ("S", {"cross"}), ("L", {"self"})])
def test_keys_are_of_a_length_of_their_own_by_whatever_letter_they_are_declared(keys, settings):
    call = {"x": ["B", "L", "D"], "context": ["B", keys, "D"]}
    found = find(Across, namespace={}, call=call)
    assert settings <= {plan.setting for plan in found.plans}
    assert all(plan.setting == "self" for plan in found.plans) == (settings == {"self"})


def test_other_lengths_are_multiples_of_what_divides_them_and_bind_what_is_made_of_them():
    symbols = (
        Named("B", "batch"), Named("h", "parameter"), Named("w", "parameter", times=4),
        Named("L", "queries", equals="h*w"), Named("P", "parameter", equals="L+1"),
    )  # fmt: skip
    plan = Plan(None, "self", {}, {"x": ["B", "P", "D"]}, symbols)
    sizes = {"B": 3, "h": 5, "w": 8, "L": 40, "P": 41, "D": 6}
    assert other_lengths(plan, sizes, "shorter") == {"B": 2, "h": 2, "w": 4, "L": 8, "P": 9, "D": 6}
    assert other_lengths(plan, sizes, "longer") == {"B": 5, "h": 6, "w": 12, "L": 72, "P": 73, "D": 6}
    assert other_lengths(plan, {**sizes, "w": 4}, "shorter")["w"] == 4


class Molecules(nn.Module):
    def __init__(self, width, heads, most=8):
        super().__init__()
        self.heads, self.most = heads, most
        self.far = nn.Embedding(most + 2, heads)
        self.mix = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, h, hops, node_mask):
        """
        h         (B, N, width) atoms
        hops      (B, N, N) long, lengths of paths, -1 if there is none
        node_mask (B, N) bool, True for atoms, False for padding
        """
        bias = self.far(torch.where(hops < 0, self.most + 1, hops.clamp(max=self.most))).permute(0, 3, 1, 2)
        bias = bias.masked_fill(~node_mask[:, None, None], float("-inf")).flatten(0, 1)
        return self.mix(h, h, h, attn_mask=bias, need_weights=False)[0]


def test_whole_numbers_of_which_some_are_asked_for_are_no_mask():
    call = plans_of(Molecules)[0]
    assert call["hops"]["_ids"] == ["B", "L", "L"]
    assert call["_mask"]["argument"] == "node_mask"


BESIDE = (
    HEAD
    + '''
class Attend(nn.Module):
    """The interest of a person in an item.

    item      [B]     the item
    history   [B, T]  items before, 0 where there is none
    numbers   [B, F]
    """

    def __init__(self, n_items, width=12, n_numbers=5):
        super().__init__()
        self.table = nn.Embedding(n_items, width, padding_idx=0)
        self.q, self.out = nn.Linear(width, width), nn.Linear(2 * width + n_numbers, 1)

    def forward(self, item, history, numbers):
        q, h = self.table(item), self.table(history)
        s = (h @ self.q(q)[:, :, None]).squeeze(-1) / q.shape[-1] ** 0.5
        w = s.masked_fill(history == 0, -1e4).softmax(-1)
        return self.out(torch.cat([(w[..., None] * h).sum(1), q, numbers], dim=-1))
'''
)


def test_an_input_is_as_wide_as_a_number_that_the_class_has_by_default() -> None:
    assert found_in(BESIDE).verdict == "sound"


class Special(nn.Module):
    """Tokens of several kinds have numbers of their own."""

    def __init__(self, words, width, eos_id, sep_id, pad_id=0, bos_id=2):
        super().__init__()
        assert len({eos_id, sep_id, pad_id, bos_id}) == 4
        self.kinds, self.table = (eos_id, sep_id, pad_id, bos_id), nn.Embedding(words, width)

    def forward(self, ids):
        hidden = sum(ids == kind for kind in self.kinds).bool()[:, None]
        x = self.table(ids)
        return (x @ x.mT).masked_fill(hidden, -1e9).softmax(-1) @ x


def test_required_tokens_have_numbers_that_no_other_has():
    (plan,) = find(Special, namespace={}).plans
    assert (plan.init["eos_id"], plan.init["sep_id"]) == (1, 3)
