"""Relative terms: a term of distances is right at its own pairs, and follows no known design where it is moved."""

import pytest

import headwise as hw
from tests.diagnosis.written import HEAD, attend, blamed_in, found_in, line_of

TABLE = """
self.table = nn.Parameter(torch.randn(512, self.part))
"""
SKEW = """
far = q @ self.table[-long:].mT
far = {moved}
s = (q @ k.mT + far) * self.part ** -0.5
{mask}
y = s.softmax(-1) @ v
"""
CLOSED = 's = s.masked_fill(torch.ones(long, long, dtype=torch.bool).triu(1), float("-inf"))'
BOTH = """
far = torch.einsum("bhid,rd->bhir", q, self.table[: 2 * long - 1])
far = {moved}
s = (q @ k.mT + far) * self.part ** -0.5
y = s.softmax(-1) @ v
"""
RIGHT = {
    "padded in front": SKEW.format(
        moved="F.pad(far, (1, 0)).reshape(n, -1, long + 1, long)[:, :, 1:]", mask=CLOSED),
    "a column of zeros before": SKEW.format(
        moved="torch.cat((torch.zeros_like(far[..., :1]), far), -1).view(n, -1, long + 1, long)[:, :, 1:, :]",
        mask=CLOSED),
    "both directions": BOTH.format(
        moved="F.pad(far, (1, 0)).reshape(n, -1, 2 * long, long)[:, :, 1:].reshape(n, -1, long, 2 * long - 1)"
        "[..., :long]"),
    "gathered": BOTH.format(
        moved="far.gather(-1, (torch.arange(long)[None] - torch.arange(long)[:, None] + long - 1)"
        ".expand(n, self.num_heads, long, long))"),
    "of places": SKEW.format(moved="far", mask=""),
}  # fmt: skip
WRONG = {
    "padded behind": RIGHT["padded in front"].replace("(1, 0)", "(0, 1)"),
    "zeros behind": RIGHT["a column of zeros before"].replace(
        "(torch.zeros_like(far[..., :1]), far)", "(far, torch.zeros_like(far[..., :1]))"),
    "without its mask": SKEW.format(
        moved="F.pad(far, (1, 0)).reshape(n, -1, long + 1, long)[:, :, 1:]", mask=""),
    "both directions, padded behind": RIGHT["both directions"].replace("(1, 0)", "(0, 1)"),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_a_term_of_the_distance_of_its_pair_is_sound(name):
    found = found_in(HEAD + attend(TABLE, RIGHT[name]))
    assert (found.verdict, found.faults) == ("sound", ())


SEEN = ("without its mask", "both directions, padded behind")


@pytest.mark.parametrize("name", WRONG)
def test_a_term_that_was_moved_to_other_pairs_follows_no_design(name):
    found = found_in(HEAD + attend(TABLE, WRONG[name]))
    assert found.verdict != "sound"
    # later keys that are seen get what the shift brings from the query after, or nothing
    told = "relative-shift-wrong" if name in SEEN else "differs-from-every-formula"
    assert told in [each.kind for each in found.findings]


@pytest.mark.parametrize("name", ["padded in front", "both directions", "gathered"])
@pytest.mark.parametrize(("scale", "kind"), [("", "scale-missing"), (" * width ** -0.5", "scale-wrong")])
def test_terms_of_distances_have_the_scale_of_the_product(name, scale, kind):
    source = HEAD + attend(
        TABLE, RIGHT[name].replace("(q @ k.mT + far) * self.part ** -0.5", f"(q @ k.mT + far){scale}")
    )
    assert blamed_in(source) == [(kind, line_of(source, "q @ k.mT + far"))]


def test_the_patch_of_a_scale_divides_the_sum(tmp_path):
    file = tmp_path / "own.py"
    file.write_text(HEAD + attend(TABLE, RIGHT["gathered"].replace(" * self.part ** -0.5", "")), encoding="utf-8")
    (fault,) = hw.doctor(f"{file}:Attend").faults
    assert (fault.proved, fault.patch) == (True, "s = ((q @ k.mT + far) / q.shape[-1] ** 0.5)")


GIVEN = """
class Attend(nn.Module):
    def __init__(self, width, num_heads):
        super().__init__()
        self.num_heads, self.part = num_heads, width // num_heads
        self.ask, self.match, self.hold, self.join, self.far = (nn.Linear(width, width) for _ in range(5))

    def cut(self, t):
        return t.view(t.shape[0], -1, self.num_heads, self.part).transpose(1, 2)

    def forward(self, x, pos_emb):
        # pos_emb: (1, 2 * tokens - 1, width), from the farthest before to the farthest behind
        n, long, width = x.shape
        q, k, v = self.cut(self.ask(x)), self.cut(self.match(x)), self.cut(self.hold(x))
        far = q @ self.cut(self.far(pos_emb)).mT
        wide = F.pad(far, {sides}).reshape(n, -1, 2 * long, long)
        far = wide[:, :, 1:].reshape(n, -1, long, 2 * long - 1)[..., :long]
        w = ((q @ k.mT + far) * self.part ** -0.5).softmax(-1)
        return self.join((w @ v).transpose(1, 2).reshape(n, long, width))
"""


def test_a_table_that_a_call_is_given_is_shifted_to_its_own_pairs():
    assert found_in(HEAD + GIVEN.format(sides="(1, 0)")).verdict == "sound"
    source = HEAD + GIVEN.format(sides="(0, 1)")
    assert blamed_in(source) == [("relative-shift-wrong", line_of(source, "wide = "))]


EDGES = (
    HEAD
    + """
class Attend(nn.Module):
    def __init__(self, width, edge_dim, heads):
        super().__init__()
        self.heads, self.part = heads, width // heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.score, self.value = nn.Linear(edge_dim, heads, bias=False), nn.Linear(edge_dim, width, bias=False)

    def forward(self, h, edges, adj):
        # h: (B, N, width); edges: (B, N, N, edge_dim); adj: (B, N, N) bool, True where i listens to j
        B, N, _ = h.shape
        q, k, v = self.qkv(h).view(B, N, 3, self.heads, self.part).unbind(2)
        of_edges = self.value(edges).view(B, N, N, self.heads, self.part)
        s = torch.einsum("bihd,bjhd->bijh", q, k) * self.part ** -0.5 + self.score(edges)
        hidden = ~adj[..., None]
        w = s.masked_fill(hidden, torch.finfo(s.dtype).min).softmax(dim={axis}).masked_fill(hidden, 0.0){mark}
        y = torch.einsum("bijh,bjhd->bihd", w, v) + torch.einsum("bijh,bijhd->bihd", w, of_edges)
        return self.out(y.flatten(2))
"""
)


def test_an_edge_has_a_value_of_its_own_beside_that_of_its_node():
    found = found_in(EDGES.format(axis=2, mark=""))
    assert (found.verdict, found.examined["mask"]) == ("sound", "adj: attend")
    wrong = EDGES.format(axis=1, mark="  # <-")
    assert ("softmax-axis", line_of(wrong, "# <-")) in blamed_in(wrong)
