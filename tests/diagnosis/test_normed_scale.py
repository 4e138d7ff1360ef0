"""Normed scale: queries and keys that are normalised may have another scale, but not √head_dim times a layer norm's."""

import pytest

from tests.diagnosis.written import HEAD, attend, blamed_in, marked

NORMS = "self.over, self.under = {norm}(self.part), {norm}(self.part)"
UNIT = "q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)\n"
OWN = "q, k = self.over(q), self.under(k)\n"
FUSED = "y = F.scaled_dot_product_attention(q, k, v, scale={scale}){mark}"
WRITTEN = "s = q @ k.mT * {scale}{mark}\ny = s.softmax(-1) @ v"
WIDTH = "math.sqrt(self.part)"
LAYERS = ("nn.LayerNorm", "nn.RMSNorm")


@pytest.mark.parametrize("norm", LAYERS)
@pytest.mark.parametrize("body", [FUSED, WRITTEN])
def test_products_of_layer_norms_times_the_root_are_scaled_wrongly(norm, body):
    source = HEAD + attend(NORMS.format(norm=norm), OWN + body.format(scale=WIDTH, mark="  # <-"))
    assert blamed_in(source) == marked(source, "scale-inverted")


@pytest.mark.parametrize("norm", LAYERS)
@pytest.mark.parametrize("scale", [f"1 / {WIDTH}", "0.12", "1 / self.part"])
def test_products_of_layer_norms_times_another_number_are_a_choice(norm, scale):
    source = HEAD + attend(NORMS.format(norm=norm), OWN + FUSED.format(scale=scale, mark=""))
    assert blamed_in(source) == []


@pytest.mark.parametrize("body", [FUSED, WRITTEN])
def test_products_of_unit_vectors_times_the_root_are_a_choice(body):
    source = HEAD + attend(body=UNIT + body.format(scale=WIDTH, mark=""))
    assert blamed_in(source) == []


def test_torch_s_own_function_is_told_a_scale_of_one():
    source = HEAD + attend(body=FUSED.format(scale="1.0", mark="  # <-"))
    assert blamed_in(source) == marked(source, "scale-missing")


@pytest.mark.parametrize(
    ("made", "before"),
    [
        ("self.heat = nn.Parameter(torch.full((num_heads, 1, 1), 10.0))", UNIT + "q = q * self.heat\n"),
        ("", "q = q * self.part ** -0.5\n"),
    ],
)
def test_a_scale_of_one_beside_another_is_none(made, before):
    assert blamed_in(HEAD + attend(made, before + FUSED.format(scale="1.0", mark=""))) == []


@pytest.mark.parametrize(("is_on", "blamed"), [("False", False), ("not 1", False), ("None", True)])
def test_a_scale_that_is_an_option_and_off_is_a_choice(is_on, blamed):
    body = "s = q @ k.mT  # <-\nif self.scaled:\n    s = s / math.sqrt(self.part)\ny = s.softmax(-1) @ v"
    source = HEAD + attend(f"self.scaled = {is_on}", body)
    assert blamed_in(source) == (marked(source, "scale-missing") if blamed else [])


def test_an_option_without_a_root_is_no_scale():
    body = "s = q @ k.mT  # <-\nif self.centred:\n    s = s - s.mean()\ny = s.softmax(-1) @ v"
    source = HEAD + attend("self.centred = False", body)
    assert blamed_in(source) == marked(source, "scale-missing")


DRAWN = (
    HEAD
    + """
class Drawn(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.q, self.k, self.v, self.out = heads, *(nn.Linear(dim, dim, bias=False) for _ in range(4))
        nn.init.normal_(self.q.weight, std=(dim * dim // heads) ** -0.5)
        nn.init.normal_(self.k.weight, std={spread})

    def forward(self, x):
        q, k, v = (part(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.q, self.k, self.v))
        return self.out(((q @ k.mT).softmax(-1) @ v).transpose(1, 2).flatten(2))
"""
)


def test_a_scale_may_stand_in_how_queries_are_drawn():
    assert blamed_in(DRAWN.format(spread="dim**-0.5"), "Drawn") == []
    wrong = DRAWN.format(spread="(dim * dim // heads) ** -0.5")
    assert [kind for kind, _ in blamed_in(wrong, "Drawn")] == ["scale-missing"]
