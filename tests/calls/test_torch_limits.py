"""A search for a call lets nothing read what is not there, and takes NaN for a number only where nothing else comes."""

import torch

from headwise.calls.finder import find


def joined(q, k, v):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v[..., :-1, :])


def nothing(x):
    return x / 0.0 * 0.0


def test_torchs_attention_is_never_called_with_fewer_values_than_keys():
    found = find(joined, namespace={})
    assert found.plans == ()
    assert any("there must be as many values as keys" in str(each.error) for each in found.failures)


def test_nan_is_taken_where_no_call_gives_numbers():
    assert find(nothing, namespace={}).plans != ()
