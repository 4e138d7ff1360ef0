"""What has been taken for a fault because of a number, a flag, a name or a size whose meaning nobody had said."""

from math import log

import torch
from torch import nn

from tests.diagnosis.correct.strangers import Split


def enlarged(table, width):
    # times sqrt(width), as Vaswani does: of embeddings, and no word of scores
    return table * width**0.5


class Gist(Split):
    """Once there are tokens of a number among them, these alone are seen."""

    def __init__(self, vocab_size, dim, heads, gist_id=1):
        super().__init__(dim, heads)
        self.gist_id, self.embed = gist_id, nn.Embedding(vocab_size, dim)

    def forward(self, ids):
        x = self.embed(ids)
        q, k, v = self.sides(x, x)
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        chosen = ids == self.gist_id
        others = ~chosen & chosen.any(dim=1, keepdim=True)
        return self.merge(scores.masked_fill(others[:, None, None], float("-inf")).softmax(-1) @ v)


class Items(Split):
    """What is no item has no features, so that it looks at all alike; it is seen all the same."""

    def __init__(self, vocab_size, dim, heads):
        super().__init__(dim, heads)
        self.embed = nn.Embedding(vocab_size, dim, padding_idx=0)
        self.q = nn.Linear(dim, dim, bias=False)

    def forward(self, ids):
        x = self.embed(ids) * (ids != 0).unsqueeze(-1)
        q, k, v = self.sides(x, x)
        return self.merge((q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(-1) @ v)


class ByTheWidth(Split):
    """Scores are divided by the width of a head; what is drawn for the output is so by a root."""

    def __init__(self, dim, heads):
        super().__init__(dim, heads)
        nn.init.normal_(self.o.weight, std=(2 * dim) ** -0.5)  # 1/sqrt(2D)

    def forward(self, x):
        q, k, v = self.sides(x, x)
        return self.merge((q @ k.transpose(-2, -1) / q.shape[-1]).softmax(-1) @ v)


class OverQueries(Split):
    """A flag by which each key shares itself out among the queries."""

    def __init__(self, dim, heads, over_queries=False):
        super().__init__(dim, heads)
        self.over_queries = over_queries

    def forward(self, x):
        q, k, v = self.sides(x, x)
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        return self.merge(scores.softmax(-2 if self.over_queries else -1) @ v)


class LookAhead(Split):
    """A flag by which a token sees those after it, as the other half of a net that reads both ways."""

    def forward(self, x, look_ahead=False):
        q, k, v = self.sides(x, x)
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        if look_ahead:
            before = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril(-1)
            scores = scores.masked_fill(before, float("-inf"))
        return self.merge(scores.softmax(-1) @ v)


class BiasOfTheStack(Split):
    """Scores without a scale and projections without a bias, as in T5; who calls it makes the bias of buckets."""

    def __init__(self, dim, heads):
        super().__init__(dim, heads)
        self.q, self.k = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)

    def forward(self, x, bias):
        q, k, v = self.sides(x, x)
        return self.merge((q @ k.transpose(-2, -1) + bias).softmax(-1) @ v)


class WarmedUp(Split):
    """Who trains it raises a number from 0 to 1."""

    def __init__(self, dim, heads):
        super().__init__(dim, heads)
        self.register_buffer("progress", torch.zeros(()))

    def forward(self, x):
        q, k, v = self.sides(x, x)
        return self.merge((q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5 * self.progress).softmax(-1) @ v)


class WidthsOfAll(nn.Module):
    """The width of one head and that of all are two arguments, which no name ties to that of the model."""

    def __init__(self, hidden, num_heads, head_dim, all_head_size):
        super().__init__()
        self.num_heads, self.head_dim, self.all_head_size = num_heads, head_dim, all_head_size
        self.q, self.k, self.v = (nn.Linear(hidden, all_head_size) for _ in range(3))

    def split(self, x):
        return x.view(*x.shape[:-1], self.num_heads, self.head_dim).transpose(1, 2)

    def forward(self, x):
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        context = (q @ k.transpose(-2, -1) / self.head_dim**0.5).softmax(-1) @ v
        return context.transpose(1, 2).reshape(*x.shape[:-1], self.all_head_size)


class SharperWhereLonger(Split):
    """More tokens are told apart by larger scores."""

    def forward(self, x):
        q, k, v = self.sides(x, x)
        return self.merge((q @ k.transpose(-2, -1) * log(x.shape[1], 512) / q.shape[-1] ** 0.5).softmax(-1) @ v)


class SofterWhereDeeper(Split):
    """Scores are divided by the place of the layer, too."""

    def __init__(self, dim, heads, layer_idx=2):
        super().__init__(dim, heads)
        self.layer_idx = layer_idx

    def forward(self, x):
        q, k, v = self.sides(x, x)
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        return self.merge((scores / (self.layer_idx + 1)).softmax(-1) @ v)


class ByMode(Split):
    """A word of the constructor says what is looked at."""

    def __init__(self, dim, heads, mode="own"):
        super().__init__(dim, heads)
        self.mode = mode

    def forward(self, x, context):
        q, k, v = self.sides(x, {"own": x, "other": context}[self.mode])
        return self.merge((q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(-1) @ v)


class ByTemperature(Split):
    """Who calls it may say by how much scores are softened."""

    def forward(self, x, temperature=2.0):
        q, k, v = self.sides(x, x)
        return self.merge((q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5 / temperature).softmax(-1) @ v)


class KeysOfATeacher(Split):
    """Keys are made by weights that do not learn, and nothing flows back through them."""

    def __init__(self, dim, heads):
        super().__init__(dim, heads)
        self.k.requires_grad_(False)

    def forward(self, x):
        with torch.no_grad():
            k = self.split(self.k(x))
        q, v = self.split(self.q(x)), self.split(self.v(x))
        return self.merge((q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(-1) @ v)


class NewestFirst(Split):
    """Tokens stand from the newest to the oldest, unless a flag says that they do not."""

    def __init__(self, dim, heads, newest_first=True):
        super().__init__(dim, heads)
        self.newest_first = newest_first

    def forward(self, x):
        q, k, v = self.sides(x, x)
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        square = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool)
        newer = square.tril(-1) if self.newest_first else square.triu(1)
        return self.merge(scores.masked_fill(newer, float("-inf")).softmax(-1) @ v)


class OneAhead(Split):
    """A number says how many later tokens are waited for, as where speech is written down while it is heard."""

    def __init__(self, dim, heads, waits=1):
        super().__init__(dim, heads)
        self.waits = waits

    def forward(self, x):
        q, k, v = self.sides(x, x)
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1 + self.waits)
        return self.merge(scores.masked_fill(later, float("-inf")).softmax(-1) @ v)
