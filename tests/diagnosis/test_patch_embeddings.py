"""Images in patches, with the channels that the code writes as a number, and the rows of their table of positions."""

import pytest

from headwise.diagnosis.target_diagnosis import diagnosed
from tests.diagnosis.written import blamed_in, found_in, line_of, loaded_from

HEAD = "import torch\nfrom torch import nn\n\n\n"
PATCHES = """class Patches(nn.Module):
    def __init__(self, image_size=16, patch=4, width=24, heads=3):
        super().__init__()
        rows = (image_size // patch) ** 2
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.pos_embedding = nn.Parameter(torch.randn(1, rows + 8, width))
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, image):
        x = self.patches(image).flatten(2).transpose(1, 2)
        count = x.shape[1]
        x = x + self.pos_embedding[:, :count]
        return self.attention(x, x, x)[0]
"""
ROWS = """class Rows(nn.Module):
    \"\"\"x: (batch, frames, tokens, width)\"\"\"

    def __init__(self, width, heads):
        super().__init__()
        self.time_pos = nn.Parameter(torch.randn(1, 64, width))
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, x):
        frames = [x[:, place] + self.time_pos[:, place] for place in range(x.shape[1])]
        x = torch.cat(frames, dim=1)
        return self.attention(x, x, x)[0]
"""
IDS = """class Words(nn.Module):
    def __init__(self, vocabulary, width, heads, max_len=64):
        super().__init__()
        self.words, self.pos = nn.Embedding(vocabulary, width), nn.Embedding(max_len, width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, ids):
        x = self.words(ids) + self.pos.weight[: ids.shape[1]]
        return self.attention(x, x, x)[0]
"""


@pytest.mark.parametrize("channels", ["1", "3", "4"])
def test_images_of_so_many_channels_are_called(channels):
    source = HEAD + PATCHES.replace("nn.Conv2d(3,", f"nn.Conv2d({channels},")
    assert found_in(source, "Patches").verdict == "sound"


@pytest.mark.parametrize(
    ("source", "name", "right", "wrong"),
    [
        (PATCHES, "Patches", "self.pos_embedding[:, :count]", "self.pos_embedding[:, count]"),
        (IDS, "Words", "self.pos.weight[: ids.shape[1]]", "self.pos.weight[ids.shape[1]]"),
    ],
    ids=["patches", "words"],
)
def test_one_row_of_positions_for_all_tokens_is_found(source, name, right, wrong):
    assert found_in(HEAD + source, name).verdict == "sound"
    assert source.count(right) == 1
    source = HEAD + source.replace(right, wrong)
    assert blamed_in(source, name) == [("position-constant", line_of(source, wrong))]


CLASS_TOKEN = PATCHES.replace(
    "        count = x.shape[1]\n",
    "        x = torch.cat((self.token.expand(x.shape[0], -1, -1), x), dim=1)\n        count = x.shape[1]\n",
).replace(
    "        self.attention =", "        self.token = nn.Parameter(torch.randn(1, 1, width))\n        self.attention ="
)
NEXT = IDS.replace(
    "        return self.attention(x, x, x)[0]",
    "        query = self.words(ids[:, -1:]) + self.pos.weight[ids.shape[1]]\n"
    "        return self.attention(query, x, x)[0]",
)


def test_a_token_of_the_class_is_counted_with_the_patches():
    assert found_in(HEAD + CLASS_TOKEN, "Patches").verdict == "sound"
    source = HEAD + CLASS_TOKEN.replace("self.pos_embedding[:, :count]", "self.pos_embedding[:, count]")
    assert blamed_in(source, "Patches") == [("position-constant", line_of(source, "self.pos_embedding[:, count]"))]


def test_the_place_of_the_next_token_is_right():
    assert not found_in(HEAD + NEXT, "Words").faults


@pytest.mark.parametrize(
    "source",
    [
        ROWS,
        ROWS.replace("for place in range(x.shape[1])", "for place in (0, 1)").replace(
            "time_pos[:, place]", "time_pos[:, 0]"
        ),
    ],
    ids=["a row for each frame", "the first row for all"],
)
def test_rows_that_are_not_named_by_the_number_of_tokens_are_right(source):
    assert not found_in(HEAD + source, "Rows").faults


PAIRS = """class Pairs(nn.Module):
    def __init__(self, vocabulary, image_size=16, patch=4, width=24, heads=3, max_len=64):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.pos = nn.Parameter(torch.randn(1, (image_size // patch) ** 2, width))
        self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(max_len, width)
        self.of_images = nn.TransformerEncoderLayer(width, heads, width, batch_first=True)
        self.of_words = nn.TransformerEncoderLayer(width, heads, width, batch_first=True)

    def forward(self, image, text):
        seen = self.of_images(self.patches(image).flatten(2).transpose(1, 2) + self.pos).mean(dim=1)
        length = text.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        read = self.of_words(self.words(text) + self.places(torch.arange(length)), src_mask=mask, is_causal=True)
        return seen @ read[:, -1].T
"""


