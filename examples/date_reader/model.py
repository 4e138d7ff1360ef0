"""DateReader: an encoder-decoder that reads a date and writes it as ISO 8601, its attention by headwise."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import headwise as hw

PAD = 0
ISO_SIGNS = "0123456789-"
START = len(ISO_SIGNS)
ISO_LENGTH = len("2026-11-20")


class DateReader(nn.Module):
    """Reads texts made of `alphabet`, writes dates. E features a sign, `heads` heads, one layer on either side."""

    def __init__(self, alphabet: str, *, E: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.ids = {sign: n for n, sign in enumerate(alphabet, start=PAD + 1)}
        self.embed_text = nn.Embedding(len(self.ids) + 1, E)
        self.embed_date = nn.Embedding(len(ISO_SIGNS) + 1, E)
        for embedding in (self.embed_text, self.embed_date):
            nn.init.normal_(embedding.weight, std=0.3)
        self.encoder = EncoderLayer(E, heads)
        self.decoder = DecoderLayer(E, heads)
        self.norm_text, self.norm_date = nn.LayerNorm(E), nn.LayerNorm(E)
        self.choose = nn.Linear(E, len(ISO_SIGNS))

    def encode(self, texts: list[str]) -> Tensor:
        """The signs of texts as numbers (B, L), padded on the right."""
        L = max(map(len, texts))
        return torch.tensor([[self.ids[sign] for sign in text] + [PAD] * (L - len(text)) for text in texts])

    def read(self, signs: Tensor, spread: hw.distributed.Spread | None = None) -> hw.Memory:
        """What the decoder is to look at, from signs (B, L); it is projected here, once, for all steps.

        spread: of the L signs over ranks, each of which works on its own; None: one process.
        """
        is_real = hw.keys(signs != PAD)
        if spread is None:
            x = self.norm_text(self.encoder(self.embed_text(signs), is_real))
        else:
            x = self.norm_text(self.encoder(self.embed_text(spread.local(signs)), is_real, spread))
            # each rank's signs of the date look at the whole text, for a part of the loss
            x = spread.whole(x, loss="parts")
        return self.decoder.cross.memory(x, mask=is_real)

    def write(
        self,
        date: Tensor,
        memory: hw.Memory,
        cache: hw.KVCache | None = None,
        spread: hw.distributed.Spread | None = None,
    ) -> Tensor:
        """The scores of the next sign (B, L, 11) after each sign of date (B, L).

        cache: holds the signs before `date`, None: there are none. spread: of the L signs over ranks, each of which
        gives the scores after its own; None: one process.
        """
        mine = date if spread is None else spread.local(date)
        return self.choose(self.norm_date(self.decoder(self.embed_date(mine), memory, cache, spread)))


class EncoderLayer(nn.Module):
    """Each sign looks at all signs of its text, then is worked on alone. x (B, L, E) -> (B, L, E)."""

    def __init__(self, E: int, heads: int) -> None:
        super().__init__()
        self.attn = hw.MultiHeadAttention(E, heads, position=hw.Rotary(base=100.0))
        self.think = two_layers(E)
        self.norms = nn.ModuleList(nn.LayerNorm(E) for _ in range(2))

    def forward(self, x: Tensor, is_real: hw.Mask, spread: hw.distributed.Spread | None = None) -> Tensor:
        x = x + self.attn(self.norms[0](x), mask=is_real, spread=spread)
        return x + self.think(self.norms[1](x))


class DecoderLayer(nn.Module):
    """Each sign looks at itself and those before it, then at the text, then is worked on alone. (B, L, E) -> same."""

    def __init__(self, E: int, heads: int) -> None:
        super().__init__()
        self.attn = hw.MultiHeadAttention(E, heads, position=hw.Rotary(base=100.0))
        self.cross = hw.MultiHeadAttention(E, heads)
        self.think = two_layers(E)
        self.norms = nn.ModuleList(nn.LayerNorm(E) for _ in range(3))

    def forward(
        self,
        x: Tensor,
        memory: hw.Memory,
        cache: hw.KVCache | None,
        spread: hw.distributed.Spread | None = None,
    ) -> Tensor:
        x = x + self.attn(self.norms[0](x), mask=hw.causal(), cache=cache, spread=spread)
        x = x + self.cross(self.norms[1](x), memory)
        return x + self.think(self.norms[2](x))


def two_layers(E: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(E, 2 * E), nn.GELU(), nn.Linear(2 * E, E))


def iso_ids(dates: list[str]) -> Tensor:
    """Dates as numbers (B, 1 + 10), the first of them START."""
    return torch.tensor([[START, *map(ISO_SIGNS.index, date)] for date in dates])


@torch.inference_mode()
def read_dates(model: DateReader, texts: list[str], *, is_cached: bool = True) -> list[str]:
    """The date in each text, written sign by sign, at each step the likeliest one.

    is_cached: each step looks at the new sign only; without a cache it goes over all signs so far again.
    """
    memory = model.read(model.encode(texts))
    cache = model.decoder.attn.cache() if is_cached else None
    date = torch.full((len(texts), 1), START)
    for _ in range(ISO_LENGTH):
        scores = model.write(date[:, -1:] if is_cached else date, memory, cache)
        date = torch.cat([date, scores[:, -1:].argmax(-1)], dim=1)
    return ["".join(ISO_SIGNS[n] for n in row) for row in date[:, 1:].tolist()]
