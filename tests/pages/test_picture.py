"""A picture opens again, shows the weights, and draws any text without a warning."""

import dataclasses

import pytest
import torch

from headwise.pages import look, picture
from tests.pages.small_models import SENTENCE

pytestmark = pytest.mark.needs("transformers", "matplotlib")


def opened(file):
    """The picture as (height, width, 4) numbers from 0 to 1."""
    from matplotlib.image import imread

    return imread(file)


def saved(seen, file, **changes):
    return picture.save(dataclasses.replace(seen, **changes), file, "png")


@pytest.fixture(scope="module")
def seen(bert_folder):
    return look(SENTENCE, model=bert_folder, query="animal", layer=1, head=2)


def test_a_picture_opens_again_at_a_readable_size(seen, tmp_path):
    saved(seen, tmp_path / "a.png")
    height, width, _ = opened(tmp_path / "a.png").shape
    assert 450 <= height <= 1000
    assert 450 <= width <= 1300


def test_the_colours_of_the_cells_are_those_of_the_weights(seen, tmp_path):
    from matplotlib import colormaps

    saved(seen, tmp_path / "a.png")
    pixels = opened(tmp_path / "a.png")[..., :3].reshape(-1, 3)
    weights = seen.weights[1][2]
    for weight in weights.flatten().tolist():
        colour = colormaps["viridis"](weight / float(weights.max()))[:3]
        assert (abs(pixels - colour).max(axis=1) < 0.01).sum() > 500


def centre(mask):
    return [float(axis.mean()) for axis in mask.nonzero()]


@pytest.mark.parametrize(("query", "key"), [(0, 4), (4, 0), (1, 3)])
def test_queries_are_rows_from_the_top_and_keys_columns_from_the_left(seen, tmp_path, query, key):
    weights = torch.zeros(3, 5, 5)
    weights[2, query, key] = 1.0
    saved(seen, tmp_path / "a.png", weights={1: weights}, links=(), is_query=False)
    # the map without the colour bar, which stands to its right
    pixels = opened(tmp_path / "a.png")[..., :3]
    pixels = pixels[:, : int(pixels.shape[1] * 0.78)]
    dark, bright = (
        abs(pixels - colour).max(axis=-1) < 0.02 for colour in ((0.267, 0.005, 0.329), (0.993, 0.906, 0.144))
    )
    (row, column), (middle_row, middle_column) = centre(bright), centre(dark | bright)
    assert (row > middle_row) - (row < middle_row) == (query > 2) - (query < 2)
    assert (column > middle_column) - (column < middle_column) == (key > 2) - (key < 2)


def test_signs_of_formulas_are_drawn_as_they_are(seen, tmp_path):
    formula = "$\\frac$"
    tokens = tuple(dataclasses.replace(token, text=formula) for token in seen.tokens)
    assert saved(seen, tmp_path / "a.png", tokens=tokens, model=formula) == ""
    assert opened(tmp_path / "a.png").shape[2] == 4


def test_each_chosen_head_has_a_panel(seen, tmp_path):
    sizes = []
    for drawn in (((0, 0),), ((0, 0), (0, 1)), ((0, 0), (0, 1), (1, 0), (1, 1))):
        saved(seen, tmp_path / "a.png", drawn=drawn)
        sizes.append(opened(tmp_path / "a.png").shape[:2])
    (one, two, four) = sizes
    assert (two[0] / one[0], two[1] / one[1]) == pytest.approx((1, 2), rel=0.1)
    assert (four[0] / one[0], four[1] / one[1]) == pytest.approx((2, 2), rel=0.1)


def test_three_heads_leave_one_panel_empty(seen, tmp_path):
    assert saved(seen, tmp_path / "a.png", drawn=((0, 0), (0, 1), (1, 0))) == ""
    last = opened(tmp_path / "a.png")[..., :3]
    height, width = last.shape[:2]
    assert last[height // 2 + 40 :, width // 2 + 80 :].min() == 1.0


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("text", ["$x_1$ ^{", "[red] \x1b[31m", "it 你好", "\U0001fae8 it", "हिन्दी it", "\\frac{1}"])
def test_any_text_is_drawn_without_a_warning(gpt2_folder, tmp_path, text, lang):
    seen = look(text, model=gpt2_folder, output=tmp_path / "a.png", lang=lang)
    assert opened(tmp_path / "a.png").shape[2] == 4
    assert seen.notes[-1].endswith("a.png")


def test_characters_that_no_font_has_are_named(gpt2_folder, tmp_path):
    seen = look("it \U0001fae8", model=gpt2_folder, output=tmp_path / "a.png")
    assert seen.notes[0].startswith("No font on this machine has \U0001fae8: the picture shows □")


def test_a_chinese_font_is_used_where_there_is_one(monkeypatch):
    from matplotlib.font_manager import fontManager

    other = next(font.name for font in fontManager.ttflist if font.name != picture.PLAIN_FONT)
    monkeypatch.setattr(picture, "CJK_FONTS", ("No Such Font", other))
    assert picture._fonts() == [picture.PLAIN_FONT, other]


def test_a_long_text_is_drawn_with_fewer_labels(bert_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(picture, "MOST_LABELS", 7)
    seen = look(SENTENCE * 3, model=bert_folder, query="animal")
    assert saved(seen, tmp_path / "a.png") == ""
    height, width, _ = opened(tmp_path / "a.png").shape
    assert height < width < 2600
