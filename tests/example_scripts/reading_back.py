"""The day that a written date means, found by rules that share nothing with the code that writes dates."""

import re
import unicodedata
from datetime import date

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def meant(text: str) -> date:
    """The day in a text of any of the ways in examples/date_reader/written.py."""
    # full-width digits and brackets are other forms of the plain ones
    text = unicodedata.normalize("NFKC", text).lower()
    if chinese := re.search(r"(\w{4}) ?年 ?(\w+?) ?月 ?(\w+?) ?[日号]", text):
        return date(*map(counted, chinese.groups()))
    numbers = re.findall(r"\d+", text)
    if named := re.search("|".join(MONTHS), text):
        year, day = sorted(numbers, key=len, reverse=True)
        return date(int(year), MONTHS.index(named[0]) + 1, int(day))
    if len(numbers) == 1:
        numbers = [text[:4], text[4:6], text[6:]]
    return date(*map(int, numbers))


def counted(text: str) -> int:
    """A number in digits, in Chinese digits one by one, or in Chinese with tens."""
    text = text.replace("零", "〇")
    digits = {sign: n for n, sign in enumerate("〇一二三四五六七八九")}
    if text.isdecimal():
        return int(text)
    if "十" not in text:
        return int("".join(str(digits[sign]) for sign in text))
    tens, ones = text.split("十")
    return 10 * (digits[tens] if tens else 1) + (digits[ones] if ones else 0)
