"""A loss of the tokens before is found where a forward takes it itself, and nowhere else."""

import pytest

import headwise as hw
from tests.diagnosis.kinds import TEMPLATES

NEXT = TEMPLATES["NEXT"].text
LOSS = "nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())"
# the other direction, over the same tokens
BOTH = """later = nn.functional.scaled_dot_product_attention(q.flip(2), k.flip(2), v.flip(2), is_causal=True).flip(2)
        backward = self.out_proj(later.transpose(1, 2).flatten(2))
        logits = """


def kinds_of(tmp_path, text):
    """The faults of a class in a file."""
    file = tmp_path / "model.py"
    file.write_text(text, encoding="utf-8")
    return [each.kind for each in hw.doctor(f"{file}:Attention").faults]


@pytest.mark.parametrize(
    "loss",
    [
        "nn.functional.cross_entropy(logits[:, 1:].flatten(0, 1), ids[:, :-1].flatten())",
        "nn.functional.nll_loss(logits.log_softmax(-1)[:, 1:].flatten(0, 1), ids[:, :-1].reshape(-1))",
    ],
)
def test_outputs_that_are_held_against_the_tokens_before_are_a_fault(tmp_path, loss):
    shifted = "output = logits.log_softmax(-1)\n        return nn.functional.nll_loss(output[:, 1:].flatten(0, 1)"
    text = NEXT.replace(f"return {LOSS}", f"return {loss}").replace(
        "return nn.functional.nll_loss(logits.log_softmax(-1)[:, 1:].flatten(0, 1)", shifted
    )
    assert kinds_of(tmp_path, text) == ["loss-shift"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # a function of one's own may shift inside
        (LOSS, "self.own_loss(logits[:, 1:], ids[:, :-1])"),
        # what is copied on purpose
        (LOSS, "nn.functional.cross_entropy(logits.flatten(0, 1), ids.flatten())"),
        # the model of the tokens before looks ahead
        (LOSS, "nn.functional.cross_entropy(backward[:, 1:].flatten(0, 1), ids[:, :-1].flatten())"),
    ],
    ids=["a function of its own", "copied", "backward"],
)
def test_other_losses_are_left(tmp_path, before, after):
    text = NEXT.replace(before, after)
    assert text != NEXT
    if "backward" in after:
        text = text.replace("logits = self.out_proj", f"{BOTH}self.out_proj").replace(
            "return logits", "return logits + backward"
        )
    assert "loss-shift" not in kinds_of(tmp_path, text)


LABELLED = """
def trained(model, batches):
    for ids in batches:
        model({given})[1].backward()
"""


@pytest.mark.parametrize(
    ("given", "kinds"),
    [("ids, labels=ids", ["loss-shift"]), ("ids[:, :-1], labels=ids[:, 1:]", []), ("ids", [])],
    ids=["the same", "shifted", "none"],
)
def test_outputs_that_are_held_against_the_tokens_of_all_calls_are_a_fault(tmp_path, given, kinds):
    text = NEXT.replace("with_loss=False", "labels=None").replace("not with_loss", "labels is None")
    text = text.replace(LOSS, "logits, nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())")
    assert kinds_of(tmp_path, text + LABELLED.replace("{given}", given)) == kinds


@pytest.mark.parametrize(
    ("words", "kinds"),
    [
        ("labels: language modelling labels, usually simply the ids", ["loss-shift"]),
        ("ids: the tokens\n\n        labels: a copy of `ids`; -100 does not count", ["loss-shift"]),
        ("labels: they **are shifted** inside the model, so set `labels = ids`\n        when training", ["loss-shift"]),
        ("labels: the next token of each, of the same shape as ids", []),
        ("labels: of the same shape as ids", []),
        ("labels: usually the ids shifted by one, that is labels = ids[:, 1:]", []),
        ("labels: usually the ids, moved one place ahead", []),
        ("labels: usually the ids of the other language", []),
        ("labels: the tokens to tell", []),
    ],
)
def test_outputs_that_are_held_against_the_tokens_that_words_name_are_a_fault(tmp_path, words, kinds):
    text = NEXT.replace("with_loss=False", "labels=None").replace("not with_loss", "labels is None")
    text = text.replace(LOSS, "logits, nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())")
    text = text.replace("        # ids: (batch, tokens)\n", f'        """The logits.\n\n        {words}\n        """\n')
    assert words in text
    assert kinds_of(tmp_path, text) == kinds


def test_labels_that_words_call_the_tokens_and_the_loss_moves_are_right(tmp_path):
    text = NEXT.replace("with_loss=False", "labels=None").replace("not with_loss", "labels is None")
    text = text.replace(LOSS, f"logits, {LOSS.replace('ids', 'labels')}")
    text = text.replace("# ids: (batch, tokens)\n", '"""labels: usually simply the ids"""\n')
    assert kinds_of(tmp_path, text) == []


def test_words_that_the_calls_of_the_file_contradict_say_nothing(tmp_path):
    text = NEXT.replace("with_loss=False", "labels=None").replace("not with_loss", "labels is None")
    text = text.replace(LOSS, "logits, nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())")
    text = text.replace("# ids: (batch, tokens)\n", '"""labels: usually simply the ids"""\n')
    assert kinds_of(tmp_path, text) == ["loss-shift"]
    assert kinds_of(tmp_path, text + LABELLED.replace("{given}", "ids[:, :-1], labels=ids[:, 1:]")) == []
