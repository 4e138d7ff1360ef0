"""Intervene: every edit against the same change made by hand, in every model that a watch reaches."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import headwise as hw
from headwise.errors import ArgumentError
from tests.watching import families, styles
from tests.watching.models import Attend, Mixed, Model, heads, made, x
from tests.watching.styles import HELD, LAZY, Projected
from tests.watching.test_kernels import FORMS, Call, D, Dv, Lk, Lq

KINDS = [
    (name, implementation)
    for name, family in families.FAMILIES.items()
    for implementation in (["sdpa", "eager"] if family.has_sdpa else ["eager"])
]


def model_of(name, implementation):
    model = families.build(name, implementation)
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("eager")
    return model.to(dtype_of(implementation))


def dtype_of(implementation):
    """Eager attention takes its softmax in float32 whatever the model is."""
    return torch.float64 if implementation == "sdpa" else torch.float32


def budget(plain):
    return (1e-11 if plain.dtype is torch.float64 else 2e-4) * float(plain.abs().max())


def inputs_of(name, implementation):
    given = families.FAMILIES[name].inputs()
    dtype = dtype_of(implementation)
    return {key: value.to(dtype) if value.is_floating_point() else value for key, value in given.items()}


def run(model, given):
    with torch.no_grad():
        return families.first(model(**given))


def without_head(model, given, name, head):
    """The output where the next projection after the attention of a module gets zeros in the columns of a head."""
    width, state = [], {"is_next": False}

    def note(seen_map):
        if names and names.pop(0) == name:
            state["is_next"] = True
            width.append(seen_map.shape[1])
        return seen_map.shape

    with hw.watch(model, keep=lambda m: m.shape) as seen, torch.no_grad():
        model(**given)
    names = [n for n in seen for _ in seen.calls(n)]

    def zeroed(_, args):
        if not state["is_next"]:
            return None
        state["is_next"] = False
        t = args[0].clone()
        t.unflatten(-1, (width[0], -1))[..., head, :] = 0
        return (t, *args[1:])

    hooks = [
        module.register_forward_pre_hook(zeroed)
        for module in model.modules()
        if not list(module.children()) and module._parameters
    ]
    try:
        with hw.watch(model, keep=note):
            return run(model, given)
    finally:
        for hook in hooks:
            hook.remove()


@pytest.mark.parametrize(("name", "implementation"), KINDS)
def test_a_zeroed_head_is_one_whose_columns_the_output_projection_gets_as_zeros(name, implementation):
    model, given = model_of(name, implementation), inputs_of(name, implementation)
    plain = run(model, given)
    with hw.watch(model) as seen:
        run(model, given)
    with hw.intervene(model):
        assert torch.equal(run(model, given), plain)
    for place in dict.fromkeys([next(iter(seen)), list(seen)[-1]]):
        with hw.intervene(model) as edits:
            edits.find(place).zero(heads=1)
            out = run(model, given)
        wanted = without_head(model, given, place, 1)
        assert not torch.allclose(out, plain, atol=10 * budget(plain))
        torch.testing.assert_close(out, wanted, rtol=0, atol=budget(plain))
    assert torch.equal(run(model, given), plain)


@pytest.mark.parametrize(("name", "implementation"), KINDS)
def test_edits_that_change_nothing_leave_the_output_within_rounding(name, implementation):
    model, given = model_of(name, implementation), inputs_of(name, implementation)
    plain = run(model, given)
    with hw.watch(model) as seen:
        run(model, given)
    place = list(seen)[-1]
    for edit in (
        lambda target: target.temperature(1.0, heads=[0, 2]),
        lambda target: target.weights(seen[place], heads=[0, 2]),
        lambda target: target.output(seen, heads=1),
        lambda target: target.output(seen, heads=[0, 2], positions=[1, 3]),
    ):
        with hw.intervene(model) as edits:
            edit(edits.find(place))
            out = run(model, given)
        # a row that attends to nothing is uniform in eager models, and 0 by definition
        is_open = seen[place].entropy().isfinite().all()
        assert is_open
        torch.testing.assert_close(out, plain, rtol=0, atol=budget(plain))


@pytest.mark.parametrize("style", [*LAZY, *HELD])
def test_heads_of_attention_by_hand_add_up_to_the_output(style):
    attend, options = {**LAZY, **HELD}[style]
    torch.manual_seed(7)
    model = Projected(attend, **options).double().eval()
    given = torch.randn(styles.B, styles.L, styles.E).double(), torch.randn(styles.B, styles.S, styles.E).double()
    with torch.no_grad(), hw.watch(model) as seen:
        torch.manual_seed(1)
        model(*given)
    count = next(iter(seen.values())).shape[1]
    outs = []
    with torch.no_grad():
        for keep in range(count):
            with hw.intervene(model) as edits:
                edits.find("").zero(heads=[h for h in range(count) if h != keep]) if count > 1 else None
                torch.manual_seed(1)
                outs.append(model(*given) - model.out.bias)
        torch.manual_seed(1)
        plain = model(*given) - model.out.bias
    torch.testing.assert_close(sum(outs), plain, rtol=0, atol=1e-12)
    assert count == 1 or not torch.allclose(outs[0], plain, atol=1e-3)


class ByHand(nn.Module):
    """Self-attention with weights that a function of (scores, heads) makes, in float64."""

    def __init__(self, change=lambda scores: scores.softmax(-1)):
        super().__init__()
        torch.manual_seed(3)
        self.qkv, self.out, self.change = nn.Linear(12, 36).double(), nn.Linear(12, 12).double(), change

    def forward(self, t, mask=None):
        q, k, v = (heads(part, 3) for part in self.qkv(t).chunk(3, dim=-1))
        scores = q @ k.mT / 2
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf"))
        return self.out((self.change(scores) @ v).transpose(1, 2).flatten(2))


class BySdpa(ByHand):
    def forward(self, t, mask=None):
        q, k, v = (heads(part, 3) for part in self.qkv(t).chunk(3, dim=-1))
        return self.out(F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2))


class ByLayer(ByHand):
    def __init__(self):
        super().__init__()
        self.layer = hw.MultiHeadAttention(12, 3).double()
        for name, weight, bias in zip("qkv", self.qkv.weight.chunk(3), self.qkv.bias.chunk(3), strict=True):
            projection = getattr(self.layer, f"{name}_proj")
            projection.weight.data, projection.bias.data = weight.data, bias.data
        self.layer.out_proj = self.out

    def forward(self, t, mask=None):
        return self.layer(t, mask=None if mask is None else hw.allowed(mask))


class ByTorch(ByHand):
    def __init__(self):
        super().__init__()
        self.layer = nn.MultiheadAttention(12, 3, batch_first=True).double()
        self.layer.in_proj_weight.data, self.layer.in_proj_bias.data = self.qkv.weight.data, self.qkv.bias.data
        self.layer.out_proj.load_state_dict(self.out.state_dict())

    def forward(self, t, mask=None):
        blocked = None if mask is None else ~mask.expand(t.shape[0], 3, -1, -1).flatten(0, 1)
        return self.layer(t, t, t, attn_mask=blocked, need_weights=False)[0]


def tempered(scores):
    scores = scores.clone()
    scores[:, [0, 2]] = scores[:, [0, 2]] / 0.4
    return scores.softmax(-1)


def knocked_out(scores):
    scores = scores.clone()
    scores[:, 1:, 4, 2:4] = float("-inf")
    return scores.softmax(-1)


def both(scores):
    scores = scores.clone()
    scores[:, [0, 2]] = scores[:, [0, 2]] / 0.4
    scores[:, 1:, 4, 2:4] = float("-inf")
    scores[:, :, :, 5] = float("-inf")
    return scores.softmax(-1)


EDITS = {
    tempered: lambda target: target.temperature(0.4, heads=[0, 2]),
    knocked_out: lambda target: target.block(queries=4, keys=[2, 3], heads=slice(1, None)),
    both: lambda target: (
        target.temperature(0.4, heads=[0, 2]).block(queries=-2, keys=slice(2, 4), heads=[1, 2]).block(keys=[-1])
    ),
}


@pytest.mark.parametrize("with_mask", [False, True])
@pytest.mark.parametrize("change", EDITS)
@pytest.mark.parametrize("kind", [ByHand, BySdpa, ByLayer, ByTorch])
def test_edited_weights_and_their_gradients_are_those_of_the_same_change_by_hand(kind, change, with_mask):
    given = x(2, 6).double().requires_grad_()
    mask = None
    if with_mask:
        mask = torch.rand(2, 3, 6, 6, generator=torch.Generator().manual_seed(2)) > 0.3
        mask[..., 0] = True
    wanted = ByHand(change)(given, mask)
    (slope,) = torch.autograd.grad(wanted.square().sum(), given)
    model = kind()
    with hw.intervene(model) as edits:
        EDITS[change](edits.find("" if kind in (ByHand, BySdpa) else "layer"))
        out = model(given, mask)
    torch.testing.assert_close(out, wanted, rtol=0, atol=1e-13)
    torch.testing.assert_close(torch.autograd.grad(out.square().sum(), given)[0], slope, rtol=0, atol=1e-12)


@pytest.mark.parametrize("is_outer", [True, False])
@pytest.mark.parametrize("kind", [ByHand, BySdpa, ByLayer, ByTorch])
def test_a_watch_gives_the_weights_that_an_edit_makes(kind, is_outer):
    given, name = x(2, 6).double(), "" if kind in (ByHand, BySdpa) else "layer"
    q, k, _ = (heads(part, 3) for part in ByHand().qkv(given).chunk(3, dim=-1))
    wanted = both(q @ k.mT / 2)
    model = kind()

    if is_outer:
        with hw.watch(model) as seen, hw.intervene(model) as edits:
            EDITS[both](edits.find(name))
            model(given)
    else:
        with hw.intervene(model) as edits, hw.watch(model) as seen:
            EDITS[both](edits.find(name))
            model(given)
    torch.testing.assert_close(seen[name].dense(), wanted, rtol=0, atol=1e-13)


@pytest.mark.parametrize("kind", [ByHand, BySdpa, ByLayer, ByTorch])
def test_weights_of_another_run_meet_the_values_of_this_one(kind):
    first, second, model = x(2, 6).double(), x(2, 6, seed=1).double(), kind()
    name = "" if kind in (ByHand, BySdpa) else "layer"
    with hw.watch(model) as other:
        model(first)
    q, k, _ = (heads(part, 3) for part in model.qkv(first).chunk(3, dim=-1))
    given = (q @ k.mT / 2).softmax(-1)

    def swapped(scores):
        weights = scores.softmax(-1)
        return torch.cat([weights[:, :1], given[:, 1:]], dim=1)

    with hw.intervene(model) as edits:
        edits.find(name).weights(other.find(name) if name else other[""], heads=[1, 2])
        out = model(second)
    torch.testing.assert_close(out, ByHand(swapped)(second), rtol=0, atol=1e-13)


@pytest.mark.parametrize("kind", [ByHand, BySdpa, ByLayer, ByTorch])
def test_means_and_outputs_are_those_of_the_other_run(kind):
    first, second, model = x(4, 5).double(), x(2, 6, seed=1).double(), kind()
    name = "" if kind in (ByHand, BySdpa) else "layer"

    def context(t):
        q, k, v = (heads(part, 3) for part in model.qkv(t).chunk(3, dim=-1))
        return (q @ k.mT / 2).softmax(-1) @ v

    with hw.watch(model) as over:
        model(first)
    with hw.watch(model) as same:
        model(second.flip(0))
    wanted = context(second)
    wanted[:, [0, 2]] = context(first).mean(dim=(0, 2))[[0, 2]][None, :, None]
    wanted[:, 1, [0, 3]] = context(second.flip(0))[:, 1, [0, 3]]
    wanted[:, 2, -1] = 0
    with hw.intervene(model) as edits:
        edits.find(name).mean(heads=[0, 2], over=over).output(same, heads=1, positions=[0, 3]).zero(2, positions=-1)
        out = model(second)
    torch.testing.assert_close(out, model.out(wanted.transpose(1, 2).flatten(2)), rtol=0, atol=1e-13)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_torchs_encoder_on_its_fast_path_is_changed_too():
    torch.manual_seed(2)
    layer = nn.TransformerEncoderLayer(12, 4, 17, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=True).double().eval()
    for part in model.layers:
        nn.init.normal_(part.self_attn.in_proj_weight)
        nn.init.normal_(part.self_attn.in_proj_bias)
    given, padding = x(3, 5).double(), torch.arange(5) >= torch.tensor([5, 3, 4])[:, None]
    without = copy.deepcopy(model)
    without.layers[1].self_attn.out_proj.weight.data[:, 3:6] = 0
    with torch.no_grad():
        plain = model(given, src_key_padding_mask=padding)
        wanted = without(given, src_key_padding_mask=padding)
        with hw.intervene(model) as edits:
            assert torch.equal(model(given, src_key_padding_mask=padding), plain)
            edits.find("layers.1").zero(1)
            out = model(given, src_key_padding_mask=padding)
        assert torch.equal(model(given, src_key_padding_mask=padding), plain)
    torch.testing.assert_close(out[~padding], wanted[~padding], rtol=0, atol=1e-13)
    assert not torch.allclose(out[~padding], plain[~padding])


def test_the_weights_that_torchs_layer_gives_back_are_the_changed_ones():
    model, given = ByTorch(), x(2, 6).double()
    q, k, _ = (heads(part, 3) for part in model.qkv(given).chunk(3, dim=-1))
    with hw.intervene(model) as edits:
        edits.find("layer").temperature(0.4, heads=[0, 2])
        every = model.layer(given, given, given, average_attn_weights=False)[1]
        mean = model.layer(given, given, given)[1]
    torch.testing.assert_close(every, tempered(q @ k.mT / 2), rtol=0, atol=1e-13)
    torch.testing.assert_close(mean, every.mean(1), rtol=0, atol=1e-13)


@pytest.mark.parametrize("name", ["llama", "gpt2", "mistral", "whisper", "t5"])
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_token_by_token_and_at_once_are_the_same(name, implementation):
    model, given = model_of(name, implementation), inputs_of(name, implementation)
    is_pair = "decoder_input_ids" in given
    ids = given.pop("decoder_input_ids" if is_pair else "input_ids")
    given.pop("attention_mask", None) if not is_pair else None
    key = "decoder_input_ids" if is_pair else "input_ids"
    with hw.watch(model) as seen:
        run(model, {**given, key: ids})
    places = [place for place in seen if "encoder" not in place.split(".")[0]][-2:]

    def change(edits):
        for place in places:
            target = edits.find(place).zero(0, positions=[1, 4]).temperature(0.6, heads=2)
            target.block(queries=[3, 4], keys=[0, 2], heads=[0, 1])

    with torch.no_grad(), hw.intervene(model) as edits:
        change(edits)
        whole = model(**given, **{key: ids})
    cache, rows = None, []
    with torch.no_grad(), hw.intervene(model) as edits:
        change(edits)
        for at in range(ids.shape[1]):
            out = model(**given, **{key: ids[:, at : at + 1]}, past_key_values=cache, use_cache=True)
            cache = out.past_key_values
            rows.append(out.last_hidden_state)
    torch.testing.assert_close(torch.cat(rows, 1), whole.last_hidden_state, rtol=0, atol=budget(whole[0]))


@pytest.mark.parametrize("kind", ["static", None])
def test_positions_of_a_generation_are_those_of_the_whole_text(kind):
    import transformers

    torch.manual_seed(3)
    config = transformers.LlamaConfig(**families.GROUPED, bos_token_id=1, eos_token_id=None, pad_token_id=0)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()
    for weight in model.parameters():
        weight.data.mul_(3.0)
    ids = families.tokens(6)

    def change(edits):
        edits.find("layers.1").zero(1, positions=[2, 7]).block(queries=[8, 9], keys=[1, 7])

    with torch.no_grad(), hw.intervene(model) as edits:
        change(edits)
        texts = model.generate(ids, max_new_tokens=6, do_sample=False, cache_implementation=kind)
        edits.clear()
        change(edits)
        wanted = model(texts[:, :-1]).logits.argmax(-1)
    assert torch.equal(texts[:, 6:], wanted[:, 5:])


@torch.no_grad()
def test_a_headwise_cache_goes_on_where_it_ended():
    model, given = ByLayer(), x(2, 6).double()
    with hw.watch(model) as seen:
        model.layer(given.flip(0), mask=hw.causal())

    def change(edits):
        target = edits.find("layer").block(queries=[2, 5], keys=[0, 1]).zero(1, positions=[0, 4])
        target.output(seen, heads=2, positions=[1, 4])

    with hw.intervene(model) as edits:
        change(edits)
        whole = model.layer(given, mask=hw.causal())
    cache = model.layer.cache()
    with hw.intervene(model) as edits:
        change(edits)
        parts = [model.layer(given[:, a:b], mask=hw.causal(), cache=cache) for a, b in ((0, 3), (3, 4), (4, 6))]
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=0, atol=1e-13)


def test_a_row_that_may_attend_to_nothing_gives_zero():
    model, given = BySdpa(), x(2, 6).double()
    with hw.intervene(model) as edits:
        edits.find("").block(queries=3)
        out = model(given)
    torch.testing.assert_close(out[:, 3], model.out.bias.expand(2, -1), rtol=0, atol=0)


REFUSED = [
    (
        lambda edits, _: edits.find("layer.7"),
        r'"layer.7" must name a module that may compute attention, but names none: "layer"$',
    ),
    # a projection computes none, which is said at once and not at the end of the block
    (lambda edits, _: edits.find("layer.q_proj"), r'"layer.q_proj" must name a module .* names none: "layer"$'),
    (lambda edits, _: edits["qkv"], r'"qkv" must be the name of a module that may compute attention: "layer"$'),
    (lambda edits, _: edits.find(3), r"find takes a part of a name, .* but 3 came"),
    (lambda edits, _: edits.find("layer").zero(3), r"heads must lie in 0\.\.2, since there are 3, but 3 came"),
    (lambda edits, _: edits.find("layer").zero([]), r"heads names nothing"),
    (
        lambda edits, _: edits.find("layer").zero(slice(5, 9)),
        r'names no head of "layer", which has 3: give some of 0\.\.2',
    ),
    (lambda edits, _: edits.find("layer").zero("1"), r"heads must be an integer, .* but '1' came"),
    (lambda edits, _: edits.find("layer").temperature(0), r"a temperature must be a number > 0, but 0 came"),
    (lambda edits, _: edits.find("layer").block(), r"block needs queries= or keys="),
    (lambda edits, _: edits.find("layer").weights(torch.ones(3)), r"weights takes a map, .* but Tensor came"),
    (
        lambda edits, _: edits.find("layer").mean(0, over=torch.ones(3)),
        r"over must be what hw.watch gave .* Tensor came",
    ),
    (lambda edits, seen: edits.find("layer").weights(seen["layer"]), r"\(4, 3, 5, 5\): watch a run on an input of the"),
    (
        lambda edits, seen: edits.find("layer").output(seen),
        r"position 5 of 2 samples in the watched run, which has 5 pos",
    ),
    (lambda edits, _: edits.find("layer").zero(positions=9), r'zero\(positions=9\) of "layer" met no call'),
]


@pytest.mark.parametrize(("ask", "sentence"), REFUSED)
def test_what_cannot_be_done_is_refused_in_one_sentence(ask, sentence):
    model = ByLayer()
    with hw.watch(model) as seen:
        model(x(4, 5).double())
    plain = model(x(2, 6).double())
    with pytest.raises(ArgumentError, match=sentence):
        edited(model, lambda edits: ask(edits, seen), x(2, 6).double())
    assert torch.equal(model(x(2, 6).double()), plain)


class Sorted(nn.Module):
    """Weights that are sorted before they meet the values, which is no attention."""

    def forward(self, x):
        return (x @ x.mT).softmax(-1).sort(-1).values @ x


def test_why_a_softmax_is_no_call_is_told_of_an_edit_that_came_after_the_run():
    model, given = nn.Sequential(Sorted()), x(3, 5)

    def run():
        with hw.intervene(model) as edits:
            model(given)
            edits.find("0").zero()

    with pytest.raises(ArgumentError, match=r"met no call .* own over \(3, 5, [0-9]+\), but sort changes"):
        run()


def test_what_dropout_compilation_and_checkpoints_make_impossible_is_refused():
    layer, given = hw.MultiHeadAttention(12, 3, dropout=0.3), x(2, 6)
    with pytest.raises(ArgumentError, match=r'of which "" drops some at random: call model.eval\(\)'):
        edited(layer, lambda edits: edits.find("").temperature(2.0), given)
    torchs = nn.MultiheadAttention(12, 3, dropout=0.3, batch_first=True)
    with pytest.raises(ArgumentError, match=r'of "" cannot be changed: it drops some of its weights at random'):
        edited(torchs, lambda edits: edits.find("").zero(1), given, given, given)
    with pytest.raises(ArgumentError, match="activation checkpoint"):
        edited(Checkpointed(), lambda edits: edits.find("layer").zero(1), given.requires_grad_())
    compiled = torch.compile(Mixed().eval(), backend="eager")
    with pytest.raises(ArgumentError, match=r'"_orig_mod\.own".* cannot be changed: it is compiled'):
        edited(compiled, lambda edits: edits.find("own").zero(1), given)


class InPart(nn.Module):
    """A model that runs a compiled function of a part of it."""

    def __init__(self):
        super().__init__()
        self.layer, self.rest = hw.MultiHeadAttention(12, 3), nn.Linear(12, 12)
        self.faster = torch.compile(lambda t: self.layer(t), backend="eager")

    def forward(self, t):
        return self.rest(self.layer(t) + self.faster(t))


def test_compiled_code_that_a_model_calls_is_refused_while_a_part_of_it_is_edited():
    model, given = InPart(), x(2, 6)
    plain = model(given)
    with pytest.raises(ArgumentError, match=r'of "layer" cannot be changed: "" ran what torch.compile has made'):
        edited(model, lambda edits: edits.find("layer").zero(1), given)
    assert torch.equal(model(given), plain)
    with hw.intervene(model):
        assert torch.equal(model(given), plain)


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = hw.MultiHeadAttention(12, 3)

    def forward(self, t):
        return torch.utils.checkpoint.checkpoint(self.layer, t, use_reentrant=False)


class Failing(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = hw.MultiHeadAttention(12, 3)

    def forward(self, t):
        return self.layer(t)[{}["of the model"]]


def edited(model, ask, *given):
    """The output of a model under edits."""
    with hw.intervene(model) as edits:
        ask(edits)
        return model(*given)


def test_an_error_of_the_model_passes_through_and_nothing_stays_behind():
    model = Failing()
    before = {name: {key: str(value) for key, value in vars(m).items()} for name, m in model.named_modules()}
    with pytest.raises(KeyError, match="of the model"):
        edited(model, lambda edits: edits.find("layer").zero(1), x())
    assert before == {name: {key: str(value) for key, value in vars(m).items()} for name, m in model.named_modules()}


def test_two_modules_of_one_name_are_told_apart():
    with pytest.raises(ArgumentError, match=r'names that of "layers.0.attn" and of "layers.1.attn"'):
        edited(made(Model), lambda edits: edits.find("layers").zero(1), x())


def test_edits_of_two_blocks_add_up():
    model, given = made(Attend), x()
    with torch.no_grad():
        with hw.intervene(model) as edits:
            edits.find("").zero([0, 1])
            wanted = model(given)
        with hw.intervene(model) as outer, hw.intervene(model) as inner:
            outer.find("").zero(0)
            inner.find("").zero(1)
            out = model(given)
    assert torch.equal(out, wanted)


class WithRules(nn.Module):
    """Grouped heads, a bias, a softcap, sinks and a causal mask."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(6)
        self.bias = torch.randn(1, 4, 5, 5, generator=generator).double()
        self.sink = torch.randn(4, generator=generator).double()
        self.qkv = torch.randn(3, 2, 4, 5, 6, generator=generator).double()

    def forward(self):
        q, k, v = self.qkv
        rules = {"attn_bias": self.bias, "softcap": 0.9, "sink": self.sink, "mask": hw.causal(), "scale": 0.7}
        return hw.attention(q, k[:, :2], v[:, :2], **rules)

    def by_hand(self, temperature):
        """The same with the logits of heads 1 and 3 divided by a temperature."""
        q, k, v = self.qkv
        k, v = (t[:, :2].repeat_interleave(2, 1) for t in (k, v))
        scores = 0.9 * (q @ k.mT * 0.7 / 0.9).tanh() + self.bias
        scores = scores.masked_fill(torch.ones(5, 5).triu(1).bool(), float("-inf"))
        scores = torch.cat([scores, self.sink.view(1, 4, 1, 1).expand(2, -1, 5, 1)], dim=-1)
        scores[:, [1, 3]] /= temperature
        return scores.softmax(-1)[..., :-1] @ v


