"""What a person reads from the command line and its pages, in English and in Chinese.

Two tables with the same keys hold every sentence; a sentence is asked for by its key, its numbers by their names.
"""

from __future__ import annotations

from collections.abc import Mapping

from headwise.errors import InputError
from headwise.wording.chinese import CHINESE
from headwise.wording.english import ENGLISH

__all__ = ["LANGUAGES", "Refusal", "refusal", "say"]

LANGUAGES: dict[str, Mapping[str, str]] = {"en": ENGLISH, "zh": CHINESE}


class Refusal(InputError):
    """An InputError that can be said again in another language.

    `str` gives the English sentence; `key` and `values` are what `say` needs for any other.
    """

    def __init__(self, key: str, values: Mapping[str, object]) -> None:
        super().__init__(_filled(key, "en", values))
        self.key = key
        self.values = dict(values)

    def __reduce__(self) -> tuple[type[Refusal], tuple[str, dict[str, object]]]:
        return type(self), (self.key, self.values)

    def said(self, lang: str) -> str:
        """The sentence in a language of LANGUAGES."""
        return _filled(self.key, lang, self.values)


def say(key: str, /, *, lang: str = "en", **values: object) -> str:
    """The sentence of a key in a language, with its values filled in.

    A language that is not in LANGUAGES raises a Refusal that lists them.

    >>> say("step.loading", lang="zh", model="bert")
    '读入模型 bert'
    """
    return _filled(key, lang, values)


def refusal(key: str, /, **values: object) -> Refusal:
    """The error to raise when what a person gave cannot be used: English as `str`, and able to be said in Chinese.

    >>> str(refusal("refuse.empty"))
    'The text must hold at least one word, but nothing came: put a sentence between quotes.'
    """
    return Refusal(key, values)


def _filled(key: str, lang: str, values: Mapping[str, object]) -> str:
    if lang not in LANGUAGES:
        raise refusal("refuse.language", given=lang, languages=", ".join(LANGUAGES))
    return LANGUAGES[lang][key].format(**values)
