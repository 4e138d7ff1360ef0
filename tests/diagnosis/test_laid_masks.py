"""Masks as they are laid over scores: keys before queries, learned keys beside them, frames, several inputs."""

import pytest

from tests.diagnosis.written import HEAD, attend, blamed_in, found_in, line_of

# scores with the axis of their keys before that of their queries
TURNED = """
s = k @ q.mT / self.part ** 0.5
s = s.masked_fill(~{mask}, -1e9)
y = s.softmax(-2).mT @ v
"""


def turned(mask, given="visible"):
    return HEAD + attend("", TURNED.format(mask=mask), given=given)


def test_a_mask_of_keys_and_queries_lies_as_the_scores_do():
    assert found_in(turned("visible")).verdict == "sound"


def test_a_mask_of_samples_and_keys_has_no_order_to_choose():
    assert found_in(turned("visible[:, None, :, None]")).verdict == "sound"
    source = turned("visible[:, None, None, :]")
    assert blamed_in(source) == [("mask-axis", line_of(source, "s.masked_fill"))]


PREFIXED = """
b = x.shape[0]
k, v = (torch.cat([self.cut(each.expand(b, -1, -1)), t], 2) for each, t in ((self.before, k), (self.beside, v)))
ones = torch.ones(b, {count}, dtype=torch.bool)
mask = torch.cat([{order}], 1)
s = (q @ k.mT / self.part ** 0.5).masked_fill(~mask[:, None, None, :], float("-inf"))
y = s.softmax(-1) @ v
"""
MADE = """
self.before = nn.Parameter(torch.randn({count}, width))
self.beside = nn.Parameter(torch.randn({count}, width))
"""


@pytest.mark.parametrize("count", [2, 8])
def test_a_mask_gets_its_further_entries_on_the_side_of_the_keys_that_are_learned(count):
    def prefixed(order):
        made, body = MADE.format(count=count), PREFIXED.format(count=count, order=order)
        return HEAD + attend(made, body, given="mask")

    assert found_in(prefixed("ones, mask")).verdict == "sound"
    source = prefixed("mask, ones")
    assert blamed_in(source) == [("mask-shifted", line_of(source, "mask = torch.cat"))]


FRAMES = '''
class Attend(nn.Module):
    """
    x: (batch, frames, patches, dim)
    frame_mask: (batch, frames) bool, True for frames that exist
    """

    def __init__(self, dim, heads=4):
        super().__init__()
        self.heads, self.project = heads, nn.Linear(dim, 3 * dim)

    def forward(self, x, frame_mask=None):
        b, t, n, d = x.shape
        q, k, v = self.project(x.reshape(b, t * n, d)).chunk(3, -1)
        q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in (q, k, v))
        s = q @ k.mT / (d // self.heads) ** 0.5
        if frame_mask is not None:
            s = s.masked_fill(~frame_mask.{spread}[:, None, None, :], float("-inf"))
        return (s.softmax(-1) @ v).transpose(1, 2).reshape(b, t, n, d)
'''


def test_a_mask_of_frames_hides_all_that_is_in_them():
    found = found_in(HEAD + FRAMES.replace("{spread}", "repeat_interleave(n, 1)"))
    assert (found.verdict, found.examined["mask"]) == ("sound", "frame_mask: attend")
    source = HEAD + FRAMES.replace("{spread}", "repeat(1, n)")
    assert blamed_in(source) == [("mask-broadcast", line_of(source, "frame_mask.repeat"))]


MANY = """
class Attend(nn.Module):
    def __init__(self, text_dim, audio_dim, video_dim, width, num_heads):
        super().__init__()
        self.num_heads, self.part = num_heads, width // num_heads
        self.read = nn.ModuleList(nn.Linear(each, width) for each in (text_dim, audio_dim, video_dim))
        self.hear, self.see = nn.Linear(width, width), nn.Linear(width, width)

    def look(self, layer, x, memory, mask):
        q, k = (layer(t).unflatten(-1, (self.num_heads, self.part)).transpose(1, 2) for t in (x, memory))
        y = F.scaled_dot_product_attention(q, k, k, attn_mask={mask})
        return y.transpose(1, 2).flatten(2)

    def forward(self, text, audio, video, text_mask, audio_mask, video_mask):
        x, a, v = (layer(t) for layer, t in zip(self.read, (text, audio, video)))
        x = x + self.look(self.hear, x, a, audio_mask) + self.look(self.see, x, v, video_mask)
        w = text_mask.unsqueeze(-1).to(x.dtype)
        return (x * w).sum(1) / w.sum(1)
"""


def test_each_of_several_inputs_has_the_mask_that_is_called_after_it():
    found = found_in(HEAD + MANY.format(mask="mask[:, None, None, :]"))
    names = ("text_mask", "audio_mask", "video_mask")
    assert (found.verdict, found.examined["mask"]) == ("sound", "; ".join(f"{name}: attend" for name in names))
    assert {kind for kind, _ in blamed_in(HEAD + MANY.format(mask="None"))} == {"mask-ignored"}


def test_words_that_name_queries_first_say_how_a_mask_lies():
    words = "visible: True where query i may attend to key j"
    source = turned("visible").replace("(nn.Module):", f'(nn.Module):\n    """{words}"""\n', 1)
    assert [kind for kind, _ in blamed_in(source)] == ["mask-axis"]


@pytest.mark.parametrize("given", ["real", "there"])
def test_what_is_counted_up_is_a_mask_and_no_lengths(given):
    body = f"""
s = q @ k.mT / self.part ** 0.5
if {given} is not None:
    s = s.masked_fill(~(torch.arange(long) < {given}.long().sum(1)[:, None])[:, None, None, :], -1e9)
y = s.softmax(-1) @ v
"""
    assert blamed_in(HEAD + attend("", body, given=f"{given}=None")) == []


def test_a_reduction_beside_the_way_of_a_mask_is_no_part_of_it():
    body = """
most = int(mask.sum(1).max())
s = (q @ k.mT / self.part ** 0.5).masked_fill(~mask[:, None, None, :], 1e-12)
y = s.softmax(-1) @ v[:, :, : max(most, long)]
"""
    assert [kind for kind, _ in blamed_in(HEAD + attend("", body, given="mask"))] == ["mask-weak-fill"]
