"""Weights that are fed back: scores that follow from what earlier queries attended to are those of their own query."""

import pytest

from tests.diagnosis.written import HEAD, blamed_in, found_in, line_of

SOURCE = (
    HEAD
    + '''
class Attend(nn.Module):
    def __init__(self, width, memory_width, hidden):
        super().__init__()
        self.query, self.key = nn.Linear(width, hidden), nn.Linear(memory_width, hidden, bias=False)
        self.score = nn.Linear(hidden, 1, bias=False)
        {made}

    def forward(self, queries, memory, lengths):
        """queries: (B, T, width); memory: (B, S, memory_width), padded at the end; lengths: (B,)."""
        hidden = torch.arange(memory.shape[1]) >= lengths[:, None]
        keys = self.key(memory)
        weights = total = memory.new_zeros(memory.shape[:2])
        out = []
        for query in queries.unbind(1):
            {features}
            energies = self.score(torch.tanh({sum})).squeeze(-1)
            weights = energies.masked_fill(hidden, -1e9).softmax(dim={axis}){mark}
            total = total + weights
            out.append((weights[:, None] @ memory).squeeze(1))
        return torch.stack(out, 1)
'''
)
# See et al. 2017, arXiv:1704.04368, equation 11
COVERAGE = {
    "made": "self.feature = nn.Linear(1, hidden, bias=False)",
    "features": "seen = self.feature(total[..., None])",
}
# Chorowski et al. 2015, arXiv:1506.07503, equations 8 and 9
LOCATION = {
    "made": "self.conv, self.feature = nn.Conv1d(2, 6, 5, padding=2, bias=False), nn.Linear(6, hidden, bias=False)",
    "features": "seen = self.feature(self.conv(torch.stack([weights, total], 1)).transpose(1, 2))",
}
SUMS = ("self.query(query)[:, None] + keys + seen", "self.query(query)[:, None] + seen + keys",
        "seen + keys + self.query(query)[:, None]")  # fmt: skip


@pytest.mark.parametrize("features", [COVERAGE, LOCATION], ids=["coverage", "location"])
@pytest.mark.parametrize("total", SUMS, ids=["last", "between", "first"])
def test_what_was_attended_to_may_be_a_feature_of_keys(features, total) -> None:
    found = found_in(SOURCE.format(**features, sum=total, axis=-1, mark=""))
    assert (found.verdict, found.examined["mask"]) == ("sound", "lengths: lengths")
    assert found.examined["comparison"].startswith("additive scores")


@pytest.mark.parametrize("features", [COVERAGE, LOCATION], ids=["coverage", "location"])
def test_the_axis_of_weights_that_are_fed_back_is_examined(features) -> None:
    source = SOURCE.format(**features, sum=SUMS[1], axis=0, mark="  # <-")
    assert blamed_in(source) == [("softmax-axis", line_of(source, "# <-"))]
