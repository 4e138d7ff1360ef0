"""A patch is offered only where the source with it, loaded and examined again, has lost the fault."""

import ast
from dataclasses import replace

import pytest

from headwise.diagnosis.child import answer
from headwise.diagnosis.patches.fixed_source import difference, fixed
from headwise.diagnosis.patches.trials import LONG, SHORT, Effort, mended, uncovered
from headwise.diagnosis.result import Diagnosis, Finding
from headwise.source import Edit, applied
from tests.diagnosis.mutants import HERE
from tests.diagnosis.operators import HOSTS, mutants
from tests.diagnosis.written import HEAD, attend, line_of

PLAIN = next(each for each in HOSTS if each.file == "plain.py")
SOURCE = (HERE / "hosts" / PLAIN.file).read_text(encoding="utf-8")
MENDED = (
    "drop scale", "floor division", "softmax over queries", "split keys by view", "merge without transpose",
    "mask inverted", "mask discarded", "plain list", "undefined name",
)  # fmt: skip


def examined(folder, text, call=None):
    (folder / "own.py").write_text(text, encoding="utf-8")
    said = answer({"target": f"{folder / 'own.py'}:{PLAIN.name}", "call": call, "fix": True})
    return Diagnosis.from_dict(said["diagnosis"])


@pytest.mark.parametrize("operator", MENDED)
def test_the_patched_file_is_sound_and_else_the_persons_own(tmp_path, operator):
    mutant = next(each for each in mutants(PLAIN, SOURCE) if each.operator == operator)
    found = examined(tmp_path, mutant.source, PLAIN.call)
    assert any(each.patch and each.proved for each in found.faults)
    after = fixed(mutant.source, found.findings)
    edited = {line for each in found.findings for edit in each.edits for line in range(edit.line, edit.end_line + 1)}
    before, then = mutant.source.splitlines(), after.splitlines()
    assert len(before) == len(then)
    assert {at for at, (a, b) in enumerate(zip(before, then, strict=True), 1) if a != b} == edited
    ast.parse(after)
    assert examined(tmp_path, after, PLAIN.call).faults == ()


def test_a_patch_is_offered_only_where_the_fault_has_gone_and_none_has_come():
    edits = (Edit(1, 4, 1, 5, "2"),)
    fault = Finding("scale-wrong", "fault", 1, 1, 4, "x = 1", "", "", "", False, "", "own.py", candidates=(edits,))
    found = Diagnosis("own.py:x", "faulty", (fault,))
    other = replace(found, findings=(replace(fault, kind="softmax-axis"),))
    sound = Diagnosis("own.py:x", "sound", ())

    def patched(then):
        return mended(found, {"own.py": "x = 1\n"}, lambda _: then, effort=SHORT, lang="en").findings[0]

    assert [patched(each).patch for each in (found, other, None, Diagnosis("own.py:x", "not examined", ()))] == [""] * 4
    assert (patched(sound).patch, patched(sound).edits, patched(sound).proved) == ("x = 2", edits, True)


ENDS = {
    "a name": ("self.join(y.transpose", "self.joint(y.transpose", "wrong-attribute"),
    "a name where a mask is": ("(mask[", "(msk[", "name-misspelt"),
    "a function's name": ("s.softmax(-1)", "F.sotfmax(s, -1)", "wrong-attribute"),
    "no return": ("return self.join(y", "self.join(y", "returns-none"),
    "no module yet": ("        super().__init__()\n", "        # ready\n", "super-init-missing"),
}


@pytest.mark.parametrize("name", ENDS)
def test_what_lies_behind_a_call_that_fails_is_told_with_it_and_mended(tmp_path, name):
    body = """
    s = q @ k.mT
    if mask is not None:
        hidden = (mask[:, None, None] == 0)
        s = s.masked_fill(~hidden, float("-inf"))
    y = s.softmax(-1) @ v
    """
    here, there, kind = ENDS[name]
    source = HEAD + attend(body=body, given="mask=None").replace(here, there)
    source = source.replace("x, mask=None):", 'x, mask=None):\n        """mask: [batch, length], 1 = may be seen"""')
    (tmp_path / "own.py").write_text(source, encoding="utf-8")
    said = answer({"target": f"{tmp_path / 'own.py'}:Attend"})
    found = Diagnosis.from_dict(said["diagnosis"])
    place = {"super-init-missing": "self.ask,"}.get(kind, there)
    wanted = {(kind, line_of(source, place)), ("scale-missing", line_of(source, "k.mT"))}
    wanted.add(("mask-inverted", line_of(source, "masked_fill")))
    assert {(each.kind, each.line) for each in found.faults} == wanted
    assert all(each.proved for each in found.faults)
    assert "mask" in found.examined["mask"]
    after = fixed(source, found.findings)
    (tmp_path / "own.py").write_text(after, encoding="utf-8")
    assert answer({"target": f"{tmp_path / 'own.py'}:Attend"})["diagnosis"]["verdict"] == "sound"


