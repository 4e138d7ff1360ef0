"""A layer exported to ONNX is one Attention operator where its features fit it, and runs at any size in onnxruntime."""

import copy
import logging
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

import headwise as hw
from headwise.compat.onnx import export
from headwise.compat.onnx.exporter_warnings import LOGGED
from headwise.errors import ArgumentError, InputError
from headwise.testing import assert_within_budget

pytestmark = pytest.mark.needs("onnx", "onnxruntime", "onnxscript")
E, HEADS = 24, 4
ANY_SIZE = {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}
# exported at the first, run at all of them
SIZES = [(3, 7), (2, 19), (1, 1)]


class Padded(nn.Module):
    """One layer whose padding is an input."""

    def __init__(self, mask: hw.Mask | None, **options: Any) -> None:
        super().__init__()
        self.mask, self.attn = mask, hw.MultiHeadAttention(E, HEADS, **options)

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        return self.attn(x, mask=hw.keys(keep) if self.mask is None else self.mask & hw.keys(keep))


class Plain(Padded):
    """One layer without padding."""

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        return self.attn(x, mask=self.mask) + 0.0 * keep[..., None]


FIT: dict[str, Callable[[], Padded]] = {
    "nothing but the layer": lambda: Plain(None),
    "causal": lambda: Plain(hw.causal()),
    "padding alone": lambda: Padded(None),
    "padding, grouped heads, narrow values": lambda: Padded(hw.causal(), num_kv_heads=2, v_head_dim=5),
    "rotary, normalised, window": lambda: Padded(hw.window(keys=4), position=hw.Rotary(), qk_norm="rms"),
    "softcap, and a scale below zero": lambda: Padded(hw.causal(), score=hw.DotProduct(softcap=2.0, scale=-0.7)),
    "a learned bias": lambda: Plain(None, position=hw.RelativeBias()),
    "float64, and a scale that float32 rounds": lambda: Padded(
        hw.causal(), dtype=torch.float64, score=hw.DotProduct(scale=0.3, softcap=2.5)
    ),
    "half": lambda: Padded(hw.causal(), dtype=torch.float16, position=hw.Alibi()),
}
DECOMPOSED: dict[str, Callable[[], Padded]] = {
    "a learned sink": lambda: Padded(hw.causal(), score=hw.DotProduct(sink="learned")),
    "additive scores": lambda: Padded(hw.causal(), score=hw.Additive(5)),
}


