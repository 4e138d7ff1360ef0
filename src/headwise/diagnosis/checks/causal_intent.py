"""Causal intent: whether a target is meant to be causal, by its name, its flags, or the triangle it keeps."""

from __future__ import annotations

import inspect
import re
from dataclasses import is_dataclass

import torch
from torch import Tensor, nn

from headwise.calls import mask_arguments, masks_of_keys, parameters, role_of
from headwise.dataflow import AttentionOps, MarkedOp, Run, find_pattern, made_from
from headwise.diagnosis.checks.head_split import spoken
from headwise.diagnosis.checks.ignored_arguments import is_read
from headwise.diagnosis.checks.next_tokens import lengthened, told_in_order
from headwise.diagnosis.checks.stated_uses import sentences
from headwise.diagnosis.checks.untaken_branches import is_asked_elsewhere, is_of_cache, is_read_elsewhere
from headwise.diagnosis.checks.whole_models import query_and_key_sources
from headwise.source import is_installed

__all__ = [
    "filled_by", "hides_earlier_alone", "is_step", "is_triangle", "is_under_square", "unread_flags",
    "wants_causal", "wants_causal_of",
]  # fmt: skip

# the words of a name, in CamelCase or with underscores, and those that turn the next one round
WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
DENYING = frozenset({"non", "not", "no", "un", "anti", "without"})
# what is causal then are blocks of tokens, which see each other (arXiv:2503.09573)
GROUPS = frozenset({"block", "blockwise", "chunk", "chunked", "chunkwise"})
# how a docstring begins that says what a class is, in which the order stands beside the attention itself
CAUSAL = re.compile(
    r"(?:(?:an?|the|multi-?head(?:ed)?|scaled|dot-product|fused|efficient|grouped|query|sliding|window|local)[\s-]+)*"
    r"(?:causal|autoregressive|masked self)[\s,-]+(?:[\w-]+[\s,-]+){0,4}?(?:self-?)?attention\b"
    r"|因果(?:自|多头|窗口)*注意力",
    re.IGNORECASE,
)
# a sentence that says nothing else, and what another module may be spoken of with
IS = re.compile(
    r"(?:the )?(?:self-?)?(?:attention|decoding|generation) is (?:(?:strictly|fully|purely|always) )?"
    r"(?:causal|autoregressive)[.;]?",
    re.IGNORECASE,
)
OTHERS = re.compile(r"\b(?:encoder|decoder|another|other)s?\b", re.IGNORECASE)
# and what speaks of some calls or other classes only
CONDITIONAL = re.compile(
    r"\b(?:non|not|no|nor|if|when|whether|or|either|unless|can|may|without|unlike|for|of|effects?|past and)\b|"
    r"optional|support|bidirectional|right[ -]to[ -]left|=|mask\b|非|不|可选|是否|或|如果|支持|掩码|推断",
    re.IGNORECASE,
)
# what makes of a mask the numbers that are added to scores; below so much they hide keys
FILLS, FAR = frozenset({"masked_fill", "masked_fill_", "where"}), -1e3
# a field of a config that says so of the attention
FLAG = re.compile(r"(?:is_|use_)?(?:causal|autoregressive)(?:_(?:mask|attention|attn))?$")
# what a window of what came before is spoken of with; what is called so leaves a choice of its sides
BEFORE = re.compile(
    r"sliding|causal|autoregressive|previous|preceding|earlier|(?:before|past)\b|language model|因果|滑动",
    re.IGNORECASE,
)
SIDED = re.compile(r"left|right|ahead|future|backward|forward", re.IGNORECASE)
# a mask of keys alone says nothing of their order
PADDING = re.compile(r"pad|valid|len|key_mask|mask_k", re.IGNORECASE)


def wants_causal(run: Run) -> bool:
    """Whether a target says that it looks back only: by its name, by a flag that is on, or by what it keeps."""
    takes_mask = _takes_mask(run)
    kind = type(run.target).__name__ if isinstance(run.target, nn.Module) else getattr(run.target, "__name__", "")
    if _says_causal(kind) and not takes_mask:
        return True
    if takes_mask and is_installed(getattr(inspect.getmodule(type(run.target)), "__file__", None) or ""):
        # what is published hands the order over with its mask
        return False
    if not takes_mask and _is_documented(run):
        return True
    flags = {**run.plan.init, **run.plan.call}
    asked = [name for name, value in flags.items() if _says_causal(name) and value is True]
    if asked:
        # a flag may be kept for another class that reads it; one that nobody asked for, for a branch that was not run
        unread = unread_flags(run)
        return not all(
            name in unread
            or (takes_mask and is_of_cache(run, name))
            or (name in run.plan.init and (is_read_elsewhere(run, name) or (takes_mask and _is_idle(run, name))))
            for name in asked
        )
    if isinstance(run.target, nn.Module):
        if any(
            _says_causal(parameter.name) and parameter.default is True for parameter in (*_switches(run), *_asked(run))
        ):
            return True
        modules = [] if takes_mask else list(run.target.modules())
        if any(_says_causal(name) and value is True for module in modules for name, value in vars(module).items()):
            return True
        if any(_is_asked_by_config(module) for module in modules):
            return True
        return any(is_triangle(each) and not _is_elsewhere(run, name) for name, each in run.target.named_buffers())
    return False


