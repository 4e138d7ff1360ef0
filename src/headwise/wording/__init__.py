"""What a person reads from the command line and its pages, in English and in Chinese.

Two tables with the same keys hold every sentence; a sentence is asked for by its key, its numbers by their names.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import ParamSpec, TypeVar

from headwise.errors import ArgumentError, InputError
from headwise.wording.chinese import CHINESE
from headwise.wording.english import ENGLISH

__all__ = [
    "LANGUAGES",
    "ArgumentRefusal",
    "ChildRefusal",
    "Refusal",
    "Sentence",
    "percent",
    "refusal",
    "refuses_in_lang",
    "said_in",
    "say",
]

P = ParamSpec("P")
R = TypeVar("R")

LANGUAGES: dict[str, Mapping[str, str]] = {"en": ENGLISH, "zh": CHINESE}
# refusals that name an argument of Python, and the same with the option of the command line
COMMAND_WORDS = {"refuse.exists": "refuse.exists.command"}


class _Entry:
    """An entry of the tables with its values, in any language."""

    key: str
    values: dict[str, object]

    def said(self, lang: str) -> str:
        """The sentence in a language of LANGUAGES; values that are Sentences too."""
        return _filled(self.key, lang, {name: said_in(value, lang) for name, value in self.values.items()})


class Refusal(_Entry, InputError):
    """An InputError with its sentence in every language.

    `str` gives the sentence in `lang`; `key` and `values` are what `say` needs for any other.
    """

    def __init__(self, key: str, values: Mapping[str, object], lang: str = "en") -> None:
        super().__init__(_filled(key, "en", values))
        self.key = key
        self.values = dict(values)
        self.speak(lang)

    def speak(self, lang: str) -> None:
        """Make `str` give the sentence in a language of LANGUAGES."""
        self.lang = lang
        self.args = (self.said(lang),)

    def said_by_command(self, lang: str) -> str:
        """The sentence in the words of the command line."""
        return Refusal(COMMAND_WORDS.get(self.key, self.key), self.values).said(lang)

    def __reduce__(self) -> tuple[type[Refusal], tuple[str, dict[str, object], str]]:
        return type(self), (self.key, self.values, self.lang)


class ArgumentRefusal(Refusal, ArgumentError):
    """A Refusal of an argument that Python code gave."""


class ChildRefusal(InputError):
    """What a child process refused, in the language that was asked for."""


class Sentence(_Entry, str):
    """A sentence of the tables: a text, in English, with its words in every language.

    `key` and `values` are what `say` needs; values that are Sentences are translated with it.

    >>> waiting = Sentence("step.loading", model="bert")
    >>> waiting, waiting.said("zh")
    ('loading the model bert', '读入模型 bert')
    """

    def __new__(cls, key: str, /, **values: object) -> Sentence:
        sentence = super().__new__(cls, _filled(key, "en", values))
        sentence.key, sentence.values = key, values
        return sentence

    def __reduce__(self) -> tuple[object, ...]:
        return _again, (self.key, self.values)


def refuses_in_lang(function: Callable[P, R]) -> Callable[P, R]:
    """A public function with a parameter lang, whose refusals are in that language; its signature is kept.

    >>> @refuses_in_lang
    ... def read(text: str, *, lang: str = "en") -> str:
    ...     raise refusal("refuse.empty")
    >>> read("", lang="zh")
    Traceback (most recent call last):
    headwise.wording.Refusal: 文本里至少要有一个词，现在什么也没有：请把一句话放在引号里。
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except Refusal as error:
            lang = str(kwargs.get("lang", "en"))
            # an unknown language is itself refused, in English
            if lang in LANGUAGES:
                error.speak(lang)
            raise

    return call


def percent(share: float) -> str:
    """A share of 1 in percent, the same in every language: whole, and below 1 % with its first digit that is not 0.

    >>> [percent(each) for each in (0.734, 0.004, 0.00002, 0.0)]
    ['73%', '0.4%', '0.002%', '0%']
    """
    hundredths = 100 * share
    places = max(0, -math.floor(math.log10(hundredths))) if 0 < hundredths < 1 else 0
    return f"{hundredths:.{places}f}%"


def said_in(value: object, lang: str) -> object:
    """A Sentence in a language, and anything else as it is."""
    return value.said(lang) if isinstance(value, Sentence) else value


def say(key: str, /, *, lang: str = "en", **values: object) -> str:
    """The sentence of a key in a language, with its values filled in.

    A language that is not in LANGUAGES raises a Refusal that lists them.

    >>> say("step.loading", lang="zh", model="bert")
    '读入模型 bert'
    """
    return _filled(key, lang, values)


def refusal(key: str, /, **values: object) -> Refusal:
    """The error to raise for input that cannot be used: English as `str`, with its sentence in every language.

    >>> str(refusal("refuse.empty"))
    'The text must hold at least one word, but nothing came: put a sentence between quotes.'
    """
    return Refusal(key, values)


def _again(key: str, values: Mapping[str, object]) -> Sentence:
    return Sentence(key, **values)


def _filled(key: str, lang: str, values: Mapping[str, object]) -> str:
    if lang not in LANGUAGES:
        raise refusal("refuse.language", given=lang, languages=", ".join(LANGUAGES))
    return LANGUAGES[lang][key].format(**values)
