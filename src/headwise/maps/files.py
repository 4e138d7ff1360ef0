"""Files: maps written to one safetensors file, and read back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike
from types import MappingProxyType

from headwise.errors import ArgumentError
from headwise.maps.archive import Archive, Tokens, as_lists
from headwise.maps.map import AttentionMap
from headwise.maps.name_lookup import NoMapError, ambiguous, holding, listed
from headwise.maps.shared_file import write_once


class LoadedMaps(Mapping[str, AttentionMap]):
    """The maps of a file by their names, and their tokens: texts, or a list of texts to each sample, or None.

    It is read as what `watch` gives; of several calls of one module, the maps are name[0], name[1], ...
    """

    def __init__(
        self, maps: Mapping[str, AttentionMap], tokens: Tokens, unseen: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self._maps, self.tokens, self._unseen = dict(maps), tokens, dict(unseen)
        self._maps_read: dict[str, AttentionMap] = {}

    @property
    def unseen(self) -> Mapping[str, str]:
        """What could not be watched when the maps were made: name -> the reason."""
        return MappingProxyType(self._unseen)

    def find(self, part: str) -> AttentionMap:
        """The one map whose name holds `part`, by whole dotted parts: "layer.3" is not in "layer.31"."""
        names = holding(self, part)
        if len(names) > 1:
            raise ambiguous(part, names)
        return self[names[0] if names else part]

    def in_order(self) -> list[tuple[str, AttentionMap]]:
        """Name and map of every call, in the order in which they were saved: of `seen.save`, that of running."""
        return list(self._maps.items())

    def kept(self, name: str, make: Callable[[], AttentionMap]) -> AttentionMap:
        """What `make` gives, a map made of those of this file, kept under a name so that what it computes is too."""
        if name not in self._maps_read:
            self._maps_read[name] = make()
        return self._maps_read[name]

    def __getitem__(self, name: str) -> AttentionMap:
        if name not in self._maps:
            raise NoMapError(f'no map was saved under "{name}"; saved: {listed(self) or "nothing"}')
        return self._maps[name]

    def __contains__(self, name: object) -> bool:
        return name in self._maps

    def __iter__(self) -> Iterator[str]:
        return iter(self._maps)

    def __len__(self) -> int:
        return len(self._maps)

    def __repr__(self) -> str:
        return f"LoadedMaps({len(self)} maps: {listed(self)})"


def save_maps(
    path: str | PathLike[str],
    maps: Mapping[str, AttentionMap],
    *,
    tokens: Sequence[str] | Sequence[Sequence[str]] | None = None,
    unseen: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Write maps by their names, as safetensors: what they are computed from, and their lse where it is known.

    A tensor that maps share is written once; a mask that asks a function is written as it answers, up to 1 GiB. The
    file appears whole or not at all. tokens: texts, or a list of texts to each sample; None: none.
    unseen: what could not be watched, name -> the reason, which belongs to what the maps tell. Of maps that ranks share
    the file holds the whole ones: every rank must call it, and the first of those that share them writes.

    >>> import tempfile, torch
    >>> from headwise.maps import attention_map, load_maps
    >>> m = attention_map(torch.randn(1, 2, 3, 8), torch.randn(1, 2, 3, 8))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_maps(f"{folder}/maps.safetensors", {"first": m}, tokens=["a", "b", "c"])
    ...     again = load_maps(f"{folder}/maps.safetensors")
    >>> bool((again["first"][:] == m[:]).all()), again.tokens
    (True, ['a', 'b', 'c'])
    """
    for name, m in maps.items():
        if not isinstance(m, AttentionMap):
            raise ArgumentError(
                f"only an AttentionMap can be saved, but {name!r} is {type(m).__name__}: save its source"
            )
    archive = Archive({name: m.stored() for name, m in maps.items()}, as_lists(tokens), unseen)
    write_once(maps.values(), lambda: archive.write(path), str(path))


def load_maps(path: str | PathLike[str]) -> LoadedMaps:
    """The maps of a file that `save_maps` wrote, on the CPU, by their names; `.tokens` are its tokens.

    Nothing is allocated before the header is known to fit the file; InputError, in one sentence, where it does not.

    >>> import tempfile, torch, headwise as hw
    >>> attn = hw.MultiHeadAttention(8, 2)
    >>> with hw.watch(attn) as seen, tempfile.TemporaryDirectory() as folder:
    ...     _ = attn(torch.randn(1, 3, 8), mask=hw.causal())
    ...     seen.save(f"{folder}/maps.safetensors", tokens=["a", "b", "c"])
    ...     maps = hw.load_maps(f"{folder}/maps.safetensors")
    >>> maps[""], maps.tokens
    (AttentionMap((1, 2, 3, 3), float32, cpu, mask=causal(), lse known), ['a', 'b', 'c'])
    """
    archive = Archive.read(path)
    return LoadedMaps({name: AttentionMap(*pair) for name, pair in archive.items()}, archive.tokens, archive.unseen)