def test_a_temperature_divides_softcap_bias_and_sink_too():
    model = WithRules()
    torch.testing.assert_close(model(), model.by_hand(1.0), rtol=0, atol=1e-14)
    with hw.intervene(model) as edits:
        edits.find("").temperature(0.4, heads=[1, 3])
        out = model()
    torch.testing.assert_close(out, model.by_hand(0.4), rtol=0, atol=1e-14)


def test_heads_of_grouped_keys_are_patched_from_the_run_that_they_were_watched_in():
    model, other = WithRules(), WithRules()
    other.qkv = other.qkv.flip(1)
    with hw.watch(other) as seen:
        elsewhere = other()
    with hw.intervene(model) as edits:
        edits.find("").output(seen, heads=[0, 3])
        out = model()
    wanted = model.by_hand(1.0)
    wanted[:, [0, 3]] = elsewhere[:, [0, 3]]
    torch.testing.assert_close(out, wanted, rtol=0, atol=1e-14)


def test_additive_scores_are_changed_as_others_are():
    torch.manual_seed(1)
    layer = hw.MultiHeadAttention(12, 3, score=hw.Additive(hidden_dim=15)).double()
    given = x(2, 6).double()
    open_keys = torch.tensor([True, True, False, True, True, True])
    with hw.intervene(layer) as edits:
        edits.find("").block(keys=2)
        out = layer(given)
    torch.testing.assert_close(out, layer(given, mask=hw.keys(open_keys.expand(2, -1))), rtol=0, atol=1e-14)


