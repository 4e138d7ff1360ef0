"""Links are the strongest over all layers and heads, one for each other word."""

import functools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headwise.pages.links import COUNT, Link, distant_links, links_of, places, strongest
from headwise.pages.words import Token, Word

# token 0 is special, 1 and 2 are one word, the rest a word each
TOKENS = (Token("<s>", None), *(Token(letter, (n, n + 1)) for n, letter in enumerate("abcdefgh")))
WORDS = (Word("ab", "ab", (1, 2)), *(Word(letter, letter, (n + 3,)) for n, letter in enumerate("cdefgh")))


def random_weights(seed: int) -> dict[int, torch.Tensor]:
    """Layers of different numbers of heads."""
    make = torch.Generator().manual_seed(seed)
    return {layer: torch.rand(heads, 9, 9, generator=make).softmax(-1) for layer, heads in ((0, 3), (1, 5), (2, 2))}


def by_definition(word: Word, weights: dict[int, torch.Tensor]) -> list[Link]:
    """The COUNT strongest of all links."""
    return all_by_definition(word, weights)[:COUNT]


def all_by_definition(word: Word, weights: dict[int, torch.Tensor]) -> list[Link]:
    """Every other word with its largest weight, by four plain loops."""
    found, numbers = [], {layer: heads.tolist() for layer, heads in weights.items()}
    for other in WORDS:
        if other is not word:
            choices = [
                (heads[head][i][j], layer, head)
                for layer, heads in numbers.items()
                for head in range(len(heads))
                for i in word.tokens
                for j in other.tokens
            ]
            value, layer, head = max(choices, key=lambda choice: choice[0])
            found.append(Link(other.name, value, layer, head))
    return sorted(found, key=lambda link: -link.weight)


@settings(max_examples=25)
@given(st.integers(min_value=0, max_value=10**6))
def test_links_are_those_of_the_definition(seed):
    weights = random_weights(seed)
    best = strongest(weights)
    for word in WORDS:
        assert list(links_of(word, best, WORDS, TOKENS).links) == by_definition(word, weights)


def test_links_to_special_tokens_stand_apart():
    weights = {0: torch.full((1, 9, 9), 0.05)}
    weights[0][0, 3, 0] = 0.9
    found = links_of(WORDS[1], strongest(weights), WORDS, TOKENS)
    assert [(link.to, link.layer, link.head) for link in found.special] == [("<s>", 0, 0)]
    assert "<s>" not in [link.to for link in found.links]
    assert len(found.links) == COUNT


def test_a_weight_of_zero_is_no_link():
    weights = {0: torch.eye(9)[None]}
    assert links_of(WORDS[0], strongest(weights), WORDS, TOKENS).links == ()


def test_of_equal_weights_the_first_layer_and_head_counts():
    weights = {layer: torch.full((2, 9, 9), 1 / 9) for layer in range(3)}
    found = links_of(WORDS[2], strongest(weights), WORDS, TOKENS)
    assert {(link.layer, link.head) for link in found.links} == {(0, 0)}


def top(weights, word=WORDS[3]) -> Link:
    return by_definition(word, weights)[0]


def of_row(word: Word):
    """The links of one row, as `places` reads them."""
    return lambda best: [links_of(word, best, WORDS, TOKENS)]


def test_distant_links_are_those_of_the_definition_without_neighbours_and_punctuation():
    words = (*WORDS[:3], Word("…", "…", WORDS[3].tokens), *WORDS[4:])
    weights = random_weights(8)
    best = strongest(weights)
    rows = distant_links(best, words, TOKENS)
    assert [row.word.name for row in rows] == ["ab", "c", "d", "f", "g", "h"]
    for row in rows:
        place = words.index(row.word)
        far = [link.to for link in all_by_definition(row.word, weights) if link.to != "e"]
        assert [link.to for link in row.links] == [
            to for to in far if abs([word.name for word in words].index(to) - place) > 1
        ][:COUNT]
        # a word that was left out is no special token
        assert {link.to for link in row.special} == {"<s>"}


def test_without_a_choice_the_place_of_the_strongest_link_is_drawn():
    weights = random_weights(1)
    link = top(weights)
    assert places(weights, of_row(WORDS[3]), layers=[], heads=[]) == ((link.layer, link.head),)


def test_of_a_chosen_layer_the_head_of_the_strongest_link_in_it_is_drawn():
    weights = random_weights(2)
    wanted = tuple((layer, top({layer: weights[layer]}).head) for layer in (2, 0))
    assert places(weights, of_row(WORDS[3]), layers=[2, 0], heads=[]) == wanted


def test_of_a_chosen_head_the_layer_of_the_strongest_link_in_it_is_drawn():
    weights = random_weights(3)
    one_head = {layer: heads[1:2] for layer, heads in weights.items()}
    assert places(weights, of_row(WORDS[3]), layers=[], heads=[1]) == ((top(one_head).layer, 1),)


def test_chosen_layers_and_heads_are_each_drawn_with_each():
    drawn = places(random_weights(4), of_row(WORDS[3]), layers=[2, 0], heads=[1, 0])
    assert drawn == ((2, 1), (2, 0), (0, 1), (0, 0))


@pytest.mark.parametrize(("layers", "heads", "wanted"), [([], [], (0, 0)), ([2], [], (2, 0)), ([], [1], (0, 1))])
def test_a_text_of_one_word_has_a_place_too(layers, heads, wanted):
    words, tokens = WORDS[1:2], (TOKENS[0], TOKENS[0], TOKENS[0], TOKENS[3])
    weights = {layer: torch.full((2, 4, 4), 0.25) for layer in range(3)}
    read = functools.partial(distant_links, words=words, tokens=tokens)
    assert places(weights, read, layers=layers, heads=heads) == (wanted,)


def test_a_head_that_gives_nan_is_no_link_and_hides_no_other_head():
    weights = random_weights(7)
    weights[0][1], weights[2][0, 3:] = float("nan"), float("nan")
    best = strongest(weights)
    assert not best.weight.isnan().any()
    clean = {layer: heads.nan_to_num(nan=0.0) for layer, heads in weights.items()}
    for word in WORDS:
        assert list(links_of(word, best, WORDS, TOKENS).links) == by_definition(word, clean)
