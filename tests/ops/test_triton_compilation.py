"""Every Triton kernel compiles for a device, which takes no device; interpreted kernels are not typed."""

import pytest

from tests.fresh import run_fresh

COMPILE = """
import os
os.environ["TRITON_INTERPRET"] = "0"
os.environ["TRITON_CACHE_DIR"] = {folder!r}
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from headwise.ops.triton_kernels import additive, lse_statistics, statistics

TYPES = dict.fromkeys(("q", "k", "v", "gradient", "out_to"), "*bf16")
TYPES |= dict.fromkeys(("tiles", "places", "counts"), "*i32")
TYPES |= dict.fromkeys(("factor", "softcap", "resolved", "misfit"), "fp32")
TYPES |= {{"entries": "*i1"}}
SIZES = ("groups", "Hq", "Lq", "Lk", "D", "Dv", "parts")


def compile_kernel(kernel, **constants):
    def type_of(name):
        if name in constants:
            return "constexpr"
        is_number = name in SIZES or name.endswith(("_sample", "_head", "_row", "_column", "_feature", "_run", "_next"))
        return TYPES.get(name, "i32" if is_number else "*fp32")

    constants = {{name: value for name, value in constants.items() if name in kernel.arg_names}}
    source = ASTSource(fn=kernel, signature={{n: type_of(n) for n in kernel.arg_names}}, constexprs=constants)
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32))
    print(kernel.__name__, "cubin" in compiled.asm)


rules = dict(ADDITIVE=False, HAS_BIAS=True, HAS_CAP=False, HAS_SINK=True, BLOCK=16, WIDTH=16, WIDEN=False)
compile_kernel(statistics._row_kernel, HELD="q", **rules)
compile_kernel(statistics._column_kernel, HELD="k", **rules)
compile_kernel(lse_statistics._kernel, HELD="q", **rules)
for kernel in (additive._forward_kernel, additive._row_kernel, additive._column_kernel):
    compile_kernel(kernel, BLOCK=16, WIDTH=16, V_WIDTH=16, WIDEN=False)
"""


@pytest.mark.needs("triton")
def test_every_kernel_compiles_for_a_device(tmp_path):
    printed = run_fresh(COMPILE.format(folder=str(tmp_path)))
    names = ("_row_kernel", "_column_kernel", "_kernel", "_forward_kernel", "_row_kernel", "_column_kernel")
    assert printed.splitlines() == [f"{name} True" for name in names]
