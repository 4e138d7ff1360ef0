"""headwise convert: what it reads, writes, prints and refuses, in both languages."""

import json
import pickle
import re

import pytest
import torch
from torch import nn

import headwise as hw
from headwise.wording import CHINESE, ENGLISH

pytestmark = pytest.mark.needs("safetensors")


def read(file):
    from safetensors.torch import load_file

    return load_file(file)


def save(weights, file):
    from safetensors.torch import save_file

    save_file({name: t.contiguous() for name, t in weights.items()}, file)
    return file


@pytest.fixture
def model(tmp_path):
    """A file of two layers of nn.MultiheadAttention among other weights."""
    torch.manual_seed(0)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(12, 3, 7), 2, enable_nested_tensor=False)
    return save(encoder.state_dict(), tmp_path / "model.safetensors"), encoder


@pytest.mark.needs("minilm")
def test_the_command_of_the_readme(headwise, tmp_path):
    from headwise.pages.models import embedded_folder

    out = tmp_path / "torch.safetensors"
    weights = embedded_folder() / "model.safetensors"
    done = headwise("convert", weights, "--from", "bert", "--layer", 3, "--to", "torch", "--out", out)
    assert (done.exit_code, done.stderr) == (0, "")
    assert "Proved against the formula, in float64" in done.stdout
    assert "output.LayerNorm.bias: ignored, it stays in the model" in done.stdout
    query = read(weights)["encoder.layer.3.attention.self.query.weight"]
    assert torch.equal(read(out)["in_proj_weight"][:384], query)
    assert [file.name for file in tmp_path.iterdir()] == ["torch.safetensors"]


@pytest.mark.parametrize("suffix", [".safetensors", ".pt", ".pth", ".bin"])
def test_a_layer_is_written_as_the_suffix_says(headwise, model, tmp_path, suffix):
    weights, encoder = model
    out = tmp_path / f"out{suffix}"
    done = headwise("convert", weights, "--layer", 1, "--heads", 3, "--to", "d2l", "--out", out)
    assert (done.exit_code, done.stderr) == (0, "")
    found = read(out) if suffix == ".safetensors" else torch.load(out, weights_only=True)
    wanted = hw.compat.to_state_dict(hw.compat.convert(encoder.layers[1].self_attn).layer, "d2l")
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


def test_a_pickle_of_tensors_is_read_and_headwise_names_are_written(headwise, model, tmp_path):
    weights, out = tmp_path / "layer.pt", tmp_path / "out.safetensors"
    torch.save(model[1].layers[0].self_attn.state_dict(), weights)
    done = headwise("convert", weights, "--heads", 3, "--out", out)
    assert done.exit_code == 0
    layer = hw.MultiHeadAttention(12, 3)
    layer.load_state_dict(read(out))
    assert torch.equal(layer.out_proj.weight, model[1].layers[0].self_attn.out_proj.weight)


def test_without_out_nothing_is_written(headwise, model, tmp_path):
    done = headwise("convert", model[0], "--block", "layers.0.self_attn", "--heads", 3)
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (0, ENGLISH["convert.unwritten"])
    assert [file.name for file in tmp_path.iterdir()] == ["model.safetensors"]


def test_the_configuration_beside_the_weights_is_read_or_another_one(headwise, model, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"num_attention_heads": 3}))
    assert headwise("convert", model[0], "--layer", 0).exit_code == 0
    other = tmp_path / "other.json"
    other.write_text(json.dumps({"num_attention_heads": 5}))
    done = headwise("convert", model[0], "--layer", 0, "--config", other)
    assert (done.exit_code, "num_heads=5 must divide the 12 rows" in done.stderr) == (2, True)


def test_a_file_that_exists_is_replaced_only_by_force(headwise, model, tmp_path):
    out = tmp_path / "out.pt"
    out.write_text("mine")
    command = ("convert", model[0], "--layer", 0, "--heads", 3, "--out", out)
    done = headwise(*command)
    assert (done.exit_code, done.stderr) == (2, ENGLISH["refuse.exists.command"].format(file=out) + "\n")
    assert out.read_text() == "mine"
    assert headwise(*command, "--force").exit_code == 0
    assert "q_proj.weight" in torch.load(out, weights_only=True)


def test_nothing_half_written_is_left(headwise, model, tmp_path, monkeypatch):
    def full(weights, file):
        file.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    done = headwise("convert", model[0], "--layer", 0, "--heads", 3, "--out", tmp_path / "out.pt")
    assert (done.exit_code, "No space left on device" in done.stderr) == (2, True)
    assert [file.name for file in tmp_path.iterdir()] == ["model.safetensors"]


