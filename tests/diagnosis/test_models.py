"""A whole model is examined where its attentions are: each class that holds one, by itself as well."""

from pathlib import Path

import pytest
import torch
from torch import nn

from headwise.diagnosis.entry_point import doctor
from headwise.diagnosis.target_diagnosis import diagnosed
from headwise.errors import InputError
from tests.diagnosis.models import blocks, crossing, heads, pair, patches, plain_function, second

MODELS = Path(__file__).parent / "models"


def seen(target, **said):
    """The diagnosis of what a module of models/ defines."""
    kind = target if isinstance(target, type) else type(target)
    module = next(each for each in (blocks, crossing, heads, pair, patches, plain_function, second)
                  if each.__name__ == kind.__module__)  # fmt: skip
    file = module.__file__
    return diagnosed(target, title=kind.__name__, namespace=vars(module), files={file: Path(file).name}, **said)


def place(module, text):
    """Line, from 1, and column of a text of a module."""
    lines = Path(module.__file__).read_text().split("\n")
    line = next(at for at, each in enumerate(lines) if text in each)
    return line + 1, lines[line].index(text)


def test_of_three_blocks_the_one_that_is_faulty_is_named():
    found = seen(blocks.GPT)
    assert [each.kind for each in found.faults] == ["scale-wrong"]
    (fault,) = found.faults
    assert (fault.file, fault.line, fault.column) == ("blocks.py", *place(blocks, "s / C**0.5"))
    assert fault.proved
    assert found.examined["classes"] == "SelfA, Fused, Faulty"


def test_a_model_that_is_built_is_examined_as_its_class_is():
    torch.manual_seed(0)
    model = blocks.GPT()
    before = {name: each.clone() for name, each in model.state_dict().items()}
    found = seen(model)
    assert [(each.kind, each.line) for each in found.faults] == [("scale-wrong", place(blocks, "s / C**0.5")[0])]
    assert found.examined["classes"] == "SelfA, Fused, Faulty"
    assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())


def test_an_encoder_and_a_decoder_with_one_class_are_sound_and_the_class_meets_other_keys_and_a_mask():
    found = seen(pair.Transformer)
    assert (found.verdict, found.faults) == ("sound", ())
    assert found.examined["classes"] == "MHA"
    assert found.examined["cross"] is True
    assert found.examined["mask"] == "mask: attend"


def test_what_only_longer_keys_show_is_found_in_a_model_whose_keys_may_not_be_longer(tmp_path):
    text = (MODELS / "pair.py").read_text().replace("self.wk(key).view(B, -1,", "self.wk(key).view(B, query.size(1),")
    file = tmp_path / "pair.py"
    file.write_text(text)
    found = doctor(f"{file}:Transformer")
    line = next(at for at, each in enumerate(text.split("\n"), 1) if "self.wk(key)" in each)
    assert [(each.kind, each.line) for each in found.faults] == [("key-uses-query-length", line)]


def test_two_classes_of_one_model_are_both_examined_and_a_finding_stands_once():
    found = seen(crossing.Decoder)
    assert found.examined["classes"] == "SelfAttention, CrossAttention"
    places = [(each.kind, each.line) for each in found.findings]
    assert [(each.kind, each.line) for each in found.faults] == [("softmax-axis", place(crossing, "softmax(-2)")[0])]
    assert len(places) == len(set(places))


def test_attention_over_patches_is_examined_in_its_own_class():
    found = seen(patches.ViT)
    assert [(each.kind, each.line) for each in found.faults] == [("scale-wrong", place(patches, "dim**-0.5")[0])]
    assert found.examined["classes"] == "Attention"


def test_heads_in_a_list_are_examined_by_who_holds_them_all():
    found = seen(heads.Model)
    assert (found.verdict, found.faults) == ("sound", ())
    assert found.examined["classes"] == "MultiHead"


def test_attention_that_is_a_function_is_examined_by_the_layer_that_calls_it():
    found = seen(plain_function.Encoder)
    assert [(each.kind, each.line) for each in found.faults] == [("mask-weak-fill", place(plain_function, "1e-9")[0])]
    assert found.examined["classes"] == "Layer"


def test_a_class_is_built_with_the_flags_that_the_model_gives_it():
    class Flagged(heads.MultiHead):
        def __init__(self, n_embd, num_heads, block_size, is_open=False):
            super().__init__(n_embd, num_heads, block_size)
            self.is_open = is_open

        def forward(self, x):
            # with the flag off it may not be used
            return super().forward(x) if self.is_open else x.detach()

    class Model(nn.Module):
        def __init__(self, n_embd, num_heads):
            super().__init__()
            self.norm = nn.LayerNorm(n_embd)
            self.attention = Flagged(n_embd, num_heads, 64, is_open=True)

        def forward(self, x):
            return x + self.attention(self.norm(x))

    found = diagnosed(Model, title="Model", namespace={}, files={__file__: "test.py", heads.__file__: "heads.py"})
    assert (found.verdict, found.faults) == ("sound", ())
    assert found.examined["classes"] == "Flagged"


def test_a_model_that_cannot_be_called_is_examined_by_the_classes_in_it():
    class Odd(nn.Module):
        def __init__(self, d_model, n_head):
            super().__init__()
            self.attention = blocks.Faulty(d_model, n_head)

        def forward(self, parcel):
            return self.attention(parcel.open()["features"])

    found = diagnosed(Odd, title="Odd", namespace={}, files={__file__: "test.py", blocks.__file__: "blocks.py"})
    assert [each.kind for each in found.faults] == ["scale-wrong"]
    assert found.examined["classes"] == "Faulty"


def test_a_file_of_several_classes_lists_them():
    with pytest.raises(InputError, match="SelfA, Fused, Faulty, Block, GPT"):
        doctor(str(MODELS / "blocks.py"))


def test_a_class_that_takes_the_batch_second_is_sound_there_and_the_layout_is_said():
    found = seen(second.SelfA)
    assert (found.verdict, found.faults) == ("sound", ())
    assert found.examined["layout"] == "[L, B, D]"


def test_a_class_that_takes_the_batch_second_is_sound_in_a_model_that_hands_it_so():
    found = seen(second.Net)
    assert (found.verdict, found.faults) == ("sound", ())


def test_what_names_its_batch_first_and_mixes_samples_is_accused():
    class Confused(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.a = second.SelfA(width, heads)

        def forward(self, x):
            batch, length, width = x.shape
            return self.a(x).reshape(batch, length, width)

    found = diagnosed(Confused, title="Confused", namespace={}, files={__file__: "t.py", second.__file__: "second.py"})
    assert found.verdict == "faulty"


def test_numbers_of_tokens_count_as_an_input_that_is_used():
    found = seen(pair.Transformer)
    assert "input-ignored" not in [each.kind for each in found.findings]


class Sunk(nn.Module):
    """Attention with a learned sink beside the keys, whose rows sum to less the more is masked."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.sinks = nn.Parameter(torch.zeros(num_heads))
        self.out = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        q, k, v = (each.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for each in self.qkv(x).chunk(3, -1))
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if mask is not None:
            scores = scores + mask
        sinks = self.sinks[None, :, None, None].expand(*scores.shape[:-1], 1)
        weights = torch.cat([scores, sinks], -1).softmax(-1)[..., :-1]
        return self.out((weights @ v).transpose(1, 2).flatten(2))


def test_a_mask_before_a_softmax_with_a_sink_is_not_one_after_it():
    found = diagnosed(Sunk, title="Sunk", namespace={}, files={__file__: "test_models.py"})
    assert (found.verdict, found.faults) == ("sound", ())
    assert found.examined["mask"] == "mask: additive"