def inputs(B: int, L: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    keep = torch.rand(B, L) > 0.3
    # the last sample of several is all padding
    keep[-1] = B == 1
    return torch.randn(B, L, E).to(dtype), keep


def nodes(file: Path) -> list[Any]:
    import onnx

    return list(onnx.load(file).graph.node)


def operators(file: Path) -> list[str]:
    return [node.op_type for node in nodes(file)]


def run(file: Path, *given: Tensor) -> Tensor:
    import onnxruntime

    session = onnxruntime.InferenceSession(file)
    named = {each.name: t.numpy() for each, t in zip(session.get_inputs(), given, strict=True)}
    return torch.from_numpy(session.run(None, named)[0])


def assert_same(file: Path, model: nn.Module, *given: Tensor) -> None:
    exact = copy.deepcopy(model).double()
    want = exact(*(t.double() if t.is_floating_point() else t for t in given))
    assert_within_budget(run(file, *given), want.detach(), model(*given).detach())


@pytest.mark.parametrize("name", [*FIT, *DECOMPOSED])
def test_it_is_one_operator_where_it_fits_and_gives_the_same_numbers_at_any_size(name: str, tmp_path: Path) -> None:
    model = {**FIT, **DECOMPOSED}[name]().eval()
    dtype = model.attn.q_proj.weight.dtype
    export(model, inputs(*SIZES[0], dtype), tmp_path / "layer.onnx", dynamic_shapes=(ANY_SIZE, ANY_SIZE))
    found = operators(tmp_path / "layer.onnx")
    assert (found.count("Attention"), found.count("Softmax")) == ((1, 0) if name in FIT else (0, 1))
    for B, L in SIZES:
        assert_same(tmp_path / "layer.onnx", model, *inputs(B, L, dtype))


def test_a_mask_that_queries_share_is_whole_in_later_opsets(tmp_path: Path) -> None:
    model = Padded(None, num_kv_heads=2).eval()
    export(model, inputs(3, 7), tmp_path / "layer.onnx", dynamic_shapes=(ANY_SIZE, ANY_SIZE), opset=25)
    assert operators(tmp_path / "layer.onnx").count("Attention") == 1
    assert_same(tmp_path / "layer.onnx", model, *inputs(2, 5))


def test_padding_may_hold_nan_and_a_sample_of_padding_gets_zeros(tmp_path: Path) -> None:
    model = Padded(None).eval()
    x, keep = inputs(3, 7)
    x = x.masked_fill(~keep[..., None], float("nan"))
    export(model, (x, keep), tmp_path / "layer.onnx")
    assert_same(tmp_path / "layer.onnx", model, x, keep)
    assert not run(tmp_path / "layer.onnx", x, keep)[-1].isnan().any()
    # onnxruntime 1.31 gives zeros itself; the program does not count on it
    (mixed,) = (node.output[0] for node in nodes(tmp_path / "layer.onnx") if node.op_type == "Attention")
    assert [node.op_type for node in nodes(tmp_path / "layer.onnx") if mixed in node.input] == ["Where"]


def test_a_bias_wider_than_the_queries_is_not_narrowed(tmp_path: Path) -> None:
    class Biased(nn.Module):
        def forward(self, q: Tensor, bias: Tensor) -> Tensor:
            return hw.attention(q, q, q, attn_bias=bias)

    # half holds only every second number here
    q, bias = torch.randn(2, 3, 5, 8).half(), torch.randn(5, 5) + 2049.0
    export(Biased(), (q, bias), tmp_path / "call.onnx")
    assert operators(tmp_path / "call.onnx").count("Attention") == 1
    assert_same(tmp_path / "call.onnx", Biased(), q, bias)


@pytest.mark.parametrize("example", [7, 5], ids=["as long as the query", "shorter than the query"])
def test_cross_attention_leaves_both_lengths_open(example: int, tmp_path: Path) -> None:
    class Crossed(Padded):
        def forward(self, x: Tensor, source: Tensor) -> Tensor:
            return self.attn(x, source, mask=self.mask)

    model = Crossed(hw.causal()).eval()
    shown = (torch.randn(3, 7, E), torch.randn(3, example, E))
    export(model, shown, tmp_path / "layer.onnx", dynamic_shapes=({1: Dim.DYNAMIC}, {1: Dim.DYNAMIC}))
    for Lq, Lk in ((7, 5), (4, 11), (6, 6)):
        assert_same(tmp_path / "layer.onnx", model, torch.randn(3, Lq, E), torch.randn(3, Lk, E))


def test_a_model_of_several_layers_is_exported_in_eval_mode_and_handed_back_in_its_own(tmp_path: Path) -> None:
    class Stack(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = (hw.MultiHeadAttention(E, HEADS, dropout=0.9) for _ in range(2))
            self.second.eval()

        def forward(self, x: Tensor) -> Tensor:
            return self.second(self.first(x, mask=hw.causal()))

    model = Stack()
    export(model, (torch.randn(3, 7, E),), tmp_path / "stack.onnx")
    assert [part.training for part in (model, model.first, model.second)] == [True, True, False]
    assert operators(tmp_path / "stack.onnx").count("Attention") == 2
    assert_same(tmp_path / "stack.onnx", model.eval(), torch.randn(3, 7, E))


def test_the_exporter_is_quiet_about_itself_and_says_what_a_model_warns_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Old(Plain):
        def forward(self, x: Tensor, keep: Tensor) -> Tensor:
            warnings.warn("an old layer", DeprecationWarning, stacklevel=2)
            logging.getLogger("torch.onnx._internal.exporter._core").warning("Tensor 'a' is not one of them")
            return super().forward(x, keep)

    model = Old(hw.causal(), position=hw.Rotary())
    before = [logging.getLogger(name).filters[:] for name, _, _ in LOGGED]
    with pytest.warns(DeprecationWarning, match="an old layer") as warned:
        export(model, inputs(3, 7), tmp_path / "layer.onnx", dynamic_shapes=(ANY_SIZE, ANY_SIZE))
    assert {str(each.message) for each in warned} == {"an old layer"}
    logged = {record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING}
    assert logged == {"Tensor 'a' is not one of them"}
    assert [logging.getLogger(name).filters for name, _, _ in LOGGED] == before


def test_an_explicit_backend_is_exported_as_it_computes(tmp_path: Path) -> None:
    class Explicit(nn.Module):
        def forward(self, q: Tensor) -> Tensor:
            return hw.attention(q, q, q, mask=hw.causal(), backend="reference")

    q = torch.randn(2, 3, 5, 8)
    export(Explicit(), (q,), tmp_path / "call.onnx")
    assert "Attention" not in operators(tmp_path / "call.onnx")
    assert_same(tmp_path / "call.onnx", Explicit(), q)


def test_dropout_that_is_always_on_is_refused(tmp_path: Path) -> None:
    class Noisy(nn.Module):
        def forward(self, q: Tensor) -> Tensor:
            return hw.attention(q, q, q, dropout=0.25)

    with pytest.raises(ArgumentError, match=r"dropout=0\.25"):
        export(Noisy(), (torch.randn(2, 3, 5, 8),), tmp_path / "call.onnx")


def test_an_opset_without_the_operator_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="opset 23, but opset=22"):
        export(Padded(None), inputs(3, 7), tmp_path / "layer.onnx", opset=22)
    assert not (tmp_path / "layer.onnx").exists()


def test_an_opset_that_torch_does_not_write_is_refused_and_no_file_left(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"must write opset 99, but gave \d+: give one that this version"):
        export(Padded(None), inputs(3, 7), tmp_path / "layer.onnx", opset=99)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"opset": "23"}, "opset 23, but opset='23'"),
        ({"opset": 23.5}, r"opset 23, but opset=23\.5"),
        ({"model": torch.relu}, "export takes an nn.Module, but builtin_function_or_method came"),
        ({"path": 5}, "path must be the name of a file, but int came"),
    ],
)
def test_what_is_no_model_no_path_and_no_opset_is_refused(wrong: dict[str, Any], words: str, tmp_path: Path) -> None:
    given = {"model": Padded(None), "args": inputs(3, 7), "path": tmp_path / "layer.onnx", **wrong}
    with pytest.raises(ArgumentError, match=words):
        export(**given)


