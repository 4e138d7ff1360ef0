"""eval() called again leaves what a module computes as it was."""

import pytest

from tests.diagnosis.kinds import TEMPLATES
from tests.diagnosis.written import faults_in_file, line_of

RIGHT = TEMPLATES["MERGED"].text
MERGES = "            elif not mode and not self.merged:\n"
ADDED = "                self.out_proj.weight += self.lora_b @ self.lora_a\n"
TAKEN = "                self.out_proj.weight -= self.lora_b @ self.lora_a\n"
BASE = "        self.n_heads, self.merged"
CALL = "        super().train(mode)\n"
FLAG = "        self.merged = not mode\n"


def changed(*changes):
    source = RIGHT
    for before, after in changes:
        assert before in source
        source = source.replace(before, after)
    return source


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ([(MERGES, "            elif not mode:\n")], "weight +="),
        # what train() leaves in is added again by the next eval()
        ([(TAKEN, "                pass\n")], "weight +="),
        ([(ADDED, ADDED.replace("weight +=", "weight.data +=")), (MERGES, "            else:\n")], "weight.data +="),
    ],
    ids=["merged twice", "never taken out", "data"],
)
def test_what_each_eval_adds_to_a_weight_is_a_fault(tmp_path, changes, part):
    source = changed(*changes)
    assert faults_in_file(tmp_path, "Attention", source) == [("mode-changes-weights", line_of(source, part))]


@pytest.mark.parametrize(
    "changes",
    [
        [],
        # a weight that is kept apart is made anew
        [
            (BASE, f'        self.register_buffer("plain", torch.randn(d_model, d_model))\n{BASE}'),
            (MERGES + ADDED, "            elif not mode:\n                self.out_proj.weight.copy_(self.plain)\n"),
            (TAKEN, "                self.out_proj.weight.copy_(self.plain)\n"),
            ("return out if self.merged else", "return"),
        ],
        # numbers drawn anew at each switch
        [
            (BASE, f'        self.register_buffer("drawn", torch.randn(d_model))\n{BASE}'),
            (CALL, f"{CALL}        self.drawn.normal_()\n"),
            ("return out if", "out = out + self.drawn\n        return out if"),
        ],
        # an average of the weights so far
        [
            (BASE, f'        self.register_buffer("ema", torch.ones(d_model))\n{BASE}'),
            (CALL, f"{CALL}        self.ema.mul_(0.9).add_(self.out_proj.bias.detach(), alpha=0.1)\n"),
            ("return out if", "out = out + self.ema\n        return out if"),
        ],
        # a schedule that goes on with each epoch
        [
            (BASE, f'        self.register_buffer("heat", torch.tensor(5.0))\n{BASE}'),
            (CALL, f"{CALL}        self.heat.mul_(0.9 if mode else 1.0)\n"),
            ("return out if", "out = out * self.heat\n        return out if"),
        ],
        # the mode of a part alone
        [(FLAG, f"{FLAG}        self.qkv_proj.eval()\n")],
    ],
    ids=["merged once", "kept apart", "drawn", "an average", "a schedule", "a part in eval mode"],
)
def test_other_switches_are_left(tmp_path, changes):
    assert faults_in_file(tmp_path, "Attention", changed(*changes)) == []
