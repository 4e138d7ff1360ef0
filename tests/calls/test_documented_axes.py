"""The axes that docstrings name, none of which a call is found with one entry for."""

import pytest
import torch
from torch import nn

from headwise.calls import callee, find, parameters, read
from headwise.calls.documented_axes import docstring_axes, documented_calls
from headwise.calls.documented_ranks import documented_ranks
from headwise.calls.shape_words import shapes_in


class Mixes(nn.Module):
    """Mixes parts into words.

    words: (batch, n, width); parts [batch, m, width]
    """

    def __init__(self, width):
        super().__init__()
        self.w = nn.Linear(width, width)

    def forward(self, words, parts, real, scale=1.0):
        """real (batch, n): 1 = real. scale: a number (or none)."""
        scores = self.w(words) @ parts.transpose(1, 2) * scale
        return scores.masked_fill(real[:, None] == 0, -1e9).softmax(-1) @ parts * real[..., None]


def test_each_argument_has_the_names_of_its_axes():
    assert docstring_axes(Mixes, ["words", "parts", "real", "scale", "other"]) == {
        "words": ("batch", "n", "width"),
        "parts": ("batch", "m", "width"),
        "real": ("batch", "n"),
    }


@pytest.mark.parametrize(
    ("text", "axes"),
    [
        ("x: B x T x width", ("B", "T", "width")),
        ("x: batch, n, width; y: batch", ("batch", "n", "width")),
        ("x: the words, which are, b, n", None),
        ("x: words, pictures", None),
    ],
)
def test_a_shape_may_have_no_brackets_where_it_speaks_of_samples(text, axes):
    def forward(x):
        return x

    forward.__doc__ = text
    assert docstring_axes(forward, ["x"]) == ({} if axes is None else {"x": axes})


def distances(x, far, beside, is_real):
    """x (batch, time, d_model); far: (2 * time - 1, d_model); beside (batch, time, M); is_real: (batch, time) bool"""


def test_a_sum_of_sizes_a_width_by_any_letter_and_truths_are_as_words_say():
    call = next(documented_calls(distances, needed(distances, "x", "far", "beside", "is_real"), []))
    assert call["far"] == ["2*L-1", "D"]
    assert call["beside"] == ["B", "L", "m_dim"]
    assert call["is_real"] == {"_ids": ["B", "L"], "below": "2", "dtype": "bool"}


def frames(x, T):
    """x: (batch, 1 + N * T, C), what stands for a clip and then N patches of T frames"""


def captions(x, media):
    """x: words of a text, shape (batch, N, C); media: features of what is seen, of shape (batch, M, C)"""


def test_an_argument_that_is_called_as_an_axis_is_its_size():
    assert next(documented_calls(frames, needed(frames, "x", "T"), [])) == {"x": ["B", "1+L*t", "D"], "T": "t"}


def test_a_shape_may_stand_far_from_its_name_where_it_is_called_one():
    assert next(documented_calls(captions, needed(captions, "x", "media"), []))["media"] == ["B", "S", "D"]


def entities(own, others, mask):
    """own: (T, B, own_dim); others: (T, B, E, other_dim); mask: (T, B, E), 1 for those that are in sight"""


def test_what_stands_before_a_width_counts_places():
    call = next(documented_calls(entities, needed(entities, "own", "others", "mask"), []))
    assert (call["others"], call["_mask"]["shape"]) == (["L", "B", "S", "other_dim"], ["L", "B", "S"])


class Triangle(nn.Module):
    def __init__(self, width, heads=3, per_head=5):
        super().__init__()
        self.heads, self.per_head = heads, per_head
        self.qkv = nn.Linear(width, 3 * heads * per_head)

    def forward(self, pair):
        """pair: b i j d.  Each row attends over its own edges."""
        b, n = pair.shape[:2]
        q, k, v = self.qkv(pair).view(b, n, n, 3, self.heads, self.per_head).unbind(3)
        weights = torch.einsum("bijhd,bikhd->bhijk", q, k).softmax(-1)
        return torch.einsum("bhijk,bikhd->bijhd", weights, v).flatten(3)


def test_letters_end_with_the_sentence_and_pairs_are_as_many_along_both_axes():
    (plan,) = find(Triangle, namespace=globals()).plans
    args, options = plan.arguments(plan.sizes(0))
    (shape,) = (each.shape for each in (*args, *options.values()))
    assert (len(shape), shape[1]) == (4, shape[2])
    assert shape[1] != shape[0] != shape[3]


