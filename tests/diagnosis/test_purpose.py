"""A patch keeps what the code is for: what was forgotten is added, and only what is one too many is taken away."""

import linecache
from dataclasses import replace

import pytest
import torch
from torch import nn

import headwise as hw
from headwise.diagnosis.child import answer
from headwise.diagnosis.patches.fixed_source import fixed
from headwise.diagnosis.patches.no_ops import removes
from headwise.diagnosis.result import Diagnosis
from headwise.diagnosis.suspects import Suspect
from headwise.source import Edit, Span, code_at
from headwise.wording import percent
from tests.diagnosis.written import HEAD, attend, line_of

ROPE = """
def turn(x):
    a, b = x.chunk(2, dim=-1)
    speed = 10000 ** (-torch.arange(0, x.shape[-1], 2) / x.shape[-1])
    angle = torch.arange(x.shape[-2])[:, None] * torch.cat((speed, speed))
    return x * angle.cos() + torch.cat((-b, a), dim=-1) * angle.sin()

def both(q, k):
    new = turn(q)
    return new, k
"""
SCORES = "s = q @ k.mT / math.sqrt(self.part)\n"
SUM = f"{SCORES}y = s.softmax(-1) @ v\n"
MASK = f"{SCORES}if mask is not None:\n    "
WEIGHTS = "y = s.softmax(-1) @ v\n"
MERGE = "y.transpose(1, 2).reshape(n, long, width)"
# the kind, what goes in place of what, and the line as the patch writes it; None: it is taken away
ROTATIONS = {
    "keys forgotten": ("rotary-keys-missing", "q = turn(q)\n", "q = turn(q)", "k = turn(k)"),
    "keys forgotten in the product": (
        "rotary-keys-missing", "s = turn(q) @ k.mT / math.sqrt(self.part)\ny = s.softmax(-1) @ v\n", "turn(q) @ k.mT",
        "s = turn(q) @ turn(k).mT / math.sqrt(self.part)",
    ),
    "keys handed on by a helper": (
        "rotary-keys-missing", "q, k = both(q, k)\n", "return new, k", "return new, turn(k)",
    ),
    "values in place of keys": ("rotary-on-values", "q = turn(q)\nv = turn(v)\n", "v = turn(v)", "k = turn(k)"),
    "queries twice": ("rotary-twice", "q = turn(q)\nk = turn(k)\nq = turn(q)  # again\n", "# again", None),
}  # fmt: skip
MERGES = {
    "y.contiguous().view(n, long, width)": "y.contiguous().transpose(1, 2).reshape(n, long, width)",
    "y.clone().view(n, long, width)": "y.clone().transpose(1, 2).reshape(n, long, width)",
    "y.flatten(2)": "y.transpose(1, 2).flatten(2)",
    "torch.cat([y[:, at] for at in range(self.num_heads)], 1).view(n, long, width)": (
        "torch.cat([y[:, at] for at in range(self.num_heads)], 1)"
        ".unflatten(1, (-1, long)).transpose(1, 2).reshape(n, long, width)"
    ),
}
OTHERS = {
    "a product with the mask": (
        f"{MASK}s = s * mask\n{WEIGHTS}", "s * mask", "mask-multiplied",
        's = s.masked_fill(mask == 0, float("-inf"))', "masked scores become 0, not -inf",
    ),
    "another norm than a softmax": (
        f'{MASK}s = s.masked_fill(mask == 0, float("-inf"))\ny = F.normalize(s, dim=-1) @ v\n', "F.normalize",
        "softmax-replaced", "y = s.softmax(dim=-1) @ v", "The weights come from normalize instead of a softmax",
    ),
    "another norm, beside which a finite number stands for masked scores": (
        f"# mask: (batch, 1, 1, keys), 1 where a key may be attended to\n{MASK}s = s.masked_fill(mask == 0, -1e9)\n"
        "y = F.normalize(s, dim=-1) @ v\n", "F.normalize",
        "softmax-replaced", "y = s.softmax(dim=-1) @ v", "The weights come from normalize instead of a softmax",
    ),
    "dropout of the scores": (
        f"{SCORES}s = self.drop(s)\nw = s.softmax(-1)\ny = w @ v\n", "self.drop(s)", "dropout-before-softmax",
        "w = self.drop(s.softmax(-1))", "before the softmax",
    ),
}  # fmt: skip


