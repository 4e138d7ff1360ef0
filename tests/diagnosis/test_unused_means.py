"""What is there to change something and changes nothing: masks of a further argument, plain tensors of zeros and ones,
lists of layers that torch does not take, and what shows only with a flag or without keys of its own.
"""

import pytest

from tests.diagnosis.written import HEAD, attend, blamed_in, found_in, marked

SCORES = "s = q @ k.mT * self.part ** -0.5\n"
SUM = "y = s.softmax(-1) @ v"
SINK = "self.sink = nn.Parameter(torch.randn(num_heads, 1, 1))"
BESIDE = """
s = q @ k.mT * {scale}{mark}
s = torch.cat([s, self.sink.expand(n, -1, long, 1)], -1)
y = s.softmax(-1)[..., :-1] @ v
"""


@pytest.mark.parametrize(("scale", "kinds"), [("math.sqrt(self.part)", ["scale-inverted"]), ("self.part ** -0.5", [])])
def test_the_scale_is_judged_beside_a_sink(scale, kinds):
    source = HEAD + attend(SINK, BESIDE.format(scale=scale, mark="  # <-"))
    assert blamed_in(source) == [each for kind in kinds for each in marked(source, kind)]


BIASED = """
if bias is not None:
    s = s + bias
if mask is not None:
    mask = F.pad(mask, (0, 0), value=True)  # <-
    s = s.masked_fill(~mask[:, None, None, :], float("-inf"))
"""


@pytest.mark.parametrize(("text", "kinds"), [(BIASED, []), (BIASED.partition("    s = s.masked")[0], ["mask-ignored"])])
def test_a_mask_without_effect_is_told_beside_a_bias_that_has_one(text, kinds):
    source = HEAD + attend(given="bias=None, mask=None", body=SCORES + text + SUM)
    assert blamed_in(source) == [each for kind in kinds for each in marked(source, kind)]


LATER = """
if self.is_decoder:
    s = s.masked_fill(torch.ones(long, long, dtype=torch.bool).triu(1), {fill})  # <-
"""


@pytest.mark.parametrize(("fill", "kinds"), [("-1e9", []), ("1e-9", ["causal-zeroed"])])
def test_a_fill_that_hides_nothing_is_told_behind_a_flag(fill, kinds):
    source = HEAD + attend("self.is_decoder = is_decoder", SCORES + LATER.format(fill=fill) + SUM, "is_decoder=False")
    assert blamed_in(source) == [each for kind in kinds for each in marked(source, kind)]


OWN_KEYS = """
if context is not None:
    k, v = self.cut(self.match(context)), self.cut(self.hold(context))
s = q @ k.mT * self.part ** -0.5
if self.is_decoder and context is None:
    s = s.masked_fill({hidden}, -1e9)  # <-
y = s.softmax(-1) @ v
"""


@pytest.mark.parametrize(("way", "kinds"), [("triu(1)", []), ("tril()", ["causal-inverted"])])
def test_keys_that_may_be_left_out_are_left_out_too(way, kinds):
    body = OWN_KEYS.format(hidden=f"torch.ones(long, long, dtype=torch.bool).{way}")
    source = HEAD + attend("self.is_decoder = is_decoder", body, "is_decoder=False", "context=None")
    assert blamed_in(source) == [each for kind in kinds for each in marked(source, kind)]


@pytest.mark.parametrize(
    ("made", "use", "kinds"),
    [
        ("torch.zeros(num_heads, 1, 1)", "s = s + self.kept", ["parameters-unregistered"]),
        ("torch.ones(num_heads, 1, 1)", "s = s * self.kept.sqrt().square()", []),
        ("torch.ones(num_heads, 1, 1)", "s = s * self.kept[None]", ["parameters-unregistered"]),
        ("torch.full((num_heads, 1, 1), 0.5)", "s = s + self.kept", []),
        ("nn.Parameter(torch.zeros(num_heads, 1, 1))", "s = s + self.kept", []),
        ("torch.zeros(num_heads, 1, 1)", "s = s + self.kept\nif self.training:\n    self.kept = self.kept + 1", []),
    ],
)
def test_a_plain_tensor_that_changes_nothing_was_to_be_learned(made, use, kinds):
    source = HEAD + attend(f"self.kept = {made}  # <-", f"{SCORES}{use}\n{SUM}")
    assert blamed_in(source) == [each for kind in kinds for each in marked(source, kind)]


SEEDS = """

class Pool(nn.Module):
    def __init__(self, width=24, heads=3, seeds=2):
        super().__init__()
        self.seeds = {made}  # <-
        self.mix = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, x):
        seeds = self.seeds.repeat(x.shape[0], 1, 1)
        return self.mix(seeds, x, x)[0]
"""


@pytest.mark.parametrize(
    ("made", "kinds"),
    [("torch.randn(1, seeds, width)", ["parameters-unregistered"]), ("nn.Parameter(torch.randn(1, seeds, width))", [])],
)
def test_random_queries_of_a_whole_model_are_saved(made, kinds):
    source = HEAD + SEEDS.format(made=made)
    assert blamed_in(source, "Pool") == [each for kind in kinds for each in marked(source, kind)]


def test_a_list_among_layers_raises_however_it_is_called():
    source = HEAD + attend("self.more = nn.ModuleList([[nn.Linear(width, width)]])  # <-")
    found = found_in(source)
    assert [(each.kind, each.line) for each in found.faults] == marked(source, "raises")
    assert "list is not a Module subclass" in str(found)
