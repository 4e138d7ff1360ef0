"""Dates as people write them, in English and in Chinese, made from the day that is meant."""

from collections.abc import Callable
from datetime import date, timedelta
from random import Random

FIRST, LAST = date(1900, 1, 1), date(2099, 12, 31)

MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
CHINESE_DIGITS = "〇一二三四五六七八九"
FULL_WIDTH = str.maketrans("0123456789", "０１２３４５６７８９")


def month(d: date) -> str:
    return MONTHS[d.month - 1]


def weekday(d: date) -> str:
    return WEEKDAYS[d.weekday()]


def ordinal(d: date) -> str:
    """The day of the month as 1st, 2nd, 3rd, 4th, ..., 11th."""
    endings = {1: "st", 2: "nd", 3: "rd"}
    return f"{d.day}{'th' if d.day in (11, 12, 13) else endings.get(d.day % 10, 'th')}"


def chinese_number(n: int) -> str:
    """A number from 1 to 99 as it is counted: 九, 十, 十一, 二十, 二十一."""
    tens, ones = divmod(n, 10)
    many = CHINESE_DIGITS[tens] if tens > 1 else ""
    return many + ("十" if tens else "") + (CHINESE_DIGITS[ones] if ones else "")


def chinese_day(d: date) -> str:
    """The day without the word that ends it: 二〇二六年十一月二十."""
    year = "".join(CHINESE_DIGITS[int(digit)] for digit in str(d.year))
    return f"{year}年{chinese_number(d.month)}月{chinese_number(d.day)}"


def chinese_weekday(d: date) -> str:
    return "一二三四五六日"[d.weekday()]


# the table of ways to write a day. Not in it, since they do not say which day they mean: 04/05/2026, which is in April
# for some and in May for others, and 20 Nov 26, which leaves the century open
WAYS: tuple[Callable[[date], str], ...] = (
    lambda d: f"{d.day} {month(d)[:3]} {d.year}",  # 20 Nov 2026
    lambda d: f"{d.day} {month(d)} {d.year}",  # 20 November 2026
    lambda d: f"{month(d)} {d.day}, {d.year}",  # November 20, 2026
    lambda d: f"{month(d)[:3]} {d.day}, {d.year}",  # Nov 20, 2026
    lambda d: f"{month(d)} {ordinal(d)}, {d.year}",  # November 20th, 2026
    lambda d: f"{ordinal(d)} of {month(d)} {d.year}",  # 20th of November 2026
    lambda d: f"the {ordinal(d)} of {month(d)}, {d.year}",  # the 20th of November, 2026
    lambda d: f"{weekday(d)[:3]}, {d.day} {month(d)} {d.year}",  # Fri, 20 November 2026
    lambda d: f"{weekday(d)}, {month(d)} {d.day}, {d.year}",  # Friday, November 20, 2026
    lambda d: f"{weekday(d)} {ordinal(d)} {month(d)} {d.year}",  # Friday 20th November 2026
    lambda d: f"{month(d)} {d.day} {d.year}".lower(),  # november 20 2026
    lambda d: f"{d.day:02}-{month(d)[:3]}-{d.year}".upper(),  # 20-NOV-2026
    lambda d: f"{d.year}/{d.month}/{d.day}",  # 2026/11/20
    lambda d: f"{d.year}.{d.month:02}.{d.day:02}",  # 2026.11.20
    lambda d: f"{d.year}{d.month:02}{d.day:02}",  # 20261120
    lambda d: d.isoformat(),  # 2026-11-20
    lambda d: f"{d.year}年{d.month}月{d.day}日",  # 2026年11月20日
    lambda d: f"{d.year}年{d.month:02}月{d.day:02}日",  # 2026年02月03日
    lambda d: f"{d.year} 年 {d.month} 月 {d.day} 日",  # 2026 年 11 月 20 日
    lambda d: f"{d.year}年{d.month}月{d.day}号",  # 2026年11月20号
    lambda d: f"{d.year}年{d.month}月{d.day}日 星期{chinese_weekday(d)}",  # 2026年11月20日 星期五
    lambda d: f"{d.year}年{d.month}月{d.day}日（周{chinese_weekday(d)}）",  # 2026年11月20日（周五）
    lambda d: f"公元{d.year}年{d.month}月{d.day}日",  # 公元2026年11月20日
    lambda d: f"{d.year}年{d.month}月{d.day}日".translate(FULL_WIDTH),  # ２０２６年１１月２０日
    lambda d: f"{chinese_day(d)}日",  # 二〇二六年十一月二十日
    lambda d: f"{chinese_day(d)}号".replace("〇", "零"),  # 二零二六年十一月二十号
    lambda d: f"{chinese_day(d)}日，星期{chinese_weekday(d)}",  # 二〇二六年十一月二十日，星期五
)

# one year has every sign that any year has
ALPHABET = "".join(sorted({sign for n in range(365) for way in WAYS for sign in way(date(2026, 1, 1) + timedelta(n))}))


def split_days(random: Random, *, held_out: int) -> tuple[list[date], list[date]]:
    """Every day from FIRST to LAST in one of two lists: those to train on, and `held_out` others to test on."""
    days = [FIRST + timedelta(n) for n in range((LAST - FIRST).days + 1)]
    random.shuffle(days)
    return days[held_out:], days[:held_out]


def write_in_turn(days: list[date]) -> list[str]:
    """Each day written once, every way having its turn."""
    return [WAYS[n % len(WAYS)](day) for n, day in enumerate(days)]


def write_at_random(days: list[date], random: Random) -> list[str]:
    """Each day written once, in any way."""
    return [random.choice(WAYS)(day) for day in days]
