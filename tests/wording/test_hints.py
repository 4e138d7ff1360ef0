"""A call in the words of another library is refused with ours, and a call that fits is as it was."""

import inspect
import pickle

import pytest
import torch

import headwise as hw
from headwise.errors import ArgumentError
from headwise.wording.hints import CallError, hinted
from tests.sizes import SIZES

E, Lq = 12, SIZES["Lq"]
CALLS = {
    "need_weights": "with hw.watch",
    "average_attn_weights": "with hw.watch",
    "output_attentions": "with hw.watch",
    "is_causal": r"give mask=hw\.causal\(\)",
    "use_causal_mask": r"give mask=hw\.causal\(\)",
    "key_padding_mask": r"mask=hw\.keys\(~key_padding_mask\)",
    "attn_mask": r"mask=hw\.allowed\(~attn_mask\), .* attn_bias=",
    "attention_mask": r"mask=hw\.keys\(attention_mask\.bool\(\)\)",
    "valid_lens": r"mask=hw\.lengths\(valid_lens\)",
    "past_key_values": r"cache=attn\.cache\(\)",
    "batch_first": "batch first always",
}


@pytest.mark.parametrize(("word", "said"), CALLS.items())
def test_a_call_of_the_layer_in_the_words_of_others_is_refused_with_ours(word, said):
    attn = hw.MultiHeadAttention(E, 3)
    with pytest.raises(CallError, match=f"^MultiHeadAttention takes no {word}=: .*{said}") as raised:
        attn(torch.randn(2, Lq, E), **{word: True})
    assert isinstance(raised.value, TypeError)
    assert isinstance(raised.value, ArgumentError)
    assert raised.value.__suppress_context__


FUNCTIONS = {
    "attention": lambda q, **given: hw.attention(q, q, q, **given),
    "backends": lambda q, **given: hw.backends(q, q, q, **given),
    "attention_map": lambda q, **given: hw.attention_map(q, q, **given),
    "additive_attention": lambda q, **given: hw.additive_attention(q, q, q, q[0, 0, 0], **given),
    "additive_map": lambda q, **given: hw.maps.additive_map(q, q, q[0, 0, 0], **given),
}


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("is_causal", r"give mask=hw\.causal\(\)$"),
        ("attn_mask", "give mask=attn_mask if it is bool, in which True may attend as in SDPA, and attn_bias= if"),
        ("dropout_p", "give dropout=$|leave it out, since a map is of the weights before dropout$"),
        ("key_padding_mask", r"mask=hw\.keys\(~key_padding_mask\)"),
        ("enable_gqa", "leave it out, since Hk may divide Hq"),
        ("need_weights", r"take the weights from hw\.attention_map\(q, k"),
    ],
)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_called_in_the_words_of_others_answers_with_ours(name, word, said):
    with pytest.raises(CallError, match=f"^{name} takes no {word}=: .*({said})"):
        FUNCTIONS[name](torch.randn(2, 3, Lq, 4), **{word: True})


def test_a_mask_by_its_place_is_answered_with_its_name():
    q = torch.randn(2, 3, Lq, 4)
    for call in (hw.attention, hw.backends):
        with pytest.raises(CallError, match=r"tensors go by their place and the rest by name, .* give mask="):
            call(q, q, q, hw.causal())
    assert torch.equal(torch.compile(hw.attention, backend="eager", fullgraph=True)(q, q, q), hw.attention(q, q, q))


@pytest.mark.parametrize(
    ("word", "said"),
    [("batch_first", "batch first always"), ("add_zero_attn", 'sink="zero"'), ("add_bias_kv", "hw.compat.torch")],
)
def test_a_layer_is_not_built_in_the_words_of_others(word, said):
    with pytest.raises(CallError, match=f"takes no {word}=: .*{said}"):
        hw.MultiHeadAttention(E, 3, **{word: True})


