"""Masks go to other libraries' tensors and come back without losing a key."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

import headwise as hw
from headwise import masks
from headwise.errors import MaskError
from tests.masks.trees import Shape, build, dense, scenes
from tests.sizes import SIZES

B, H, Lq, Lk = (SIZES[axis] for axis in ("B", "Hq", "Lq", "Lk"))
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@given(scenes(), st.sampled_from(DTYPES), st.sampled_from(["-inf", "lowest", "-1e4"]))
def test_additive_and_back_allows_the_same(scene, dtype, blocked):
    s, tree = scene
    mask = build(tree)
    constant = {"-inf": float("-inf"), "lowest": torch.finfo(dtype).min, "-1e4": -1e4}[blocked]
    scores = masks.to_additive(mask, s.Lq, s.Lk, dtype=dtype, blocked=constant, batch=s.B, heads=s.H)
    assert scores.dtype is dtype
    assert torch.equal(scores.expand(s) == 0, dense(mask, s))
    assert torch.equal(dense(masks.from_additive(scores), s), dense(mask, s))


def test_additive_means_to_torch_what_the_mask_means():
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(B, H, L, 4, generator=generator, dtype=torch.float64) for L in (Lq, Lk))
    mask = hw.causal() & hw.lengths([4, 7])
    scores = masks.to_additive(mask, Lq, Lk, dtype=q.dtype)
    seen = F.scaled_dot_product_attention(q, k, torch.eye(Lk, dtype=q.dtype).expand(B, H, Lk, Lk), attn_mask=scores)
    assert torch.equal(seen > 0, dense(mask, Shape()))


@pytest.mark.parametrize("constant", [-1e4, -1e6, -1e9, float("-inf"), torch.finfo(torch.float32).min])
def test_the_constants_in_use_are_blocked(constant):
    scores = torch.tensor([[0.0, constant], [-0.0, 0.0]])
    assert masks.from_additive(scores) == hw.allowed(torch.tensor([[True, False], [True, True]]))


@pytest.mark.parametrize(
    ("scores", "sentence"),
    [
        (
            torch.tensor([[0.0, -0.5, 1.0, -1e9]]),
            "2 of 4 values are others, such as -0.5, 1: pass a real bias as attn_bias",
        ),
        (torch.tensor([[0.0, float("nan")]]), "1 of 2 values are others, such as nan"),
        (torch.tensor([[0.0, float("inf")]]), "such as inf"),
        (torch.tensor([[0.0, -9983.0]]), "0 .may attend. and -9984 or less .blocked., but 1 of 2.*such as -9983"),
        (torch.tensor([[0.0, 1.0]]), "such as 1:"),
        (torch.zeros(B, Lq, Lk), r"three axes \(2, 5, 7\)"),
        (torch.zeros(Lq, Lk, dtype=torch.int64), "floating scores, but torch.int64 came"),
        (torch.zeros(Lq, Lk, dtype=torch.bool), r"but torch.bool came: bool goes into allowed\(\)"),
    ],
)
def test_scores_that_could_be_a_bias_are_refused(scores, sentence):
    with pytest.raises(MaskError, match=sentence):
        masks.from_additive(scores)


@pytest.mark.parametrize(
    ("dtype", "blocked", "sentence"),
    [
        (torch.float16, -1e9, r"in -65504.0..-9984.0 for torch.float16; got -1000000000.0"),
        (torch.float32, -5.0, "got -5.0"),
        (torch.float32, float("nan"), "got nan"),
        (torch.int64, float("-inf"), "must be floating, but dtype=torch.int64 came"),
    ],
)
def test_a_constant_that_would_not_block_is_refused(dtype, blocked, sentence):
    with pytest.raises(MaskError, match=sentence):
        masks.to_additive(hw.causal(), Lq, Lk, dtype=dtype, blocked=blocked)


@given(st.data())
def test_valid_lens_and_back_allow_the_same(data):
    number = st.integers(0, Lk)
    rows = data.draw(st.lists(st.lists(number, min_size=Lq, max_size=Lq), min_size=B, max_size=B))
    n = torch.tensor(rows)[:, 0] if data.draw(st.booleans()) else torch.tensor(rows)
    lens = masks.to_valid_lens(masks.from_valid_lens(n), Lq, Lk)
    assert torch.equal(
        lens if lens.ndim == 2 else lens[:, None].expand(B, Lq), n if n.ndim == 2 else n[:, None].expand(B, Lq)
    )
    assert lens.ndim == (1 if all(len(set(row)) == 1 for row in rows) or n.ndim == 1 else 2)


def test_any_mask_of_the_first_keys_has_valid_lens():
    assert masks.to_valid_lens(hw.causal(), 3, 5, batch=2).tolist() == [[3, 4, 5], [3, 4, 5]]
    assert masks.to_valid_lens(hw.prefix(2) & hw.keys(torch.ones(B, Lk, dtype=torch.bool)), Lq, Lk).tolist() == [2, 2]
    assert masks.to_valid_lens(hw.lengths([7, 0]), Lq, Lk).tolist() == [7, 0]
    assert masks.to_valid_lens(hw.causal(), 0, 5, batch=2).shape == (2, 0)


@pytest.mark.parametrize(
    ("mask", "sentence"),
    [
        (hw.window(keys=2), r"query 0 of sample 0 may attend to n=2 keys and key 2 is among them"),
        (hw.lengths([7, 7]) & hw.keys(torch.eye(B, Lk) == 0), "query 0 of sample 0 may attend to n=6 keys and key 6"),
        (hw.allowed(torch.eye(H)[None, :, None, :1] == 1), "know no heads, but in sample 0 head 0, query 0.*key 0"),
    ],
)
def test_what_no_length_says_is_refused(mask, sentence):
    with pytest.raises(MaskError, match=sentence):
        masks.to_valid_lens(mask, Lq, Lk)


@given(st.data(), st.sampled_from([torch.int64, torch.int32, torch.bool, torch.float32]))
def test_attention_mask_and_back_keeps_every_key(data, dtype):
    flags = st.lists(st.booleans(), min_size=Lk, max_size=Lk)
    keep = torch.tensor(data.draw(st.lists(flags, min_size=B, max_size=B)))
    mask = masks.from_attention_mask(keep.to(dtype))
    assert mask == hw.keys(keep)
    back = masks.to_attention_mask(mask, Lq, Lk, dtype=dtype)
    assert back.dtype is dtype
    assert torch.equal(back, keep.to(dtype))


def test_attention_mask_has_a_row_for_each_sample():
    assert masks.to_attention_mask(hw.prefix(2), 3, 4, batch=2).tolist() == [[1, 1, 0, 0], [1, 1, 0, 0]]
    assert masks.to_attention_mask(hw.lengths([1, 3]), 1, 4).tolist() == [[1, 0, 0, 0], [1, 1, 1, 0]]


@pytest.mark.parametrize(
    ("attention_mask", "sentence"),
    [
        (
            torch.tensor([[1, 1, 2, 3, 0]]),
            r"2 of 5 values are others, such as 2, 3: numbered sequences go into documents",
        ),
        (torch.tensor([[0.0, -1e9]]), r"1 of 2 values are others, such as -1e\+09"),
        (torch.ones(B, 1, Lq, Lk), r"takes \(B, Lk\), but \(2, 1, 5, 7\) came"),
        (torch.ones(Lk), r"takes \(B, Lk\), but \(7,\) came"),
    ],
)
def test_what_is_no_padding_of_ones_and_zeros_is_refused(attention_mask, sentence):
    with pytest.raises(MaskError, match=sentence):
        masks.from_attention_mask(attention_mask)


@pytest.mark.parametrize(
    ("mask", "sentence"),
    [
        (
            hw.causal() & hw.lengths([7, 7]),
            r"knows no queries, but in sample 0 head 0, query 1 may attend to key 3 and",
        ),
        (hw.allowed(torch.eye(H)[None, :, None, :1] == 1), "knows no heads, but in sample 0 head 0, query 0"),
    ],
)
def test_a_mask_whose_queries_or_heads_differ_has_no_attention_mask(mask, sentence):
    with pytest.raises(MaskError, match=sentence):
        masks.to_attention_mask(mask, Lq, Lk)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=5), st.sampled_from([torch.int32, torch.int64]))
def test_cu_seqlens_and_back_are_the_same(lengths, dtype):
    cu = F.pad(torch.tensor(lengths).cumsum(0), (1, 0)).to(dtype)
    mask = masks.from_cu_seqlens(cu)
    L = sum(lengths)
    blocks = torch.block_diag(*(torch.ones(n, n) for n in lengths)).bool()
    assert torch.equal(mask.allowed(L, L), blocks)
    back = masks.to_cu_seqlens(mask)
    assert back.dtype is torch.int32
    assert back.tolist() == cu.tolist()


def test_cu_seqlens_of_empty_sequences_and_of_longer_rows():
    assert masks.from_cu_seqlens(torch.tensor([0, 2, 2, 5])).ids.tolist() == [[0, 0, 2, 2, 2]]
    assert masks.from_cu_seqlens(torch.tensor([0, 2, 3]), length=5).ids.tolist() == [[0, 0, 1, 2, 2]]
    assert masks.from_cu_seqlens(torch.tensor([0])).ids.shape == (1, 0)
    assert masks.to_cu_seqlens(hw.documents(torch.tensor([5, 5, -1]), torch.tensor([5, 5, -1]))).tolist() == [0, 2, 3]


@pytest.mark.parametrize(
    ("convert", "sentence"),
    [
        (lambda: masks.from_cu_seqlens(torch.tensor([1, 3])), r"begin at 0 and never fall, but came as \[1, 3\]"),
        (lambda: masks.from_cu_seqlens(torch.tensor([0, 3, 2])), r"never fall, but came as \[0, 3, 2\]"),
        (lambda: masks.from_cu_seqlens(torch.tensor([0.0, 3.0])), r"\(2,\) torch.float32 came"),
        (lambda: masks.from_cu_seqlens(torch.tensor([[0, 3]])), r"\(1, 2\) torch.int64 came"),
        (lambda: masks.from_cu_seqlens(torch.tensor([0, 3]), length=2), "length=2 must hold the 3 tokens"),
        (lambda: masks.to_cu_seqlens(hw.causal()), r"takes documents\(ids\), but causal\(\) came"),
        (lambda: masks.to_cu_seqlens(hw.documents(torch.tensor([0, 1, 0]))), "2 ids make 3 stretches"),
        (lambda: masks.to_cu_seqlens(hw.documents(torch.zeros(2, 3, dtype=torch.int64))), "has B=2 rows"),
        (lambda: masks.to_cu_seqlens(hw.documents(torch.tensor([0, 1]), torch.tensor([0, 0]))), "B=1 rows or key_ids"),
    ],
)
def test_what_are_no_packed_sequences_is_refused(convert, sentence):
    with pytest.raises(MaskError, match=sentence):
        convert()