@pytest.mark.parametrize("text", ["x: (2, 3)", "x: (batch, n + 1)", "x: a tensor", "x: (batch)", "y: (b, n)"])
def test_what_is_no_shape_of_names_is_left(text):
    def forward(x):
        return x

    forward.__doc__ = text
    assert docstring_axes(forward, ["x"]) == {}


def test_a_multiple_of_a_size_is_an_axis_of_its_own():
    def forward(x):
        return x

    forward.__doc__ = "x: (batch, 2 * n)"
    assert docstring_axes(forward, ["x"]) == {"x": ("batch", "n_times_2")}


def test_no_axis_with_a_name_is_called_with_one_entry():
    plans = find(Mixes, namespace={"torch": torch, "nn": nn}).plans
    assert plans
    shapes = [shape for plan in plans for shape in plan.call.values() if isinstance(shape, list)]
    masks = [plan.call["_mask"]["shape"] for plan in plans if "_mask" in plan.call]
    assert [shape for shape in (*shapes, *masks) if "1" in map(str, shape)] == []


def needed(target, *names):
    """The parameters of a call that have these names."""
    return [each for each in parameters(callee(target)) if each.name in names]


class Series(nn.Module):
    """Forecasts (batch, steps, channels).

    series: (batch, steps, channels), day: (batch, steps) token ids
    """

    def __init__(self, channels=3, width=8):
        super().__init__()
        self.w = nn.Linear(channels, width)

    def forward(self, series, day, near, rate=None):
        # near (batch, steps, steps) and more
        return self.w(series) + near.sum(-1, keepdim=True) + day[..., None]


def test_a_call_has_the_sizes_that_words_name():
    call = next(documented_calls(Series, needed(Series, "series", "day", "near"), parameters(Series)))
    assert call == {
        "series": ["B", "L", 3],
        "day": {"_ids": ["B", "L"], "below": "5"},
        "near": ["B", "L", "L"],
    }


def test_where_an_argument_is_not_told_there_is_no_call():
    def forward(x, other):
        """x: (batch, n)"""

    assert list(documented_calls(forward, parameters(forward), [])) == []


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("x: (B, H, W, C)", ["B", "h", "w", "D"]),
        ("x: (N, T, dim)", ["B", "L", "D"]),
        ("x: [b, n_heads, q, k]", ["B", "H", "L", "S"]),
        ("x: (batch, n, 3)", ["B", "L", 3]),
        ("x: [batch_size, in_channels, height, width]", ["B", "D", "h", "w"]),
        ("x: (batch, features, dim)", ["B", "L", "D"]),
        ("x: (batch, rows, columns, dim), where only if rows == columns", ["B", "L", "S", "D"]),
        ("x    - batch, tokens, dim (of a text)", ["B", "L", "D"]),
    ],
)
def test_words_of_axes_have_their_usual_meaning(text, shape):
    def forward(x):
        return x

    forward.__doc__ = text
    assert list(documented_calls(forward, needed(forward, "x"), [])) == [{"x": shape}]


class Pictures(nn.Module):
    """Pictures look at words.

    picture: (batch, n_patches, d_model), text: (batch, n_words, d_model)
    picture_mask: (batch, n_patches) bool, True = real patch
    text_mask: (batch, n_words) bool, True = real word
    """

    def __init__(self, d_model, n_heads):
        super().__init__()
        self.attention = nn.MultiheadAttention(d_model, n_heads, batch_first=True)

    def forward(self, picture, text, picture_mask, text_mask):
        hidden = picture_mask[:, :, None] & ~text_mask[:, None]
        hidden = hidden.repeat_interleave(self.attention.num_heads, dim=0)
        return self.attention(picture, text, text, attn_mask=hidden)[0] * picture_mask[..., None]


def test_a_mask_of_the_keys_hides_some_and_another_hides_none():
    given = needed(Pictures, "picture", "text", "picture_mask", "text_mask")
    call = next(documented_calls(Pictures, given, parameters(Pictures), read(Pictures, {})))
    assert call == {
        "picture": ["B", "L", "D"], "text": ["B", "S", "D"],
        "picture_mask": {"_expr": "torch.ones(B, L, dtype=torch.bool)"},
        "_mask": {"argument": "text_mask", "means": "attend", "shape": ["B", "S"]},
    }  # fmt: skip
    plan = find(Pictures, namespace={"torch": torch, "nn": nn}).plans[0]
    assert (plan.setting, plan.mask, plan.call["picture_mask"]) == ("cross", "text_mask", call["picture_mask"])


