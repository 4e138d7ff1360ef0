"""A cache: found by its form, driven in parts, and held against all tokens at once."""

import importlib
from pathlib import Path

import pytest
import torch
from torch import nn

from headwise.calls import find
from headwise.diagnosis.entry_point import doctor
from headwise.diagnosis.faults import fault_of
from tests.diagnosis.decoding import USES
from tests.diagnosis.mutants import HERE, Oracle, diagnosis, judged, letters, published
from tests.diagnosis.operators import HOSTS, mutants
from tests.diagnosis.written import blamed_in, found_in, line_of, loaded_from

EXAMPLES = Path(__file__).parents[2] / "examples"
CACHED = [host for host in HOSTS if host.file in USES]
DECODERS = (
    "llama:LlamaAttention", "gpt2:GPT2Attention", "gpt_neox:GPTNeoXAttention", "qwen2:Qwen2Attention",
    "mistral:MistralAttention", "phi:PhiAttention",
)  # fmt: skip


@pytest.mark.parametrize("host", CACHED, ids=lambda host: host.file)
def test_a_cache_of_each_form_is_driven_and_found_right(host):
    oracle = Oracle(host)
    found = diagnosis(host, oracle.source)
    assert oracle.parts is not None
    assert found.examined["cache"] is True
    assert (found.verdict, found.faults) == ("sound", ())


@pytest.mark.parametrize("host", CACHED, ids=lambda host: host.file)
def test_every_cache_fault_of_a_host_is_found_named_and_located(host):
    source, promised = (HERE / "hosts" / host.file).read_text(encoding="utf-8"), published()["verdicts"][host.file]
    ready = [each for each in mutants(host, source) if "cache" in each.operator or "step" in each.operator]
    assert len(ready) >= 3
    for mutant in ready:
        *marks, reported, _ = judged(mutant)
        # the table has marks for what differs from its host by its numbers
        assert letters(marks) == promised[mutant.operator], (mutant.operator, reported)
        assert all(marks[:3]), (mutant.operator, reported)


def test_there_are_at_least_6_forms_of_a_cache():
    assert len(CACHED) >= 6


@pytest.mark.needs("transformers")
@pytest.mark.parametrize("family", DECODERS)
def test_an_installed_decoder_with_its_cache_has_no_fault_of_it(family):
    name, _, kind = family.partition(":")
    module = importlib.import_module(f"transformers.models.{name}.modeling_{name}")
    found = doctor(getattr(module, kind))
    assert found.examined["cache"] is True
    assert [each for each in found.findings if fault_of(each.kind).family in ("cache", "rotary")] == []


class Prompted(nn.Module):
    """Torch's own causal flag for a prompt, and no mask for steps: several tokens after a cache see each other."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x, past=None):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        if past is not None:
            k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=past is None)
        return self.out(y.transpose(1, 2).reshape(b, n, d)), (k, v)


class Topped(Prompted):
    """Torch's own causal flag for several tokens, as in a prompt: after a cache it counts keys from the first one."""

    def forward(self, x, past=None):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        if past is not None:
            k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=n > 1)
        return self.out(y.transpose(1, 2).reshape(b, n, d)), (k, v)


class Flagged(Prompted):
    """It looks back only when it is told to, and then counts positions from 0 with a cache too."""

    def __init__(self, dim, heads, causal=False):
        super().__init__(dim, heads)
        self.causal = causal

    def forward(self, x, past=None):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        if past is not None:
            k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(b, n, d)), (k, v)


class Numbered(nn.Module):
    """A model of token numbers, which its attention counts from 0 with a cache too."""

    def __init__(self, vocabulary=50, dim=24, heads=3):
        super().__init__()
        self.embed, self.mix = nn.Embedding(vocabulary, dim), self.mixer(dim, heads)

    def mixer(self, dim, heads):
        return Flagged(dim, heads, causal=True)

    def forward(self, idx, past=None):
        x, past = self.mix(self.embed(idx), past)
        return x, past


class Alone(Numbered):
    """The same, of an attention that is right in single steps."""

    def mixer(self, dim, heads):
        return Prompted(dim, heads)


class Stepped(Prompted):
    """It looks at all that is kept, one token at a time, or at what came before it in a prompt."""


class Spoken(Prompted):
    """The prompt may come in chunks of several tokens, each after what the cache holds."""