def mended(folder, source):
    """The one fault of a source, and the source with its patch, which is sound."""
    file = folder / "own.py"

    def examined(text):
        file.write_text(text, encoding="utf-8")
        return Diagnosis.from_dict(answer({"target": f"{file}:Attend"})["diagnosis"])

    found = examined(source)
    (fault,) = found.faults
    after = fixed(source, found.findings)
    assert after != source
    then = examined(after)
    assert (then.verdict, then.faults) == ("sound", ())
    return fault, after


@pytest.mark.parametrize("name", ROTATIONS)
def test_a_rotation_that_was_forgotten_is_added_and_one_too_many_is_taken_away(tmp_path, name):
    kind, body, place, written = ROTATIONS[name]
    source = HEAD + ROPE + attend(body=body if "softmax" in body else body + SUM)
    fault, after = mended(tmp_path, source)
    assert (fault.kind, fault.line) == (kind, line_of(source, place))
    assert after.count("turn(") - source.count("turn(") == {"values in place of keys": 0, "queries twice": -1}.get(
        name, 1
    )
    assert written is None or written in {line.strip() for line in after.splitlines()}


@pytest.mark.parametrize("merge", MERGES)
def test_heads_that_are_merged_before_the_tokens_are_transposed_first(tmp_path, merge):
    source = HEAD + attend(body=SUM).replace(MERGE, merge)
    fault, after = mended(tmp_path, source)
    assert (fault.kind, fault.line, fault.proved) == ("merge-without-transpose", line_of(source, merge), True)
    assert f"self.join({MERGES[merge]})" in after


@pytest.mark.parametrize("name", OTHERS)
def test_what_stands_in_the_wrong_place_is_moved_and_told_as_what_it_does(tmp_path, name):
    body, place, kind, written, told = OTHERS[name]
    given = {"made": "self.drop = nn.Dropout(0.1)"} if "drop" in body else {"given": "mask=None"}
    source = HEAD + attend(body=body, **given)
    fault, after = mended(tmp_path, source)
    assert (fault.kind, fault.line) == (kind, line_of(source, place))
    assert told in fault.what
    assert written in {line.strip() for line in after.splitlines()}


@pytest.mark.parametrize("name", ["foward", "__Forwad__"])
def test_a_misspelt_forward_is_named_and_renamed(tmp_path, name):
    source = HEAD + attend().replace("def forward", f"def {name}")
    fault, after = mended(tmp_path, source)
    assert (fault.kind, fault.line, fault.proved) == ("forward-misnamed", line_of(source, f"def {name}"), True)
    assert fault.what == f"Attend has no forward: the method here is called {name}."
    assert after == source.replace(f"def {name}", "def forward")


def test_a_class_without_forward_tells_which_methods_it_has():
    class Silent(nn.Module):
        def attend(self, x):
            return x

    found = hw.doctor(Silent)
    assert (found.verdict, found.findings) == ("not examined", ())
    assert found.reason.startswith("Silent must define forward, which nn.Module calls, but it defines only attend:")


def test_a_patch_with_fewer_operations_is_kept_only_where_one_is_too_many():
    name = "/written/loss.py"
    text = "y = norm(x.view(3)) + bias\n"
    linecache.cache[name] = (len(text), None, [text], name)
    code = code_at(Span(name, "", 1, 0, 1, 26))
    bare, without_bias, flat = (
        (Edit(1, 4, 1, 26, each),) for each in ("x.view(3) + bias", "norm(x.view(3))", "norm(x) + bias")
    )
    fault = Suspect("rotary-wrong", None)
    assert [removes(code, each, fault) for each in (bare, without_bias, flat)] == [True, True, False]
    assert not removes(code, bare, replace(fault, kind="rotary-twice"))
    assert not removes(code, bare, Suspect("scale-twice", None))


def test_a_share_below_a_hundredth_is_not_none_at_all():
    shares = (1.0, 0.994, 0.016, 0.01, 0.0049, 0.00031, 2e-9, 0.0)
    assert [percent(each) for each in shares] == ["100%", "99%", "2%", "1%", "0.5%", "0.03%", "0.0000002%", "0%"]

    def attention(query, key, value, mask):
        scores = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5
        return torch.softmax(scores.masked_fill(mask == 0, -12.0), dim=-1) @ value

    shapes = {name: ["B", "H", each, "d"] for name, each in (("query", "L"), ("key", "S"), ("value", "S"))}
    call = {**shapes, "_mask": {"argument": "mask", "means": "attend", "shape": ["B", "1", "1", "S"]}}
    (fault,) = hw.doctor(attention, call=call).faults
    assert fault.kind == "mask-weak-fill"
    assert "up to 0." in fault.why
