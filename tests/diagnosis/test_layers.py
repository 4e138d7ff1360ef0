"""What a person's block hands to torch's own layer of attention is examined as the person's own masks are."""

import pytest

from tests.diagnosis.written import HEAD, found_in

LAYERED = """
class Step(nn.Module):
    def __init__(self, d_model, nhead):
        super().__init__()
        self.own = nn.MultiheadAttention(d_model, nhead, batch_first=True)
        self.other = nn.MultiheadAttention(d_model, nhead, batch_first=True)

    def forward(self, tgt, memory, memory_mask=None):
        # memory_mask: (batch, source), True where the source is padding
        late = torch.ones(tgt.size(1), tgt.size(1), dtype=torch.bool).triu(1)
        tgt = tgt + self.own(tgt, tgt, tgt, attn_mask=late)[0]
        return tgt + self.other(tgt, memory, memory, key_padding_mask=memory_mask)[0]
"""
TURNED = "key_padding_mask=None if memory_mask is None else ~memory_mask"


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [("", "", ""), (").triu(1)", ").tril()", "causal-inverted"),
     ("key_padding_mask=memory_mask", TURNED, "mask-inverted")],
)  # fmt: skip
def test_what_a_block_hands_to_torchs_own_layer_is_examined(old, new, kind):
    found = found_in(HEAD + LAYERED.replace(old, new), "Step")
    assert [(each.kind, each.source.count(new), each.proved) for each in found.faults] == [(kind, 1, True)] * bool(kind)


PIXELS = """
class Step(nn.Module):
    def __init__(self, d_model, nhead):
        super().__init__()
        self.attend = nn.MultiheadAttention(d_model, nhead, batch_first=True)

    def forward(self, image):
        # image: (batch, channels, height, width)
        b, c, h, w = image.shape
        tokens = image.flatten(2).transpose(1, 2)
        out = self.attend(query=tokens, key=tokens, value=tokens)[0]
        return out.transpose(1, 2).reshape(b, c, h, w)
"""
SPLIT = "image.reshape(b, h * w, c)"


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [("", "", ""), ("image.flatten(2).transpose(1, 2)", SPLIT, "split-without-transpose")],
)
def test_what_a_layer_takes_is_tokens_of_one_sample(old, new, kind):
    found = found_in(HEAD + PIXELS.replace(old, new, 1), "Step")
    assert [(each.kind, each.source.count(new)) for each in found.faults] == [(kind, 1)] * bool(kind)