def test_words_beside_an_image_are_token_ids():
    report = found_in(HEAD + PAIRS, "Pairs")
    assert report.verdict == "sound"


def test_features_that_are_looked_up_are_no_fault_of_the_class():
    call = {"image": ["B", 3, "image_size", "image_size"], "text": ["B", "S", "D"]}
    report = declared(PAIRS, "Pairs", call)
    assert (report.verdict, report.faults) == ("not examined", ())
    assert "Long, Int; but got" in report.reason


@pytest.mark.parametrize(("size", "verdict"), [("image_size", "sound"), ("other", "not examined")])
def test_a_size_that_is_declared_by_the_name_of_what_the_constructor_takes_is_that(size, verdict):
    # of another size there are more or fewer patches than places
    report = declared(PATCHES.replace("rows + 8", "rows"), "Patches", {"image": ["B", 3, size, size]})
    assert report.verdict == verdict


def declared(source, name, call):
    """The diagnosis of a class with a call that is declared."""
    target, namespace, file = loaded_from(HEAD + source, name)
    return diagnosed(target, title=name, namespace=namespace, files={file: "written.py"}, call=call)


TWO_STREAMS = (
    HEAD
    + '''class Table(nn.Module):
    def __init__(self, width, max_len=64):
        super().__init__()
        self.register_buffer("pe", torch.randn(1, max_len, width))

    def forward(self, x):
        return x + self.pe[:, :x.shape[1]]


class Motion(nn.Module):
    """sound: (N, S, width), motion: (N, T, width), which is read shifted by a start token"""

    def __init__(self, width=24, heads=3):
        super().__init__()
        self.start, self.places = nn.Parameter(torch.randn(1, 1, width)), Table(width)
        layer = nn.TransformerDecoderLayer(width, heads, 2 * width, batch_first=True)
        self.decoder = nn.TransformerDecoder(layer, num_layers=2)

    def forward(self, sound, motion):
        memory = self.places(sound)
        x = torch.cat([self.start.expand(motion.shape[0], -1, -1), motion[:, :-1]], dim=1)
        x = self.places(x)
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        return self.decoder(x, memory, tgt_mask=later)
'''
)


def test_one_row_of_positions_for_all_tokens_of_two_inputs_is_found_behind_a_start_token():
    assert found_in(TWO_STREAMS, "Motion").verdict == "sound"
    source = TWO_STREAMS.replace("self.pe[:, :x.shape[1]]", "self.pe[:, x.shape[1]]")
    assert blamed_in(source, "Motion") == [("position-constant", line_of(source, "self.pe[:, x.shape[1]]"))]


SINES = (
    HEAD
    + '''class Sines(nn.Module):
    """Half of the features tell the row of a patch, half its column, in sines and cosines."""

    def __init__(self, width):
        super().__init__()
        self.width = width

    def forward(self, x):
        steps = torch.arange(self.width) // 2
        places = [torch.arange(size)[:, None] / 100 ** (steps / self.width) for size in x.shape[-2:]]
        y, x = (torch.stack([each[:, 0::2].sin(), each[:, 1::2].cos()], dim=-1).flatten(1) for each in places)
        return torch.cat([y[:, None].expand(-1, len(x), -1), x.expand(len(y), -1, -1)], dim=-1).flatten(0, 1)


class Image(nn.Module):
    def __init__(self, d=32, heads=4, patch=4):
        super().__init__()
        self.cut, self.places = nn.Conv2d(3, d, patch, patch), Sines(d // 2)
        self.attention = nn.MultiheadAttention(d, heads, batch_first=True)

    def forward(self, images):
        x = self.cut(images)
        x = x.flatten(2).mT + self.places(x).to(x.dtype)
        return self.attention(x, x, x)[0]
'''
)


def test_a_width_that_is_shared_by_two_directions_is_a_multiple_of_four():
    assert found_in(SINES, "Image").verdict == "sound"


