"""What is printed fits the width, reads without colour, and cannot act on the terminal."""

import dataclasses
import io
import re

import pytest
from rich.cells import cell_len
from rich.console import Console

from headwise.pages import look
from headwise.pages.heat_map import SHADES, Heat, pooled
from headwise.pages.links import Link, WordLinks
from headwise.pages.terminal import show
from headwise.pages.words import Token, Word
from tests.pages.small_models import SENTENCE

pytestmark = pytest.mark.needs("transformers")
LONG = "it was the tired animal 你好 it was"


def printed(thing, width, *, colour=None):
    console = Console(file=io.StringIO(), width=width, color_system=colour, force_terminal=colour is not None)
    console.print(thing) if isinstance(thing, Heat) else show(thing, console)
    return console.file.getvalue()


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("width", [50, 80, 130])
@pytest.mark.parametrize("query", [None, "animal"])
def test_every_line_fits_the_width(bert_folder, width, lang, query):
    lines = printed(look(LONG, model=bert_folder, query=query, lang=lang), width).splitlines()
    assert max(map(cell_len, lines)) <= width


def heat(size, marked=()):
    """A map whose row n holds 1 in column n, and 0.1 beside it."""
    weights = [[1.0 if i == j else 0.1 if j == i + 1 else 0.0 for j in range(size)] for i in range(size)]
    return Heat(weights, [f"w{n}" for n in range(size)], list(marked), "en")


def test_a_narrow_map_has_numbers_and_shades():
    rows = printed(heat(6, marked=[2]), 60).splitlines()
    assert any(re.match(r"▸ +2 w2 +100█ 10░", row) for row in rows)
    assert "in percent" in " ".join(rows)


def test_a_wider_map_has_shades_alone_and_one_row_for_each_token():
    rows = printed(heat(20), 60).splitlines()
    assert any(re.match(r"   19 w19 +██$", row.rstrip()) for row in rows)
    assert "in percent" not in " ".join(rows)


def test_a_map_beyond_the_width_is_pooled_and_says_by_how_much():
    rows = printed(heat(200, marked=[137]), 60).splitlines()
    assert "each cell is the strongest of 5 × 5 tokens" in " ".join(" ".join(rows).split())
    assert sum("█" in row and "%" not in row for row in rows) == 40
    assert [row[:6] for row in rows if row.startswith("▸")] == ["▸ 135 "]


def test_a_pooled_cell_is_the_largest_weight_of_its_square():
    weights = [[0.1, 0.2, 0.3], [0.9, 0.1, 0.0], [0.4, 0.6, 0.5]]
    assert pooled(weights, 2) == [[0.9, 0.3], [0.6, 0.5]]
    assert pooled(weights, 1) == weights


@pytest.mark.parametrize("size", [1, 6, 20, 45, 200])
def test_columns_stand_under_their_header(size):
    rows = [row.rstrip() for row in printed(heat(size), 60).splitlines()]
    first = next(row for row in rows if "█" in row)
    assert first.index(next(c for c in first if c in "█1")) >= 8
    assert max(map(len, rows)) <= 60


@pytest.mark.parametrize(("weight", "shade"), [(0.0, " "), (0.05, "░"), (0.2, "▒"), (0.4, "▓"), (0.7, "█"), (1.0, "█")])
def test_a_shade_begins_at_its_weight(weight, shade):
    assert next(sign for least, sign in SHADES if weight >= least) == shade
    assert f"{100 * weight:3.0f}{shade}".strip() in printed(Heat([[weight]], ["w"], [], "en"), 60)


def test_with_colour_the_cells_are_coloured_and_the_numbers_stay():
    plain = re.sub(r"\x1b\[[0-9;]*m", "", printed(heat(3), 60, colour="truecolor"))
    coloured = printed(heat(3), 60, colour="truecolor")
    assert "48;2;253;231;37" in coloured
    assert re.search(r"0 w0 +100 +10", plain)


