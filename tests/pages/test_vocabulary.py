"""Tokens by the names of a vocabulary are shown as the text that they spell, and joined into its words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwise.pages.vocabulary import named_pieces, read_names
from tests.pages.made import a_map, a_page
from tests.pages.small_models import byte_level_tokenizer


def test_byte_level_names_are_read_as_the_text_they_spell():
    assert read_names(["ä½łå¥½", "Ġthe"]).tokens == ("你好", " the")
    # three bytes of one character, and one that is cut off
    assert read_names(["ä½", "ł", "å¥½", "Ġð", "Ł"]).tokens == ("你", "你", "好", " \ufffd", "\ufffd")


@pytest.mark.parametrize(
    ("names", "texts", "words"),
    [
        (["<s>", "▁the", "▁tired", "ness", "</s>"], ["<s>", " the", " tired", "ness", "</s>"], ["the", "tiredness"]),
        (["▁", "<0xE4>", "<0xBD>", "<0xA0>", "▁a"], [" ", "你", "你", "你", " a"], ["␣", "你", "a"]),
        (["[CLS]", "play", "##ing", ",", "[SEP]"], ["[CLS]", "play", "ing", ",", "[SEP]"], ["playing", ","]),
        (["the</w>", "ti", "red</w>"], ["the", "ti", "red"], ["the", "tired"]),
        (["<|endoftext|>", "Ġthe", "me"], ["<|endoftext|>", " the", "me"], ["theme"]),
        ([" The", " anim", "al"], [" The", " anim", "al"], ["The", "animal"]),
    ],
)
def test_each_convention_gives_texts_and_words(names, texts, words):
    read = read_names(names)
    assert read.tokens == tuple(texts)
    assert [read.called[n] for n in dict.fromkeys(read.words) if n >= 0] == words


@pytest.mark.parametrize(
    "names",
    [
        ["plain", "texts"],
        ["café", "the"],
        ["é"],
        ["Ġorġ", "lives"],
        ["Čapek", "Łódź"],
        ["##", "heading"],
        ["##x", "b"],
        ["你好", "Ġthe"],
        ["naïve", "über"],
        [],
    ],
)
def test_texts_stay_as_they_are(names):
    assert read_names(names).tokens == tuple(names)
    assert read_names(names).words is None


@pytest.mark.needs("transformers")
@given(text=st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1, max_size=30))
def test_byte_level_names_agree_with_the_offsets_of_their_tokenizer(text):
    tokenizer = byte_level_tokenizer()
    coded = tokenizer(text, return_offsets_mapping=True)
    found = named_pieces(coded.tokens())
    # a text of plain letters is spelled as it is
    spelled = text if found is None else found[0]
    assert spelled == text
    if found is not None:
        wanted = [text[start:end] for start, end in coded["offset_mapping"]]
        assert [piece.strip() for piece, _ in found[1]] == [piece.strip() for piece in wanted]


@pytest.mark.needs("chromium", "playwright")
def test_a_page_shows_texts_and_joins_words_on_request(open_page):
    names = ["Ġthe", "Ġti", "red", "ä½", "ł", "å¥½", "Ġ"]
    page = open_page(a_page(a_map(Lq=7, Lk=7), tokens=names), place="#view=row")
    assert page.asked("[...document.querySelectorAll('.piece')].map((each) => each.textContent)") == [
        *(" the", " ti", "red", "你", "你", "好", "␣"),
    ]
    page.view("heads")
    page.tab.check("#joined")
    assert page.text(".told").startswith("the attends most to")
    page.tab.keyboard.press("ArrowDown")
    assert page.text(".told").startswith("tired attends most to")
    page.tab.keyboard.press("ArrowDown")
    assert page.text(".told").startswith("你 attends most to")