class Sets(nn.Module):
    """One vector for each set.

    parts: [B, N, in_dim]
    sizes: [B], number of parts of each
    """

    def __init__(self, in_dim, width=32):
        super().__init__()
        self.w = nn.Linear(in_dim, width)

    def forward(self, parts, sizes):
        there = torch.arange(parts.shape[1]) < sizes[:, None]
        return (self.w(parts) * there[..., None]).sum(1)


def test_one_number_for_each_sample_that_counts_its_tokens_is_a_mask_of_lengths():
    call = next(documented_calls(Sets, needed(Sets, "parts", "sizes"), parameters(Sets)))
    assert call == {
        "parts": ["B", "L", "in_dim"], "_mask": {"argument": "sizes", "means": "lengths", "shape": ["B"]},
    }  # fmt: skip


def test_names_of_several_words_are_those_of_the_constructor():
    class Step(nn.Module):
        """hidden = [batch size, dec hid dim], encoded = [src len, batch size, enc hid dim]"""

        def __init__(self, enc_hid_dim, dec_hid_dim, emb_dim=16):
            super().__init__()

        def forward(self, hidden, encoded):
            return hidden

    call = next(documented_calls(Step, needed(Step, "hidden", "encoded"), parameters(Step)))
    assert call == {"hidden": ["B", "dec_hid_dim"], "encoded": ["L", "B", "enc_hid_dim"]}


class Columns(nn.Module):
    """Each of four columns of token ids is a token."""

    def __init__(self, d_model, n_heads):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(20, d_model) for _ in range(4))
        self.attention = nn.MultiheadAttention(d_model, n_heads, batch_first=True)

    def forward(self, ids):
        tokens = torch.stack([table(ids[:, at]) for at, table in enumerate(self.tables)], dim=1)
        return self.attention(tokens, tokens, tokens)[0]


def test_an_axis_is_as_long_as_the_entries_that_are_asked_of_it():
    call = {"ids": {"_ids": ["B", "L"], "below": "11"}}
    plans = find(Columns, namespace={"torch": torch, "nn": nn}, call=call).plans
    assert [plan.call["ids"] for plan in plans] == [call["ids"]]
    assert plans[0].sizes(-1)["L"] >= 4


class Crossing(nn.Module):
    """x: (B, C, H, W), context: (B, L, context_dim) words, or None"""

    def __init__(self, channels, context_dim):
        super().__init__()
        self.q, self.kv = nn.Conv2d(channels, channels, 1), nn.Linear(context_dim, 2 * channels)

    def forward(self, x, context=None):
        q = self.q(x).flatten(2).transpose(1, 2)
        k, v = self.kv(x.movedim(1, -1) if context is None else context).flatten(1, -2).chunk(2, dim=-1)
        scores = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
        return (scores.softmax(-1) @ v).transpose(1, 2).reshape(x.shape)


def test_a_call_with_as_many_axes_as_words_say_stands_before_one_that_happens_to_run():
    calls = [plan.call for plan in find(Crossing, namespace={"torch": torch, "nn": nn}).plans]
    assert {len(call["context"]) for call in calls} == {3}
    assert {len(call["x"]) for call in calls} == {4}


class Listening(nn.Module):
    """Cross attention.

    Args:
        x: (N, L, E) of the decoder
        memory: of the encoder (Tensor, optional)
        memory_mask: (N, keys), zero at padding
    """

    def __init__(self, d_model, n_heads):
        super().__init__()
        self.attention = nn.MultiheadAttention(d_model, n_heads, batch_first=True)

    def forward(self, x, memory=None, memory_mask=None):
        memory = x if memory is None else memory
        hidden = None if memory_mask is None else memory_mask == 0
        return self.attention(x, memory, memory, key_padding_mask=hidden)[0]


def test_types_of_arguments_and_axes_that_no_input_has_are_no_shapes():
    assert documented_ranks(Listening, ["x", "memory"]) == {"x": (3, -1)}
    assert {plan.setting for plan in find(Listening, namespace={"torch": torch, "nn": nn}).plans} >= {"cross"}


