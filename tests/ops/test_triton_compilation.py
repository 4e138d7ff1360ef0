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
from headwise.ops.triton_kernels import additive, statistics

TYPES = dict.fromkeys(("q", "k", "v", "gradient", "out_to"), "*bf16")
TYPES |= dict.fromkeys(("tiles", "places", "counts"), "*i32")
TYPES |= dict.fromkeys(("factor", "softcap"), "fp32")
TYPES |= {{"entries": "*i1"}}
SIZES = ("groups", "Hq", "Lq", "Lk", "D", "Dv")


def compile_kernel(kernel, **constants):
    def type_of(name):
        if name in constants:
            return "constexpr"
        is_number = name in SIZES or name.endswith(("_sample", "_head", "_row", "_column", "_feature", "_run", "_next"))
        return TYPES.get(name, "i32" if is_number else "*fp32")

    # as for a call of sizes that 16 divides: what triton knows of them changes what it makes
    known = {{name: 1 for name in kernel.arg_names if name == "groups" or name.endswith(("_feature", "_next"))}}
    constants = {{name: value for name, value in (known | constants).items() if name in kernel.arg_names}}
    signature = {{name: type_of(name) for name in kernel.arg_names}}
    whole = [n for n, of in enumerate(signature.values()) if of not in ("constexpr", "fp32")]
    divided = {{(n,): [["tt.divisibility", 16]] for n in whole}}
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=divided)
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32))
    print(kernel.__name__, "cubin" in compiled.asm)


rules = dict(ADDITIVE=False, HAS_BIAS=True, HAS_CAP=False, HAS_SINK=True, WIDEN=False)
rules |= dict(BLOCK=statistics.BLOCK, WIDTH=64)
compile_kernel(statistics._row_kernel, HELD="q", **rules)
compile_kernel(statistics._column_kernel, HELD="k", **rules)
for kernel in (additive._forward_kernel, additive._row_kernel, additive._column_kernel):
    compile_kernel(kernel, BLOCK=additive.BLOCK, WIDTH=64, V_WIDTH=64, WIDEN=False)
"""


@pytest.mark.needs("triton")
def test_every_kernel_compiles_for_a_device(tmp_path):
    printed = run_fresh(COMPILE.format(folder=str(tmp_path)))
    names = ("_row_kernel", "_column_kernel", "_forward_kernel", "_row_kernel", "_column_kernel")
    assert printed.splitlines() == [f"{name} True" for name in names]
