"""Masks as strangers write them: which way round they are, by all that a file says; each of several; each rank."""

import pytest

from headwise.source import meaning_of
from tests.diagnosis.written import HEAD, blamed_in, block, found_in, loaded_from, marked

# the forward of a class of attention; SCORES stands for the scores, DONE for what follows the mask
CLASS = """
class Attend(nn.Module):
    def __init__(self, embed_dim, num_heads{built}):
        super().__init__()
        self.num_heads, self.part = num_heads, embed_dim // num_heads
        self.ask, self.match, self.hold, self.join = (nn.Linear(embed_dim, embed_dim) for _ in range(4))
{made}

    def cut(self, t):
        return t.view(t.shape[0], -1, self.num_heads, self.part).transpose(1, 2)

    def forward(self, {given}):
        {words}
        q, k, v = self.cut(self.ask({q})), self.cut(self.match({k})), self.cut(self.hold({v}))
        s = q @ k.mT / math.sqrt(self.part)
{body}
        return self.join((s.softmax(-1) @ v).transpose(1, 2).flatten(2))
"""


def attend(body, given="x, mask=None", words="", sides="xxx", built="", made="pass"):
    """A file with a class whose scores s meet a mask."""
    q, k, v = sides if isinstance(sides, tuple) else tuple(sides)
    return HEAD + CLASS.format(
        body=block(body), given=given, words=f'"""{words}"""', q=q, k=k, v=v, built=built, made=block(made)
    )


