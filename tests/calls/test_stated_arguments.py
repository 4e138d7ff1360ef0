"""Stated arguments: what annotations, defaults, words and errors say of how an argument is given."""

from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from headwise.calls import find


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
