"""Sizes by use: what the parameters of a constructor are, told by what the code does with them and not by names."""

import torch
from torch import nn

from headwise.calls.finder import find


def best(target):
    return find(target, namespace=globals()).plans[0]


class Lettered(nn.Module):
    """One letter divides the width: it is the number of heads."""

    def __init__(self, d, n):
        super().__init__()
        self.n, self.piece = n, d // n
        self.ask, self.offer, self.hold, self.join = (nn.Linear(d, d) for _ in range(4))

    def forward(self, mine, theirs, allowed):
        q, k, v = self.ask(mine), self.offer(theirs), self.hold(theirs)
        out = []
        for h in range(self.n):
            at = slice(h * self.piece, (h + 1) * self.piece)
            s = torch.bmm(q[..., at], k[..., at].transpose(1, 2)) / self.piece**0.5
            out.append(torch.bmm(s.masked_fill(~allowed, -1e9).softmax(-1), v[..., at]))
        return self.join(torch.cat(out, -1))


class Sided(nn.Module):
    """Its image has a side that patches divide, whatever it is called."""

    def __init__(self, side=32, patch=4, channels=3, dim=96, heads=4):
        super().__init__()
        assert side % patch == 0
        self.heads, self.cut = heads, nn.Conv2d(channels, dim, kernel_size=patch, stride=patch)
        self.where, self.qkv = nn.Parameter(torch.randn(1, (side // patch) ** 2, dim)), nn.Linear(dim, 3 * dim)

    def forward(self, picture):
        x = self.cut(picture).flatten(2).transpose(1, 2) + self.where
        b, n, d = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        return ((q @ k.mT * (d // self.heads) ** -0.5).softmax(-1) @ v).transpose(1, 2).reshape(b, n, d)


class Gridded(nn.Module):
    """Its grid is unpacked into two sides, which windows divide; tokens come row by row."""

    def __init__(self, dim, grid, num_heads, window=7):
        super().__init__()
        rows, columns = grid
        assert rows % window == 0
        assert columns % window == 0
        self.grid, self.window, self.heads, self.qkv = (rows, columns), window, num_heads, nn.Linear(dim, 3 * dim)

    def forward(self, x):
        b, _, d = x.shape
        (h, w), s = self.grid, self.window
        y = x.view(b, h // s, s, w // s, s, d).transpose(2, 3).reshape(-1, s * s, d)
        q, k, v = self.qkv(y).view(len(y), s * s, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = ((q @ k.mT * q.shape[-1] ** -0.5).softmax(-1) @ v).transpose(1, 2).reshape(b, h // s, w // s, s, s, d)
        return y.transpose(2, 3).reshape(x.shape)


class Normed(nn.Module):
    """`num_groups` are those of a norm of channels, and no heads."""

    def __init__(self, in_channels, n_heads, d_head, num_groups=32):
        super().__init__()
        self.heads, inner = n_heads, n_heads * d_head
        self.norm, self.into = nn.GroupNorm(num_groups, in_channels), nn.Conv2d(in_channels, inner, 1)
        self.qkv, self.back = nn.Linear(inner, 3 * inner), nn.Conv2d(inner, in_channels, 1)

    def forward(self, x):
        b, _, h, w = x.shape
        y = self.into(self.norm(x)).flatten(2).transpose(1, 2)
        q, k, v = self.qkv(y).reshape(b, h * w, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1) @ v
        return x + self.back(y.transpose(2, 3).reshape(b, -1, h, w))


class Pictured(nn.Module):
    """Words look at a map of features.

    words: (B, T, dim); features: (B, C, H, W)
    """

    def __init__(self, dim, image_dim, heads):
        super().__init__()
        self.heads, self.norm = heads, nn.LayerNorm(image_dim)
        self.ask, self.pack = nn.Linear(dim, dim), nn.Linear(image_dim, 2 * dim)

    def forward(self, words, features):
        b, t, d = words.shape
        cells = self.norm(features.permute(0, 2, 3, 1)).flatten(1, 2)
        q = self.ask(words).view(b, t, self.heads, -1).transpose(1, 2)
        k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in self.pack(cells).chunk(2, -1))
        return nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d)


class Stepped(nn.Module):
    """The state of a recurrent layer has an axis of layers before that of samples."""

    def __init__(self, vocab, emb=12, hid=20):
        super().__init__()
        self.table, self.gru = nn.Embedding(vocab, emb), nn.GRU(emb + hid, hid, batch_first=True)
        self.mine, self.theirs, self.score = nn.Linear(hid, hid), nn.Linear(hid, hid), nn.Linear(hid, 1)
        self.guess = nn.Linear(hid, vocab)

    def forward(self, words, state, encoded):
        out = []
        for at in range(words.size(1)):
            s = self.score(torch.tanh(self.mine(state[-1])[:, None] + self.theirs(encoded))).squeeze(-1)
            seen = torch.bmm(s.softmax(1)[:, None], encoded)
            y, state = self.gru(torch.cat([self.table(words[:, at])[:, None], seen], 2), state)
            out.append(self.guess(y))
        return torch.cat(out, 1)


def test_a_letter_that_divides_a_width_is_the_number_of_heads():
    assert best(Lettered).init == {"d": "H*d", "n": "H"}


def test_what_a_patch_divides_is_the_side_of_an_image():
    plan = best(Sided)
    assert (plan.init["side"], plan.init["patch"]) == ("n*patch", "patch")
    assert plan.call["picture"][2:] == ["n*patch", "n*patch"]


def test_a_grid_that_is_unpacked_has_two_sides_that_windows_divide():
    plan = best(Gridded)
    assert plan.init["grid"] == {"_tuple": ["grid_h", "grid_w"]}
    sizes = plan.sizes(0)
    assert sizes["L"] == sizes["grid_h"] * sizes["grid_w"]


def test_the_groups_of_a_norm_are_no_heads_and_divide_its_channels():
    plan = best(Normed)
    assert "num_groups" not in plan.init
    assert all(plan.build(plan.sizes(probe)).norm.num_channels % 32 == 0 for probe in range(3))


def test_a_width_of_images_is_no_side_of_one():
    plan = best(Pictured)
    sizes = plan.sizes(0)
    assert sizes[plan.call["features"][1]] == plan.build(sizes).norm.normalized_shape[0]
    assert plan.call["features"][2:] == ["h", "w"]


def test_the_state_of_a_recurrent_layer_has_its_layers_first():
    assert best(Stepped).call["state"][:2] == ["1", "B"]


class NormedByHead(nn.Module):
    """Each head is a group of its norm."""

    def __init__(self, dim, num_heads):
        super().__init__()
        self.heads, self.qkv, self.norm = num_heads, nn.Linear(dim, 3 * dim), nn.GroupNorm(num_heads, dim)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = ((q @ k.mT * q.shape[-1] ** -0.5).softmax(-1) @ v).transpose(1, 2).reshape(b * n, d)
        return self.norm(y).view(b, n, d)


def test_heads_that_are_groups_of_a_norm_stay_heads():
    assert best(NormedByHead).init == {"dim": "H*d", "num_heads": "H"}


class Cell(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gru = nn.GRU(width, width, batch_first=True)

    def forward(self, x, memory):
        return self.gru(x, memory)[0]


class Beside(nn.Module):
    """A helper has a state by the name of its own keys."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.cell = heads, Cell(dim)
        self.ask, self.pack = nn.Linear(dim, dim), nn.Linear(dim, 2 * dim)

    def forward(self, x, memory):
        q = self.ask(self.cell(x, None)).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in self.pack(memory).chunk(2, -1))
        return ((q @ k.mT * q.shape[-1] ** -0.5).softmax(-1) @ v).transpose(1, 2).flatten(2)


def test_the_state_of_a_helper_says_nothing_of_an_argument_by_its_name():
    assert best(Beside).call["memory"] == ["B", "S", "D"]


def _sight(start, real, n):
    at = torch.arange(n)
    return ((at <= at[:, None]) | (at < start[:, None, None])) & (at[None, :] < real[:, None])[:, None]


class Prompted(nn.Module):
    """The tokens of a prompt see each other; how many there are, and how many are real, comes with each sample."""

    def __init__(self, vocab=60, dim=24, heads=3):
        super().__init__()
        self.heads, self.words, self.pack = heads, nn.Embedding(vocab, dim), nn.Linear(dim, 3 * dim)

    def forward(self, tokens, prefix_len, real):
        q, k, v = self.pack(self.words(tokens)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        seen = _sight(prefix_len, real, tokens.shape[1])[:, None]
        return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen).transpose(1, 2).flatten(2)


def test_what_places_are_compared_with_counts_the_tokens_of_each_sample():
    call = best(Prompted).call
    assert call["_mask"] == {"argument": "real", "means": "lengths", "shape": ["B"]}
    assert call["prefix_len"] == {"_expr": "torch.full((B,), L // 2)"}


class Spoken(nn.Module):
    """Of two sequences each says how long it is."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.ask, self.pack = heads, nn.Linear(dim, dim), nn.Linear(dim, 2 * dim)

    def forward(self, x, memory, x_lengths, memory_lengths):
        q = self.ask(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in self.pack(memory).chunk(2, -1))
        there = torch.arange(memory.shape[1]) < memory_lengths[:, None]
        s = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(~there[:, None, None], -1e9)
        y = (s.softmax(-1) @ v).transpose(1, 2).flatten(2)
        return y * (torch.arange(x.shape[1]) < x_lengths[:, None])[..., None]


def test_of_two_lengths_one_hides_and_the_other_hides_nothing():
    call = best(Spoken).call
    assert call["_mask"]["means"] == "lengths"
    assert {call["_mask"]["argument"], *call} >= {"x_lengths", "memory_lengths"}
    other = next(name for name in ("x_lengths", "memory_lengths") if name in call)
    assert call[other] == {"_expr": "torch.full((B,), L)"}


class Tiles(nn.Module):
    """Windows divide what a convolution leaves of an image with as many bands as by default."""

    def __init__(self, bands=6, dim=24, heads=3, ws=4):
        super().__init__()
        self.heads, self.ws = heads, ws
        self.stem, self.pack = nn.Conv2d(bands, dim, 4, stride=4), nn.Linear(dim, 3 * dim)

    def forward(self, tiles):
        x = self.stem(tiles)
        b, c, h, w = x.shape
        x = x.view(b, c, h // self.ws, self.ws, w // self.ws, self.ws).permute(0, 2, 4, 3, 5, 1)
        x = x.reshape(-1, self.ws**2, c)
        q, k, v = self.pack(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return ((q @ k.mT * q.shape[-1] ** -0.5).softmax(-1) @ v).transpose(1, 2).flatten(2)


def test_an_image_is_as_large_as_windows_need_it_behind_a_convolution():
    plan = best(Tiles)
    assert plan.call["tiles"][:2] == ["B", "6"]
    sizes = plan.sizes(0)
    assert all(sizes[side] % (4 * sizes["ws"]) == 0 for side in "hw")


class Sixfold(nn.Module):
    """Sines of three directions in pairs: a width that 6 divides."""

    def __init__(self, dim, heads):
        super().__init__()
        assert dim % 6 == 0
        self.heads, self.pack = heads, nn.Linear(dim, 3 * dim)

    def forward(self, x):
        q, k, v = self.pack(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return ((q @ k.mT * q.shape[-1] ** -0.5).softmax(-1) @ v).transpose(1, 2).flatten(2)


class Points(Sixfold):
    """Places and colours side by side, six numbers of each point."""

    def __init__(self, dim=24, heads=3):
        super().__init__(dim, heads)
        self.begin = nn.Linear(6, dim)

    def forward(self, place, colour):
        return super().forward(self.begin(torch.cat([place, colour], -1)))


class Tabled(Sixfold):
    """Words have vectors that were learned before."""

    def __init__(self, vectors, heads=2):
        super().__init__(vectors.size(1), heads)
        self.words = nn.Embedding.from_pretrained(vectors)

    def forward(self, words):
        return super().forward(self.words(words))


class Asked(Sixfold):
    """Its tokens come with a vector of each sample."""

    def __init__(self, dim, heads, beside):
        super().__init__(dim, heads)
        self.begin = nn.Linear(dim + beside, dim)

    def forward(self, x, vector=None):
        assert vector is not None, "it was built for a vector"
        return super().forward(self.begin(torch.cat([x, vector[:, None].expand(-1, x.shape[1], -1)], -1)))


def test_a_width_is_a_multiple_of_what_an_assertion_divides_it_by():
    assert best(Sixfold).sizes(0)["D"] % 6 == 0


def test_two_inputs_have_half_of_a_number_of_the_class_each():
    call = best(Points).call
    assert [call[name][-1] for name in ("place", "colour")] == ["3", "3"]


def test_a_table_stands_where_a_constructor_takes_one():
    assert best(Tabled).init["vectors"] == {"_expr": "torch.randn(19, 24)"}


def test_an_argument_that_an_assertion_asks_for_is_given():
    call = best(Asked).call
    assert (len(call["x"]), len(call["vector"])) == (3, 2)


class Spectrogram(nn.Module):
    """What code counts by is the columns of an image, and not all of its places."""

    def __init__(self, channels, heads):
        super().__init__()
        self.own, self.mix = nn.MultiheadAttention(channels, heads, batch_first=True), nn.Conv2d(channels, channels, 1)

    def forward(self, x, frames=None):
        b, c, h, w = x.shape
        y = self.mix(x).permute(0, 2, 3, 1).reshape(b * h, w, c)
        pad = None if frames is None else (torch.arange(w)[None] >= frames[:, None]).repeat_interleave(h, dim=0)
        return self.own(y, y, y, key_padding_mask=pad)[0].view(b, h, w, c).permute(0, 3, 1, 2)


def test_what_counts_the_columns_of_an_image_is_no_mask_of_its_places():
    assert [plan.mask for plan in find(Spectrogram, namespace=globals()).plans] == [""]


class Columns(nn.Module):
    """A table, each column of which is a token, behind one of the whole row."""

    def __init__(self, n_columns, dim):
        super().__init__()
        self.slope, self.ask = nn.Parameter(torch.randn(n_columns + 1, dim)), nn.Linear(dim, dim)

    def forward(self, table):
        samples, _ = table.shape
        x = torch.cat([table.new_ones(samples, 1), table], 1)[..., None] * self.slope
        return (self.ask(x) @ x.mT).softmax(-1) @ x


def test_a_table_has_a_column_for_each_that_a_class_is_built_for():
    assert best(Columns).call == {"table": ["B", "n_columns"]}


class Blocked(nn.Module):
    """As many tokens as blocks of a width of its own have room for."""

    def __init__(self, dim):
        super().__init__()
        self.size, self.ask = 6, nn.Linear(dim, dim)

    def forward(self, x):
        b, n, d = x.shape
        assert n % self.size == 0, "whole blocks"
        y = x.view(b, n // self.size, self.size, d)
        return ((self.ask(y) @ y.mT).softmax(-1) @ y).view(b, n, d)


def test_a_length_that_a_number_of_the_code_divides_is_a_multiple_of_it():
    plan = best(Blocked)
    assert {plan.sizes(probe)["L"] % 6 for probe in range(-1, 4)} == {0}
    assert len({plan.sizes(probe)["L"] for probe in range(4)}) > 1


class Skipping(nn.Module):
    """Its image is halved twice and doubled again, and meets what it was before."""

    def __init__(self, channels, width):
        super().__init__()
        self.widen, self.ask = nn.Conv2d(channels, width, 3, padding=1), nn.Conv2d(width, width, 1)

    def forward(self, image):
        x = self.widen(image)
        small = nn.functional.max_pool2d(nn.functional.max_pool2d(x, 2), 2)
        q, k = self.ask(small).flatten(2), small.flatten(2)
        small = ((q.mT @ k).softmax(-1) @ k.mT).mT.view_as(small)
        return torch.cat([x, nn.functional.interpolate(small, scale_factor=4)], 1)


def test_the_sides_of_an_image_that_is_halved_and_doubled_are_multiples():
    plan = best(Skipping)
    sizes = [plan.sizes(probe) for probe in range(-1, 4)]
    assert {each["h"] % 4 for each in sizes} == {each["w"] % 4 for each in sizes} == {0}


class Staged(nn.Module):
    """Heads of its own: three, then six."""

    def __init__(self, dim, counts=(3, 6)):
        super().__init__()
        self.counts, self.layers = counts, nn.ModuleList(nn.Linear(dim, 3 * dim) for _ in counts)

    def forward(self, x):
        for count, layer in zip(self.counts, self.layers, strict=True):
            b, n, d = x.shape
            q, k, v = layer(x).reshape(b, n, 3, count, d // count).permute(2, 0, 3, 1, 4)
            x = x + ((q @ k.mT).softmax(-1) @ v).transpose(1, 2).reshape(b, n, d)
        return x


def test_a_width_is_a_multiple_of_all_numbers_of_heads():
    plan = best(Staged)
    assert {plan.initial(plan.sizes(probe))["dim"] % 6 for probe in range(-1, 4)} == {0}


class Halving(nn.Module):
    """Listens to every fourth of as many frames as lengths say."""

    def __init__(self, dim, hidden):
        super().__init__()
        self.rnn, self.ask = nn.LSTM(4 * dim, hidden, batch_first=True), nn.Linear(hidden, hidden)

    def forward(self, frames, lengths):
        b, n, d = frames.shape
        x = frames[:, : n // 4 * 4].reshape(b, n // 4, 4 * d)
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths.cpu() // 4, batch_first=True, enforce_sorted=False)
        x, _ = nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True, total_length=n // 4)
        closed = torch.arange(n // 4) >= (lengths // 4)[:, None]
        return (self.ask(x) @ x.mT).masked_fill(closed[:, None], float("-inf")).softmax(-1) @ x


def test_lengths_leave_something_where_frames_are_put_together():
    plan = best(Halving)
    for probe in range(-1, 4):
        sizes = plan.sizes(probe)
        lengths = plan.arguments(sizes)[1]["lengths"]
        assert int(lengths.max()) == sizes["L"]
        assert int(lengths.min()) >= 4


class Configured(nn.Module):
    """A width of heads that has nothing to do with the width of the model."""

    def __init__(self, hidden_size, num_heads, num_kv_heads, head_dim, intermediate_size, vocab_size, window_size):
        super().__init__()
        self.heads, self.groups, self.width = num_heads, num_kv_heads, head_dim
        self.table, self.more = nn.Embedding(vocab_size, hidden_size), nn.Linear(hidden_size, intermediate_size)
        self.ask = nn.Linear(hidden_size, num_heads * head_dim)
        self.match = nn.Linear(hidden_size, num_kv_heads * head_dim)
        self.window = window_size

    def forward(self, ids):
        x = self.table(ids)
        b, n, _ = x.shape
        q = self.ask(x).view(b, n, self.heads, self.width).transpose(1, 2)
        k = self.match(x).view(b, n, self.groups, self.width).transpose(1, 2)
        k = k.repeat_interleave(self.heads // self.groups, 1)
        return ((q @ k.mT).softmax(-1) @ k).transpose(1, 2).flatten(2)


def test_no_layer_becomes_wide_because_heads_have_a_width_of_their_own():
    plan = best(Configured)
    sizes = [plan.sizes(probe) for probe in range(4)]
    assert max(each["H"] * each["d"] for each in sizes) < 3000
    assert len({each["d"] for each in sizes}) > 1


class Shared(nn.Module):
    """As wide as its heads are together, of which some share keys."""

    def __init__(self, hidden_size, num_heads, num_kv_heads):
        super().__init__()
        self.heads, self.groups, self.width = num_heads, num_kv_heads, hidden_size // num_heads
        self.ask = nn.Linear(hidden_size, num_heads * self.width)
        self.match = nn.Linear(hidden_size, num_kv_heads * self.width)

    def forward(self, x):
        q = self.ask(x).unflatten(-1, (self.heads, self.width)).transpose(1, 2)
        k = self.match(x).unflatten(-1, (self.groups, self.width)).transpose(1, 2)
        k = k.repeat_interleave(self.heads // self.groups, 1)
        return ((q @ k.mT).softmax(-1) @ k).transpose(1, 2).flatten(2)


def test_no_layer_becomes_wide_because_heads_share_keys():
    plan = best(Shared)
    sizes = [plan.sizes(probe) for probe in range(-1, 4)]
    assert max(each["D"] for each in sizes) < 250
    assert all(len(set(each.values())) == len(each) and 1 < each["Hkv"] < each["H"] < each["D"] for each in sizes)


class Pyramid(nn.Module):
    """Windows of an image whose sides each stage but the last halves, with heads of its own in each."""

    def __init__(self, img_size=64, patch=4, dim=48, heads=(3, 6), window_size=4):
        super().__init__()
        self.cut, self.heads, self.window = nn.Conv2d(3, dim, patch, patch), heads, window_size
        self.layers = nn.ModuleList(nn.Linear(dim << at, 3 * dim << at) for at in range(len(heads)))
        self.merge = nn.Linear(4 * dim, 2 * dim)

    def forward(self, img):
        x = self.cut(img).permute(0, 2, 3, 1)
        for at, (layer, count) in enumerate(zip(self.layers, self.heads, strict=True)):
            if at:
                x = self.merge(torch.cat([x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]], -1))
            b, h, w, d = x.shape
            s = self.window
            y = x.view(b, h // s, s, w // s, s, d).transpose(2, 3).reshape(-1, s * s, d)
            q, k, v = layer(y).reshape(len(y), s * s, 3, count, d // count).permute(2, 0, 3, 1, 4)
            y = ((q @ k.mT).softmax(-1) @ v).transpose(1, 2).reshape(b, h // s, w // s, s, s, d)
            x = x + y.transpose(2, 3).reshape(b, h, w, d)
        return x.mean((1, 2))


def test_windows_divide_the_sides_of_all_stages():
    plan = best(Pyramid)
    for probe in range(-1, 4):
        sizes = plan.sizes(probe)
        assert plan.initial(sizes)["img_size"] % (2 * sizes["patch"] * sizes["window_size"]) == 0
        assert plan.initial(sizes)["dim"] % 6 == 0


class Lines(nn.Module):
    """Images of lines are as high as a kernel behind two halvings."""

    def __init__(self, dim):
        super().__init__()
        self.cnn = nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.MaxPool2d(2), nn.Conv2d(8, dim, (5, 1)))
        self.ask = nn.Linear(dim, dim)

    def forward(self, images):
        x = self.cnn(images).squeeze(2).mT
        return (self.ask(x) @ x.mT).softmax(-1) @ x


def test_an_image_is_as_high_as_a_kernel_behind_strides():
    plan = best(Lines)
    assert {plan.sizes(probe)["h"] for probe in range(4)} == {20}