class Runs:
    def __reduce__(self):
        return print, ("a pickle ran",)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (
            "evil.pt",
            pickle.dumps({"q": Runs()}),
            "evil.pt must hold tensors only, but it is a pickle that would run code",
        ),
        ("torn.safetensors", b"\x08\x00\x00", "torn.safetensors must hold weights, but could not be read"),
        ("torn.pt", b"", "torn.pt must hold weights, but could not be read"),
        ("model.onnx", b"x", "must end in one of .safetensors, .pt, .pth, .bin, but came as"),
    ],
)
def test_a_file_that_holds_no_weights_is_refused_unrun(headwise, tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    done = headwise("convert", tmp_path / name, "--heads", 3)
    assert (done.exit_code, done.stdout, said in done.stderr) == (2, "", True), done.stderr


def test_a_pickle_of_a_module_or_of_a_list_is_refused(headwise, tmp_path):
    torch.save(nn.MultiheadAttention(12, 3), tmp_path / "module.pt")
    assert "is a pickle that would run code" in headwise("convert", tmp_path / "module.pt").stderr
    torch.save([torch.zeros(2)], tmp_path / "list.pt")
    assert "but it holds a list of something else" in headwise("convert", tmp_path / "list.pt").stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "but the file holds 2: give --layer or --block for one of layers.0.self_attn, layers.1.self_attn."),
        (("--layer", 7), "but 0 are of --layer 7: give --layer or --block for one of layers.0.self_attn,"),
        (("--block", "decoder"), "none begins with decoder: the names are like layers.0.linear1.bias,"),
        (("--layer", 0), "The number of heads must be known, .*: give --heads, or --config with"),
        (("--layer", 0, "--heads", 3, "--to", "llama"), "'llama' can do, but this one has no rotary"),
        (("--layer", 0, "--heads", 3, "--to", "nobody"), "must be one of torch, .*; got 'nobody'"),
        (("--from", "bert"), r"none was found among .*; looked for: self\.query\.weight \(bert\)"),
        (("--layer", 0, "--config", "none.json"), r"A configuration must be one json object, but none\.json is not"),
        (("--layer", 0, "--out", "nowhere/out.pt"), "folder that exists, but nowhere does not"),
        (("--layer", 0, "--out", "out.txt"), "must end in one of .safetensors, .pt, .pth, .bin, but came as out.txt"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_refused_in_one_sentence(headwise, model, tmp_path, monkeypatch, options, said):
    monkeypatch.chdir(tmp_path)
    done = headwise("convert", "model.safetensors", *options)
    assert (done.exit_code, done.stdout) == (2, "")
    assert re.search(said, done.stderr), done.stderr
    assert done.stderr.count("\n") == 1
    assert [file.name for file in tmp_path.iterdir()] == ["model.safetensors"]


def test_no_file_and_a_missing_file_are_refused_in_the_language_asked_for(headwise, tmp_path):
    done = headwise("convert", "--lang", "zh")
    line = "headwise convert bert.safetensors --layer 3 -o out.safetensors"
    said = CHINESE["cli.missing"].format(what="WEIGHTS", example=line, command="headwise convert")
    assert (done.exit_code, done.stderr) == (2, said + "\n")
    missing = tmp_path / "none.pt"
    assert headwise("convert", missing).stderr == ENGLISH["refuse.no_file"].format(file=missing) + "\n"


def test_the_list_shows_every_convention_and_its_other_names(headwise):
    done = headwise("convert", "--list")
    assert done.exit_code == 0
    shown = re.findall(r"^  (\w+) ", done.stdout, flags=re.MULTILINE)
    assert {"torch", "d2l", "bert", "llama", "gpt2", "t5", "keras", "x_transformers"} <= set(shown)
    assert "(note_002, note_003)" in done.stdout
    assert headwise("convert", "--list", "--lang", "zh").stdout.startswith(CHINESE["convert.list"])


def test_what_is_untold_is_asked_for_in_the_options_of_the_command(headwise, tmp_path):
    names = {"q_proj.weight": (6, 6), "k_proj.weight": (6, 6), "v_proj.weight": (6, 6), "o_proj.weight": (6, 6)}
    weights = save({name: torch.randn(size) for name, size in names.items()}, tmp_path / "layer.safetensors")
    done = headwise("convert", weights, "--heads", 2)
    assert "share k_proj.weight, o_proj.weight, q_proj.weight, v_proj.weight and compute different" in done.stderr
    assert done.stderr.endswith("say which with --from.\n")
    done = headwise("convert", weights, "--heads", 2, "--from", "llama")
    assert "rope_theta must be known, but the base of the rotation is no weight: give --config" in done.stderr
    done = headwise("convert", weights, "--heads", 2, "--from", "llama", "--lang", "zh")
    assert done.stderr == "必须知道 rope_theta，但旋转的底数不是权重：请用 --config 给出写有 rope_theta 的文件。\n"


def test_the_report_ends_with_the_names_that_are_written(headwise, model):
    done = headwise("convert", model[0], "--layer", 1, "--heads", 3, "--to", "gpt2")
    assert "  c_attn.weight (12, 36) <- q_proj.weight, k_proj.weight, v_proj.weight\n" in done.stdout
    assert "<-" not in headwise("convert", model[0], "--layer", 1, "--heads", 3).stdout


def test_report_and_list_and_help_are_in_the_language_asked_for(headwise, model):
    done = headwise("convert", model[0], "--layer", 1, "--heads", 3, "--to", "gpt2", "--lang", "zh")
    words = re.sub(
        r"\b(q|k|v|out|in|c)_?\w*[\w.]*|float64|MultiHeadAttention|gpt2|torch|add_zero_attn", "", done.stdout
    )
    assert re.findall(r"[a-z]{3,} [a-z]+", words) == []
    assert "已在 float64 下与公式比较并证实" in done.stdout
    listed = headwise("convert", "--list", "--lang", "zh").stdout.splitlines()[1:]
    assert all(re.search("[\u4e00-\u9fff]", line) for line in listed), listed
    assert CHINESE["convert.help.weights"][:12] in headwise("convert", "--lang", "zh", "--help").stdout
    assert ENGLISH["look.help.text"] in " ".join(headwise("look", "--help").stdout.split())