class Grouped(nn.Module):
    """Attention over the pixels of an image: x (batch_size, in_channels, height, width)."""

    def __init__(self, n_channels: int, n_heads: int = 1, d_k: int | None = None, n_groups: int = 8):
        super().__init__()
        self.heads, self.width = n_heads, d_k or n_channels
        self.norm = nn.GroupNorm(n_groups, n_channels)
        self.three = nn.Linear(n_channels, 3 * n_heads * self.width)
        self.out = nn.Linear(n_heads * self.width, n_channels)

    def forward(self, x):
        batch_size, n_channels, height, width = x.shape
        h = self.norm(x).view(batch_size, n_channels, -1).permute(0, 2, 1)
        q, k, v = self.three(h).view(batch_size, -1, self.heads, 3 * self.width).chunk(3, dim=-1)
        weights = (torch.einsum("bihd,bjhd->bijh", q, k) * self.width**-0.5).softmax(dim=2)
        y = self.out(torch.einsum("bijh,bjhd->bihd", weights, v).flatten(2))
        return x + y.permute(0, 2, 1).view(batch_size, n_channels, height, width)


def test_usual_sizes_are_tried_where_words_do_not_say_what_divides_them():
    plan = find(Grouped, namespace=globals()).plans[0]
    assert plan.call["x"] == ["B", "D", "h", "w"]


