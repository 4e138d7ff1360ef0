"""A module is asked as its forward is written, whatever it calls its arguments, and is left as it was."""

import copy
import pickle

import pytest
import torch
from torch import nn

import headwise as hw
from headwise.compat.conversion.module_call import twin_of
from headwise.compat.conversion.source import UntoldError
from headwise.errors import ConversionError
from headwise.wording import Sentence
from tests.compat.conversion.own_classes import BookMultiHeadAttention, FirstNote, MultiHeadedAttention, SecondNote
from tests.compat.conversion.sources import drawn

SELF = {"self", "self, causal", "self, padding", "self, causal and padding"}


class Keeping(MultiHeadedAttention):
    """Keeps something of its last call, as the Annotated Transformer keeps its weights."""

    def forward(self, query, key, value, mask=None):
        self.kept = {"last": [super().forward(query, key, value, mask)]}
        return self.kept["last"][0]


class ShortWords(BookMultiHeadAttention):
    def forward(self, q, k, v, vl):
        return super().forward(q, k, v, vl)


class StrangeWord(BookMultiHeadAttention):
    def forward(self, a, b, c, who):
        return super().forward(a, b, c, who)


class OneInputAndMask(SecondNote):
    def forward(self, x, mask=None):
        q, k, v = (p(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for p in (self.W_q, self.W_k, self.W_v))
        return self.W_o(hw.attention(q, k, v, mask=mask).transpose(1, 2).flatten(2))


class MaskByName(FirstNote):
    def forward(self, x, y, z, *, attn_mask=None):
        return super().forward(x, y, z, attn_mask)


class Folded(SecondNote):
    """Gives (L, B, E) for (B, L, E)."""

    def forward(self, X):
        return super().forward(X).transpose(0, 1)


def asked(module):
    report = hw.compat.convert(drawn(module)).report
    assert (report.proved, report.against) == (True, "the module")
    return {check.question for check in report.checks}, report.notes


def test_a_module_that_has_run_with_gradients_is_converted_and_left_as_it_was():
    module = drawn(Keeping(2, 8))
    out = module(*(torch.randn(2, 3, 8) for _ in range(3)))
    with pytest.raises(RuntimeError, match="deepcopy"):
        copy.deepcopy(module)
    assert hw.compat.convert(module).report.against == "the module"
    assert module.kept["last"][0] is out
    twin = twin_of(module)
    assert torch.equal(twin.kept["last"][0], out)
    assert twin.kept["last"][0].grad_fn is None
    assert twin.kept["last"][0].data_ptr() != out.data_ptr()
    assert twin.linears[0].weight.requires_grad


def test_arguments_are_known_by_their_place():
    widths = (8, 6, 4, 10, 2)
    cross = {"cross, S != L", "cross, S != L, padding"}
    assert asked(ShortWords(*widths))[0] == cross
    assert asked(ShortWords(8, 8, 8, 8, 2))[0] >= cross | {"self", "self, padding"}
    assert asked(MaskByName(12, 3))[0] == SELF | cross
    assert asked(OneInputAndMask(12, 3))[0] == SELF


def test_what_hides_keys_under_an_unknown_name_is_left_out_and_the_report_says_so():
    questions, notes = asked(StrangeWord(8, 8, 8, 8, 2))
    assert questions == {"self", "cross, S != L"}
    assert "the module was compared without masks only" in notes[-1]
    assert not any("without masks" in note for note in asked(ShortWords(8, 8, 8, 8, 2))[1])


def test_an_answer_of_another_shape_is_no_answer():
    with pytest.raises(ConversionError, match=r"forward\(X\) answers self with \(23, 2, 12\)"):
        hw.compat.convert(drawn(Folded(12, 3)))


def test_what_is_untold_can_be_copied_and_pickled():
    with pytest.raises(UntoldError) as raised:
        hw.compat.convert(nn.MultiheadAttention(12, 3).state_dict())
    again = pickle.loads(pickle.dumps(raised.value))
    assert (str(again), again.key, again.values) == (str(raised.value), raised.value.key, raised.value.values)
    sentence = Sentence("convert.note.eps", eps="1e-06")
    for twin in (copy.deepcopy(sentence), pickle.loads(pickle.dumps(sentence))):
        assert (twin, twin.said("zh")) == (sentence, sentence.said("zh"))


def test_a_conversion_is_shown_in_one_line_and_its_report_in_full():
    done = hw.compat.convert(drawn(nn.MultiheadAttention(12, 3)))
    assert repr(done).startswith("Conversion(torch -> MultiHeadAttention(12, 3), proved against the module: largest")
    assert repr(done.report).startswith("Report(torch -> MultiHeadAttention(12, 3), proved")
    assert all("\n" not in repr(each) and len(repr(each)) < 120 for each in (done, done.report))
    assert str(done.report).count("\n") > 8


def test_what_is_no_layer_of_headwise_is_not_written():
    with pytest.raises(ConversionError, match=r"a headwise.MultiHeadAttention are written, but a int came"):
        hw.compat.to_state_dict(5, "torch")


def test_weights_that_are_no_numbers_are_named():
    theirs = torch.nn.MultiheadAttention(8, 2)
    with torch.no_grad():
        theirs.in_proj_weight[3, :5] = torch.nan
        theirs.in_proj_weight[7, 1] = torch.inf
    with pytest.raises(ConversionError, match=r"but 6 of the 192 entries of in_proj_weight are NaN or inf"):
        hw.compat.convert(theirs)
