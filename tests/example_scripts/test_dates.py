"""examples/dates.py learns to read dates, and its checks of itself can fail."""

import importlib
import re
import runpy
import sys

import click
import pytest
import torch
from torch.testing import assert_close

from examples.date_reader.model import ISO_SIGNS, START, DateReader, iso_ids, read_dates
from examples.date_reader.written import ALPHABET
from tests.example_scripts.running import EXAMPLES, run_script

pytestmark = pytest.mark.needs("matplotlib", "safetensors")

TEXTS = ["20 Nov 2026", "二〇二六年十一月二十日", "November 20th, 2026", "2026年11月20日"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder that the script wrote to, and how it ended."""
    folder = tmp_path_factory.mktemp("dates") / "new"
    return folder, run_script("dates.py", "--out", folder)


@pytest.fixture
def untrained():
    return DateReader(ALPHABET, E=24, heads=3)


@pytest.fixture
def picture():
    """The module that draws, which needs matplotlib."""
    from examples.date_reader import picture

    return picture


def test_it_reads_days_that_it_was_not_trained_on(trained):
    _, done = trained
    assert done.returncode == 0, done.stderr
    percent, days, ways = re.search(r"exact match: ([\d.]+)% of (\d+) days .* in (\d+) ways", done.stdout).groups()
    assert float(percent) >= 99.0
    assert (int(days), int(ways)) == (2000, 27)


def test_it_shows_a_progress_bar_and_no_warning(trained):
    _, done = trained
    assert re.fullmatch(r"training ━+ 400/400 loss 0\.\d+ 0:00:00 *\n", done.stderr)


def test_it_says_that_the_cache_and_the_saved_weights_change_nothing(trained):
    folder, done = trained
    assert "\nthe same 2000 dates without the cache\n" in done.stdout
    assert "\nthe same 2000 dates with the saved weights\n" in done.stdout
    assert f"{folder}" in done.stdout


def test_the_saved_weights_read_dates(trained):
    from safetensors.torch import load_file

    model = DateReader(ALPHABET)
    model.load_state_dict(load_file(trained[0] / "date_reader.safetensors"))
    assert read_dates(model, TEXTS) == ["2026-11-20"] * 4
    assert read_dates(model, TEXTS, is_cached=False) == ["2026-11-20"] * 4


def test_the_picture_is_drawn(trained):
    from matplotlib.image import imread

    pixels = imread(trained[0] / "alignment.png")[..., :3]
    height, width, _ = pixels.shape
    assert width > 2 * height > 1000
    # as much blue as ten cells hold, more than the bar of colours has
    assert (pixels[..., 2] - pixels[..., 0] > 0.2).sum() > 10 * 72**2


def test_it_looks_at_the_digits_that_it_copies(trained, picture):
    from safetensors.torch import load_file

    model = DateReader(ALPHABET)
    model.load_state_dict(load_file(trained[0] / "date_reader.safetensors"))
    date, weights = picture.alignment(model, "17 November 2098")
    looked_at = weights.mean(0).argmax(-1).tolist()
    assert date == "2098-11-17"
    # the last digit of the year, and of the day
    assert ("17 November 2098"[looked_at[3]], "17 November 2098"[looked_at[9]]) == ("8", "7")


def test_a_text_is_read_alike_alone_and_in_a_padded_batch(untrained):
    dates = iso_ids(["2026-11-20"])
    alone = untrained.write(dates, untrained.read(untrained.encode(TEXTS[:1])))
    batch = untrained.write(dates.expand(4, -1), untrained.read(untrained.encode(TEXTS)))
    assert_close(batch[:1], alone)


def test_the_decoder_does_not_see_what_it_is_to_write(untrained):
    memory = untrained.read(untrained.encode(TEXTS[:1]))
    full = untrained.write(iso_ids(["2026-11-20"]), memory)
    short = untrained.write(iso_ids(["2026-11-20"])[:, :4], memory)
    assert_close(full[:, :4], short)


def test_decoding_gives_the_same_with_and_without_the_cache(untrained):
    cached = read_dates(untrained, TEXTS)
    assert cached == read_dates(untrained, TEXTS, is_cached=False)
    assert len(set(cached)) > 1


def test_iso_dates_become_numbers_that_start_with_the_start():
    assert iso_ids(["2026-11-20"]).tolist() == [[START, 2, 0, 2, 6, 10, 1, 1, 10, 2, 0]]
    assert len(ISO_SIGNS) == START


def test_the_alignment_is_that_of_the_cross_attention(untrained, picture):
    date, weights = picture.alignment(untrained, TEXTS[1])
    assert date == read_dates(untrained, [TEXTS[1]])[0]
    assert weights.shape == (3, 10, len(TEXTS[1]))
    assert_close(weights.sum(-1), torch.ones(3, 10))
    # the first sign, by hand: its query is made of the start alone
    decoder, memory = untrained.decoder, untrained.read(untrained.encode(TEXTS[1:2]))
    x = untrained.embed_date(torch.tensor([[START]]))
    x = x + decoder.attn(decoder.norms[0](x))
    q = decoder.cross.q_proj(decoder.norms[1](x)).view(3, 1, 8)
    assert_close(weights[:, :1], torch.softmax(q @ memory.k[0].mT / 8**0.5, dim=-1))


@pytest.mark.parametrize(
    ("fonts", "signs"),
    [((), ["èr", "líng", "èr", "liù", "nián"]), (("DejaVu Sans",), list("二〇二六年"))],
    ids=["no Chinese font", "a Chinese font"],
)
def test_chinese_is_written_as_it_is_said_where_no_font_has_it(picture, monkeypatch, fonts, signs):
    from matplotlib.figure import Figure

    monkeypatch.setattr(picture, "CHINESE_FONTS", fonts)
    panel = Figure().subplots()
    picture.label_signs(panel, "二〇二六年")
    assert [label.get_text() for label in panel.get_xticklabels()] == signs


def test_a_picture_without_any_chinese_font_gives_no_warning(untrained, picture, monkeypatch, tmp_path):
    monkeypatch.setattr(picture, "CHINESE_FONTS", ())
    picture.save_alignment(
        untrained, ["Friday, November 20, 2026", "二〇二六年十一月二十日，星期五"], tmp_path / "a.png"
    )
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_dates_that_come_out_otherwise_are_not_called_the_same(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    dates = importlib.import_module("dates")
    with pytest.raises(click.ClickException, match="1 of 2 dates are not the same without the cache"):
        dates.prove_equal(["2026-11-20", "1999-01-02"], ["2026-11-20", "1999-01-03"], "without the cache")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--steps", "0"), "Invalid value for '--steps': 0 is not in the range x>=1."),
        (
            ("--out", EXAMPLES / "dates.py"),
            f"Invalid value for '--out': Directory '{EXAMPLES / 'dates.py'}' is a file.",
        ),
    ],
    ids=["steps", "out"],
)
def test_a_bad_argument_gets_one_sentence(arguments, sentence, monkeypatch, capsys):
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.setattr(sys, "argv", ["dates.py", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(EXAMPLES / "dates.py"), run_name="__main__")
    assert (ended.value.code, *capsys.readouterr()) == (2, "", f"{sentence}\n")