def test_under_autocast_it_computes_in_the_dtype_of_autocast(tmp_path: Path) -> None:
    class Cast(nn.Module):
        def forward(self, q: Tensor) -> Tensor:
            with torch.autocast("cpu", dtype=torch.float16):
                return hw.attention(q, q, q, mask=hw.causal()).float()

    q = torch.randn(2, 3, 5, 8)
    export(Cast(), (q,), tmp_path / "call.onnx")
    got, half = run(tmp_path / "call.onnx", q), q.half()
    assert torch.equal(got, got.half().float())
    assert_within_budget(got.half(), hw.testing.exact_attention(half, half, half, mask=hw.causal()), Cast()(q).half())


def test_inputs_that_are_no_tuple_and_a_folder_that_is_not_there_are_refused(tmp_path):
    layer, x = hw.MultiHeadAttention(8, 2).eval(), torch.randn(2, 3, 8)
    with pytest.raises(
        ArgumentError, match=r"args must be a tuple of what forward takes, but Tensor came: write \(x,\)"
    ):
        export(layer, x, tmp_path / "layer.onnx")
    with pytest.raises(ArgumentError, match="a folder that exists, but 'nowhere' does not"):
        export(layer, (x,), tmp_path / "nowhere" / "layer.onnx")
    assert list(tmp_path.iterdir()) == []


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    model, file = Plain(None), tmp_path / "layer.onnx"
    export(model, inputs(3, 7), file)
    before = file.read_bytes()

    def halfway(program: Any, where: Path, **_: Any) -> None:
        Path(where).write_bytes(b"half")
        raise OSError("the disk is full")

    monkeypatch.setattr(torch.onnx.ONNXProgram, "save", halfway)
    with pytest.raises(InputError, match=r"layer\.onnx could not be written"):
        export(model, inputs(3, 7), file)
    assert [each.name for each in tmp_path.iterdir()] == ["layer.onnx"]
    assert file.read_bytes() == before


def test_weights_that_lie_beside_the_file_are_found_by_it(tmp_path, monkeypatch):
    model, file, save = Plain(None), tmp_path / "layer.onnx", torch.onnx.ONNXProgram.save
    monkeypatch.setattr(torch.onnx.ONNXProgram, "save", lambda program, where: save(program, where, external_data=True))
    export(model, inputs(3, 7), file)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["layer.onnx", "layer.onnx.data"]
    assert_same(file, model, *inputs(3, 7))


@pytest.mark.parametrize("package", ["onnx", "onnxscript"])
def test_without_its_parts_the_extra_is_named(package, monkeypatch, tmp_path):
    module = sys.modules[export.__module__]
    monkeypatch.setattr(module, "find_spec", lambda name: None if name == package else object())
    said = rf"needs the package {package}, which is not installed: pip install '\.\[onnx\]' in the folder of headwise"
    with pytest.raises(InputError, match=said):
        export(hw.MultiHeadAttention(8, 2), (torch.zeros(1, 3, 8),), tmp_path / "layer.onnx")
