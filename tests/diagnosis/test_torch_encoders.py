"""Models of torch's own encoder layers are examined by what is handed to them: axes, masks, samples."""

import pytest

from tests.diagnosis.written import HEAD, blamed_in, found_in

MODEL = (
    HEAD
    + """
class Model(nn.Module):
    def __init__(self, vocabulary, width, heads, classes):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width{first})
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(width, classes)

    def forward(self, ids):
        x = self.embed(ids)
        x = self.encoder({given})
        return self.out({taken})
"""
)
FIRST = ", batch_first=True"
CAUSAL = "torch.ones(ids.size(1), ids.size(1), dtype=torch.bool).{half}"


def written(first=FIRST, given="x", taken="x.mean(1)"):
    return MODEL.format(first=first, given=given, taken=taken)


RIGHT = {
    "pooled": written(),
    "last": written(taken="x[:, -1]"),
    "padded": written(given="x, src_key_padding_mask=ids == 0", taken="x"),
    "causal": written(given=f"x, mask={CAUSAL.format(half='triu(1)')}", taken="x"),
    "turned": written(first="", given="x.transpose(0, 1)", taken="x.mean(0)"),
}
FAULTY = {
    "pooled": (written(first=""), {"batch-length-confused"}),
    "last": (written(first="", taken="x[:, -1]"), {"batch-length-confused"}),
    "padded": (written(given="x, src_key_padding_mask=ids != 0", taken="x"), {"mask-inverted"}),
    "causal": (written(given=f"x, mask={CAUSAL.format(half='tril()')}", taken="x"), {"causal-inverted"}),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_model_of_encoder_layers_is_sound(name):
    found = found_in(RIGHT[name], "Model")
    assert (found.verdict, list(found.findings)) == ("sound", [])
    assert found.examined["samples"] is True


@pytest.mark.parametrize("name", FAULTY)
def test_what_is_handed_to_encoder_layers_is_held_to_what_they_take(name):
    source, kinds = FAULTY[name]
    assert {kind for kind, _ in blamed_in(source, "Model")} == kinds


def test_one_layer_in_a_block_is_examined_by_its_inputs():
    source = (
        HEAD
        + """
class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm, self.layer = nn.LayerNorm(width), nn.TransformerEncoderLayer(width, heads, 5 * width)

    def forward(self, x):
        # x: (batch, length, width)
        return x + self.layer(self.norm(x))
"""
    )
    assert [kind for kind, _ in blamed_in(source, "Block")] == ["batch-length-confused"]
    assert found_in(source.replace("5 * width", "5 * width, batch_first=True"), "Block").verdict == "sound"
