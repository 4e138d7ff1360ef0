"""Kept keys: a mask beside keys that are always seen, turned the wrong way round, is told as that."""

import pytest

from tests.diagnosis.written import HEAD, blamed_in, found_in, marked

LATENTS = (
    HEAD
    + """
class Resample(nn.Module):
    def __init__(self, dim, heads, dim_head):
        super().__init__()
        self.heads, self.scale = heads, dim_head ** -0.5
        self.ask = nn.Linear(dim, heads * dim_head, bias=False)
        self.match, self.hold = (nn.Linear(dim, heads * dim_head, bias=False) for _ in range(2))
        self.join = nn.Linear(heads * dim_head, dim, bias=False)

    def forward(self, context, latents, context_mask=None):
        \"\"\"context_mask: (batch, tokens of context), True where a token is real.\"\"\"
        both = torch.cat((context, latents), dim=1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                   for t in (self.ask(latents), self.match(both), self.hold(both)))
        s = q @ k.mT * self.scale
        if context_mask is not None:
            {mask}
        return self.join((s.softmax(-1) @ v).transpose(1, 2).flatten(2))
"""
)
CAT = "keep = torch.cat((context_mask, torch.ones(latents.shape[:2], dtype=torch.bool)), dim=-1)"
PAD = "keep = F.pad(context_mask, (0, latents.shape[1]), value=True)"
USES = {
    "filled": "s = s.masked_fill({keep}[:, None, None, :], float('-inf'))",
    "chosen": "s = torch.where({keep}[:, None, None, :], -1e9, s)",
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("made", [CAT, PAD])
def test_a_mask_beside_keys_that_are_always_kept_is_turned(use, made):
    lines = f"{made}\n            {USES[use]}"
    right = LATENTS.format(mask=lines.format(keep="(~keep)"))
    assert found_in(right, "Resample").verdict == "sound"
    wrong = LATENTS.format(mask=lines.format(keep="keep") + "  # <-")
    assert blamed_in(wrong, "Resample") == marked(wrong, "mask-inverted")


@pytest.mark.parametrize("use", USES)
def test_of_two_readings_that_mend_it_the_mask_is_turned(use):
    lines = f"{CAT}\n            {USES[use]}".format(keep="keep") + "  # <-"
    source = LATENTS.format(mask=lines).replace(", True where a token is real.", ", bool.")
    assert blamed_in(source, "Resample") == marked(source, "mask-inverted")


def test_a_mask_that_hides_the_kept_keys_alone_is_not_turned():
    made = CAT.replace("torch.ones", "torch.zeros")
    source = LATENTS.format(mask=f"{made}\n            {USES['filled'].format(keep='(~keep)')}")
    assert all(kind != "mask-inverted" for kind, _ in blamed_in(source, "Resample"))