def test_so_many_patches_are_tried_the_likeliest_of_each_first_and_the_rest_is_told():
    def at(line, count):
        every = tuple((Edit(line, 4, line, 5, str(each)),) for each in range(count))
        return Finding(
            "value-changed", "fault", line, line, 4, "x = 1", "", "", "", False, "", "own.py", candidates=every
        )

    found = Diagnosis("own.py:x", "faulty", (at(1, 3), at(2, 3), at(3, 1)))
    tried = []

    def again(edits):
        tried.append([(each.line, each.text) for each in edits["own.py"]])

    told = mended(found, {"own.py": "x = 1\n" * 3}, again, effort=Effort(6, 10_000), lang="en")
    firsts = [[(1, "0")], [(2, "0")], [(3, "0")]]
    assert tried == [[(1, "0"), (2, "0"), (3, "0")], *firsts, [(1, "1")], [(2, "1")]]
    assert told.examined["patches"] == "no: of line 1, 2 not all were tried; --fix tries more of them"
    assert "patches" not in mended(found, {"own.py": "x = 1\n" * 3}, again, effort=LONG, lang="en").examined


def test_a_patch_that_takes_a_line_away_says_so_and_counts_the_lines_after_it():
    edits = (Edit(1, 0, 2, 0, ""), Edit(3, 4, 3, 5, "3"))
    fault = Finding(
        "scale-twice", "fault", 1, 1, 4, "x = 1", "What.", "", "Fix.", False, "", "own.py", candidates=(edits,)
    )
    sound = Diagnosis("own.py:x", "sound", ())

    def patched(edits):
        found = Diagnosis("own.py:x", "faulty", (replace(fault, candidates=(edits,)),))
        return mended(found, {"own.py": "x = 1\ny = 1\nz = 1\n"}, lambda _: sound, effort=SHORT, lang="en")

    assert patched(edits).findings[0].patch == "z = 3"
    gone = patched(edits[:1])
    assert (gone.findings[0].patch, gone.findings[0].fix) == ("- x = 1", "Fix. Take out: - x = 1")
    assert "Fix: Fix.\n        - x = 1" in str(gone)


def test_lines_that_a_patch_adds_do_not_move_what_is_found_after_them():
    first = Finding(
        "raises", "fault", 1, 1, 0, "x()", "", "", "", True, "", "own.py", edits=(Edit(1, 0, 1, 0, "y\nz\n"),)
    )
    second = replace(first, kind="scale-wrong", line=4, end_line=5, candidates=((Edit(4, 2, 5, 1, "w"),),), edits=())
    found, asked = Diagnosis("own.py:x", "faulty", (first,)), []

    def again(edits):
        asked.append(edits["own.py"])
        return replace(found, findings=(second,) if len(asked) == 1 else (), verdict="faulty")

    then = uncovered(found, {"own.py": "x()\ntwo\nthree\n"}, again, effort=SHORT, lang="en")
    assert [(each.kind, each.line, each.end_line) for each in then.findings] == [
        ("raises", 1, 1),
        ("scale-wrong", 2, 3),
    ]
    assert then.findings[1].edits == (Edit(2, 2, 3, 1, "w"),)
    assert asked == [list(first.edits), (*first.edits, Edit(2, 2, 3, 1, "w"))]


def test_edits_keep_every_other_character_and_count_columns_in_characters():
    text = "x = 'é'; y = 1 // 2\nz = 3\n"
    assert applied(text, [Edit(1, 13, 1, 19, "1 / 2"), Edit(2, 4, 2, 5, "4")]) == "x = 'é'; y = 1 / 2\nz = 4\n"


def test_only_what_ends_a_line_of_python_ends_one_for_an_edit():
    text = "\x0cx = 'a\u2028b\x85'\ny = 1 // 2"
    assert applied(text, [Edit(2, 4, 2, 10, "1 / 2")]) == "\x0cx = 'a\u2028b\x85'\ny = 1 / 2"
    assert "-y = 1 // 2" in difference(text, text.replace("//", "/"), "own.py", "own.fixed.py").split("\n")


OPTIONAL = """
class Attend(nn.Module):
    def __init__(self, width, num_heads):
        super().__init__()
        self.num_heads, self.pack, self.join = num_heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, pad_mask=None):
        # pad_mask: True = padding
        q, k, v = self.pack(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        hidden = None
        if pad_mask is not None:
            hidden = pad_mask[:, None, None, :]
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=hidden)
        return self.join(y.transpose(1, 2).flatten(2))
"""


def test_a_mask_that_may_be_none_is_turned_where_it_is_made(tmp_path):
    found = examined(tmp_path, HEAD + OPTIONAL.replace("Attend", PLAIN.name))
    assert [(each.kind, each.patch) for each in found.faults] == [
        ("mask-inverted", "hidden = ~pad_mask[:, None, None, :]")
    ]


def test_a_patch_that_makes_a_call_raise_is_none():
    edits = (Edit(1, 4, 1, 5, "2"),)
    fault = Finding("mask-inverted", "fault", 1, 1, 4, "x = 1", "", "", "", False, "", "own.py", candidates=(edits,))
    found = Diagnosis("own.py:x", "faulty", (fault,))
    raises = Diagnosis("own.py:x", "sound", (replace(fault, kind="mask-default-raises", severity="warning"),))
    assert mended(found, {"own.py": "x = 1\n"}, lambda _: raises, effort=SHORT, lang="en").findings[0].edits == ()
