"""What d2l has of attention stands in for it where it is not installed, and so do names that notes leave out."""

import pytest
import torch

from headwise.targets.stand_ins import MEANT, supplied
from headwise.wording import Refusal
from tests.targets.loaded import loaded, written

ADDED = """
import math
import torch
from torch import nn
from d2l import torch as d2l

class MultiHeadAttention(d2l.Module):  #@save
    def __init__(self, num_hiddens, num_heads, dropout, bias=False, **kwargs):
        super().__init__()
        self.save_hyperparameters(ignore=["dropout"])
        self.attention = d2l.DotProductAttention(dropout)
        self.W_q = nn.LazyLinear(num_hiddens, bias=bias)
        self.W_o = nn.LazyLinear(num_hiddens, bias=bias)

    def forward(self, queries, keys, values, valid_lens):
        queries = self.transpose_qkv(self.W_q(queries))
        return self.W_o(self.transpose_output(queries))

@d2l.add_to_class(MultiHeadAttention)  #@save
def transpose_qkv(self, X):
    X = X.reshape(X.shape[0], X.shape[1], self.num_heads, -1)
    X = X.permute(0, 2, 1, 3)
    return X.reshape(-1, X.shape[2], X.shape[3])

@d2l.add_to_class(MultiHeadAttention)  #@save
def transpose_output(self, X):
    X = X.reshape(-1, self.num_heads, X.shape[1], X.shape[2])
    X = X.permute(0, 2, 1, 3)
    return X.reshape(X.shape[0], X.shape[1], -1)

num_hiddens, num_heads = 100, 5
attention = MultiHeadAttention(num_hiddens, num_heads, 0.5)
d2l.check_shape(attention(1 / 0), (1, 2))
"""


def test_methods_that_d2l_adds_to_a_class_are_there(home):
    written(home, "own.py", ADDED)
    found = loaded("own.py:MultiHeadAttention").object(12, 3, 0.1).eval()
    assert (found.num_heads, hasattr(found, "dropout")) == (3, False)
    assert found(*[torch.ones(2, 5, 7)] * 3, None).shape == (2, 5, 12)


def test_d2l_may_be_imported_in_every_way_and_by_a_neighbour(home):
    written(home, "own_near.py", "import d2l.torch\nfrom d2l.torch import masked_softmax\n")
    written(home, "own.py", "import own_near\nfrom d2l.torch import transpose_qkv\nimport d2l.torch as d2l\n"
            "def f(): return [own_near.masked_softmax, transpose_qkv, d2l.transpose_output]\n")  # fmt: skip
    from headwise.compat import d2l

    assert loaded("own.py:f").object() == [d2l.masked_softmax, d2l.transpose_qkv, d2l.transpose_output]


def test_what_d2l_has_beside_attention_is_refused_where_it_is_used(home):
    written(home, "own.py", "from d2l import torch as d2l\ndef f(): return d2l.load_data_nmt(3)\n")
    found = loaded("own.py:f").object
    with pytest.raises(Refusal, match=r"uses d2l.load_data_nmt of the package d2l, which is not installed"):
        found()


@pytest.mark.parametrize("name", sorted({*MEANT, "d2l"}))
def test_a_name_that_nothing_binds_is_given_what_it_means(name):
    given = supplied(name)
    assert name in (*MEANT, "d2l")
    assert given is not None


def test_a_name_of_unknown_meaning_is_left_to_python(home):
    written(home, "own.py", "def f(): return nn, einsum, mystery\n")
    found = loaded("own.py:f")
    assert found.supplied == ("einsum", "nn")
    with pytest.raises(NameError, match="mystery"):
        found.object()


def test_a_name_that_the_file_binds_is_never_replaced(home):
    written(home, "own.py", "try:\n    attention = 3\nfinally:\n    clones = 4\ndef f(): return attention, clones\n")
    found = loaded("own.py:f")
    assert (found.object(), found.supplied) == ((3, 4), ())
