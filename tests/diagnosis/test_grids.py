"""Attention along an axis of a grid, or within its tiles: each token must come back to its own place."""

import pytest

from tests.diagnosis.written import HEAD, blamed_in, found_in, line_of, marked

ROWS = (
    HEAD
    + """
class Rows(nn.Module):
    def __init__(self, in_dim, inner_dim):
        super().__init__()
        self.ask, self.match = nn.Conv2d(in_dim, inner_dim, 1), nn.Conv2d(in_dim, inner_dim, 1)
        self.hold, self.gate = nn.Conv2d(in_dim, in_dim, 1), nn.Parameter(torch.zeros(1))

    def lines(self, x):
        return x.permute(0, 2, 1, 3).reshape(x.shape[0] * x.shape[2], -1, x.shape[3])

    def forward(self, x):
        b, _, h, w = x.size()
        q, k, v = self.lines(self.ask(x)), self.lines(self.match(x)), self.lines(self.hold(x))
        weights = (q.mT @ k / math.sqrt(q.shape[1])).softmax(dim={axis})  # <-
        y = torch.bmm(v, weights.mT).view(b, h, -1, w).permute(0, 2, 1, 3)
        return self.gate * y + x
"""
)

COLUMNS = (
    HEAD
    + """
class Heads(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.packed, self.join = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.packed(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        weights = (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1)
        return self.join((weights @ v).transpose(1, 2).flatten(2))


class Columns(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm, self.attend = nn.LayerNorm(width), Heads(width, heads)

    def forward(self, x):
        '''x: (batch, height, width, channels)'''
        b, h, w, c = x.shape
        lines = self.norm(x).{taken}
        lines = self.attend(lines)
        return x + {laid}
"""
)
TAKEN = "transpose(1, 2).reshape(b * w, h, c)"
LAID = "lines.view(b, w, h, c).transpose(1, 2)"


def test_columns_laid_back_as_rows_are_a_fault_of_the_layout():
    source = COLUMNS.replace("{taken}", TAKEN).replace("{laid}", "lines.view(b, h, w, c)  # <-")
    assert blamed_in(source, "Columns") == marked(source, "heads-batch-swapped")


@pytest.mark.parametrize("both", [(TAKEN, LAID), ("reshape(b * h, w, c)", "lines.view(b, h, w, c)")])
def test_lines_laid_back_as_they_were_taken_are_none(both):
    assert blamed_in(COLUMNS.replace("{taken}", both[0]).replace("{laid}", both[1]), "Columns") == []


TILES = (
    HEAD
    + """
class Tiles(nn.Module):
    def __init__(self, channels, heads, side=3):
        super().__init__()
        self.heads, self.side = heads, side
        self.packed = nn.Conv2d(channels, 3 * channels, 1)
        self.join = nn.Conv2d(channels, channels, {kernel}, padding={padding}, groups=channels)

    def forward(self, x):
        '''x: (batch, channels, height, width)'''
        b, c, h, w = x.shape
        s = self.side
        x = F.pad(x, (0, -w % s, 0, -h % s), mode="reflect")
        rows, columns = x.shape[-2] // s, x.shape[-1] // s
        y = self.packed(x).view(b, 3, self.heads, c // self.heads, rows, s, columns, s)
        q, k, v = y.permute(1, 0, 4, 6, 2, 5, 7, 3).flatten(5, 6)
        y = F.scaled_dot_product_attention(q, k, v).unflatten(-2, (s, s))
        y = y.permute({order}).reshape(x.shape)[:, :, :h, :w]
        return self.join({padded})[:, :, :h, :w]
"""
)
RIGHT = {"order": "0, 3, 6, 1, 4, 2, 5", "kernel": "side", "padding": "side // 2", "padded": "y"}


@pytest.mark.parametrize("other", [
    {}, {"kernel": "4", "padding": "1", "padded": 'F.pad(y, (0, 1, 0, 1), mode="reflect")'},
    {"kernel": "side", "padding": "1", "padded": 'F.pad(y, (0, 1, 0, 1), mode="reflect")'},
])  # fmt: skip
def test_tiles_that_come_back_to_their_places_are_sound_whatever_convolution_joins_them(other):
    source = TILES
    for name, value in (RIGHT | other).items():
        source = source.replace("{" + name + "}", value)
    assert found_in(source, "Tiles").verdict == "sound"


def test_tiles_that_are_laid_back_in_another_order_are_blamed_for_their_permutation():
    source = TILES
    for name, value in (RIGHT | {"order": "0, 3, 6, 2, 4, 1, 5"}).items():
        source = source.replace("{" + name + "}", value)
    (fault,) = found_in(source, "Tiles").faults
    assert (fault.kind, fault.line, fault.proved) == ("windows-misplaced", line_of(source, "y.permute(0, 3"), True)


def test_rows_of_an_image_whose_channels_are_a_size_of_their_own_are_followed():
    assert found_in(ROWS.format(axis=2), "Rows").verdict == "sound"
    source = ROWS.format(axis=1)
    assert blamed_in(source, "Rows") == marked(source, "softmax-axis")


VOLUME = """

class Volume(nn.Module):
    sides = (2, 3, 4)

    def __init__(self, width=24, heads=3):
        super().__init__()
        self.heads, self.qkv = heads, nn.Linear(width, 3 * width)
        spans = [2 * side - 1 for side in self.sides]
        self.table = nn.Parameter(torch.randn(math.prod(spans), heads))
        places = torch.stack(torch.meshgrid(*map(torch.arange, self.sides), indexing="ij")).flatten(1)
        offsets = places[:, :, None] - places[:, None] + torch.tensor(self.sides).view(3, 1, 1) - 1
        self.register_buffer("rows", {rows})  # <-

    def forward(self, x):
        # x: (batch, 24, width)
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        bias = self.table[self.rows[: x.shape[1], : x.shape[1]]].permute(2, 0, 1)
        return ((q @ k.mT * q.shape[-1] ** -0.5 + bias).softmax(-1) @ v).transpose(1, 2).flatten(2)
"""


@pytest.mark.parametrize(
    ("stride", "kinds"), [("spans[1] * spans[2]", []), ("spans[0] * spans[1]", ["offsets-share-bias"])]
)
def test_offsets_of_a_volume_have_rows_of_their_own(stride, kinds):
    source = HEAD + VOLUME.replace("{rows}", f"offsets[0] * {stride} + offsets[1] * spans[2] + offsets[2]")
    assert blamed_in(source, "Volume") == [each for kind in kinds for each in marked(source, kind)]


@pytest.mark.parametrize("made", ["rows = offsets.sum(0)\n        self.register_buffer(\"rows\", rows)",
                                  "self.register_buffer(\"rows\", offsets.sum(0))"])  # fmt: skip
@pytest.mark.parametrize(("side", "kinds"), [(2, []), (1, ["offsets-share-bias"])])
def test_a_stride_that_is_multiplied_in_place_is_told_on_its_line(side, kinds, made):
    strides = "offsets[1] *= spans[2]\n        offsets[0] *= spans[1] * spans[{side}]  # <-\n        "
    source = VOLUME.replace("  # <-", "").replace('self.register_buffer("rows", {rows})', strides + made)
    source = HEAD + source.replace("{side}", str(side))
    assert blamed_in(source, "Volume") == [each for kind in kinds for each in marked(source, kind)]
