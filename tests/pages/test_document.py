"""One file that asks for nothing: its policy names its own script and style by their hashes, and nothing else."""

import base64
import dataclasses
import hashlib
import json
import re

import torch

from headwise.pages.document import as_base64, as_json, document, shell_bytes
from tests.pages.made import a_map, a_page

MARK = "<!-- put script -->"


def made(**given):
    given = {"lang": "en", "title": "t", "header": {}, "words": {}, "first": {}, "rest": {}} | given
    return document(**given)


def test_the_policy_allows_its_own_script_and_style_and_no_address():
    text = made()
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)[1]
    for kind, tag in (("script-src", "script"), ("style-src", "style")):
        body = re.search(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)[1]
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")
    assert not re.search(r"https?:|\*|unsafe", policy)


def test_the_page_names_no_address_but_that_of_svg():
    assert set(re.findall(r"https?://[\w./-]+", made())) == {"http://www.w3.org/2000/svg"}


def test_what_is_put_in_is_not_read_again():
    text = made(title=MARK, header={"a": MARK}, first={"codes-0": "AA=="})
    assert text.count("<script>") == 1
    header = re.search(r'id="header">(.*?)</script>', text, re.DOTALL)[1]
    assert json.loads(header) == {"a": MARK}


def test_a_page_without_data_takes_less_than_150_kb():
    assert shell_bytes() < 150_000


def test_numbers_are_written_in_their_order():
    floats = torch.tensor([[0.5, -2.0], [float("nan"), 1e-30]])
    back = torch.frombuffer(bytearray(base64.b64decode(as_base64(floats))), dtype=torch.float32)
    torch.testing.assert_close(back, floats.flatten(), rtol=0, atol=0, equal_nan=True)
    codes = torch.arange(256, dtype=torch.uint8).view(16, 16)
    assert base64.b64decode(as_base64(codes.t())) == bytes(codes.t().flatten().tolist())
    assert as_base64(torch.zeros(0)) == ""


def test_half_a_character_anywhere_leaves_a_page_that_opens(open_page):
    half = "\ud83d"
    page = a_page({half: a_map(Lq=3, Lk=3)}, tokens=["a", half, "c"])
    opened = open_page(dataclasses.replace(page, title=half + "title", text=half, notes=(half,)))
    assert opened.text("#title").endswith("title")
    assert json.loads(as_json({half: half})) == {half: half}
