"""Watching a model whose parameters fully_shard holds in parts."""

from typing import Any

import pytest
import torch
from torch.distributed.fsdp import fully_shard

import headwise as hw
from tests.distributed.processes import on_processes

SCORES: dict[str, Any] = {"learned sink": hw.DotProduct(sink="learned"), "additive weight": hw.Additive(5)}


def entropies(rank: int, score: str) -> list[list[Any]]:
    """Of every layer of a model, before and after it was sharded."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(hw.MultiHeadAttention(12, 3, score=SCORES[score]) for _ in range(2)))
    for p in model.parameters():
        torch.nn.init.normal_(p)
    x, found = torch.randn(2, 7, 12), []
    for is_sharded in (False, True):
        if is_sharded:
            for layer in model:
                fully_shard(layer)
            fully_shard(model)
        with torch.no_grad(), hw.watch(model) as seen:
            model(x)
        # read after the parameters were freed
        found.append([seen[name].entropy().tolist() for name in seen])
    return found


@pytest.mark.parametrize("score", SCORES)
def test_a_map_is_read_after_fully_shard_has_freed_the_parameters(score: str) -> None:
    for ended in on_processes(2, entropies, score):
        assert ended.error is None, ended.error
        whole, sharded = ended.result
        assert len(whole) == 2
        assert sharded == whole
