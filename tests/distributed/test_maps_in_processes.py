"""Maps on ranks that are processes: saved once, shown, read after fully_shard, and refused where ranks ask apart."""

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

import headwise as hw
from headwise.errors import DistributedError
from headwise.maps import AttentionMap
from headwise.testing import assert_within_budget
from tests.distributed.processes import on_processes

LENGTH, MASK = 21, hw.causal() & hw.documents(torch.arange(21)[None] // 13)
READ = {
    "lse": lambda m: m.lse, "entropy": lambda m: m.entropy(), "received": lambda m: m.received(),
    "pooled": lambda m: m.pooled(5, 4), "row": lambda m: m[1, 2, 20], "largest": lambda m: m.topk(3)[0],
}  # fmt: skip


class Stack(nn.Module):
    """Two layers, the heads of one of which have sinks."""

    def __init__(self) -> None:
        super().__init__()
        scores = (hw.DotProduct(sink="learned"), hw.DotProduct())
        self.layers = nn.ModuleList(
            hw.MultiHeadAttention(12, 4, num_kv_heads=2, head_dim=6, position=hw.Rotary(), score=score)
            for score in scores
        )

    def forward(self, x: torch.Tensor, **given: Any) -> torch.Tensor:
        for layer in self.layers:
            x = x + layer(x, mask=MASK, **given)
        return x


def _built() -> tuple[Stack, torch.Tensor]:
    torch.manual_seed(2)
    model = Stack()
    for p in model.parameters():
        nn.init.normal_(p, std=0.4)
    return model, torch.randn(2, LENGTH, 12)


def _sharded(rank: int, folder: str) -> dict[str, Any]:
    model, x = _built()
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    held = hw.distributed.spread(LENGTH, dist.group.WORLD, mask=MASK, layout="zigzag")
    with torch.no_grad(), hw.watch(model) as seen:
        model(held.local(x), spread=held)
    found = {f"{name} {what}": read(m).tolist() for name, m in seen.items() for what, read in READ.items()}
    seen.save(f"{folder}/maps.safetensors", tokens=[f"t{n}" for n in range(LENGTH)])
    # the file is there on every rank
    is_there = Path(f"{folder}/maps.safetensors").exists()
    seen["layers.1"].save(f"{folder}/one.safetensors")
    page = hw.look(seen, output=f"{folder}/maps.html")
    try:
        seen.save(f"{folder}/none/maps.safetensors")
        error = ""
    except Exception as came:  # noqa: BLE001  # each rank has its own
        error = f"{type(came).__name__}: {came}"
    try:
        seen["layers.0"].entropy() if rank else seen["layers.0"].pooled(2, 3)
        seen["layers.0"].pooled(2, 2)
    except DistributedError as came:
        apart = str(came)
    return {"found": found, "is_there": is_there, "page": page.title,  "error": error,
            "apart": apart}  # fmt: skip


def test_ranks_of_a_sharded_model_read_save_and_show_one_set_of_maps(tmp_path: Path) -> None:
    ends = on_processes(2, _sharded, str(tmp_path))
    assert [ended.error for ended in ends] == [None, None]
    first, second = (ended.result for ended in ends)
    assert first["found"] == second["found"]
    assert (first["is_there"], second["is_there"]) == (True, True)
    model, x = _built()
    with torch.no_grad(), hw.watch(model) as plain:
        model(x)
    with torch.no_grad(), hw.watch(model.double()) as exact:
        model(x.double())
    loaded = hw.load_maps(tmp_path / "maps.safetensors")
    assert list(loaded) == list(plain) == ["layers.0", "layers.1"]
    for name, m in loaded.items():
        assert repr(m).startswith(f"AttentionMap((2, 4, {LENGTH}, {LENGTH}), float32, cpu, mask=causal() & documents(")
        assert m.check() < 1e-5
        for what, read in READ.items():
            assert_within_budget(read(m), read(exact[name]), read(plain[name]))
            assert_within_budget(torch.tensor(first["found"][f"{name} {what}"]), read(exact[name]), read(plain[name]))
    assert torch.equal(AttentionMap.load(tmp_path / "one.safetensors").dense(), loaded["layers.1"].dense())
    assert len((tmp_path / "maps.html").read_text()) > 10_000
    assert first["error"].startswith("Refusal: The output must go to a folder that exists")
    assert second["error"].startswith("DistributedError: the first rank must write ")
    for rank, each in enumerate((first, second)):
        assert f"rank 1 made another than rank 0, and this rank {rank} asked for " in each["apart"]