def _is_asked_by_config(module: nn.Module) -> bool:
    """Whether a config that a module keeps, a data class, has a causal flag that is on, which its class reads; what the
    module itself was told goes before it.
    """
    configs = [value for value in vars(module).values() if is_dataclass(value) and not isinstance(value, type)]
    asked = {name for config in configs for name, value in vars(config).items() if FLAG.match(name) and value is True}
    functions = [inspect.unwrap(value) for value in vars(type(module)).values() if inspect.isfunction(value)]
    read = {name for function in functions for name in function.__code__.co_names}
    return any(vars(module).get(name) is not False for name in asked & read)


def _is_documented(run: Run) -> bool:
    """Whether the docstring begins by saying without a condition that it looks back only, or a sentence of it says
    nothing else, and no flag has a say.
    """
    kind = type(run.target)
    if not isinstance(run.target, nn.Module) or is_installed(getattr(inspect.getmodule(kind), "__file__", None) or ""):
        return False
    if any(_says_causal(each.name) for each in (*parameters(kind), *parameters(run.target.forward))):
        return False
    if len(run.argument_marks) != 1:
        return False
    words = inspect.cleandoc(vars(kind).get("__doc__") or "")
    first, *others = [*sentences(words)] or [""]
    says_first = CAUSAL.match(first) is not None and CONDITIONAL.search(first) is None
    return says_first or (OTHERS.search(words) is None and any(map(IS.fullmatch, others)))


def wants_causal_of(run: Run, attention: AttentionOps) -> bool:
    """Whether an attention of one input to itself is to look back only, since the class tells its tokens in order."""
    queries, keys = query_and_key_sources(attention)
    names = {name for name, source in run.sources.items() if {source} == queries == keys}
    return bool(names & _in_order(run)) and not _takes_mask(run) and not is_under_square(attention)


def hides_earlier_alone(run: Run, visible: Tensor) -> bool:
    """Whether a class that speaks of a window of what came before, takes no mask that could hide more, and leaves no
    choice of its sides, hides earlier keys that are beyond a distance, and no later ones.
    """
    kind = type(run.target)
    if not run.plan.windows or _takes_mask(run) or not isinstance(run.target, nn.Module):
        return False
    names = [parameter.name for parameter in (*parameters(kind), *parameters(run.target.forward))]
    if any(_says_causal(name) or SIDED.search(name) for name in names):
        return False
    i, j = (torch.arange(size) for size in visible.shape)
    distance = i[:, None] - j
    farthest = int(distance[visible].max()) if bool(visible.any()) else 0
    is_window = 0 < farthest < int(distance.max()) and torch.equal(visible, distance <= farthest)
    return is_window and any(BEFORE.search(line) for line in (kind.__name__, *spoken(kind)))


def is_under_square(attention: AttentionOps) -> bool:
    """Whether scores meet a square of as many keys, by which what is trained on the next token may see a prefix."""
    sight = find_pattern(attention)
    keys = 0 if sight is None else sight.weights.shape[-1]
    entries = (*attention.path, attention.context)
    pairs = (pair for entry in entries for pair in zip(entry.tensors, entry.given, strict=True))
    return any(marks is None and tensor.shape[-2:] == (keys, keys) for tensor, marks in pairs)


def _in_order(run: Run) -> set[str]:
    """The inputs of which the person's own class tells each token from those before it."""
    kind = type(run.target)
    if not isinstance(run.target, nn.Module) or is_installed(getattr(inspect.getmodule(kind), "__file__", None) or ""):
        return set()
    # beside a memory what is generated token by token is told so in training too
    generated = run.fact(lengthened, kind) if len(run.argument_marks) > 1 else frozenset()
    return set(run.argument_marks) & (run.fact(told_in_order, kind) | generated)


def unread_flags(run: Run) -> list[str]:
    """The causal flags that headwise turned on and that are read only in a branch that was not run, as for a fused
    kernel, of a target that takes a mask.
    """
    flags = [name for name in run.plan.switched if _says_causal(name)]
    return [name for name in flags if _takes_mask(run) and is_asked_elsewhere(run, name)]


