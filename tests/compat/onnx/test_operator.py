"""hw.compat.onnx.attention is the operator as its function body defines it, and refuses what an opset lacks."""

import pytest
import torch
from torch import Tensor

import headwise as hw
from headwise.compat import onnx as ours
from headwise.errors import ArgumentError, MaskError, ShapeError
from headwise.testing import assert_within_budget, exact_attention
from tests.compat.onnx.runs import PAST, B, D, Dv, Given, Hk, Hq, assert_agrees, drawn
from tests.sizes import SIZES

Lq, Lk = SIZES["Lq"], SIZES["Lk"]


def tensors(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    return (
        torch.randn(B, Hq, Lq, D, dtype=dtype),
        torch.randn(B, Hk, Lk, D, dtype=dtype),
        torch.randn(B, Hk, Lk, Dv, dtype=dtype),
    )


def past(dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    return {
        "past_key": torch.randn(B, Hk, PAST, D, dtype=dtype),
        "past_value": torch.randn(B, Hk, PAST, Dv, dtype=dtype),
    }


@pytest.mark.needs("onnx")
@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("opset", [23, 24, 25])
def test_every_output_is_that_of_the_function_body(opset: int, seed: int) -> None:
    given = drawn(seed, opset)
    exact, plain = given.by_body(), given.to(torch.float32).by_body()
    for name, actual in given.to(torch.float32).by_headwise().items():
        assert_agrees(actual, exact[name], plain[name])


@pytest.mark.needs("onnx")
@pytest.mark.parametrize("seed", range(40, 52))
def test_float16_is_within_the_budget_of_the_function_body(seed: int) -> None:
    given = drawn(seed, 25).to(torch.float16)
    exact, plain = given.to(torch.float64).by_body(), given.by_body()
    for name, actual in given.by_headwise().items():
        assert actual.dtype is torch.float16
        assert_agrees(actual, exact[name], plain[name])


PICTURES = {
    "a frontier, which starts at key 0 though there are more keys": (
        {"is_causal": 1},
        "#...... ##..... ###.... ####... #####..",
    ),
    "a window to the left": ({"left_window_size": 1}, "####### ####### .###### ..##### ...####"),
    "a window to the right": ({"right_window_size": 1}, "##..... ###.... ####... #####.. ######."),
    "a window to both sides": (
        {"left_window_size": 0, "right_window_size": 1},
        "##..... .##.... ..##... ...##.. ....##.",
    ),
    "a window with nothing after": (
        {"left_window_size": 1, "right_window_size": 2, "is_causal": 1},
        "#...... ##..... .##.... ..##... ...##..",
    ),
    "a length of 6, where the last query sits at the last token": (
        {"nonpad_kv_seqlen": torch.tensor([6, 6]), "is_causal": 1},
        "##..... ###.... ####... #####.. ######.",
    ),
    "a length below that of the queries": (
        {"nonpad_kv_seqlen": torch.tensor([3, 3]), "is_causal": 1},
        "....... ....... #...... ##..... ###....",
    ),
    "a short mask": ({"attn_mask": torch.tensor([True, False, True])}, " ".join(["#.#...."] * 5)),
    "a mask of one key, which is a short one": ({"attn_mask": torch.ones(5, 1).bool()}, " ".join(["#......"] * 5)),
    "a mask of one key, which is repeated in opset 23": (
        {"attn_mask": torch.tensor([[1], [0], [1], [0], [1]]).bool(), "opset": 23},
        "####### ....... ####### ....... #######",
    ),
}


@pytest.mark.parametrize("name", PICTURES)
def test_who_sees_whom(name: str) -> None:
    rules, picture = PICTURES[name]
    q, k, v = (torch.zeros_like(t) for t in tensors())
    weights = ours.attention(q, k, v, **rules, qk_matmul_output_mode=3).qk_matmul_output
    assert weights is not None
    rows = ["".join(".#"[int(x > 0)] for x in row) for row in weights[-1, -1]]
    assert " ".join(rows) == picture


def test_positions_go_on_from_a_past() -> None:
    q, k, v = tensors()
    before = past()
    found = ours.attention(q, k, v, **before, is_causal=1, left_window_size=2)
    keys, values = torch.cat([before["past_key"], k], dim=2), torch.cat([before["past_value"], v], dim=2)
    assert torch.equal(found.present_key, keys)
    assert torch.equal(found.present_value, values)
    i, j = torch.arange(Lq)[:, None] + PAST, torch.arange(PAST + Lk)
    mask = (j <= i) & (j >= i - 2)
    assert_within_budget(found.Y, exact_attention(q, keys, values, mask=mask), hw.attention(q, keys, values, mask=mask))


def test_scores_that_no_one_asked_for_are_not_given_and_keys_are_not_copied() -> None:
    q, k, v = tensors()
    found = ours.attention(q, k, v)
    assert found.qk_matmul_output is None
    assert found.present_key.data_ptr() == k.data_ptr()
    assert torch.equal(found.Y, hw.attention(q, k, v))


def test_padding_behind_a_length_may_hold_nan() -> None:
    q, k, v = tensors()
    n = torch.tensor([4, 0])
    clean = ours.attention(q, k, v, nonpad_kv_seqlen=n).Y
    for t in (k, v):
        t[0, :, 4:], t[1] = float("nan"), float("nan")
    assert torch.equal(ours.attention(q, k, v, nonpad_kv_seqlen=n).Y, clean)
    assert torch.equal(clean[1], torch.zeros_like(clean[1]))


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
def test_gradients_of_every_output_are_right(mode: int) -> None:
    q, k, v, past_key, past_value = (
        t[:1, :, :3].requires_grad_() for t in (*tensors(torch.float64), *past(torch.float64).values())
    )
    bias = torch.randn(3, 6, dtype=torch.float64, requires_grad=True)

    def both(*given: Tensor) -> tuple[Tensor, Tensor]:
        q, k, v, bias, past_key, past_value = given
        found = ours.attention(
            q, k, v, bias, past_key, past_value, is_causal=1, softcap=1.5, qk_matmul_output_mode=mode
        )
        scores = found.qk_matmul_output
        assert scores is not None
        return found.Y, scores.masked_fill(scores.isneginf(), 0.0)

    assert torch.autograd.gradcheck(both, (q, k, v, bias, past_key, past_value), fast_mode=True)


def test_a_softmax_in_float64_rounds_once() -> None:
    q, k, v = tensors()
    wanted = exact_attention(q, k, v, mask=hw.lengths([3, Lk]))
    got = ours.attention(q, k, v, nonpad_kv_seqlen=torch.tensor([3, Lk]), softmax_precision=11).Y
    torch.testing.assert_close(got, wanted.float(), rtol=torch.finfo(torch.float32).eps, atol=0.0)


def test_values_may_have_a_dtype_of_their_own() -> None:
    q, k, v = tensors()
    found = ours.attention(q.half(), k.half(), v)
    wanted = exact_attention(q.half(), k.half(), v)
    assert (found.Y.dtype, found.present_value.dtype) == (torch.float16, torch.float32)
    assert_within_budget(found.Y, wanted, wanted.half())


def test_compiled_whole_it_gives_the_same_for_any_length() -> None:
    def step(q: Tensor, k: Tensor, v: Tensor, past_key: Tensor, past_value: Tensor) -> Tensor:
        return ours.attention(q, k, v, past_key=past_key, past_value=past_value, is_causal=1, left_window_size=2).Y

    torch.compiler.reset()
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    q, k, v = tensors()
    # the second length makes torch leave it open
    for n in (2, 3, PAST):
        before = [t[:, :, :n] for t in past().values()]
        torch.testing.assert_close(compiled(q, k, v, *before), step(q, k, v, *before))


q, k, v = tensors()
flat = {"Q": q.transpose(1, 2).flatten(2), "K": k.transpose(1, 2).flatten(2), "V": v.transpose(1, 2).flatten(2)}
half = past(torch.float16)
REFUSED = [
    ({"opset": 22}, ArgumentError, "23, 24, 25; got 22"),
    ({"opset": 23, "nonpad_kv_seqlen": torch.tensor([7, 7])}, ArgumentError, "opset 24, but opset=23"),
    ({"opset": 24, "right_window_size": 2}, ArgumentError, "left_window_size=-1 and right_window_size=2 with opset=24"),
    ({"is_causal": 2}, ArgumentError, "0 or 1; got 2"),
    ({"is_causal": None}, ArgumentError, "0 or 1; got None"),
    ({"opset": "25"}, ArgumentError, "got '25'"),
    ({"left_window_size": 2.5}, ArgumentError, "left_window_size .* got 2.5"),
    ({"qk_matmul_output_mode": True}, ArgumentError, "got True"),
    ({"softmax_precision": 1.0}, ArgumentError, "got 1.0"),
    ({"scale": "a"}, ArgumentError, "got 'a'"),
    ({"scale": float("nan")}, ArgumentError, "got nan"),
    ({"softcap": None}, ArgumentError, "got None"),
    ({"Q": None}, ArgumentError, "Q must be a tensor, but NoneType came"),
    ({"K": k.numpy()}, ArgumentError, "K must be a tensor, but ndarray came"),
    ({"attn_mask": [True]}, ArgumentError, "attn_mask must be a tensor, but list came"),
    ({"nonpad_kv_seqlen": [7, 7]}, ArgumentError, "nonpad_kv_seqlen must be a tensor, but list came"),
    ({"nonpad_kv_seqlen": torch.tensor([True, False])}, MaskError, "must be integers, but torch.bool came"),
    ({n: flat[n].to(torch.float8_e5m2) for n in ("Q", "K")} | {"V": flat["V"]}, ArgumentError, "e5m2, V torch.float32"),
    ({"V": v.long()}, ArgumentError, "V torch.int64: cast"),
    ({n: t.to(torch.float8_e5m2) for n, t in flat.items()}, ArgumentError, "float64, but came as torch.float8_e5m2"),
    ({"left_window_size": -3}, ArgumentError, "left_window_size .* got -3"),
    ({"qk_matmul_output_mode": 4}, ArgumentError, "got 4"),
    ({"softmax_precision": 7}, ArgumentError, "16 .bfloat16.; got 7"),
    ({"scale": -0.5}, ArgumentError, "got -0.5"),
    ({"softcap": -2.0}, ArgumentError, "got -2.0"),
    ({"Q": flat["Q"]}, ShapeError, r"Q \(2, 5, 96\), K \(2, 3, 7, 16\)"),
    ({"K": k.double()}, ArgumentError, "torch.float32 and torch.float64"),
    ({**flat, "q_num_heads": 6}, ShapeError, r"K \(2, 7, 48\) .* q_num_heads=6 and kv_num_heads=None"),
    ({**flat, "q_num_heads": 6.0, "kv_num_heads": 3}, ShapeError, "q_num_heads=6.0 and kv_num_heads=3"),
    ({**flat, "q_num_heads": 7, "kv_num_heads": 3}, ShapeError, r"Q \(2, 5, 96\) .* q_num_heads=7"),
    ({"q_num_heads": 6, "kv_num_heads": 3}, ArgumentError, "q_num_heads=6 and kv_num_heads=3 came"),
    ({"q_num_heads": 3, "opset": 23}, ArgumentError, "q_num_heads=3"),
    ({"past_key": past()["past_key"]}, ArgumentError, "past_value is missing"),
    ({**past(), "past_value": past()["past_value"][:, :, 1:]}, ShapeError, r"P=4, 13\) .* as \(2, 3, 3, 13\)"),
    (half, ShapeError, r"past_key must be \(B=2, Hk=3, P=4, 16\) in torch.float32.* torch.float16"),
    ({**past(), "nonpad_kv_seqlen": torch.tensor([7, 7])}, ArgumentError, r"past_key \(2, 3, 4, 16\)"),
    ({"nonpad_kv_seqlen": torch.tensor([7])}, ShapeError, r"B=2,\).* as \(1,\)"),
    ({"nonpad_kv_seqlen": torch.tensor([7.0, 7.0])}, MaskError, "torch.float32"),
    ({"attn_mask": torch.ones(5, 7, dtype=torch.int64)}, MaskError, "torch.int64"),
    ({"attn_mask": torch.ones(5, 8).bool()}, MaskError, r"\(2, 6, 5, 7\), its last .* as \(5, 8\) for opset 25"),
    ({"attn_mask": torch.ones(5, 6).bool(), "opset": 23}, MaskError, r"\(2, 6, 5, 7\), but came as \(5, 6\)"),
    ({"attn_mask": torch.ones(3, 5, 7).bool()}, MaskError, r"\(3, 5, 7\)"),
    ({"attn_mask": torch.tensor(True)}, MaskError, r"as \(\)"),
    ({"attn_mask": torch.ones(1, 1, 1, 5, 7)}, MaskError, r"\(1, 1, 1, 5, 7\)"),
]


@pytest.mark.parametrize(("wrong", "error", "sentence"), REFUSED, ids=[sentence for *_, sentence in REFUSED])
def test_what_does_not_fit_is_refused(wrong: dict[str, object], error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        ours.attention(**{"Q": q, "K": k, "V": v, **wrong})


def test_a_call_with_all_that_is_refused_elsewhere_is_taken() -> None:
    n = {"nonpad_kv_seqlen": torch.tensor([7, 5])}
    given = Given({"Q": q, "K": k, "V": v, **n, "attn_mask": torch.ones(5, 6).bool()}, {"right_window_size": 2})
    assert given.by_headwise()["Y"].shape == (B, Hq, Lq, Dv)
