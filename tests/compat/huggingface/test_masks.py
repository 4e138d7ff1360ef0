"""What headwise makes of the pieces of a mask: the same pairs as transformers' own bool mask, without the tensor."""

import pytest
import torch

from headwise.compat.huggingface.masks import HandedMask, handed
from headwise.errors import ConversionError, MaskError
from headwise.masks import causal, keys, lengths, window
from headwise.testing import assert_within_budget
from tests.compat.huggingface.models import padded, run, three

pytestmark = pytest.mark.needs("transformers")

B = 3
# q_length, kv_length, q_offset, kv_offset: a prompt, a step, a chunk, a full window, a static cache, a prefix
LENGTHS = [
    (7, 7, 0, 0),
    (1, 9, 8, 0),
    (3, 9, 6, 0),
    (2, 5, 8, 5),
    (1, 4, 9, 6),
    (4, 11, 0, 0),
    (4, 11, 3, 0),
    (2, 6, 0, 0),
]

NAMES = [
    "causal", "all", "window 1", "window 4", "window 40", "both sides 2", "both sides 40", "back only", "no window",
    "chunks", "either", "strange",
]  # fmt: skip


def functions():
    """Mask functions of transformers by name, and whether headwise knows what they mean."""
    from transformers import masking_utils as made

    packed = torch.tensor([[0, 0, 1, 1, 1, 2, 2, 2, 2, 2, 2]]).expand(B, -1)
    positions = torch.tensor([[0, 1, 0, 1, 2, 0, 1, 2, 3, 4, 5]]).expand(B, -1)
    return {
        "causal": (made.causal_mask_function, True),
        "all": (made.bidirectional_mask_function, True),
        "window 1": (made.sliding_window_causal_mask_function(1), True),
        "window 4": (made.sliding_window_causal_mask_function(4), True),
        "window 40": (made.sliding_window_causal_mask_function(40), True),
        "both sides 2": (made.sliding_window_bidirectional_mask_function(2), True),
        "both sides 40": (made.sliding_window_bidirectional_mask_function(40), True),
        "back only": (made.sliding_window_overlay(3), True),
        "no window": (made.sliding_window_causal_mask_function(0), False),
        "chunks": (made.chunked_causal_mask_function(3, torch.tensor([0, 1, 2])), False),
        "either": (made.or_masks(made.causal_mask_function, made.sliding_window_overlay(2)), False),
        "strange": (lambda b, h, i, j: (i + 2 * j + b) % 3 != 0, False),
        "packed": (made.packed_sequence_compatibility_function(made.causal_mask_function, positions, packed), True),
        "packed window": (
            made.packed_sequence_compatibility_function(
                made.sliding_window_causal_mask_function(2), positions, packed
            ),
            True,
        ),
    }  # fmt: skip


def paddings(length):
    """Masks (B, length) by name: none, one that hides nothing, left, right, and a sample of nothing but padding."""
    count = torch.tensor([length, length - 2, 1])[:, None]
    right = torch.arange(length) < count
    gone = right.clone()
    gone[1] = False
    whole = torch.ones(B, length, dtype=torch.bool)
    return {"none": None, "whole": whole, "right": right, "left": right.flip(1), "a sample gone": gone}


def pieces(function, lengths_of_call, padding, **more):
    q_length, kv_length, q_offset, kv_offset = lengths_of_call
    return {
        "batch_size": B, "q_length": q_length, "kv_length": kv_length, "q_offset": q_offset, "kv_offset": kv_offset,
        "mask_function": function, "attention_mask": padding, "allow_is_causal_skip": True, "device": "cpu",
        "dtype": torch.float32, "config": None, "use_vmap": False, **more,
    }  # fmt: skip


def theirs(given):
    from transformers.masking_utils import sdpa_mask

    return sdpa_mask(**{**given, "allow_is_causal_skip": False, "allow_is_bidirectional_skip": False})


@pytest.mark.parametrize("lengths_of_call", LENGTHS)
@pytest.mark.parametrize("name", NAMES)
def test_the_pairs_are_those_of_transformers(name, lengths_of_call):
    function, is_known = functions()[name]
    q_length, kv_length, q_offset, _ = lengths_of_call
    for padding in paddings(q_offset + q_length).values():
        given = pieces(function, lengths_of_call, padding)
        ours = handed(**given)
        assert isinstance(ours, HandedMask)
        assert torch.equal(ours.dense(), theirs(given))
        assert ours.shape == (B, 1, q_length, kv_length)
        assert ("allowed" in repr(ours)) is not is_known


@pytest.mark.parametrize("name", ["packed", "packed window"])
def test_packed_sequences_are_documents(name):
    given = pieces(functions()[name][0], (11, 11, 0, 0), None, allow_is_causal_skip=False)
    ours = handed(**given)
    assert torch.equal(ours.dense(), theirs(given))
    assert "documents" in repr(ours.mask)