def _is_idle(run: Run, name: str) -> bool:
    """Whether a flag that is off by default is kept, and neither read nor spoken of: the order comes with the mask."""
    kind = type(run.target)
    is_off = any(parameter.name == name and parameter.default is False for parameter in parameters(kind))
    if not is_off or not isinstance(run.target, nn.Module) or name not in vars(run.target) or is_read(run.target, name):
        return False
    return not any(re.search(rf"\b{re.escape(name)}\b", line) for line in spoken(kind))


def _says_causal(name: str) -> bool:
    """Whether a name says that later tokens are not seen.

    >>> [_says_causal(name) for name in ("CausalSelfAttention", "is_causal", "NonCausalAttention", "BlockCausal")]
    [True, True, False, False]
    """
    words = [each.lower() for each in WORDS.findall(name)]
    for before, word, after in zip(["", *words], words, [*words[1:], ""], strict=False):
        is_said = word in ("causal", "autoregressive") or (word == "masked" and after == "self")
        if is_said and before not in DENYING | GROUPS:
            return True
    return False


def _takes_mask(run: Run) -> bool:
    """Whether a call may hand the order of tokens over, in a mask that is of more than padding."""
    function = run.target.forward if isinstance(run.target, nn.Module) else run.target
    try:
        arguments = parameters(function)
    except (TypeError, ValueError):
        return False
    masks = {argument.name for argument in arguments if role_of(argument) == "mask"} & set(mask_arguments(arguments))
    masks -= masks_of_keys(run.plan.target, sorted(masks))
    return any(not PADDING.search(name) for name in masks)


def _is_elsewhere(run: Run, name: str) -> bool:
    """Whether the code reads a buffer on a way that was not gone: there is a choice whether to look back."""
    storage = run.target.get_buffer(name).untyped_storage().data_ptr()
    if any(t.untyped_storage().data_ptr() == storage for entry in run.seen for t in entry.tensors):
        return False
    return is_read(run.target, name)


def _switches(run: Run) -> list[inspect.Parameter]:
    """What the person's own class is built with that the plan leaves as it is; what is published hands a flag on."""
    kind = type(run.target)
    file = getattr(inspect.getmodule(kind), "__file__", None) or ""
    if is_installed(file) or not isinstance(run.plan.target, type):
        return []
    return [parameter for parameter in parameters(kind) if parameter.name not in run.plan.init]


def _asked(run: Run) -> list[inspect.Parameter]:
    """What the person's own forward takes that the plan leaves as it is, where tokens see no others but these."""
    if len(run.argument_marks) != 1 or is_installed(
        getattr(inspect.getmodule(type(run.target)), "__file__", None) or ""
    ):
        return []
    return [parameter for parameter in parameters(run.target.forward) if parameter.name not in run.plan.call]


def is_triangle(t: Tensor) -> bool:
    """Whether a square holds one number up to its diagonal and another behind it."""
    if t.ndim < 2 or t.shape[-1] != t.shape[-2] or t.shape[-1] < 2 or t.is_complex():
        return False
    square = t.reshape(-1, *t.shape[-2:])[0]
    low = torch.ones_like(square, dtype=torch.bool).tril()
    below, above = square[low], square[~low]
    return bool((below == below[0]).all()) and bool((above == above[0]).all()) and bool(below[0] != above[0])


def is_step(t: Tensor | None) -> bool:
    """Whether a table of queries and keys is alike along its diagonals, and changes once across them."""
    if t is None or t.ndim < 2 or t.dtype != torch.bool or t.shape[-1] < 2 or t.shape[-2] < 2:
        return False
    table = t.reshape(-1, *t.shape[-2:])[0]
    lines = [table.diagonal(at) for at in range(1 - table.shape[0], table.shape[1])]
    firsts = torch.stack([line[0] for line in lines])
    return all(bool((line == line[0]).all()) for line in lines) and int((firsts[1:] != firsts[:-1]).sum()) == 1


def filled_by(run: Run, entry: MarkedOp) -> MarkedOp | None:
    """The last operation that made numbers far below 0 of a mask, before an operation took them; None: none did."""
    entries = [
        op for op in made_from(run, [entry])
        if op.at < entry.at and op.last in FILLS and not op.is_marked and _is_far(op)
    ]  # fmt: skip
    return max(entries, key=lambda entry: entry.at, default=None)


def _is_far(entry: MarkedOp) -> bool:
    """Whether an operation makes numbers of which some are as good as minus infinity, and some are not."""
    value = entry.value
    if value is None or not value.is_floating_point():
        return False
    return bool((value < FAR).any()) and not bool((value < FAR).all())