def test_names_are_read_downwards_above_their_columns():
    rows = printed(Heat([[0.5, 0.5], [0.5, 0.5]], ["ab", "xyz"], [], "en"), 60).splitlines()
    header = [row for row in rows if "%" not in row][:3]
    assert [[row[n] for n in (12, 16) if n < len(row)] for row in header] == [[" ", "x"], ["a", "y"], ["b", "z"]]


EVIL = "[red]it[/red] \x1b[31m \x1b]0;title\x07 was[bold] \u202e\x9b2J :smile:"


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("query", [None, "was"])
def test_a_text_cannot_act_on_the_terminal(gpt2_folder, query, lang):
    seen = look(EVIL, model=gpt2_folder, query=query, lang=lang)
    for out in (str(seen), printed(seen, 100)):
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", out)
    # in colour the only escapes are those of colour, and each line ends with the colour taken back
    coloured = printed(seen, 100, colour="truecolor")
    assert not re.search(r"\x1b(?!\[[0-9;]*m)", coloured)
    assert not re.search("[\x07\x9b\u202e]", coloured)


def test_the_brackets_of_a_text_are_shown(gpt2_folder):
    out = str(look("[red] \x1b[31m", model=gpt2_folder))
    for piece in ("[", "red", "]", "\\x1b", "31m"):
        assert any(piece in line.split()[:2] for line in out.splitlines())


@pytest.mark.parametrize("is_query", [False, True])
def test_markup_in_any_place_is_shown_as_it_is(bert_folder, is_query):
    seen = look(SENTENCE, model=bert_folder)
    links = WordLinks(Word("[b]w", "[b]w", (0,)), (Link("[red]l", 0.5, 0, 0),), (Link("[i]s", 0.5, 0, 0),))
    tokens = tuple(Token("[u]t", token.span) for token in seen.tokens)
    out = str(
        dataclasses.replace(
            seen, model="[bold]m", model_type="[x]", tokens=tokens, links=(links,), is_query=is_query, notes=("[dim]n",)
        )
    )
    for sign in ("[b]w", "[red]l", "[i]s", "[u]t", "[bold]m", "[dim]n"):
        assert sign in out


def test_a_notebook_shows_the_same_with_nothing_that_acts(gpt2_folder):
    block = look("<script>alert(1)</script> & it", model=gpt2_folder)._repr_html_()
    assert "&lt;" in block
    assert "<script" not in block
    assert re.sub(r"</?(pre|span)[^>]*>", "", block).count("<") == 0


def test_every_word_has_a_row_unless_one_is_asked_for(bert_folder):
    all_words, one = str(look(SENTENCE, model=bert_folder)), str(look(SENTENCE, model=bert_folder, query="it"))
    assert [word for word in SENTENCE.split() if re.search(rf"^ ?{word} ", all_words, flags=re.MULTILINE)] == (
        SENTENCE.split()
    )
    assert one.count("attends most to") == 1


@pytest.mark.needs("minilm")
def test_what_it_looks_at_is_printed_with_weight_layer_and_head(animal):
    text = str(look(animal.text, query="it"))
    assert re.search(r"animal +█+ +0\.68 L3H1", text)
    assert re.search(r"tired +█+ +0\.71 L2H1", text)
    assert re.search(r"special tokens: \[CLS\] 0\.90 L2H11 · \[SEP\] 0\.18", text)


@pytest.mark.parametrize("text", ["it was.", "it", "it was tired"])
def test_a_text_whose_links_are_all_left_out_is_told_so(bert_folder, text):
    sentences = {"en": "None is left: no word attends to one that is neither", "zh": "没有可列的连接"}
    for lang, sentence in sentences.items():
        seen = look(text, model=bert_folder, lang=lang)
        has_links = text == "it was tired"
        assert (sentence in str(seen)) is not has_links
        assert (seen.page().links == ()) is not has_links
        assert sentence not in str(look(text, model=bert_folder, lang=lang, query="it"))