TORCH = {"given": "query, key, value, key_padding_mask=None, attn_mask=None", "sides": ("query", "key", "value")}
TWO = """
if attn_mask is not None:
    s = s + attn_mask{first}
if key_padding_mask is not None:
    s = s.masked_fill({hidden}[:, None, None, :], float("-inf")){second}
"""
LENGTHS = """
keep = torch.arange(x.shape[1])[None, :] {sign} text_lengths[:, None]
s = s.masked_fill(~keep[:, None, None, :], float("-inf")){mark}
"""
PADDED = """
class Model(nn.Module):
    def make_src_mask(self, src):
        return (src != self.src_pad_idx).unsqueeze(1).unsqueeze(2)
"""
LATER = "later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)\n"
FILL = 's = s.masked_fill({}, float("-inf")){}'
BOTH = "s = s + (0 if bias_mask is None else bias_mask)\nif attn_mask is not None:\n    "
FAR = "mask: True where the other's token is padding"
GIVEN = "if mask is not None:\n    "
# of each: the kind, the fault, and the same put right
CASES = {
    "the second mask hides the wrong keys, in what is called as torch's own": (
        "mask-inverted",
        attend(TWO.format(first="", hidden="~key_padding_mask", second="  # <-"), **TORCH),
        attend(TWO.format(first="", hidden="key_padding_mask", second=""), **TORCH),
    ),
    "the second mask is multiplied by nothing": (
        "mask-ignored",
        attend(BOTH + "s = s + attn_mask * 0  # <-", given="x, attn_mask=None, bias_mask=None"),
        attend(BOTH + "s = s + attn_mask", given="x, attn_mask=None, bias_mask=None"),
    ),
    "what is shorter than its length is hidden": (
        "mask-inverted",
        attend(LENGTHS.format(sign=">=", mark="  # <-"), given="x, text_lengths"),
        attend(LENGTHS.format(sign="<", mark=""), given="x, text_lengths"),
    ),
    "the words say that true hides, at some length": (
        "mask-inverted",
        attend(GIVEN + FILL.format("~mask[:, None, None, :]", "  # <-"), words=FAR),
        attend(GIVEN + FILL.format("mask[:, None, None, :]", ""), words=FAR),
    ),
    "the model makes masks that are true where there is no padding": (
        "mask-inverted",
        attend(GIVEN + FILL.format("mask == 1", "  # <-")) + PADDED,
        attend(GIVEN + FILL.format("mask == 0", "")) + PADDED,
    ),
    "a mask of keys lies on the queries, where only what is before is seen": (
        "mask-axis",
        attend(LATER + GIVEN + "s = s.masked_fill(~mask[:, None, :, None], torch.finfo(s.dtype).min)  # <-\n"
               "s = s.masked_fill(later, torch.finfo(s.dtype).min)", words="mask: (B, S), True = keep"),
        attend(LATER + GIVEN + "s = s.masked_fill(~mask[:, None, None, :], torch.finfo(s.dtype).min)\n"
               "s = s.masked_fill(later, torch.finfo(s.dtype).min)", words="mask: (B, S), True = keep"),
    ),
    "a mask of three axes is that of the first sample": (
        "mask-broadcast",
        attend("""
if mask is not None:
    if mask.dim() == 3:
        mask = mask[:1].unsqueeze(1)  # <-
    s = s.masked_fill(mask == 0, -1e9)
"""),
        attend("""
if mask is not None:
    if mask.dim() == 3:
        mask = mask.unsqueeze(1)
    s = s.masked_fill(mask == 0, -1e9)
"""),
    ),
    "weights are multiplied by a mask that must be given": (
        "mask-after-softmax",
        attend("", given="x, mask").replace("(s.softmax(-1) @ v)", "((s.softmax(-1) * (mask == 0)) @ v)")
        .replace("flatten(2))", "flatten(2))  # <-"),
        attend(FILL.format("mask == 0", ""), given="x, mask"),
    ),
    "a triangle hides later keys in what nobody keeps": (
        "causal-missing",
        attend(LATER + 's.masked_fill(later, float("-inf"))  # <-', given="x"),
        attend(LATER + FILL.format("later", ""), given="x"),
    ),
    "the words and the code agree that true is seen, and the mask is turned on the way": (
        "mask-inverted",
        attend(GIVEN + "hidden = mask.unsqueeze(1)  # <-\n    s = s.masked_fill(hidden.unsqueeze(1), -1e4)".replace(
            "mask.unsqueeze(1)", "(mask != 0).unsqueeze(1)", 1), words="mask (B, S): nonzero = visible"),
        attend(GIVEN + "hidden = (mask == 0).unsqueeze(1)\n    s = s.masked_fill(hidden.unsqueeze(1), -1e4)",
               words="mask (B, S): nonzero = visible"),
    ),
    "what is added is not taken from one": (
        "mask-inverted",
        attend(GIVEN + "mask = mask[:, None, None, :].to(s.dtype) * -1e4  # <-\n    s = s + mask",
               words="mask: (batch, seq), 1 for tokens, 0 for padding"),
        attend(GIVEN + "mask = (1 - mask[:, None, None, :].to(s.dtype)) * -1e4\n    s = s + mask",
               words="mask: (batch, seq), 1 for tokens, 0 for padding"),
    ),
    "a mask of the shape of the scores lies over the weights": (
        "mask-after-softmax",
        attend("hidden = (mask == 0)[:, None, None, :].expand_as(s)", given="x, mask")
        .replace("(s.softmax(-1) @ v)", "(s.softmax(-1).masked_fill(hidden, 0) @ v)")
        .replace("flatten(2))", "flatten(2))  # <-"),
        attend("hidden = (mask == 0)[:, None, None, :].expand_as(s)\n" + FILL.format("hidden", ""), given="x, mask"),
    ),
    "a bias is filled in what nobody keeps": (
        "mask-ignored",
        attend(GIVEN + "bias = torch.zeros(mask.shape, dtype=s.dtype)\n    bias.masked_fill(mask == 0, -1e4)  # <-\n"
               "    s = s + bias[:, None, None, :]"),
        attend(GIVEN + "bias = torch.zeros(mask.shape, dtype=s.dtype)\n    bias = bias.masked_fill(mask == 0, -1e4)\n"
               "    s = s + bias[:, None, None, :]"),
    ),
    "a mask is multiplied by infinity": (
        "mask-nan",
        attend('s = s + (mask == 0)[:, None, None, :] * float("-inf")  # <-', given="x, mask"),
        attend(FILL.format("(mask == 0)[:, None, None, :]", ""), given="x, mask"),
    ),
    "edges hide what they join": (
        "mask-inverted",
        attend("if adj is not None:\n    " + FILL.format("(adj > 0).unsqueeze(1)", "  # <-"), given="x, adj=None"),
        attend("if adj is not None:\n    " + FILL.format("(adj == 0).unsqueeze(1)", ""), given="x, adj=None"),
    ),
    "a mask that a product takes in is repeated sample after sample": (
        "mask-repeat-order",
        attend("a, b, c = (t.flatten(0, 1) for t in (q, k, v))\nbias = (mask == 0).to(s.dtype)[:, None] * -1e4\n"
               "bias = bias.repeat(self.num_heads, 1, 1)  # <-\nbias = bias.expand(-1, a.shape[1], -1)\n"
               "s = torch.baddbmm(bias, a, b.mT, alpha=self.part ** -0.5)\ns = s.unflatten(0, (-1, self.num_heads))",
               given="x, mask"),
        attend("a, b, c = (t.flatten(0, 1) for t in (q, k, v))\nbias = (mask == 0).to(s.dtype)[:, None] * -1e4\n"
               "bias = bias.repeat_interleave(self.num_heads, 0).expand(-1, a.shape[1], -1)\n"
               "s = torch.baddbmm(bias, a, b.mT, alpha=self.part ** -0.5)\ns = s.unflatten(0, (-1, self.num_heads))",
               given="x, mask"),
    ),
    "a sum with a mask that nobody keeps, where only what is before is seen": (
        "mask-ignored",
        attend(LATER + FILL.format("later", "") + "\n" + GIVEN + "s + mask  # <-", words="mask: (B, 1, 1, S), added"),
        attend(LATER + FILL.format("later", "") + "\n" + GIVEN + "s = s + mask", words="mask: (B, 1, 1, S), added"),
    ),
    "a mask that is added is taken away": (
        "mask-inverted",
        attend(GIVEN + "s = s - mask  # <-", words="mask: (B, 1, 1, S), holds -inf for hidden keys"),
        attend(GIVEN + "s = s + mask", words="mask: (B, 1, 1, S), holds -inf for hidden keys"),
    ),
    "a flag of the constructor that is on does nothing": (
        "causal-missing",
        attend(GIVEN + FILL.format("~mask[:, None, None, :]", ""), built=", causal=True", made="self.causal = causal")
        .replace("flatten(2))", "flatten(2))  # <-"),
        attend("if self.causal:\n    " + LATER.strip() + "\n    " + FILL.format("later", "") + "\n"
               + GIVEN + "s = s.masked_fill(~mask[:, None, None, :], torch.finfo(s.dtype).min)",
               built=", causal=True", made="self.causal = causal"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_wrong_mask_is_named_and_located(name):
    kind, wrong, _ = CASES[name]
    assert blamed_in(wrong) == marked(wrong, kind)


@pytest.mark.parametrize("name", CASES)
def test_put_right_it_is_sound(name):
    found = found_in(CASES[name][2])
    assert (found.verdict, found.faults) == ("sound", ())


# nothing in these says that the mask should be the other way round, or it says so of another
UNSAID = {
    "a mask that hides where it is true": attend(GIVEN + FILL.format("mask", "")),
    "the name of a published convention, used otherwise": attend(
        "if attention_mask is not None:\n    " + FILL.format("attention_mask", ""), given="x, attention_mask=None"
    ),
    "padding that is kept, in what is not called as torch's own": attend(
        "if key_padding_mask is not None:\n    " + FILL.format("~key_padding_mask[:, None, None, :]", ""),
        given="x, key_padding_mask=None",
    ),
    "the words of another class that attends": attend(GIVEN + FILL.format("mask", ""))
    + '''
class Other(nn.Module):
    """mask: True = keep"""
    def forward(self, q, k, v, mask):
        return (q @ k.mT).masked_fill(~mask, -1e9).softmax(-1) @ v
''',
    "the words of another class that holds a layer of torch's": attend(GIVEN + FILL.format("mask == 0", ""))
    + '''
class Other(nn.Module):
    """pad_mask: True = padding"""
    def __init__(self, d):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(d, 1, batch_first=True)

    def forward(self, x, pad_mask):
        return self.layer(x, src_key_padding_mask=pad_mask)
''',
    "a flag that is only kept, beside a mask": attend(
        GIVEN + "s = s + mask", made="self.is_causal = True", words="mask: additive, it holds the triangle too"
    ),
    "a mask of heads beside that of keys": attend(
        GIVEN + FILL.format("~mask[:, None, None, :]", "") + "\nif head_mask is not None:\n    v = v * head_mask",
        given="x, mask=None, head_mask=None",
    ),
    "two that hide, each in its own way": attend(
        """
if mask is not None:
    s = s.masked_fill(~mask[:, None, None, :], torch.finfo(s.dtype).min)
if padding_mask is not None:
    s = s.masked_fill(padding_mask[:, None, None, :], torch.finfo(s.dtype).min)
""",
        given="x, mask=None, padding_mask=None",
    ),
}


@pytest.mark.parametrize("name", UNSAID)
def test_what_nothing_speaks_against_has_no_fault(name):
    found = found_in(UNSAID[name])
    assert (found.verdict, found.faults) == ("sound", ())


MEANINGS = {
    "mask is 0 where nothing may be read": "attend",
    "mask: 1 where no key may be seen": "blocked",
    "mask: True where nobody can look": "blocked",
    "mask: 1 where no token is padding": "",
    "mask: True where nothing must be masked": "",
    "mask: True for keys that may not be seen": "",
    "mask: 1 for tokens to keep and 0 for padding": "attend",
    "mask: (B, S)\n            1 marks a position that must not be attended, as it is padded": "",
    "mask: (B, S)\n            1 marks a padded position": "blocked",
    "mask: True 表示屏蔽": "blocked",
    "mask: (B, S), True marks what is **masked out**": "blocked",
    "mask (batch, S) booleans, True for tokens to attend to": "attend",
    "mask: nonzero = visible": "attend",
    "mask: True for tokens that are there": "attend",
    "mask: True where there is padding": "blocked",
    "mask: 1 where the node exists": "attend",
    "mask: 1 where the token is not present": "",
    "mask (B, S): True at padding": "blocked",
    "mask: True for padding tokens": "blocked",
    "mask: 1 for tokens that are hidden": "blocked",
    "mask: False is for what is hidden": "attend",
    "mask: optional (values to mask should be True)": "blocked",
    "mask: padded keys are 1, the others 0": "blocked",
    "mask: positions to attend to are True.": "attend",
    "mask: keys that are not masked are 0": "",
    "mask: attention weights of masked positions are 0": "",
    "mask: 被遮挡的位置为 1": "blocked",
}


@pytest.mark.parametrize("words", MEANINGS)
def test_words_tell_what_a_mask_means_or_nothing(words):
    _, _, file = loaded_from(attend("pass", words=words))
    assert meaning_of([file], "mask", "Attend") == MEANINGS[words]


JOINED = {
    "mask & earlier": "attend",
    "~mask & earlier": "blocked",
    "mask | later": "blocked",
    "~mask[:, None] | later": "attend",
    "mask & later": "",
}


@pytest.mark.parametrize("joined", JOINED)
def test_what_a_mask_is_joined_with_tells_what_it_means(joined):
    body = f"{LATER}earlier = ~later\nboth = {joined}"
    _, _, file = loaded_from(attend(body))
    assert meaning_of([file], "mask", "Attend") == JOINED[joined]


CALLED = {
    "blocked": "blocked", "is_hidden": "blocked", "allowed": "attend", "valid_keys": "attend", "mask": "", "near": "",
    "hidden_states_mask": "", "block_mask": "",
}  # fmt: skip


@pytest.mark.parametrize("name", CALLED)
def test_what_an_argument_is_called_tells_what_it_means(name):
    _, _, file = loaded_from(attend(FILL.format(name, ""), given=f"x, {name}"))
    assert meaning_of([file], name, "Attend") == CALLED[name]


@pytest.mark.parametrize(("made", "means"), [("ids != 0", "attend"), ("later | (ids == 0)", "blocked")])
def test_a_mask_that_is_made_under_the_name_of_the_argument_tells_what_it_means(made, means):
    lines = "def whole(ids, layer):", "later = torch.ones(3, 3).triu(1)", f"near = {made}", "return layer(ids, near)"
    beside = "\n\n" + "\n    ".join(lines) + "\n"
    _, _, file = loaded_from(attend("pass", given="x, near") + beside)
    assert meaning_of([file], "near", "Attend") == means


def test_masks_that_another_attention_makes_tell_nothing_of_an_argument():
    other = attend("later = torch.ones(3, 3).triu(1)\ncausal_mask = later.bool()").replace("Attend", "Other")
    _, _, file = loaded_from(attend("pass", given="x, mask") + other)
    assert meaning_of([file], "mask", "Attend") == ""


STACK = """
class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.mha = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, x, pad_mask=None):
        return x + self.mha(x, x, x, key_padding_mask=pad_mask)[0]


class Stack(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.first, self.second = Layer(width, heads), Layer(width, heads)

    def forward(self, x, keep_mask=None):
        '''keep_mask: (B, L), 1 = word, 0 = padding'''
        hidden = {made} if keep_mask is not None else None
        return self.second(self.first(x, hidden), hidden)
"""


@pytest.mark.parametrize("made", ["keep_mask == 0", "~keep_mask.bool()"])
def test_words_on_a_mask_that_a_model_turns_are_not_said_of_its_layers_masks(made):
    assert blamed_in(HEAD + STACK.replace("{made}", made), "Stack") == []


@pytest.mark.parametrize(("words", "means"), [("# as a Hugging Face tokenizer gives them", "attend"), ("", "")])
def test_a_mask_of_a_tokenizer_has_1_for_tokens(words, means):
    _, _, file = loaded_from(attend("pass", given="x, attention_mask") + f"\n\n{words}\n")
    assert meaning_of([file], "attention_mask", "Attend") == means


GRAPH = """
class Attend(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.w = nn.Linear(in_features, out_features, bias=False)
        self.a, self.b = nn.Linear(out_features, 1), nn.Linear(out_features, 1)

    def forward(self, h, adj):
        adj = ((adj + torch.eye(adj.shape[-1])) > 0).float()
        h = self.w(h)
        e = F.leaky_relu(self.a(h) + self.b(h).transpose(1, 2))
        {weights}
        return torch.matmul(w, h)
"""


@pytest.mark.parametrize(
    ("weights", "kinds"),
    [
        ("w = e.masked_fill(adj == 0, -1e9).softmax(-1)", []),
        ("w = e.softmax(-1).masked_fill(adj == 0, 0.0)", ["mask-after-softmax"]),
    ],
)
def test_edges_of_a_graph_to_which_loops_are_added_are_masked_before_the_softmax(weights, kinds):
    assert [kind for kind, _ in blamed_in(HEAD + GRAPH.format(weights=weights))] == kinds


NODES = """

class Graph(nn.Module):
    # nodes: (B, N, width); node_mask: (B, N) bool, True for existing nodes

    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.three, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, nodes, node_mask):
        b, n, d = nodes.shape
        q, k, v = self.three(nodes).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        near = (node_mask[:, None] & node_mask[:, :, None]) | {kept}
        s = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(~near[:, None], -torch.inf)
        return self.out((s.softmax(-1) @ v).transpose(1, 2).reshape(b, n, d)) * node_mask[..., None]
"""


@pytest.mark.parametrize(
    ("kept", "kinds"),
    [("torch.eye(n, dtype=torch.bool)", []), ("torch.eye(n, dtype=torch.bool).flip(0)", ["mask-broadcast"])],
)
def test_a_hidden_token_that_sees_itself_alone_is_read_by_nobody(kept, kinds):
    assert [kind for kind, _ in blamed_in(HEAD + NODES.replace("{kept}", kept), "Graph")] == kinds
