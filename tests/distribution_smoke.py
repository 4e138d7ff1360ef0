"""Distribution smoke test: what an installed headwise does; run by the Python that has it, in an empty folder.

It reads nothing of the repository, and no optional package is there: `pip install headwise` alone brings all it uses.
"""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

# a class of a stranger's own, right as it stands
SOUND = """
import math
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads, self.head_dim = num_heads, embed_dim // num_heads
        self.qkv = nn.Linear(embed_dim, 3 * embed_dim)
        self.out = nn.Linear(embed_dim, embed_dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        B, L, E = x.shape
        q, k, v = self.qkv(x).view(B, L, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.head_dim)
        y = scores.softmax(dim=-1) @ v
        return self.out(y.transpose(1, 2).reshape(B, L, E))
"""
FAULTY = SOUND.replace("softmax(dim=-1)", "softmax(dim=-2)")
# what is no part of headwise's own requirements
OPTIONAL = ("matplotlib", "numpy", "onnx", "safetensors", "transformers")


def main() -> None:
    """Check the names, the layer, the masks, the maps and the commands; the first that fails ends it."""
    import headwise

    installed = Path(headwise.__file__).resolve()
    _hold(installed.is_relative_to(Path(sys.prefix).resolve()), f"headwise is not the installed one: {installed}")
    _hold(not any(Path.cwd().iterdir()), f"{Path.cwd()} must be empty")
    present = [name for name in OPTIONAL if find_spec(name)]
    _hold(not present, f"optional packages are installed: {', '.join(present)}")
    for name in dir(headwise):
        getattr(headwise, name)
    print(f"headwise {headwise.__version__}: {len(dir(headwise))} names")
    _compute()
    _run_commands()


def _compute() -> None:
    import torch

    import headwise as hw

    torch.manual_seed(0)
    layer, x, mask = hw.MultiHeadAttention(12, 6).eval(), torch.randn(2, 5, 12), hw.causal() & hw.window(keys=3)
    with torch.no_grad(), hw.watch(layer) as seen:
        y = layer(x, mask=mask)
    _hold(y.shape == x.shape and bool(y.isfinite().all()), f"the layer gives {tuple(y.shape)}")
    _hold(mask.draw(3, 3) == "#..\n##.\n###", f"the mask is drawn as\n{mask.draw(3, 3)}")
    totals = seen[""].dense().sum(-1)
    torch.testing.assert_close(totals, torch.ones_like(totals))
    print("layer, mask and map: right")


def _run_commands() -> None:
    from headwise.cli import COMMANDS

    for name in COMMANDS:
        _hold("--lang" in _headwise(name, "--help"), f"headwise {name} --help does not tell its options")
    _hold(all(name in _headwise("--help") for name in COMMANDS), "headwise --help does not list every command")
    for name, text in (("sound.py", SOUND), ("faulty.py", FAULTY)):
        Path(name).write_text(text, encoding="utf-8")
    _hold("softmax → [B, H, L, L]" in _headwise("trace", "sound.py:Attention"), "the trace does not name the axes")
    _headwise("doctor", "sound.py:Attention")
    _hold("softmax-axis" in _headwise("doctor", "faulty.py:Attention", status=1), "the doctor misses the axis")
    _headwise("steps", "sound.py:Attention", "--output", "steps.html")
    page = Path("steps.html").read_text(encoding="utf-8")
    _hold("<script" in page and "<style" in page and "src=" not in page, "the page lacks its style or its script")
    print(f"{len(COMMANDS)} commands: help; trace, doctor and steps: right")


def _headwise(*arguments: str, status: int = 0) -> str:
    """What the command prints; another status than the expected one ends the test."""
    command = [str(Path(sys.executable).with_name("headwise")), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)
    _hold(done.returncode == status, f"{' '.join(arguments)} ends with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def _hold(fact: bool, otherwise: str) -> None:
    if not fact:
        sys.exit(otherwise)


if __name__ == "__main__":
    main()
