"""Every script in examples/ runs and prints what it promises."""

import re

import pytest

from tests.example_scripts.running import EXAMPLES, run_script

# each script, and patterns of what it prints
PROMISED = {
    "first_attention.py": (
        r"^the shape is right: \(2, 5, 12\)\n",
        r"\nline 27: merge-without-transpose: .*\.reshape\(query\.shape\)\n$",
    ),
    "maps.py": (
        r"^watched: the output differs by 0; 2 maps: layers.0.self_attn, layers.1.self_attn\n",
        r"\nAttentionMap\(\(2, 4, 10, 10\), float32, cpu, lse known\): query 3 of head 0 looks most at keys \[\d, ",
        r"\ntoken 3 of the last layer comes from token 3 most of all\n",
        r"\nentropy 5\.\d\d of at most 6\.24, a picture \(1, 8, 64, 64\)\n",
        r"\nrefused: the result \(1, 8, 8192, 8192\) must fit in max_bytes=1073741824.*2147483648 bytes",
        r"\nentropy of the heads, trained down: 2\.\d\d -> 0\.\d\d\n$",
    ),
    "huggingface.py": (
        r"^2 sentences, one padded: largest difference from eager \de-0[67]\n",
        r"\nmaps of 6 layers; in the last, 'tired' looks most at '.+'\n",
        r"\ngenerated \(2, 16\): the same tokens as eager\n$",
    ),
    "masks.py": (
        r"^causal\(\)\n#\.{5}\n##\.{4}\n#{3}\.{3}\n#{4}\.{2}\n#{5}\.\n#{6}\n\n",
        r"\nwindow\(before=1, after=1\)\n##\.{4}\n###\.{3}\n\.###\.{2}\n",
        r"\ncausal\(\) \| prefix\(n=3\)\n(###\.{3}\n){3}####\.\.\n",
        r"\nrule\(.*\)\n#\.#\.#\.\n\.#\.#\.#\n",
        r"\n#{5}\.\n#{6}\n\nlengths\(n=torch\.tensor\(\[4, 2\]\)\)\n####\n\n##\.\.\n\n",
        r"\n\.\.\.\.\n\.\.\.\.\n\.\.#\.\n\.\.##\n",
        r"\npadded and alone: largest difference (0|\de-0[78])\n$",
    ),
    "causes.py": (
        r'^"it" is nearer to "animal" than to "street" by 0\.41\nwith the edge cut in all 72 heads: by 0\.04\n',
        # the head of the largest weight has a third of the effect of the second
        r"\nL5H11 +-0\.161 +0\.67 +2\nL3H1 +-0\.052 +0\.68 +1\nL5H10 +-0\.036 +0\.15 +9\n",
        r"\nrelevance: animal \d+%, tired \d+%, \w+ \d+%\n$",
    ),
    "induction.py": (
        r"^400 steps, \d+ s; tokens that repeat: loss 0\.\d\d, by chance 3\.66\n",
        r"\nlayers\.0 +\d +previous +0\.[5-9]\d",
        r"\nlayers\.1 +\d +induction +0\.[7-9]\d",
        r"\nwithout the [1-4] induction heads: loss 0\.\d\d -> [3-9]\.\d\d\n",
        r"\nwithout the [1-4] previous-token heads: loss 0\.\d\d -> [2-9]\.\d\d\n",
        r"\nwithout the [1-6] other heads: loss 0\.\d\d -> [01]\.\d\d\n$",
    ),
    "quickstart.py": (
        r"^self-attention: \(2, 7, 512\) -> \(2, 7, 512\)\n",
        r"\nKVCache\(growing, seen=7\): largest difference (0|\de-0[78])\n",
        r"\ncross-attention: \(2, 7, 512\) -> \(2, 7, 512\), then \(2, 7, 512\)\n",
        r"\nfunction: \(2, 8, 7, 64\), computed by:\nblockwise .*\nsdpa +runs.*\n",
    ),
}


@pytest.mark.parametrize("script", PROMISED)
def test_an_example_prints_what_it_promises(script):
    done = run_script(script)
    assert (done.returncode, done.stderr) == (0, "")
    assert [pattern for pattern in PROMISED[script] if not re.search(pattern, done.stdout)] == []


def test_every_example_is_run_and_listed():
    scripts = {file.name for file in EXAMPLES.glob("*.py")}
    # those that have tests of their own
    of_ranks = {"dates_spread.py", "long_document.py"}
    assert scripts == {*PROMISED, "dates.py", *of_ranks}
    readme = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert {script for script in scripts - of_ranks if f"python examples/{script}" not in readme} == set()
    assert {script for script in of_ranks if f"torchrun --nproc-per-node 4 examples/{script}" not in readme} == set()