class Clips(nn.Module):
    """clip: (B, T, C, H, W) -> (B, T, patches, width)"""

    def __init__(self, frames=4, img_size=16, patch=4, in_chans=3, width=24):
        super().__init__()
        self.cut = nn.Conv2d(in_chans, width, patch, stride=patch)
        self.time = nn.Parameter(torch.randn(1, frames, 1, width))
        self.place = nn.Parameter(torch.randn(1, 1, (img_size // patch) ** 2, width))

    def forward(self, clip):
        x = self.cut(clip.flatten(0, 1)).flatten(2).mT.unflatten(0, clip.shape[:2])
        return x + self.time[:, : clip.shape[1]] + self.place


def test_a_video_has_the_channels_the_sides_and_the_frames_that_a_constructor_has():
    call = next(documented_calls(Clips, needed(Clips, "clip"), parameters(Clips), read(Clips, {})))
    assert call == {"clip": ["B", "L", 3, "img_size", "img_size"]}
    plan = find(Clips, namespace=globals()).plans[0]
    assert plan.sizes(0)["L"] == 4


def numbered(numbers, kinds):
    """numbers: float (rows, n_numbers), kinds: (rows, len(counts)) long"""


def test_whole_numbers_are_told_before_or_behind_a_shape_and_the_first_axis_of_all_is_the_batch():
    call = next(documented_calls(numbered, needed(numbered, "numbers", "kinds"), []))
    assert call == {"numbers": ["B", "L"], "kinds": {"_ids": ["B", "S"], "below": "5"}}


def of_pairs(pair, seen):
    """pair: [*, I, J, C_pair], I == J; seen: [*, I, J]"""


def test_a_star_before_two_axes_is_the_batch_and_axes_said_to_be_equal_are_one():
    call = next(documented_calls(of_pairs, needed(of_pairs, "pair", "seen"), []))
    assert (call["pair"], call["seen"]) == (["B", "L", "L", "c_pair"], ["B", "L", "L"])
    names = ("pair", "seen")
    assert docstring_axes(of_pairs, names) == {"pair": ("batch", "I", "J", "C_pair"), "seen": ("batch", "I", "J")}

    def of_any_rank(pair):
        """pair: (*, width)"""

    assert docstring_axes(of_any_rank, ["pair"]) == {}


class Spaced(nn.Module):
    """Letters between spaces, as in einsum."""

    def __init__(self, dim, heads=4):
        super().__init__()
        self.heads = heads
        self.to_q, self.to_kv = nn.Linear(dim, dim), nn.Linear(dim, 2 * dim)

    def forward(self, fmap, context, keep=None):
        """
        fmap    - b c x y
        context - b m d
        keep    - b, whether a sample is conditioned
        """
        b, c, x, y = fmap.shape
        q = self.to_q(fmap.flatten(2).transpose(1, 2)).view(b, x * y, self.heads, -1).transpose(1, 2)
        k, v = (t.view(b, context.shape[1], self.heads, -1).transpose(1, 2) for t in self.to_kv(context).chunk(2, -1))
        out = (q @ k.mT / (c // self.heads) ** 0.5).softmax(-1) @ v
        return out.permute(0, 1, 3, 2).reshape(b, c, x, y)


class Alone(nn.Module):
    """Compress (b, T, n, D) features of frames to as many."""

    def __init__(self, dim, heads=4, most=8):
        super().__init__()
        self.heads, self.qkv = heads, nn.Linear(dim, 3 * dim)
        self.place = nn.Parameter(torch.randn(most, 1, dim))

    def forward(self, x):
        x = x + self.place[: x.shape[1]]
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(3, 0, 1, 4, 2, 5)
        return ((q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v).transpose(2, 3).flatten(3)


@pytest.mark.parametrize(
    ("kind", "call"),
    [
        (Spaced, {"fmap": ["B", "D", "h", "w"], "context": ["B", "L", "D"], "_layout": "BDhw"}),
        (Alone, {"x": ["B", "L", "S", "D"], "_layout": "BLSD"}),
    ],
)
def test_shapes_of_letters_between_spaces_or_of_nothing_named_are_read(kind, call):
    plans = find(kind, namespace={"torch": torch, "nn": nn}).plans
    assert call in [plan.call for plan in plans]


class Placed(nn.Module):
    """memory: [B, N, C]; pos: [B, N, C], added to the keys."""

    def __init__(self, width, heads):
        super().__init__()
        self.query = nn.Parameter(torch.randn(1, 5, width))
        self.mix = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, memory, pos):
        keys = memory if pos is None else memory + pos
        return self.mix(self.query.expand(len(memory), -1, -1), keys, memory)[0]


def test_a_documented_input_is_given_though_none_would_do():
    plans = find(Placed, namespace={"torch": torch, "nn": nn}).plans
    assert plans
    assert all(plan.call["pos"] == ["B", "L", "D"] for plan in plans)


class Residues(nn.Module):
    """single: (b, r, c_s); pair: (b, r, r, c_z)"""

    def __init__(self, c_s, c_z, c_hidden=8, n_heads=4):
        super().__init__()
        self.width, self.heads = c_hidden, n_heads
        self.qkv = nn.Linear(c_s, 3 * n_heads * c_hidden, bias=False)
        self.bias, self.out = nn.Linear(c_z, n_heads, bias=False), nn.Linear(n_heads * c_hidden, c_s)

    def forward(self, single, pair):
        q, k, v = self.qkv(single).unflatten(-1, (3, self.heads, self.width)).unbind(2)
        scores = torch.einsum("bihc,bjhc->bijh", q, k) * self.width**-0.5 + self.bias(pair)
        return single + self.out(torch.einsum("bijh,bjhc->bihc", scores.softmax(2), v).flatten(2))


def test_plans_that_fail_have_all_sizes_that_theirs_are_made_of():
    found = find(Residues, namespace={"torch": torch, "nn": nn})
    assert found.plans
    for failure in found.failures:
        assert failure.plan.sizes(0).keys() == {symbol.name for symbol in failure.plan.symbols}


class Bound(nn.Module):
    """Two sequences of token numbers, each with a mask of its own.

    drug:      (B, Ld) token ids        drug_mask: (B, Ld) 1 = token, 0 = padding
    prot:      (B, Lp) token ids        prot_mask: (B, Lp) 1 = token, 0 = padding
    """

    def __init__(self, d=24, heads=3):
        super().__init__()
        self.heads = heads
        self.drugs, self.prots = nn.Embedding(9, d), nn.Embedding(9, d)
        self.ask, self.pack = nn.Linear(d, d), nn.Linear(d, 2 * d)

    def forward(self, drug, prot, drug_mask, prot_mask):
        q = self.ask(self.drugs(drug)).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in self.pack(self.prots(prot)).chunk(2, -1))
        s = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(prot_mask[:, None, None] == 0, -1e9)
        y = (s.softmax(-1) @ v).transpose(1, 2).flatten(2)
        return (y * drug_mask.unsqueeze(-1)).sum(1) / drug_mask.sum(1, keepdim=True).clamp(min=1)


def test_masks_of_two_sequences_are_given_as_the_words_say():
    plan = find(Bound, namespace=globals()).plans[0]
    assert plan.call["drug"]["_ids"] == ["B", "L"]
    assert plan.call["prot"]["_ids"] == ["B", "S"]


@pytest.mark.parametrize(
    ("text", "axes"),
    [
        # what stands next to a name is its shape, and what is behind that a remark
        ("known: b, n, features (calendar, temperature)", ("b", "n", "features")),
        ("memory b,l,width    known b,n,features", ("b", "n", "features")),
        ("known (b, n, features): of b, l, width", ("b", "n", "features")),
        ("ids: b n (0 = padding), known: b n 3", ("b", "n", "3")),
        ("known by a, b, and c", None),
        ("what is known words, places", None),
    ],
)
def test_the_shape_of_an_argument_is_what_stands_next_to_its_name(text, axes):
    assert shapes_in(text, ["known"]) == ({} if axes is None else {"known": axes})


class Atoms(nn.Module):
    def __init__(self, kinds=20, dim=24, heads=3):
        super().__init__()
        self.heads, self.kinds, self.pack = heads, nn.Embedding(kinds, dim), nn.Linear(dim, 3 * dim)

    def forward(self, kind, place):
        """kind: (batch, n) of atoms; place: (batch, n, 3)"""
        apart = (place[:, :, None] - place[:, None]).norm(dim=-1)
        q, k, v = self.pack(self.kinds(kind)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        s = q @ k.mT * q.shape[-1] ** -0.5 - apart[:, None]
        return (s.softmax(-1) @ v).transpose(1, 2).flatten(2)


def test_token_numbers_too_have_many_entries_along_an_axis_with_a_name():
    assert find(Atoms, namespace=globals()).plans[0].call["kind"]["_ids"] == ["B", "L"]


class InTables(nn.Module):
    """Reads the past (measured) and what is known of the future.

    past      B x P x d
    future    B x H x d
    still     B x d
    past_mask B x P, True where it was measured
    """

    def __init__(self, d):
        super().__init__()
        self.ask, self.hold = nn.Linear(d, d), nn.Linear(d, d)

    def forward(self, past, future, still, past_mask=None):
        every = torch.cat([past, future], 1) + still[:, None]
        scores = self.ask(future) @ every.mT * past.shape[-1] ** -0.5
        if past_mask is not None:
            scores = scores.masked_fill(~nn.functional.pad(past_mask, (0, future.shape[1]), value=True)[:, None], -1e9)
        return scores.softmax(-1) @ self.hold(every)


class OfWords(nn.Module):
    """Letters of a table.

    x      b n d
    words  b m d
    """

    def forward(self, x, words):
        return (x @ words.mT * x.shape[-1] ** -0.5).softmax(-1) @ words


def test_the_first_column_of_a_table_is_of_arguments():
    plan = find(InTables, namespace=globals()).plans[0]
    assert {name: plan.call[name] for name in ("past", "future", "still")} == {
        "past": ["B", "L", "D"],
        "future": ["B", "S", "D"],
        "still": ["B", "D"],
    }
    assert docstring_axes(OfWords, ["x", "words"]) == {"x": ("b", "n", "d"), "words": ("b", "m", "d")}


class TwoSided(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size))

    def forward(self, c, q, c_mask, q_mask):
        """c: (B, C, H), q: (B, Q, H), c_mask: (B, C), q_mask: (B, Q)"""
        scores = torch.einsum("bch,h,bqh->bcq", c, self.weight, q)
        there = q_mask[:, None].type(scores.dtype)
        return (there * scores + (1 - there) * -1e30).softmax(-1) @ q * c_mask[..., None]


if __name__ == "__main__":
    TwoSided(16)(torch.randn(2, 7, 16), torch.randn(2, 4, 16), torch.ones(2, 7), torch.ones(2, 4))


def test_a_letter_before_the_last_of_all_inputs_counts_and_a_mask_is_what_words_say_and_no_number_of_any_size():
    call = next(documented_calls(TwoSided, parameters(TwoSided.forward)[1:], parameters(TwoSided)))
    assert (call["c"], call["q"]) == (["B", "L", "D"], ["B", "S", "D"])
    plan = next(plan for plan in find(TwoSided, namespace=globals()).plans if plan.mask)
    _, options = plan.arguments(plan.sizes(0))
    assert all(set(options[name].unique().tolist()) <= {0, 1} for name in ("c_mask", "q_mask"))
