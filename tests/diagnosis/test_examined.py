"""Ordinary classes whose call, parts or scale are said in another way are examined, and nothing right is accused."""

import json
import math
from abc import abstractmethod

import pytest
import torch
from torch import nn

import headwise
from headwise.calls import find
from headwise.diagnosis.entry_point import doctor
from headwise.diagnosis.plans.user_arguments import unbuilt


class Packed(nn.Module):
    """Channels of queries, keys and values beside one another, cast by the old name of a cast."""

    def __init__(self, n_heads):
        super().__init__()
        self.n_heads = n_heads

    def forward(self, qkv):
        batch, width, length = qkv.shape
        each = width // (3 * self.n_heads)
        q, k, v = qkv.reshape(batch * self.n_heads, 3 * each, length).split(each, dim=1)
        scores = torch.einsum("bct,bcs->bts", q, k) / each**0.5
        weights = torch.softmax(scores.float(), dim=-1).type(scores.dtype)
        return torch.einsum("bts,bcs->bct", weights, v).reshape(batch, -1, length)


class PackedUnscaled(Packed):
    def forward(self, qkv):
        batch, width, length = qkv.shape
        each = width // (3 * self.n_heads)
        q, k, v = qkv.reshape(batch * self.n_heads, 3 * each, length).split(each, dim=1)
        weights = torch.softmax(torch.einsum("bct,bcs->bts", q, k).float(), dim=-1).type(qkv.dtype)
        return torch.einsum("bts,bcs->bct", weights, v).reshape(batch, -1, length)


class Dotted(nn.Module):
    """Projections that sum over the axes they are told."""

    axis = -1

    def __init__(self, dim, heads):
        super().__init__()
        made = [nn.Parameter(torch.randn(dim, heads, dim // heads) / dim**0.5) for _ in range(3)]
        self.query, self.key, self.value = made
        self.out = nn.Parameter(torch.randn(heads, dim // heads, dim) / dim**0.5)

    def forward(self, x):
        q, k, v = (
            torch.tensordot(x, each, dims=([2], [0])).transpose(1, 2) for each in (self.query, self.key, self.value)
        )
        weights = torch.softmax(q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5, dim=self.axis)
        return torch.tensordot((weights @ v).transpose(1, 2), self.out, dims=2)


class DottedAside(Dotted):
    axis = -2


class Stretched(nn.Module):
    """A context that was stretched has a colder softmax, whatever the width of its heads is."""

    def __init__(self, dim, heads, stretch: float = 40.0):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.scale = (dim // heads) ** -0.5 * (0.1 * math.log(stretch) + 1) ** 2

    def forward(self, x):
        batch, length, dim = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-2, -1) * self.scale).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, dim))


class Numbered(Stretched):
    """The same number for heads of any width."""

    def __init__(self, dim, heads):
        super().__init__(dim, heads)
        self.scale = 0.2


class Full(nn.Module):
    """Heads behind tokens; either mask is looked at only beside the other."""

    def forward(self, queries, keys, values, q_mask=None, kv_mask=None):
        scores = torch.einsum("nlhd,nshd->nlsh", queries, keys)
        if kv_mask is not None:
            scores.masked_fill_(~(q_mask[:, :, None, None] * kv_mask[:, None, :, None]), float("-inf"))
        weights = torch.softmax(scores / queries.size(3) ** 0.5, dim=2)
        return torch.einsum("nlsh,nshd->nlhd", weights, values)


class Reopened(nn.Module):
    """What padding itself asks for is left to see all, so that it is not NaN."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x, node_mask):
        batch, length, dim = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mask = (node_mask[:, None, :, None] & node_mask[:, None, None, :]).clone()
        mask[mask.sum(-1) == 0] = True
        scores = (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).masked_fill(~mask, float("-inf"))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, dim))


class Operator(nn.Module):
    @abstractmethod
    def forward(self, q, k, v, mask=None, **kwargs):
        raise NotImplementedError


class Handed(nn.Module):
    """Who looks is handed over, and is of a kind that is made by those beneath it alone."""

    def __init__(self, operator: Operator, dim, heads):
        super().__init__()
        self.heads, self.qkv, self.out, self.operator = heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim), operator

    def forward(self, x, mask=None, **kwargs):
        batch, length, dim = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = self.operator(q, k, v, mask, **kwargs)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, dim))


class Tempered(Operator):
    def __init__(self, temperature: float):
        super().__init__()
        self.temperature = temperature

    def forward(self, q, k, v, mask=None, **kwargs):
        scores = q @ k.transpose(-2, -1) / self.temperature
        return (scores if mask is None else scores.masked_fill(mask == 0, -1e9)).softmax(-1) @ v


class Pool(nn.Module):
    """A square of tokens, with one beside it, has as many places."""

    def __init__(self, spacial_dim, embed_dim, num_heads):
        super().__init__()
        self.places = nn.Parameter(torch.randn(spacial_dim**2 + 1, embed_dim))
        self.look = nn.MultiheadAttention(embed_dim, num_heads, batch_first=True)

    def forward(self, x):
        x = x.flatten(start_dim=2).transpose(1, 2)
        x = torch.cat([x.mean(dim=1, keepdim=True), x], dim=1) + self.places
        return self.look(x, x, x, need_weights=False)[0]


class Axes(nn.Module):
    """Windows of as many axes as a number says: their places grow out of bounds."""

    def __init__(self, dim, window_size, num_heads, spatial_dim):
        super().__init__()
        sides = [torch.arange(window_size) for _ in range(spatial_dim)]
        places = torch.stack(torch.meshgrid(*sides, indexing="ij")).flatten(1)
        self.register_buffer("far", (places[:, :, None] - places[:, None, :]).abs().sum(0))
        self.heads, self.qkv, self.out = num_heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        batch, length, dim = x.shape
        assert length == len(self.far), f"{length} tokens must equal {len(self.far)} places"
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5 - self.far).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, dim))


RIGHT = (Packed, Dotted, Stretched, Full, Reopened, Handed, Pool, Axes)


@pytest.mark.parametrize("kind", RIGHT, ids=lambda each: each.__name__)
def test_an_ordinary_class_is_examined_and_sound(kind):
    found = doctor(kind)
    assert (found.verdict, [each.kind for each in found.findings if each.severity == "fault"]) == ("sound", [])


@pytest.mark.parametrize(
    ("kind", "fault"),
    [(PackedUnscaled, "scale-missing"), (DottedAside, "softmax-axis"), (Numbered, "scale-wrong")],
    ids=lambda each: getattr(each, "__name__", each),
)
def test_what_is_wrong_with_one_is_found(kind, fault):
    assert [each.kind for each in doctor(kind).findings if each.severity == "fault"] == [fault]


def test_our_own_layer_is_told_as_what_it_is():
    found = doctor(headwise.MultiHeadAttention)
    assert (found.verdict, found.examined["mask"]) == ("sound", "mask: attend")
    assert found.examined["ideal"] is True


class Strange(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.out = heads, nn.Linear(dim, dim)

    def forward(self, x, table):
        return self.out(x) + table["bias"].to_dense()


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_what_is_not_examined_says_how_to_give_it_with_what_was_tried(lang):
    (failed,) = find(Strange, namespace=globals(), work=7_500).failures
    reason = unbuilt(Strange, str(failed.error), None, None, lang, failed.plan)
    said = [json.loads(each) for each in reason.split("'") if each.startswith("{")]
    assert said[0].keys() == {"dim", "heads"}
    assert said[1] == {"x": ["B", "L", "D"], "table": said[1]["table"]}
