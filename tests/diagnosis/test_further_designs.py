"""Designs that are right though they differ: relative terms of keys, several terms in one score, maps over channels."""

import pytest

from tests.diagnosis.written import HEAD, found_in

RELATIVE = (
    HEAD
    + """
class Relative(nn.Module):
    '''Scores of content, and of distances with queries and with keys (arXiv:2009.13658, method 4).'''

    def __init__(self, width, heads, room=64):
        super().__init__()
        self.heads, self.part, self.room = heads, width // heads, room
        self.ask, self.match, self.hold = (nn.Linear(width, width) for _ in range(3))
        self.table = nn.Embedding(2 * room - 1, self.part)

    def cut(self, t):
        return t.unflatten(-1, (self.heads, self.part)).transpose(1, 2)

    def forward(self, x):
        q, k, v = self.cut(self.ask(x)), self.cut(self.match(x)), self.cut(self.hold(x))
        place = torch.arange(x.shape[1])
        far = self.table(place[:, None] - place + self.room - 1)
        scores = q @ k.mT + torch.einsum("bhld,lrd->bhlr", q, far) + torch.einsum("bhrd,lrd->bhlr", k, far)
        weights = (scores / math.sqrt(self.part)).softmax(-1)
        return (weights @ v).transpose(1, 2).flatten(2)
"""
)
APART = (
    HEAD
    + """
class Apart(nn.Module):
    '''Content to content, content to place and place to content (He et al. 2021, arXiv:2006.03654).'''

    def __init__(self, width, heads, far=8):
        super().__init__()
        self.heads, self.part, self.far = heads, width // heads, far
        self.qkv = nn.Linear(width, 3 * width)
        self.places = nn.Parameter(torch.randn(2 * far, width))
        self.of_keys, self.of_queries = nn.Linear(width, width), nn.Linear(width, width)

    def cut(self, t):
        return t.unflatten(-1, (self.heads, self.part)).transpose(-3, -2)

    def beside(self, q, k):
        n = q.shape[-2]
        apart = (torch.arange(n)[:, None] - torch.arange(n) + self.far).clamp(0, 2 * self.far - 1)
        apart = apart.expand(*q.shape[:2], n, n)
        asked = (q @ self.cut(self.of_keys(self.places)).mT).gather(-1, apart)
        told = (k @ self.cut(self.of_queries(self.places)).mT).gather(-1, apart).mT
        return asked + told

    def forward(self, x):
        q, k, v = (self.cut(t) for t in self.qkv(x).chunk(3, dim=-1))
        scores = (q @ k.mT + self.beside(q, k)) / math.sqrt({divisor})
        return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
"""
)
CHANNELS = (
    HEAD
    + """
class Channels(nn.Module):
    '''Channels attend to each other (arXiv:2106.09681); tokens that are not there add nothing.'''

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.temperature = nn.Parameter(torch.ones(heads, 1, 1))

    def forward(self, x, mask=None):
        '''mask: (B, N) bool, False for padding'''
        b, n, c = x.shape
        qkv = self.qkv(x).unflatten(-1, (3, self.heads, c // self.heads))
        if mask is not None:
            qkv = {masked}
        q, k, v = qkv.permute(2, 0, 3, 4, 1)
        q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
        weights = (q @ k.mT * self.temperature).softmax(-1)
        return self.out((weights @ v).permute(0, 3, 1, 2).reshape(b, n, c))
"""
)


def test_a_term_of_keys_and_distances_is_known():
    right = found_in(RELATIVE, "Relative")
    assert (right.verdict, right.faults) == ("sound", ())
    assert right.examined["comparison"].startswith("scores with further terms")


def test_a_score_of_three_terms_has_the_root_of_three_widths():
    right = found_in(APART.replace("{divisor}", "3 * self.part"), "Apart")
    assert (right.verdict, right.faults) == ("sound", ())


@pytest.mark.parametrize(
    ("masked", "verdict"),
    [("qkv * mask[..., None, None, None]", "sound"), ("qkv * (1 + mask[..., None, None, None])", "not examined")],
)
def test_a_map_over_channels_is_held_to_a_mask_of_tokens(masked, verdict):
    report = found_in(CHANNELS.replace("{masked}", masked), "Channels")
    assert (report.verdict, report.faults) == (verdict, ())


RESULT = (
    HEAD
    + """
from types import SimpleNamespace


class Model(nn.Module):
    def __init__(self, vocab_size, width, heads):
        super().__init__()
        self.table, self.heads = nn.Embedding(vocab_size, width), heads
        self.qkv, self.head = nn.Linear(width, 3 * width), nn.Linear(width, vocab_size)

    def forward(self, input_ids):
        x = self.table(input_ids)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale={scale})
        return SimpleNamespace(loss=None, logits=self.head(y.transpose(1, 2).flatten(2)))
"""
)


@pytest.mark.parametrize(("scale", "kinds"), [("None", []), ("q.shape[-1] ** 0.5", ["scale-inverted"])])
def test_what_a_plain_object_holds_is_an_output(scale, kinds):
    report = found_in(RESULT.replace("{scale}", scale), "Model")
    assert [fault.kind for fault in report.faults] == kinds
    assert kinds or report.verdict == "sound"


LINEAR = (
    HEAD
    + """
class Linear(nn.Module):
    '''Similarities of features that are above 0, divided by their own sum.'''

    def __init__(self, dim, heads, eps=1e-6):
        super().__init__()
        self.heads, self.eps = heads, eps
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        n = x.shape[1]
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        q, k = F.elu(q) + 1, F.elu(k) + 1
        sim = torch.einsum("bhtd,bhsd->bhts", q, k) * torch.ones(n, n, dtype=x.dtype).tril()
        y = torch.einsum("bhts,bhse->bhte", sim, v) / (sim.sum(-1, keepdim=True) + self.eps)
        return self.out(y.transpose(1, 2).flatten(2))
"""
)


def test_weights_that_are_divided_by_their_own_sum_lack_no_scale():
    assert found_in(LINEAR, "Linear").faults == ()
