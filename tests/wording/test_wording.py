"""Every sentence exists in both languages, asks for the same values, and is used."""

import ast
import pickle
import re
import string

import pytest

import headwise as hw
from headwise.errors import ArgumentError, InputError
from headwise.wording import LANGUAGES, Refusal, refusal, say
from tests.arrow import SRC

ENGLISH, CHINESE = LANGUAGES["en"], LANGUAGES["zh"]
KEY = re.compile(r"[a-z]+(\.[a-z_]+)+")


def placeholders(sentence: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(sentence) if name is not None}


def keys_in_source() -> set[str]:
    """Every string in the source, outside the tables, that has the form of a key of a table."""
    heads = {key.partition(".")[0] for key in ENGLISH}
    found = set()
    for file in SRC.rglob("*.py"):
        if file.name not in ("english.py", "chinese.py", "conversion.py"):
            constants = (n.value for n in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(n, ast.Constant))
            found |= {value for value in constants if isinstance(value, str) and KEY.fullmatch(value)}
    return {key for key in found if key.partition(".")[0] in heads}


def test_both_tables_have_the_same_keys_in_the_same_order():
    assert list(ENGLISH) == list(CHINESE)


def test_both_sentences_of_a_key_ask_for_the_same_values():
    assert [key for key in ENGLISH if placeholders(ENGLISH[key]) != placeholders(CHINESE[key])] == []


def test_every_key_is_used_in_the_source_and_every_key_used_exists():
    assert keys_in_source() == set(ENGLISH)


def test_chinese_is_chinese_and_english_is_not():
    # a title and an error of others hold nothing but values
    worded = [key for key in ENGLISH if re.sub(r"\{[^}]*\}", "", ENGLISH[key]).strip()]
    assert [key for key in worded if not re.search("[\u4e00-\u9fff]", CHINESE[key])] == []
    assert [key for key in ENGLISH if re.search("[\u3000-\u9fff\uff00-\uffef]", ENGLISH[key])] == []


@pytest.mark.parametrize("key", [key for key in ENGLISH if key.startswith("refuse.")])
def test_a_refusal_says_what_must_hold_and_after_a_colon_what_to_do(key):
    for table, colon in ((ENGLISH, ": "), (CHINESE, "：")):
        before, found, after = table[key].rpartition(colon)
        # a command to type stands last, and has a colon of its own in front
        assert found or "pip install" in table[key]
        assert before
        assert after
        assert table[key].count("\n") == 0


def test_a_refusal_keeps_what_is_needed_to_say_it_in_chinese():
    error = refusal("refuse.layer", model="bert", last=5, count=6, got=7)
    assert isinstance(error, InputError)
    assert str(error) == "A layer must be from 0 to 5, since bert has 6, but 7 came: choose one of these."
    assert error.said("zh") == "层号必须在 0 到 5 之间，因为 bert 有 6 层，给的是 7：请选其中一层。"


def test_a_refusal_survives_pickling():
    error = pickle.loads(pickle.dumps(refusal("refuse.exists", file="a.png")))
    assert (type(error), error.said("zh")) == (Refusal, refusal("refuse.exists", file="a.png").said("zh"))


def test_a_language_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(Refusal, match="must be one of en, zh, but came as fr"):
        say("refuse.empty", lang="fr")


def test_a_refusal_of_a_public_function_is_in_the_language_of_its_call():
    for function in (hw.doctor, hw.look, hw.trace):
        with pytest.raises(InputError) as refused:
            function("no_such_file.py:A", lang="zh")
        assert re.search("[\u4e00-\u9fff].*no_such_file.py", str(refused.value)), function
    with pytest.raises(Refusal, match=r"^A class") as refused:
        hw.doctor(5)
    with pytest.raises(Refusal, match="language"):
        hw.look("hello", lang="fr")
    refused.value.speak("zh")
    assert str(pickle.loads(pickle.dumps(refused.value))) == CHINESE["refuse.target_object"].format(given=5)


def test_the_arguments_of_look_are_refused_in_both_languages():
    for arguments, key, values in (
        ({"target": "hello", "call": {}}, "refuse.look_call_of", {"kind": ("a text", "文本")}),
        ({"target": "hello", "head": "x"}, "refuse.look_numbers", {"given": ("'x'", "'x'")}),
        ({"target": ("a", "b", "c")}, "refuse.look_pair", {"count": (3, 3)}),
    ):
        for at, lang in enumerate(("en", "zh")):
            with pytest.raises(ArgumentError) as refused:
                hw.look(**arguments, lang=lang)
            said = {name: value[at] for name, value in values.items()}
            assert str(refused.value) == LANGUAGES[lang][key].format(**said)
