"""Each pattern takes what its docstring says, and refuses the rest with the numbers that came."""

import sys
from functools import partial

import numpy as np
import pytest
import torch

import headwise as hw
from headwise.errors import MaskError
from headwise.masks import as_mask
from tests.sizes import SIZES

B, H, Lq, Lk = (SIZES[axis] for axis in ("B", "Hq", "Lq", "Lk"))


def ones(*sizes: int, dtype: torch.dtype = torch.bool) -> torch.Tensor:
    return torch.ones(sizes, dtype=dtype)


def test_an_omitted_side_of_a_window_is_zero():
    assert hw.window(before=2) == hw.window(before=2, after=0)
    assert hw.window(after=2) == hw.window(before=0, after=2)
    assert hw.window(before=0) == hw.window(after=0) == hw.window(before=0, after=0) == hw.window(keys=1)
    assert hw.window(before=0).draw(2, 3) == ".#.\n..#"


@pytest.mark.parametrize("n", [1, 2, 4])
def test_a_window_of_n_keys_counts_the_querys_own_and_is_causal(n):
    assert hw.window(keys=n) == hw.window(before=n - 1)
    seen = hw.window(keys=n).allowed(Lk, Lk)
    assert seen.sum(1).tolist() == [min(n, row + 1) for row in range(Lk)]
    assert not (seen & ~hw.causal().allowed(Lk, Lk)).any()


def test_a_length_of_the_keys_is_all_and_one_of_zero_is_none():
    seen = hw.lengths([Lk, 0]).allowed(Lq, Lk)
    assert seen[0].all()
    assert not seen[1].any()
    assert hw.lengths([Lk, 0]) == hw.lengths(torch.tensor([Lk, 0]))


@pytest.mark.parametrize(("n", "came"), [([9, 0], 9), ([Lk, -3], -3), ([[0] * Lq, [Lk + 1] * Lq], Lk + 1)])
def test_a_length_out_of_the_keys_is_refused_where_its_value_can_be_read(n, came):
    q, k = torch.zeros(B, 2, Lq, 3), torch.zeros(B, 2, Lk, 3)
    for mask in (hw.lengths(n), hw.causal() & ~hw.lengths(n)):
        for call in (partial(mask.draw, Lq, Lk), partial(hw.attention, q, k, k, mask=mask)):
            with pytest.raises(
                MaskError, match=rf"must lie in 0\.\.Lk={Lk}, but {came} came: give n\.clamp\(0, {Lk}\)"
            ):
                call()
    # where a program is made, or the samples are mapped over, no value is read
    compiled = torch.compile(lambda q, k, n: hw.attention(q, k, k, mask=hw.lengths(n)), backend="eager", fullgraph=True)
    assert torch.equal(compiled(q, k, torch.tensor(n)), torch.zeros_like(q))
    mapped = torch.vmap(lambda q, k, n: hw.attention(q[None], k[None], k[None], mask=hw.lengths(n[None]))[0])
    assert torch.equal(mapped(q, k, torch.tensor(n)), torch.zeros_like(q))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
def test_integers_of_every_width_are_taken(dtype):
    n = torch.tensor([3, 5], dtype=dtype)
    assert torch.equal(hw.lengths(n).allowed(Lq, Lk), hw.lengths([3, 5]).allowed(Lq, Lk))
    assert torch.equal(hw.prefix(n).allowed(Lq, Lk), hw.lengths([3, 5]).allowed(Lq, Lk))
    assert hw.lengths(n).tiles(Lq, Lk, block=(2, 2)).equal(hw.lengths([3, 5]).tiles(Lq, Lk, block=(2, 2)))
    ids = torch.tensor([0, 0, 1, 1, 1], dtype=dtype)
    assert torch.equal(hw.documents(ids).allowed(Lq, Lq), ids[:, None] == ids)


def test_ids_and_numbers_for_all_samples_may_come_without_the_batch_axis():
    ids = torch.tensor([0, 0, 1, 1, 1])
    assert hw.documents(ids) == hw.documents(ids[None])
    assert hw.documents(ids, ids[:3]) == hw.documents(ids[None], ids[None, :3])
    assert hw.prefix(torch.tensor(3)) == hw.prefix(torch.tensor([3]))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32])
def test_positions_of_every_width_are_taken(dtype):
    i, j, columns = torch.arange(Lq) + 2, torch.arange(Lk).flip(0), torch.arange(Lk).flip(0)
    mask = hw.window(before=3, after=1) & hw.keys(torch.rand(B, Lk) < 0.5)
    wanted = mask.at(i, j, columns=columns)
    assert mask.at(i.to(dtype), j.to(dtype), columns=columns.to(dtype)) == wanted
    assert wanted.allowed(Lq, Lk).any()


def test_prefix_counts_positions_and_lengths_count_the_keys_of_the_call():
    i, j = torch.tensor([7]), torch.tensor([4, 5, 6, 7])
    assert hw.prefix(6).at(i, j).draw(1, 4) == "##.."
    assert hw.lengths([3]).at(i, j).draw(1, 4) == "###."