class SpokenOn(Topped):
    """All heads look back. A long prompt may be handed over in
    several pieces: pass what is returned on to the next call.
    """


class SpokenOfBlocks(Topped):
    """All heads look back. The keys of the prompt are stored in memory blocks.

    :param x: one token, of which the cache keeps what it is
    :param past: chunks of the width
    """


class SpokenOfSpeech(Topped):
    """A prompt is taken at once. Its tokens stand for words in
    segments, of which each is a chunk of speech.
    """


class Strange(nn.Module):
    """Its cache is an object of a form that nothing in its file tells of."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x, kv_cache=None):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        if kv_cache is not None:
            k, v = kv_cache.exchanged("a word", k, v)
        y = (q @ k.mT / (d // self.heads) ** 0.5).softmax(-1) @ v
        return self.out(y.transpose(1, 2).reshape(b, n, d))


class Weighing(nn.Module):
    """What it returns beside its output are weights, and its cache is for keys of another input."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.out = (nn.Linear(dim, dim) for _ in range(4))

    def forward(self, x, memory=None, cache=None):
        b, n, d = x.shape
        source = x if memory is None else memory
        k, v = (cache["k"], cache["v"]) if cache and memory is not None else (self.k(source), self.v(source))
        q, k, v = (each.view(b, -1, self.heads, d // self.heads).transpose(1, 2) for each in (self.q(x), k, v))
        w = (q @ k.mT / (d // self.heads) ** 0.5).softmax(-1)
        return self.out((w @ v).transpose(1, 2).reshape(b, n, d)), w


class Windowed(nn.Module):
    """It sees the last few tokens; the window is counted from the first of the new ones where wrong."""

    def __init__(self, dim, heads, window=3):
        super().__init__()
        self.heads, self.window = heads, window
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def begins(self, n, total):
        return total - n

    def forward(self, x, past=None):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        if past is not None:
            k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        seen = torch.ones(n, k.shape[2], dtype=torch.bool).tril(k.shape[2] - n)
        seen = seen.triu(self.begins(n, k.shape[2]) + 1 - self.window)
        s = (q @ k.mT / (d // self.heads) ** 0.5).masked_fill(~seen, float("-inf"))
        return self.out((s.softmax(-1) @ v).transpose(1, 2).reshape(b, n, d)), (k, v)


class Outgrown(Windowed):
    """Its window does not know of what came before."""

    def begins(self, n, total):
        return 0


class Late(nn.Module):
    """Angles are looked up in a table, those of queries anew in each call; keys are turned when all are there."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        turn = torch.outer(torch.arange(64.0), 10000 ** (-torch.arange(0, dim // heads, 2) / (dim // heads)))
        self.register_buffer("table", torch.cat((turn, turn), dim=-1))

    def turned(self, t, first):
        angle = self.table[first : first + t.shape[2]]
        low, high = t.chunk(2, dim=-1)
        return t * angle.cos() + torch.cat((-high, low), dim=-1) * angle.sin()

    def forward(self, x, past=None):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        if past is not None:
            k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        q, kept = self.turned(q, 0), self.turned(k, 0)
        later = torch.ones(n, k.shape[2], dtype=torch.bool).triu(k.shape[2] - n + 1)
        s = (q @ kept.mT / (d // self.heads) ** 0.5).masked_fill(later, float("-inf"))
        return self.out((s.softmax(-1) @ v).transpose(1, 2).reshape(b, n, d)), (k, v)


class Bare(Prompted):
    """Later keys of the same call are hidden without a cache only."""

    def forward(self, x, past=None):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        if past is not None:
            k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        s = q @ k.mT / (d // self.heads) ** 0.5
        if past is None:
            s = s.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), float("-inf"))
        return self.out((s.softmax(-1) @ v).transpose(1, 2).reshape(b, n, d)), (k, v)


class Opening(Prompted):
    """Torch's own causal flag, which who calls sets for the prompt alone."""

    def forward(self, x, past=None, is_causal=False):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        if past is not None:
            k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal)
        return self.out(y.transpose(1, 2).reshape(b, n, d)), (k, v)


class KVCache(nn.Module):
    """Room for all tokens there will be; who calls hides what holds none yet."""

    def __init__(self, max_batch_size, max_seq_length, n_heads, head_dim, dtype=torch.float32):
        super().__init__()
        self.register_buffer("k", torch.zeros(max_batch_size, n_heads, max_seq_length, head_dim, dtype=dtype))
        self.register_buffer("v", torch.zeros(max_batch_size, n_heads, max_seq_length, head_dim, dtype=dtype))

    def update(self, places, k, v):
        self.k[:, :, places], self.v[:, :, places] = k, v
        return self.k, self.v


class Roomy(Prompted):
    """A cache that is set from outside, and a mask that is asked for."""

    def __init__(self, dim, heads):
        super().__init__(dim, heads)
        self.kv_cache = None

    def forward(self, x, mask, input_pos=None):
        q, k, v = (each.unflatten(2, (self.heads, -1)).transpose(1, 2) for each in self.qkv(x).chunk(3, dim=-1))
        if self.kv_cache is not None:
            k, v = self.kv_cache.update(input_pos, k, v)
        return self.out(nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2))


class Forgetful(Prompted):
    """What it hands on is not what it attended to: a prompt is remembered, the tokens between it and the last are not.

    kept: so many of the most recent tokens are handed on.
    """

    kept, is_detached = 1, False

    def forward(self, x, past=None):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        if past is not None:
            k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        later = torch.ones(n, k.size(2), dtype=torch.bool).triu(k.size(2) - n + 1)
        weights = (q @ k.mT / (d // self.heads) ** 0.5).masked_fill(later, float("-inf")).softmax(-1)
        handed = tuple(each[:, :, -self.kept :] for each in (k, v))
        handed = tuple(each.detach() for each in handed) if self.is_detached else handed
        return self.out((weights @ v).transpose(1, 2).reshape(b, n, d)), handed


class Bounded(Forgetful):
    """How many tokens are kept is a number of the constructor."""

    def __init__(self, dim, heads, capacity=2):
        super().__init__(dim, heads)
        self.kept = capacity


class Segmental(Forgetful):
    """A memory of the segment before, without its gradient."""

    is_detached = True


class Compressive(Prompted):
    """A state of as many matrices as there are heads (Infini-attention, arXiv:2404.07143) beside local attention."""

    def __init__(self, dim, heads):
        super().__init__(dim, heads)
        self.gate = nn.Parameter(torch.zeros(heads, 1, 1))

    def forward(self, x, past=None):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        q, k = nn.functional.elu(q) + 1, nn.functional.elu(k) + 1
        state, mass = 0.0, 0.0
        if past is not None:
            state, mass = past
            y = y + self.gate.sigmoid() * ((q @ state) / (q @ mass.unsqueeze(-1)) - y)
        state, mass = state + k.mT @ v, mass + k.sum(2)
        return self.out(y.transpose(1, 2).reshape(b, n, d)), (state, mass)


def test_tokens_that_a_cache_drops_are_lost_unless_who_builds_it_says_how_many_it_keeps():
    found = doctor(Forgetful)
    assert [each.kind for each in found.faults] == ["cache-lost"]
    roomy = doctor(Bounded)
    assert (roomy.faults, roomy.examined["cache"]) == ((), True)


def test_a_memory_of_the_segment_before_is_no_cache_that_lost_tokens():
    assert [(each.kind, each.severity) for each in doctor(Segmental).findings if "cache" in each.kind] == [
        ("cache-lost", "warning")
    ]


class Looked(Forgetful):
    """Its weights are kept to be looked at, without their gradient."""

    def forward(self, x, past=None):
        out, handed = super().forward(x, past)
        self.shown = torch.softmax(out, dim=-1).matmul(out.mT).detach()
        return out, handed


def test_what_is_kept_to_be_looked_at_makes_no_memory_of_a_cache_that_lost_tokens():
    assert [each.kind for each in doctor(Looked).faults] == ["cache-lost"]


def test_a_state_of_heads_is_no_cache_of_tokens():
    assert doctor(Compressive).faults == ()


def test_a_window_is_held_to_what_came_before():
    assert doctor(Windowed).faults == ()
    found = doctor(Outgrown)
    assert [(each.kind, each.proved) for each in found.faults] == [("causal-cache", True)]
    assert "self.begins" in found.faults[0].source


def test_angles_that_begin_anew_with_a_cache_are_a_fault_of_the_rotation():
    found = doctor(Late)
    assert [(each.kind, each.proved) for each in found.faults] == [("position-cache", True)]
    assert "self.turned(q, 0)" in found.faults[0].source


def test_later_keys_that_nothing_hides_after_a_cache_are_named():
    found = doctor(Bare)
    assert [(each.kind, each.severity) for each in found.findings if "cache" in each.kind] == [
        ("cache-chunk", "warning")
    ]


def test_several_tokens_after_a_cache_are_a_warning_where_single_steps_are_right():
    found = doctor(Prompted)
    assert [(each.kind, each.severity, each.proved) for each in found.findings if each.kind == "cache-chunk"] == [
        ("cache-chunk", "warning", True)
    ]
    assert found.verdict == "sound"


def test_a_flag_for_several_tokens_may_be_for_a_prompt_alone():
    found = doctor(Topped)
    assert (found.verdict, found.faults) == ("sound", ())
    assert [(each.kind, each.severity) for each in found.findings if "cache" in each.kind] == [
        ("cache-chunk", "warning")
    ]


@pytest.mark.parametrize("kind", [SpokenOfBlocks, SpokenOfSpeech])
def test_blocks_and_chunks_of_something_else_ask_for_no_chunks_of_tokens(kind):
    assert doctor(kind).faults == ()


def test_several_tokens_after_a_cache_are_a_fault_where_the_class_says_that_they_come():
    for kind in (Spoken, SpokenOn):
        assert [(each.kind, each.proved) for each in doctor(kind).faults] == [("cache-chunk", True)]
    assert doctor(Stepped).faults == ()


def test_the_token_numbers_of_a_model_with_a_cache_are_no_place_among_them():
    found = doctor(Numbered)
    assert [(each.kind, each.proved) for each in found.faults] == [("causal-cache", True)]
    assert (doctor(Alone).faults, doctor(Alone).examined["cache"]) == ((), True)


def test_a_cache_is_also_driven_with_the_flag_by_which_a_class_looks_back():
    found = doctor(Flagged)
    assert [(each.kind, each.proved) for each in found.faults] == [("causal-cache", True)]
    assert "scaled_dot_product_attention" in found.faults[0].source


@pytest.mark.parametrize("kind", [Strange, Weighing, Roomy])
def test_a_cache_that_cannot_be_driven_is_named_and_no_fault(kind):
    found = doctor(kind)
    assert found.faults == ()
    assert str(found.examined["cache"]).startswith("no: ")
    assert "cache" in str(found.examined["cache"])


def test_a_flag_of_the_call_that_no_step_needs_is_a_note():
    found = doctor(Opening)
    assert [(each.kind, each.severity) for each in found.findings if each.kind == "causal-cache"] == [
        ("causal-cache", "note")
    ]
    assert found.verdict == "sound"


def test_an_attention_without_a_cache_says_so():
    class Plain(Prompted):
        def forward(self, x):
            return super().forward(x)[0]

    assert doctor(Plain).examined["cache"] == "no: it takes none"


def test_an_attention_without_a_cache_says_so_whatever_else_is_wrong():
    found = doctor(f"{EXAMPLES / 'first_attention.py'}:FirstAttention")
    assert found.verdict == "faulty"
    assert found.examined["cache"] == "no: it takes none"


STEP = """import torch
from torch import nn


class Step(nn.Module):
    # one decoding step: the new token attends to itself and to what is kept
    def __init__(self, dim, n_heads):
        super().__init__()
        self.n_heads, self.d_head = n_heads, dim // n_heads
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x, past_k, past_v):
        # x: (batch, new_tokens, dim); past_k, past_v: (batch, n_heads, past, d_head)
        q, k, v = self.qkv(x).unflatten(-1, (3, self.n_heads, self.d_head)).permute(2, 0, 3, 1, 4)
        k, v = torch.cat([past_k, k], dim=2), torch.cat([past_v, v], dim=2)
        scores = q @ k.transpose(-1, -2) / self.d_head ** 0.5
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2)), k, v
"""


def test_a_step_that_is_never_called_without_a_cache_is_called_as_documented_and_not_accused():
    # of several new tokens nobody says that they come one after another
    assert blamed_in(STEP, "Step") == []
    target, namespace, _ = loaded_from(STEP, "Step")
    assert find(target, namespace=namespace).plans[0].call["past_k"] == ["B", "H", "S", "d"]


DECODES = """import torch
from torch import nn


class Heads(nn.Module):
    def __init__(self, dim, n_heads):
        super().__init__()
        self.n_heads, self.q, self.out = n_heads, nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.kv = nn.Linear(dim, 2 * dim)

    def forward(self, x, memory=None, hidden=None, state=None):
        q = self.q(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
        if memory is not None and state:
            k, v = state["k"], state["v"]
        else:
            k, v = self.kv(x if memory is None else memory).unflatten(-1, (2, self.n_heads, -1)).permute(2, 0, 3, 1, 4)
            if memory is None and state:
                k, v = torch.cat([state["k"], k], 2), torch.cat([state["v"], v], 2)
            if state is not None:
                state["k"], state["v"] = k, v
        s = q @ k.mT * q.shape[-1] ** -0.5
        s = s if hidden is None else s.masked_fill(hidden, float("-inf"))
        return self.out((s.softmax(-1) @ v).transpose(1, 2).flatten(2))


class Decodes(nn.Module):
    def __init__(self, dim, n_heads):
        super().__init__()
        self.own, self.other = Heads(dim, n_heads), Heads(dim, n_heads)

    def forward(self, x, enc, state=None):
        # state: what was kept, by "self" and "enc"
        own, other = (None, None) if state is None else (state.setdefault(name, {}) for name in ("self", "enc"))
        past = own["k"].shape[2] if own else 0
        hidden = torch.ones(x.shape[1], past + x.shape[1], dtype=torch.bool).triu(past + 1)
        x = x + self.own(x, hidden=hidden, state=own)
        return x + self.other(x, enc, state=other)
"""


def test_a_memory_that_is_kept_does_not_grow_with_what_is_decoded():
    assert blamed_in(DECODES, "Decodes") == []
    lost = DECODES.replace('torch.cat([state["k"], k], 2)', 'torch.cat([state["k"] * 0.5, k], 2)')
    assert lost != DECODES
    assert [kind for kind, _ in blamed_in(lost, "Decodes")] == ["cache-lost"]


SLOTTED = """import torch
from torch import nn


class Slots:
    def __init__(self, batch, heads, room, hd, like):
        self.k = like.new_zeros(batch, heads, room, hd)
        self.v = torch.zeros_like(self.k)
        self.used = 0

    def claim(self, n):
        first, self.used = self.used, self.used + n
        return first, self.used


def halves(x):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((-b, a), dim=-1)


class Slotted(nn.Module):
    '''Rotary; takes one token or several after those that are kept.'''

    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.hd = heads, width // heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.register_buffer("turns", 100.0 ** -(torch.arange(0, self.hd, 2).float() / self.hd), persistent=False)

    def new_cache(self, batch, max_len):
        return Slots(batch, self.heads, max_len, self.hd, self.out.weight)

    def rotated(self, x, begin):
        places = torch.arange(begin, begin + x.shape[2]).float()
        angles = torch.outer(places, self.turns).repeat(1, 2)
        return x * angles.cos() + halves(x) * angles.sin()

    def forward(self, x, cache=None):
        n = x.shape[1]
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, self.hd)).permute(2, 0, 3, 1, 4)
        first, end = (0, n) if cache is None else cache.claim(n)
        begin = {begin}
        q, k = self.rotated(q, begin), self.rotated(k, begin)
        if cache is not None:
            cache.k[:, :, first:end], cache.v[:, :, first:end] = k, v
            k, v = cache.k[:, :, :end], cache.v[:, :, :end]
        late = torch.arange(end) > torch.arange(first, end)[:, None]
        scores = (q @ k.mT * self.hd**-0.5).masked_fill(late, float("-inf"))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
"""


def test_a_cache_that_a_method_makes_as_its_weights_are_is_driven():
    right = found_in(SLOTTED.replace("{begin}", "first"), "Slotted")
    assert (right.verdict, right.faults, right.examined["cache"]) == ("sound", (), True)
    source = SLOTTED.replace("{begin}", "0 if cache is None else cache.used")
    assert blamed_in(source, "Slotted") == [("position-cache", line_of(source, "q, k = self.rotated"))]


def test_a_cache_of_a_method_is_driven_of_a_module_in_memory_which_stays_as_it_is():
    target, _, _ = loaded_from(SLOTTED.replace("{begin}", "first"), "Slotted")
    module = target(24, 2)
    assert doctor(module).examined["cache"] is True
    assert all(each.dtype == torch.float32 for each in module.state_dict().values())
