"""The dates that examples/dates.py makes for itself are right."""

import re
from datetime import date, timedelta
from random import Random

import pytest

from examples.date_reader.written import (
    ALPHABET,
    FIRST,
    LAST,
    WAYS,
    ordinal,
    split_days,
    write_at_random,
    write_in_turn,
)
from tests.example_scripts.reading_back import meant

FRIDAY = (
    "20 Nov 2026",
    "20 November 2026",
    "November 20, 2026",
    "Nov 20, 2026",
    "November 20th, 2026",
    "20th of November 2026",
    "the 20th of November, 2026",
    "Fri, 20 November 2026",
    "Friday, November 20, 2026",
    "Friday 20th November 2026",
    "november 20 2026",
    "20-NOV-2026",
    "2026/11/20",
    "2026.11.20",
    "20261120",
    "2026-11-20",
    "2026年11月20日",
    "2026年11月20日",
    "2026 年 11 月 20 日",
    "2026年11月20号",
    "2026年11月20日 星期五",
    "2026年11月20日（周五）",
    "公元2026年11月20日",
    "２０２６年１１月２０日",
    "二〇二六年十一月二十日",
    "二零二六年十一月二十号",
    "二〇二六年十一月二十日，星期五",
)
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def days_of(year):
    return [date(year, 1, 1) + timedelta(n) for n in range((date(year + 1, 1, 1) - date(year, 1, 1)).days)]


def test_the_ways_are_those_that_people_use():
    assert write_in_turn([date(2026, 11, 20)] * len(WAYS)) == list(FRIDAY)


# a leap year, one that is none although 4 divides it, and the last
@pytest.mark.parametrize("year", [1900, 2024, 2099])
def test_every_way_of_every_day_is_read_back_as_that_day(year):
    wrong = [(text, day) for day in days_of(year) for way in WAYS if meant(text := way(day)) != day]
    assert wrong == []


def test_a_weekday_that_is_written_is_the_day_s_own():
    for day in days_of(2026):
        english = re.findall("|".join(each[:3] for each in WEEKDAYS), " ".join(way(day) for way in WAYS[:11]).lower())
        chinese = [text[-1] for text in (WAYS[20](day), WAYS[21](day)[:-1], WAYS[-1](day))]
        assert english == [WEEKDAYS[day.weekday()][:3]] * 3
        assert chinese == ["一二三四五六日"[day.weekday()]] * 3


def test_no_text_means_two_days():
    meanings = {}
    for day in (*days_of(2011), *days_of(2012), *days_of(2021)):
        for way in WAYS:
            meanings.setdefault(way(day), set()).add(day)
    assert [text for text, days in meanings.items() if len(days) > 1] == []


@pytest.mark.parametrize(
    ("days", "ending"),
    [((1, 21, 31), "st"), ((2, 22), "nd"), ((3, 23), "rd"), ((4, 9, 10, 11, 12, 13, 14, 20, 24, 30), "th")],
)
def test_ordinals_end_as_they_are_said(days, ending):
    assert [ordinal(date(2026, 1, day)) for day in days] == [f"{day}{ending}" for day in days]


def test_the_alphabet_has_every_sign_of_two_centuries():
    days = [FIRST + timedelta(n) for n in range(0, (LAST - FIRST).days + 1, 17)]
    assert {sign for day in days for way in WAYS for sign in way(day)} == set(ALPHABET)


def test_held_out_days_are_never_trained_on_and_none_is_lost():
    training, held_out = split_days(Random(7), held_out=2000)
    assert not set(training) & set(held_out)
    assert sorted(training + held_out) == [FIRST + timedelta(n) for n in range((LAST - FIRST).days + 1)]
    assert (len(training), len(held_out)) == (71049, 2000)


def test_a_seed_decides_which_days_and_which_texts():
    def drawn(seed):
        random = Random(seed)
        _, held_out = split_days(random, held_out=50)
        return held_out, write_at_random(held_out, random)

    assert drawn(3) == drawn(3)
    assert drawn(3)[0] != drawn(4)[0]


def test_texts_mean_the_days_they_were_asked_for_and_use_every_way():
    days = days_of(2031)
    assert [meant(text) for text in write_in_turn(days)] == days
    texts = write_at_random(days, Random(5))
    assert [meant(text) for text in texts] == days
    chosen = {n for text, day in zip(texts, days, strict=True) for n, way in enumerate(WAYS) if way(day) == text}
    assert chosen == set(range(len(WAYS)))