def test_a_rule_may_use_fewer_axes_than_it_is_given():
    assert hw.rule(lambda b, h, i, j: j < 3).allowed(Lq, Lk).equal(hw.prefix(3).allowed(Lq, Lk))
    everything = hw.rule(lambda b, h, i, j: torch.tensor(True))
    assert everything.draw(2, 3) == "###\n###"
    assert everything.tiles(5, 7, block=(2, 3)).eq(2).all()


def test_a_mask_argument_is_a_mask_a_bool_tensor_or_none():
    mask = hw.causal()
    assert as_mask(mask) is mask
    assert as_mask(None) is None
    assert as_mask(ones(Lq, Lk)) == hw.allowed(ones(Lq, Lk))
    with pytest.raises(MaskError, match="a Mask, a bool tensor or None, but list came"):
        as_mask([[True]])


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: hw.allowed(ones(Lq, Lk, dtype=torch.float16)), "must be bool, but torch.float16 came.*scores to add"),
        (lambda: hw.allowed(ones(Lq, Lk, dtype=torch.int64)), "must be bool, but torch.int64 came.*0 = blocked"),
        (
            lambda: hw.allowed(ones(B, Lq, Lk)),
            r"three axes \(2, 5, 7\) reads as \(B, Lq, Lk\), as \(H, Lq, Lk\) or as \(B\*H, Lq, Lk\): say which",
        ),
        (lambda: hw.allowed(ones(Lk)), r"\(Lq, Lk\) or \(B, H, Lq, Lk\), but came as \(7,\): padding is keys\(t\)"),
        (lambda: hw.allowed(ones(1, B, H, Lq, Lk)), r"came as \(1, 2, 6, 5, 7\)"),
        (lambda: hw.allowed(np.ones((Lq, Lk), dtype=bool)), "must be a bool tensor, but ndarray came"),
        (lambda: hw.keys(ones(B, Lk, dtype=torch.float32)), r"keys\(keep\) must be bool, but torch.float32 came"),
        (lambda: hw.keys(ones(Lk)), r"keys\(keep\) must be \(B, Lk\), but came as \(7,\)"),
        (lambda: hw.keys(ones(B, Lq, Lk)), r"keys\(keep\) must be \(B, Lk\), but came as \(2, 5, 7\)"),
        (lambda: hw.keys([[True]]), r"keys\(keep\) must be a bool tensor, but list came"),
        (lambda: hw.lengths([1.5, 2.0]), r"lengths\(n\) must be integers, but torch.float32 came"),
        (lambda: hw.lengths(ones(B)), r"lengths\(n\) must be integers, but torch.bool came"),
        (lambda: hw.lengths(torch.tensor([1], dtype=torch.uint32)), "must be integers, but torch.uint32 came"),
        (lambda: hw.lengths(torch.tensor(4)), r"lengths\(n\) must be \(B,\) or \(B, Lq\), but came as \(\)"),
        (
            lambda: hw.documents(ones(B, Lq, 1, dtype=torch.int64)),
            r"must be \(L,\) or \(B, L\), but came as \(2, 5, 1\)",
        ),
        (lambda: hw.documents(ones(B, Lq)), r"documents\(ids\) must be integers, but torch.bool came"),
        (
            lambda: hw.documents(ones(Lq, dtype=torch.int64), ones(Lk)),
            r"documents\(key_ids\) must be integers, but torch.bool came",
        ),
        (lambda: hw.documents(None), r"documents\(ids\) must be a tensor of integers, but NoneType came"),
        (lambda: hw.prefix(2.5), r"prefix\(n\) counts tokens, so it must be an int, but 2.5 came"),
        (lambda: hw.prefix(True), "must be an int, but True came"),
        (lambda: hw.prefix(torch.tensor([2.5])), r"prefix\(n\) must be integers, but torch.float32 came"),
        (lambda: hw.prefix(ones(B, 1, dtype=torch.int64)), r"a number or \(B,\), but came as \(2, 1\)"),
        (lambda: hw.window(keys=0), "must be 1 or more; got keys=0"),
        (lambda: hw.window(keys=2.0), r"window\(keys=\) counts tokens, so it must be an int, but 2.0 came"),
        (lambda: hw.window(before=-1), "both must be 0 or more; got before=-1 and after=0"),
        (lambda: hw.window(after=-2), "both must be 0 or more; got before=0 and after=-2"),
        (lambda: hw.window(before=True), r"window\(before=\) counts tokens.*True came"),
        (lambda: hw.window(keys=3, before=0), "not both; got keys=3, before=0, after=None"),
        (lambda: hw.window(keys=3, after=1), "not both; got keys=3, before=None, after=1"),
        (lambda: hw.window(), "not both; got keys=None, before=None, after=None"),
        (lambda: hw.rule(ones(Lq, Lk)), r"needs a function of \(b, h, i, j\), but <bool|torch.tensor.* came"),
        (
            lambda: hw.rule(lambda b, h, i, j: i - j).allowed(Lq, Lk),
            "must answer with a bool tensor, but torch.int64 came",
        ),
        (lambda: hw.rule(lambda b, h, i, j: True).allowed(Lq, Lk), "must answer with a bool tensor, but bool came"),
    ],
)
def test_a_pattern_refuses_what_it_cannot_read_with_certainty(make, sentence):
    with pytest.raises(MaskError, match=sentence):
        make()


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: hw.keys(ones(3, Lk)), r"keys\(keep\) must be \(B=2, Lk=7\), but came as \(3, 7\)"),
        (lambda: hw.keys(ones(B, 8)), r"keys\(keep\) must be \(B=2, Lk=7\), but came as \(2, 8\)"),
        (lambda: hw.lengths([1, 2, 3]), r"lengths\(n\) must be \(B=2,\), or \(B=2, Lq=5\), but came as \(3,\)"),
        (lambda: hw.lengths(ones(B, 7, dtype=torch.int64)), r"or \(B=2, Lq=5\), but came as \(2, 7\)"),
        (lambda: hw.documents(torch.arange(Lq)), "Lq=5 and Lk=7 differ: give key_ids="),
        (
            lambda: hw.documents(torch.arange(4), torch.arange(Lk)),
            r"documents\(ids\) must be \(B=2, Lq=5\), but came as \(1, 4\)",
        ),
        (
            lambda: hw.documents(torch.arange(Lq), torch.arange(Lq)),
            r"documents\(key_ids\) must be \(B=2, Lk=7\), but came as \(1, 5\)",
        ),
        (lambda: hw.prefix(torch.tensor([1, 2, 3])), r"prefix\(n\) must be \(B=2,\), but came as \(3,\)"),
        (
            lambda: hw.allowed(ones(Lk, Lq)),
            r"\(Lq=5, Lk=7\) or broadcast to \(B=2, H=6, Lq=5, Lk=7\), but came as \(7, 5\).* \(B, Lk\) to keys",
        ),
        (lambda: hw.allowed(ones(B, 3, Lq, Lk)), r"H=6.*came as \(2, 3, 5, 7\): give every axis its size or 1"),
        (
            lambda: hw.causal().at(torch.arange(4), torch.arange(Lk)),
            r"positions i must be \(5,\) or \(B=2, 5\).*\(4,\)",
        ),
        (
            lambda: hw.causal().at(torch.arange(Lq), torch.zeros(3, Lk, dtype=torch.int64)),
            r"positions j must be \(7,\) or \(B=2, 7\), but came as \(3, 7\)",
        ),
        (
            lambda: hw.causal().at(torch.arange(Lq) / 2, torch.arange(Lk)),
            "positions i must be integers, but torch.float32 came",
        ),
        (
            lambda: hw.causal().at(torch.arange(Lq), torch.arange(Lk), columns=torch.arange(Lq)),
            r"columns must be \(Lk=7,\), but came as \(5,\)",
        ),
        (
            lambda: hw.causal().at(torch.arange(Lq), torch.arange(Lk), columns=torch.ones(Lk, dtype=torch.bool)),
            "columns must be integers, but torch.bool came",
        ),
        (
            lambda: hw.lengths([1, 2, 3]).at(torch.arange(Lq), torch.arange(Lk), columns=torch.arange(Lk)),
            r"a mask must fit B=2, but lengths\(n=torch.tensor\(\[1, 2, 3\]\)\) has 3: give it 2 or 1",
        ),
        (
            lambda: hw.causal() & ~(hw.prefix(2) | hw.keys(ones(3, Lk))),
            r"keys\(keep\) must be \(B=2, Lk=7\), but came as \(3, 7\)",
        ),
    ],
)
def test_a_mask_that_does_not_fit_the_call_is_refused(make, sentence):
    with pytest.raises(MaskError, match=sentence):
        make().allowed(Lq, Lk, batch=B, heads=H)


def test_a_window_without_bound_may_be_as_large_as_an_integer_goes() -> None:
    assert hw.window(before=0, after=sys.maxsize).draw(3, 3) == "###\n.##\n..#"
    assert hw.window(before=sys.maxsize).draw(3, 1) == ".\n.\n#"


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: hw.window(2),
            r"window\(2\) may mean 2, 3 or 5 keys: say window\(keys=2\) for the 2 .*before=2, after=2",
        ),
        (lambda: hw.window(9), r"window\(9\) may mean 9, 10, 17 or 19 keys: say window\(keys=9\)"),
        (lambda: hw.window(window_size=7), r"window takes no window_size=: say window\(keys=7\) for the 7 "),
        (lambda: hw.window("a"), r"window\('a'\) does not say which keys: say window\(keys=3\)"),
    ],
)
def test_a_window_by_place_is_refused_with_the_number_that_came(call, sentence):
    with pytest.raises(TypeError, match=sentence):
        call()