@pytest.mark.parametrize("kind", [BySdpa, ByHand, ByLayer, ByTorch])
def test_weights_that_two_blocks_change_are_refused(kind):
    model, given = kind(), x(2, 6).double()
    name = "" if kind in (ByHand, BySdpa) else "layer"

    def twice():
        with hw.intervene(model) as outer:
            outer.find(name).zero(0)
            edited(model, lambda inner: inner.find(name).temperature(0.5, heads=1), given)

    with pytest.raises(ArgumentError, match=f'the attention of "{name}" is changed by two blocks'):
        twice()


def test_many_edges_may_be_blocked_one_by_one():
    model, given = BySdpa(), x(1, 80).double()
    mask = torch.ones(1, 3, 80, 80, dtype=torch.bool)
    with hw.intervene(model) as edits:
        for query in range(70):
            edits.find("").block(queries=query, keys=[query, (3 * query) % 80], heads=query % 3)
            mask[0, query % 3, query, [query, (3 * query) % 80]] = False
        out = model(given)
    torch.testing.assert_close(out, model(given, mask), rtol=0, atol=1e-13)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_call_is_changed_head_by_head(form):
    before_q, before_k, options = FORMS[form]
    generator = torch.Generator().manual_seed(3)
    q, k, v = (
        torch.randn(*before, L, width, generator=generator).double()
        for before, L, width in ((before_q, Lq, D), (before_k, Lk, D), (before_k, Lk, Dv))
    )
    options = {name: t.double() if torch.is_tensor(t) and t.is_floating_point() else t for name, t in options.items()}
    model = Call()
    plain = model(q, k, v, **options)
    with hw.watch(model) as seen:
        model(q, k, v, **options)
    count = seen[""].shape[1]
    total = torch.zeros_like(plain)
    for head in range(count):
        with hw.intervene(model) as edits:
            target = edits.find("").temperature(1.0, heads=head)
            target.zero([other for other in range(count) if other != head]) if count > 1 else None
            total += model(q, k, v, **options)
    torch.testing.assert_close(total, plain, rtol=0, atol=1e-13)


def test_values_of_more_samples_than_queries_are_refused():
    q, v = torch.randn(1, 2, 5, 4), torch.randn(3, 2, 5, 4)
    with pytest.raises(ArgumentError, match='the heads of "" could not be followed to what they give'):
        edited(Call(), lambda edits: edits.find("").zero(1), q, q, v)