def test_what_the_hints_say_is_so():
    attn, x = hw.MultiHeadAttention(E, 3).eval(), torch.randn(2, Lq, E)
    theirs = torch.nn.MultiheadAttention(E, 3, batch_first=True, add_zero_attn=True).eval()
    ours = hw.MultiHeadAttention(E, 3, score=hw.DotProduct(sink="zero")).eval()
    ours.load_state_dict(hw.compat.convert(theirs).layer.state_dict())
    assert torch.allclose(ours(x), theirs(x, x, x)[0], atol=1e-6)
    blocked = torch.zeros(2, Lq, dtype=torch.bool)
    blocked[1, 3:] = True
    causal = torch.ones(Lq, Lq, dtype=torch.bool).triu(1)
    plain = torch.nn.MultiheadAttention(E, 3, batch_first=True).eval()
    attn.load_state_dict(hw.compat.convert(plain).layer.state_dict())
    wanted = plain(x, x, x, key_padding_mask=blocked, attn_mask=causal)[0]
    assert torch.allclose(attn(x, mask=hw.keys(~blocked) & hw.allowed(~causal)), wanted, atol=1e-6)


def test_too_many_places_are_refused_with_the_names():
    attn, x = hw.MultiHeadAttention(E, 3), torch.randn(2, Lq, E)
    with pytest.raises(CallError, match=r"query, key and value by their place .* mask=hw\.keys\(~padding\)"):
        attn(x, x, x, torch.zeros(2, Lq, dtype=torch.bool))
    with pytest.raises(
        CallError, match=r"window\(3\) may mean .*: say window\(keys=3\) .* window\(before=3, after=3\)"
    ):
        hw.window(3)
    with pytest.raises(CallError, match=r"window takes no window_size=: say window\(keys=3\)"):
        hw.window(window_size=3)


def test_an_error_of_anything_else_stays_what_it_is():
    @hinted({"old": "give new="}, by_name="by name")
    def function(a: object, *, new: object = None) -> object:
        raise TypeError("of its own")

    for call in (lambda: function(1), lambda: function(1, new=2)):
        with pytest.raises(TypeError, match=r"^of its own$"):
            call()
    with pytest.raises(TypeError, match="unexpected keyword argument 'other'") as raised:
        function(1, other=2)
    assert not isinstance(raised.value, CallError)
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        function()


def test_a_subclass_may_take_what_the_layer_does_not():
    class Named(hw.MultiHeadAttention):
        def forward(self, query, *, need_weights=False):
            if need_weights:
                raise TypeError("of its own")
            return super().forward(query)

    attn, x = Named(E, 3), torch.randn(2, Lq, E)
    assert attn(x).shape == x.shape
    with pytest.raises(TypeError, match=r"^of its own$"):
        attn(x, need_weights=True)


def test_signatures_and_pickles_are_as_they_were():
    names = list(inspect.signature(hw.MultiHeadAttention.forward).parameters)
    assert names == ["self", "query", "key", "value", "mask", "attn_bias", "positions", "cache", "spread"]
    assert "batch_first" not in inspect.signature(hw.MultiHeadAttention).parameters
    assert list(inspect.signature(hw.window).parameters) == ["keys", "before", "after"]
    assert pickle.loads(pickle.dumps(hw.window)) is hw.window
    again = pickle.loads(pickle.dumps(attn := hw.MultiHeadAttention(E, 3)))
    x = torch.randn(2, Lq, E)
    assert torch.equal(again(x), attn(x))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: hw.MultiHeadAttention(E, 2, num_kv_head=1), "takes no num_kv_head=: did you mean num_kv_heads=\\?"),
        (lambda: hw.MultiHeadAttention(E, 2)(torch.zeros(2, Lq, E), msk=None), "no msk=: did you mean mask=\\?"),
    ],
)
def test_a_misspelt_argument_is_answered_with_the_nearest(call, said):
    with pytest.raises(CallError, match=said):
        call()


def test_a_word_that_is_like_no_argument_is_left_to_python():
    with pytest.raises(TypeError, match="unexpected keyword argument 'zebra'"):
        hw.MultiHeadAttention(E, 2, zebra=1)
