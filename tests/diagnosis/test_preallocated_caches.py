"""A cache with room for all tokens, told by a number where the new ones begin: what is written and read wrongly."""

import pytest

from tests.diagnosis.written import HEAD, found_in, line_of

ROOM = (
    HEAD
    + """
class Attend(nn.Module):
    def __init__(self, dim, heads, most=32):
        super().__init__()
        self.heads, self.part = heads, dim // heads
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim, bias=False) for _ in range(4))
        self.register_buffer("kept_k", torch.zeros(8, most, heads, self.part))
        self.register_buffer("kept_v", torch.zeros(8, most, heads, self.part))

    def forward(self, x, start_pos: int = None):
        b, n, d = x.shape
        q, k, v = (f(x).view(b, n, self.heads, self.part) for f in (self.q, self.k, self.v))
        if start_pos is not None:
            end = start_pos + n
            self.kept_k[:b, start_pos:end] = k
            self.kept_v[:b, start_pos:end] = v
            k = self.kept_k[:b, :end]
            v = self.kept_v[:b, :end]
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        y = (q @ k.transpose(2, 3) / math.sqrt(self.part)).softmax(-1) @ v
        return self.o(y.transpose(1, 2).reshape(b, n, d))
"""
)
# the kind, what is written in place of what, and the line that tells it
WRONG = {
    "the new tokens alone are read": (
        "cache-lost", {"k = self.kept_k[:b, :end]": "k = self.kept_k[:b, start_pos:end]",
         "v = self.kept_v[:b, :end]": "v = self.kept_v[:b, start_pos:end]"}, "k = self.kept_k"),
    "the new keys alone are read": (
        "cache-incomplete", {"k = self.kept_k[:b, :end]": "k = self.kept_k[:b, start_pos:end]"}, "k = self.kept_k"),
    "the old tokens alone are read": (
        "cache-lost", {"k = self.kept_k[:b, :end]": "k = self.kept_k[:b, :start_pos]",
         "v = self.kept_v[:b, :end]": "v = self.kept_v[:b, :start_pos]"}, "k = self.kept_k"),
    "keys are written at the start": (
        "cache-lost", {"self.kept_k[:b, start_pos:end] = k": "self.kept_k[:b, :n] = k"}, "[:b, :n] = k"),
    "values are written at the start": (
        "cache-lost", {"self.kept_v[:b, start_pos:end] = v": "self.kept_v[:b, :n] = v"}, "[:b, :n] = v"),
}  # fmt: skip


def test_a_room_that_is_written_and_read_rightly_has_no_fault():
    found = found_in(ROOM)
    assert (found.verdict, found.faults, found.examined["cache"]) == ("sound", (), True)


@pytest.mark.parametrize("name", WRONG)
def test_what_a_room_loses_is_located_and_proved(name):
    kind, edits, part = WRONG[name]
    source = ROOM
    for right, wrong in edits.items():
        assert right in source
        source = source.replace(right, wrong)
    line = line_of(source, part)
    assert [(each.kind, each.line, each.proved) for each in found_in(source).faults] == [(kind, line, True)]