STARTED = """class Started(nn.Module):
    def __init__(self, img_size=32, patch=8, width=48, heads=4):
        super().__init__()
        self.cut = nn.Sequential(nn.Conv2d(3, width, patch, patch), nn.BatchNorm2d(width), nn.GELU())
        self.start = nn.Parameter(torch.randn(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, (img_size // patch) ** 2 + 1, width))
        self.lift = nn.Linear(width, width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.out = nn.Linear(width, 10)

    def forward(self, image):
        x = self.cut(image)
        x = x.flatten(2).transpose(1, 2)
        x = torch.cat((self.start.expand(x.shape[0], -1, -1), x), dim=1) + self.places
        h = self.lift(x)
        return self.out((x + self.attention(h, h, h, need_weights=False)[0])[:, 0])
"""
HEARD = """class Heard(nn.Module):
    \"\"\"x: (batch, channels, time)\"\"\"

    def __init__(self, channels=3, width=48, heads=4):
        super().__init__()
        self.cut = nn.Sequential(nn.Conv1d(channels, width, 4, stride=2), nn.GELU())
        self.start = nn.Parameter(torch.randn(1, 1, width))
        self.lift = nn.Linear(width, width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.out = nn.Linear(width, 10)

    def forward(self, x):
        x = self.cut(x)
        x = x.transpose(1, 2)
        x = torch.cat((self.start.expand(x.shape[0], -1, -1), x), dim=1)
        h = self.lift(x)
        return self.out((x + self.attention(h, h, h, need_weights=False)[0])[:, 0])
"""


@pytest.mark.parametrize(
    ("source", "name", "move", "wrong"),
    [
        (STARTED, "Started", "x.flatten(2).transpose(1, 2)", "x.reshape(x.shape[0], -1, x.shape[1])"),
        (STARTED, "Started", "x.flatten(2).transpose(1, 2)", "x.view(x.shape[0], x.shape[2] * x.shape[3], -1)"),
        (HEARD, "Heard", "x.transpose(1, 2)", "x.reshape(x.shape[0], x.shape[2], x.shape[1])"),
    ],
    ids=["image", "image by its sides", "sound"],
)
def test_channels_of_a_convolution_that_a_view_takes_for_places(source, name, move, wrong):
    text = HEAD + source.replace(move, wrong)
    assert blamed_in(text, name) == [("tokens-regrouped", line_of(text, wrong))]


@pytest.mark.parametrize(
    "move",
    [
        "x.flatten(2).transpose(1, 2)",
        "x.permute(0, 2, 3, 1).reshape(x.shape[0], -1, x.shape[1])",
        "x.view(x.shape[0], x.shape[1], -1).mT",
        "nn.functional.pixel_unshuffle(nn.functional.pixel_shuffle(x, 2), 2).flatten(2).mT",
        "x.unflatten(1, (2, -1)).transpose(1, 2).reshape(x.shape).flatten(2).mT",
    ],
    ids=["flattened", "permuted", "viewed", "pixels shuffled", "channels shuffled"],
)
def test_channels_that_stand_behind_their_places_are_right(move):
    source = HEAD + STARTED.replace("x.flatten(2).transpose(1, 2)", move)
    assert found_in(source, "Started").verdict == "sound"


def test_patches_of_pixels_are_right():
    source = HEAD + STARTED.replace(
        "nn.Sequential(nn.Conv2d(3, width, patch, patch), nn.BatchNorm2d(width), nn.GELU())",
        "nn.Linear(3 * patch**2, width)",
    ).replace("x = self.cut(image)\n", "x = image.unflatten(3, (-1, 8)).unflatten(2, (-1, 8))\n").replace(
        "x.flatten(2).transpose(1, 2)", "self.cut(x.permute(0, 2, 4, 1, 3, 5).reshape(len(image), -1, 192))"
    )
    assert found_in(source, "Started").verdict != "faulty"


NONLOCAL = """class Nonlocal(nn.Module):
    '''image: (batch, channels, height, width)'''

    def __init__(self, channels):
        super().__init__()
        self.theta, self.phi, self.g, self.out = (nn.Conv2d(channels, channels, 1) for _ in range(4))
        self.pool = nn.MaxPool2d(2)

    def forward(self, image):
        batch, channels, height, width = image.shape
        q = self.theta(image).flatten(2).transpose(1, 2)
        k, v = self.pool(self.phi(image)).flatten(2), self.pool(self.g(image)).flatten(2)
        w = (q @ k / channels**0.5).softmax({axis})
        y = torch.bmm(v, w.transpose(1, 2))
        return image + self.out(y.view(batch, channels, height, width))
"""


def test_keys_and_values_may_be_pooled_from_the_places_of_an_image():
    assert found_in(HEAD + NONLOCAL.format(axis=-1), "Nonlocal").verdict == "sound"
    source = HEAD + NONLOCAL.format(axis=1)
    assert blamed_in(source, "Nonlocal") == [("softmax-axis", line_of(source, "softmax"))]
