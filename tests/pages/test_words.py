"""Words are those of the text, each token belongs to one of them, and a query finds them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwise.pages.words import Token, find, read_tokens, read_words
from headwise.wording import Refusal


def one_token_each(text: str) -> tuple[Token, ...]:
    """A token for each character that is not a space."""
    places = [n for n, character in enumerate(text) if not character.isspace()]
    return read_tokens(text, [text[n] for n in places], [(n, n + 1) for n in places], [False] * len(places))


def tokens_at(text: str, *spans: tuple[int, int]) -> tuple[Token, ...]:
    return read_tokens(text, ["?"] * len(spans), list(spans), [False] * len(spans))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("it didn't, it's O’Neill's.", ["it", "didn't", ",", "it's", "O’Neill's", "."]),
        ("GPT模型 3.5", ["GPT", "模", "型", "3", ".", "5"]),
        ("你好 カナ", ["你", "好", "カ", "ナ"]),
        ("हिन्दी नमस्ते", ["हिन्दी", "नमस्ते"]),
        ("한국어 text", ["한국어", "text"]),
        ("e\u0301te\u0301 fin", ["e\u0301te\u0301", "fin"]),
        ("'quoted' rock 'n' roll", ["'", "quoted", "'", "rock", "'", "n", "'", "roll"]),
        ("[red] \x1b[31m $x_1$", ["[", "red", "]", "\\x1b", "[", "31m", "$", "x_1", "$"]),
        ("👍🏽 ok", ["👍", "🏽", "ok"]),
    ],
)
def test_words_are_cut_as_a_reader_cuts_them(text, words):
    assert [word.text for word in read_words(text, one_token_each(text))] == words


@given(st.text(alphabet="ab'’ 你好é\u0301.\n-", max_size=30))
def test_every_token_belongs_to_exactly_one_word(text):
    tokens = one_token_each(text)
    owners = [number for word in read_words(text, tokens) for number in word.tokens]
    assert owners == list(range(len(tokens)))


def test_a_token_over_several_pieces_makes_one_word_of_them():
    assert [word.text for word in read_words("你好吗.", tokens_at("你好吗.", (0, 2), (2, 3), (3, 4)))] == [
        "你好",
        "吗",
        ".",
    ]


def test_several_tokens_of_one_character_belong_to_one_word():
    words = read_words("你 a", tokens_at("你 a", (0, 1), (0, 1), (0, 1), (2, 3)))
    assert [(word.text, word.tokens) for word in words] == [("你", (0, 1, 2)), ("a", (3,))]


def test_a_token_is_the_text_it_covers_without_the_space_around_it():
    tokens = read_tokens("a cat\n", ["a", "Ġcat", "Ċ"], [(0, 1), (1, 5), (5, 6)], [False] * 3)
    assert tokens == (Token("a", (0, 1)), Token("cat", (2, 5)), Token("\\n", (5, 6)))


def test_special_tokens_and_tokens_without_a_place_belong_to_no_word():
    tokens = read_tokens(
        "hi", ["[CLS]", "▁", "hi", "[SEP]"], [(0, 0), (0, 0), (0, 2), (0, 0)], [True, False, False, True]
    )
    assert [token.text for token in tokens if token.span is None] == ["[CLS]", "▁", "[SEP]"]
    assert [word.tokens for word in read_words("hi", tokens)] == [(2,)]


def test_a_special_token_that_was_typed_is_a_word():
    tokens = read_tokens("a [SEP] b", ["a", "[SEP]", "b"], [(0, 1), (2, 7), (8, 9)], [False] * 3)
    assert [word.text for word in read_words("a [SEP] b", tokens)] == ["a", "[SEP]", "b"]


def test_a_part_of_the_text_without_tokens_is_no_word():
    assert [word.text for word in read_words("a \x07 b", tokens_at("a \x07 b", (0, 1), (4, 5)))] == ["a", "b"]


def test_equal_words_are_told_apart_by_number():
    words = read_words("it is it", one_token_each("it is it"))
    assert [word.name for word in words] == ["it#1", "is", "it#2"]


@pytest.mark.parametrize(
    ("query", "found"),
    [("it", ["it#1", "it#2"]), ("it#2", ["it#2"]), ("CAT", ["cat"]), (" cat ", ["cat"]), ("动物", ["动物"])],
)
def test_a_query_finds_every_word_it_means(query, found):
    text = "it saw a cat in it 动物"
    words = read_words(text, one_token_each(text), query=query)
    assert [words[n].name for n in find(words, query)] == found


def test_words_side_by_side_that_are_asked_for_are_one():
    text = "the big cat, The Big cat, the bigger"
    words = read_words(text, one_token_each(text), query="the big")
    assert [word.text for word in words] == ["the big", "cat", ",", "The", "Big", "cat", ",", "the", "bigger"]


def test_words_side_by_side_are_found_in_other_capitals_if_not_in_these():
    text = "The Big cat"
    words = read_words(text, one_token_each(text), query="the big")
    assert [words[n].text for n in find(words, "the big")] == ["The Big"]


def test_a_query_in_the_middle_of_a_word_is_no_word_and_the_words_are_listed():
    words = read_words("with it all", one_token_each("with it all"), query="wit")
    with pytest.raises(Refusal, match="“wit” is none: choose one of with, it, all"):
        find(words, "wit")


def test_at_most_forty_words_are_listed():
    text = " ".join(f"w{n}" for n in range(57))
    words = read_words(text, one_token_each(text))
    with pytest.raises(Refusal, match=r"choose one of w0, .*w39, …"):
        find(words, "x")