def test_what_hides_nothing_is_left_out():
    known = {name: function for name, (function, _) in functions().items()}
    for name, call, padding, wanted in [
        ("causal", (7, 7, 0, 0), "none", causal()),
        ("causal", (7, 7, 0, 0), "whole", causal()),
        ("causal", (1, 9, 8, 0), "whole", None),
        ("all", (7, 7, 0, 0), "whole", None),
        ("window 40", (7, 7, 0, 0), "none", causal()),
        ("window 4", (7, 7, 0, 0), "none", window(keys=4)),
        ("both sides 40", (7, 7, 0, 0), "none", None),
        ("all", (7, 7, 0, 0), "right", keys(paddings(7)["right"])),
        ("window 4", (7, 7, 0, 0), "left", keys(paddings(7)["left"]) & window(keys=4)),
    ]:
        assert handed(**pieces(known[name], call, paddings(call[0] + call[2])[padding])).mask == wanted


def test_a_static_cache_gets_a_tensor():
    from transformers.masking_utils import causal_mask_function

    step = {"allow_is_causal_skip": False}
    for given in (
        pieces(causal_mask_function, (1, 9, 3, 0), paddings(4)["left"], **step),
        pieces(causal_mask_function, (4, 9, torch.tensor(2), 0), paddings(6)["left"]),
    ):
        ours = handed(**given)
        assert isinstance(ours, torch.Tensor)
        assert torch.equal(ours, theirs(given))


def test_a_function_of_single_places_is_asked_place_by_place():
    given = pieces(lambda b, h, i, j: j <= i, (5, 5, 0, 0), paddings(5)["right"], use_vmap=True)
    assert torch.equal(handed(**given).dense(), theirs(given))


def test_a_mask_that_hides_nothing_is_none_only_where_the_model_takes_that():
    from transformers.masking_utils import bidirectional_mask_function

    for padding in (None, paddings(7)["whole"]):
        given = pieces(bidirectional_mask_function, (7, 7, 0, 0), padding)
        assert handed(**given, allow_is_bidirectional_skip=True) is None
        assert handed(**given, allow_is_bidirectional_skip=False).mask is None


def test_a_mask_made_before_the_forward_passes_through():
    mask = HandedMask(causal(), (B, 1, 4, 4), torch.device("cpu"))
    assert handed(attention_mask=mask) is mask
    assert mask.contiguous() is mask


def test_a_handed_mask_is_cut_as_a_tensor():
    mask = HandedMask(causal() & lengths([4, 3, 2]), (B, 1, 4, 6), torch.device("cpu"))
    part = mask[:, :, 1:, :5]
    assert (part.ndim, part.dim(), part.size(), part.size(2), part.dtype) == (4, 4, (B, 1, 3, 5), 3, torch.bool)
    assert torch.equal(part.dense(), mask.dense()[:, :, 1:, :5])
    assert torch.equal(mask.to("cpu").to(torch.device("cpu"), dtype=torch.bool).dense(), mask.dense())
    assert HandedMask(None, (B, 1, 4, 6), torch.device("cpu")).dense().all()


@pytest.mark.parametrize(
    ("use", "what"),
    [
        (lambda mask: torch.zeros(3, 1, 4, 4) + mask, "calls add with it"),
        (lambda mask: torch.zeros(3, 1, 4, 4).masked_fill(mask, 0.0), "calls masked_fill with it"),
        (lambda mask: torch.where(mask, 0.0, 1.0), "calls where with it"),
        (lambda mask: mask.to(torch.float32), r"asks for it by to\(torch.float32\)"),
        (lambda mask: mask[:, 0], r"takes a part of it of shape \(3, 4, 4\)"),
    ],
)
def test_a_model_that_would_read_the_bool_as_scores_is_refused(use, what):
    mask = HandedMask(causal(), (B, 1, 4, 4), torch.device("cpu"))
    with pytest.raises(MaskError, match=f'but the model {what}: load this model with attn_implementation="eager"'):
        use(mask)


def test_packed_rows_are_the_same_as_alone():
    models, ids = three("llama"), padded("right")["input_ids"]
    packed = {"input_ids": ids, "position_ids": torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4]]).expand(2, -1)}
    with torch.no_grad():
        ours = run(models.ours, packed, use_cache=False).last_hidden_state
        exact = run(models.exact, packed, use_cache=False).last_hidden_state
        plain = run(models.eager, packed, use_cache=False).last_hidden_state
        alone = run(models.ours, {"input_ids": ids[:, 4:]}).last_hidden_state
    assert_within_budget(ours, exact, plain)
    assert_within_budget(alone, exact[:, 4:], plain[:, 4:])


def test_a_mask_of_thousands_of_tokens_holds_no_tensor_of_pairs():
    from transformers.masking_utils import sliding_window_causal_mask_function

    length = 1 << 20
    given = pieces(sliding_window_causal_mask_function(4096), (length, length, 0, 0), None)
    assert handed(**given).mask == window(keys=4096)


def test_an_attention_of_its_own_is_refused_before_it_adds_the_mask():
    import transformers

    model = transformers.BloomModel(transformers.BloomConfig(vocab_size=53, hidden_size=24, n_layer=2, n_head=4))
    with pytest.raises(ConversionError, match="BloomAttention and all of modeling_bloom compute attention by themselv"):
        handed(**pieces(functions()["causal"][0], (7, 7, 0, 0), None, config=model.config))
