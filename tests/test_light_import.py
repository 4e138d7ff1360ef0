"""What is optional stays optional, and what is slow to import is imported when it is used."""

from pathlib import Path

import pytest

from tests.fresh import run_fresh

# numpy too: torch itself does without
OPTIONAL = (
    *("triton", "matplotlib", "transformers", "safetensors", "tokenizers", "huggingface_hub"),
    *("jax", "keras", "tensorflow", "onnx", "onnxruntime", "onnxscript", "numpy", "hypothesis", "pytest"),
)

CORE = """
import warnings
warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
import torch
import headwise as hw

torch.manual_seed(0)
q, k, v = torch.randn(2, 6, 5, 11), torch.randn(2, 3, 7, 11), torch.randn(2, 3, 7, 13)
mask = hw.causal() & hw.window(keys=3) & hw.lengths(torch.tensor([7, 6]))
plain = hw.attention(q, k, v, mask=mask, backend="reference")
print(tuple(plain.shape), bool(plain.isfinite().all()))
torch.testing.assert_close(hw.attention(q, k, v, mask=mask), plain)

layer = hw.MultiHeadAttention(12, 6, num_kv_heads=3, position=hw.Rotary()).eval()
x = torch.randn(2, 5, 12)
print(tuple(layer(x, mask=hw.causal()).shape))
"""


def test_a_blocked_module_cannot_be_imported():
    with pytest.raises(RuntimeError, match=r"No module named 'matplotlib' \(blocked by the test\)"):
        run_fresh("import matplotlib.pyplot", without=OPTIONAL)


def test_reference_masks_and_layer_work_without_any_optional_package():
    assert run_fresh(CORE, without=OPTIONAL) == "(2, 6, 5, 13) True\n(2, 5, 12)\n"


HEAVY = ("torch", "numpy", "transformers", "matplotlib", "onnx")
LOADED = f"\nimport sys\nprint([name for name in {HEAVY!r} if name in sys.modules])"


def test_the_heavy_modules_are_seen_once_they_are_loaded():
    assert run_fresh("import headwise as hw\nhw.attention" + LOADED).startswith("['torch'")


@pytest.mark.parametrize(
    "source",
    ["import headwise", "import headwise\ndir(headwise)", "import headwise.cli", "import headwise.atomic_write"],
)
def test_importing_the_package_or_its_command_line_does_not_import_torch(source):
    assert run_fresh(source + LOADED) == "[]\n"


def test_help_is_printed_without_importing_torch():
    command = """
import sys
from headwise.cli import main
sys.argv = ["headwise", "--help"]
try:
    main()
except SystemExit as end:
    print("status", end.code)
"""
    printed = run_fresh(command + LOADED)
    assert "look" in printed
    assert printed.endswith("status 0\n[]\n")


READINGS = """
import torch
import headwise as hw

q, k, v = torch.randn(2, 6, 5, 11), torch.randn(2, 3, 7, 11), torch.randn(2, 3, 7, 13)
m = hw.attention_map(q, k, mask=hw.causal() & hw.rule(lambda b, h, i, j: i - j < 3))
m[0, 1, 3], m[0, torch.tensor([0, 1]), 2], m.entropy(), m.topk(2), m.pooled(2, 2), m.dense()
hw.attention(q, k, v, mask=hw.window(keys=2), backend="blockwise")
import sys
print("sympy" in sys.modules)
"""


def test_attention_and_the_readings_of_a_map_do_not_wait_for_sympy():
    assert run_fresh(READINGS) == "False\n"


EXAMINED = """
import sys
from headwise.diagnosis.child import answer as diagnosis
from headwise.tracing.child import answer as trace

for answer in (diagnosis, trace):
    answer({"target": "TARGET"})
print("sympy" in sys.modules)
"""


def test_a_diagnosis_and_a_trace_do_not_wait_for_sympy():
    target = Path(__file__).parent.parent / "examples" / "first_attention.py"
    assert run_fresh(EXAMINED.replace("TARGET", f"{target}:FirstAttention")) == "False\n"
