"""Empty rows: whether the NaN of queries that may attend to no key reaches tokens that may attend to some."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from headwise.calls import Plan, call_role, callee, mask_arguments, parameters
from headwise.dataflow import MULTIPLICATIONS, AttentionOps, MarkedOp, Run, attentions, find_pattern
from headwise.diagnosis.checks.head_split import spoken
from headwise.diagnosis.checks.stated_uses import may_be_empty
from headwise.diagnosis.distance import distance
from headwise.diagnosis.examination import Examination
from headwise.diagnosis.padding_tokens import meets_scores, paddings
from headwise.diagnosis.repair import Change, Repair, both
from headwise.diagnosis.suspects import Suspect
from headwise.recording import Site
from headwise.source import file_tree, is_installed

__all__ = ["failing_guard", "spreading_rows", "without_nan"]

# tokens that a sample has at least: a class may ask for some
FEWEST = 3
NEAR = 1e-6
# how a file says that padding stands before the tokens; convolutions and shifts of scores pad at the left for others
LEFT = re.compile(
    r"\bpad\w*\W+(?:\w+\W+){0,3}?(?:left|front|beginning)\b|\bleft[-_ ]?(?:hand |side )?pad|\bpre[-_ ]?pad"
    r"|左(?:侧|边)?(?:填充|补)|(?:前面|前端|开头)(?:填充|补)",
    re.IGNORECASE,
)
TOKENS = re.compile(r"sequence|histor|\bids?\b|token|item|sample|batch|prompt|session|sentence|序列|历史|样本", re.I)
DENIED = re.compile(
    r"\bnot?\b|n't\b|\bnever\b|avoid|instead|rather|unsupported|\bor\b|\bright\b|conv|kernel|causal|shift|columns? of"
    r"|relative|score|不|右|卷积",
    re.I,
)
SENTENCE = re.compile(r"[.;!?](?:\s|$)|[。；！？]|\n\s*\n")


class PaddedCall(NamedTuple):
    """A call of a plan in which some tokens are padding. kept: (batch, tokens), True where a token is real; bare:
    changes the same call so that none is.
    """

    plan: Plan
    kept: Tensor
    change: Change
    bare: Change


def spreading_rows(exam: Examination) -> list[Suspect]:
    """Where rows without a key become NaN that reaches real tokens, or all that is pooled of them.

    Padding is made of token numbers, by a mask of tokens, or by an optional one beside a mask of pairs that hides
    nothing. It stands behind the tokens, and before them only where the file says so: a causal model that pads behind
    them leaves no row empty.
    """
    free: Run = exam.run(plan=exam.free)
    if exam.is_published or exam.suspects or free.failure is not None or not attentions(free):
        return []
    for call in _padded_calls(exam, free):
        run: Run = exam.rerun(plan=call.plan, more_change=call.change)
        first = _of_padding(run, call.kept) if _is_lost(run, call.kept) else None
        if first is None:
            continue
        entry = first.softmax or first.context
        bare: Run = exam.rerun(plan=call.plan, more_change=call.bare)
        if bare.failure is not None or bare.output is None or bool(bare.output.isnan().any()):
            continue
        if suspects := _spreading(exam, run, call, entry):
            return suspects
    for call in _calls_of_ids(exam, free, is_emptied=True) if may_be_empty(free.target) else ():
        run = exam.rerun(plan=call.plan, more_change=call.change)
        met = attentions(run)
        if run.failure is None and met and failing_guard(run):
            return _spreading(exam, run, call, met[0].softmax or met[0].context)
    return []


def _spreading(exam: Examination, run: Run, call: PaddedCall, entry: MarkedOp) -> list[Suspect]:
    """What spreads from an operation, where weights without NaN keep the whole result from it."""
    sites = [(each.softmax or each.context) for each in attentions(run)]
    stand_ins: dict[Site, Callable[..., Any]] = {each.site: without_nan(each.function) for each in sites}
    fixed: Run = exam.rerun(stand_ins, plan=call.plan, more_change=call.change)
    if fixed.failure is not None or fixed.output is None or bool(fixed.output.isnan().any()):
        return []
    return [
        Suspect("empty-row-spreads", entry.span, Repair(stand_ins), values={"how": "law"}, proved=True, evidence="law")
    ]


def failing_guard(run: Run) -> bool:
    """Whether the NaN of samples without a key is multiplied by 0 to take it away, which it does not: by a 0 for the
    whole sample, or for each token where words say that a sample may be empty.
    """
    is_told = may_be_empty(run.plan.target)
    for entry in run.seen:
        values = [tensor.value for tensor in entry.inputs if tensor.value is not None]
        if entry.last not in MULTIPLICATIONS or len(values) != 2:
            continue
        for product, zeros in (values, values[::-1]):
            is_for_all = zeros.ndim > 1 and all(size == 1 for size in zeros.shape[1:])
            if (is_for_all or is_told) and bool((product.isnan() & (zeros == 0)).any()):
                return True
    return False


def _is_lost(run: Run, kept: Tensor) -> bool:
    """Whether all that comes out for the real tokens of a sample with padding is NaN, or for the whole sample where
    tokens are pooled. kept: (batch, tokens), True where a token is real.
    """
    output = run.output
    samples, length = kept.shape
    axes = [] if output is None else [axis for axis, size in enumerate(output.shape) if size == samples]
    if run.failure is not None or output is None or len(axes) != 1:
        return False
    lost = output.isnan().movedim(axes[0], 0)
    tokens = [axis for axis, size in enumerate(lost.shape) if axis and size == length]
    rows = ~kept.all(dim=-1)
    if len(tokens) != 1:
        return bool(lost.reshape(samples, -1).all(dim=1)[rows].any())
    # what padding itself gives may be replaced
    lost = lost.movedim(tokens[0], 1).reshape(samples, length, -1).all(dim=-1)
    return bool((lost | ~kept).all(dim=1)[rows].any())


def _real_tokens(samples: int, length: int, *, is_left: bool = False) -> Tensor:
    """Which tokens are real where all samples but the last are padded: (batch, tokens)."""
    count = max(FEWEST, length // 2 + 1)
    kept = torch.arange(length).expand(samples, length) < count
    kept = kept.flip(-1) if is_left else kept.clone()
    kept[-1] = True
    return kept


def _pads_at_left(target: Any) -> bool:
    """Whether the file of a target says that padding stands before the tokens."""
    kinds = [type(each) for each in target.modules()] if isinstance(target, nn.Module) else [target]
    texts = ["\n".join(spoken(kind)) for kind in dict.fromkeys(kinds) if isinstance(kind, type)]
    function = getattr(kinds[0], "forward", None) if isinstance(kinds[0], type) else kinds[0]
    file = getattr(getattr(function, "__code__", None), "co_filename", "")
    tree = file_tree(file) if file and not is_installed(file) else None
    texts.append((tree and ast.get_docstring(tree)) or "")
    sentences = (sentence for text in texts for sentence in SENTENCE.split(text))
    return any(
        LEFT.search(sentence) and TOKENS.search(sentence) and not DENIED.search(sentence) for sentence in sentences
    )


def without_nan(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose NaN is 0."""
    return lambda *args, **options: torch.nan_to_num(function(*args, **options), nan=0.0)


def _of_padding(run: Run, kept: Tensor) -> AttentionOps | None:
    """The first attention with rows of NaN, where these are rows of padding alone: its real tokens attend to some."""
    samples, length = kept.shape
    for attention in attentions(run):
        pattern = find_pattern(attention)
        if pattern is None:
            return None
        is_nan = pattern.weights.isnan()
        if not bool(is_nan.any()):
            continue
        if int(pattern.row.max()) >= length or int(pattern.sample.max()) >= samples:
            return None
        return None if bool((is_nan & kept[pattern.sample, pattern.row]).any()) else attention
    return None


def _padded_calls(exam: Examination, free: Run) -> Iterator[PaddedCall]:
    """The calls in which some tokens are padding."""
    declared = exam.plan.call.get("_mask")
    if not exam.plan.mask:
        yield from _calls_of_ids(exam, free)
    elif isinstance(declared, Mapping) and "B" in free.sizes and free.sizes.get("L", 0) > FEWEST:
        axes = [str(axis) for axis in declared["shape"] if str(axis) not in ("1", "H")]
        is_counted = declared["means"] == "lengths"
        if axes.count("L") > 1:
            yield from _calls_beside_pairs(exam, free)
        elif exam.plan.setting == "self" and sorted(axes) in ([["B"]] if is_counted else [["B", "L"], ["L"]]):
            yield from _calls_of_mask(exam, free, declared)


def _calls_of_ids(exam: Examination, free: Run, *, is_emptied: bool = False) -> Iterator[PaddedCall]:
    """The calls in which tokens are padding by their numbers. is_emptied: all those of the first sample."""
    for padding in paddings(free):
        shape = padding.laid(free.named[padding.name]).shape
        if not meets_scores(free, padding.entry) or shape[1] <= FEWEST or shape[0] != free.sizes.get("B"):
            continue
        for is_left in (False, True) if _pads_at_left(free.target) else (False,):
            kept = _real_tokens(shape[0], shape[1], is_left=is_left)
            kept[0] &= not is_emptied

            def bare(_: Any, options: dict[str, Any], padding: Any = padding) -> None:
                tokens = options.get(padding.name)
                if isinstance(tokens, Tensor):
                    options[padding.name] = tokens.masked_fill(tokens == padding.number, padding.token)

            def padded(_: Any, options: dict[str, Any], padding: Any = padding, kept: Tensor = kept) -> None:
                tokens = options.get(padding.name)
                if isinstance(tokens, Tensor):
                    options[padding.name] = tokens.masked_fill(~padding.given(kept), padding.number)

            yield PaddedCall(exam.free, kept, both(bare, padded), bare)


def _calls_of_mask(exam: Examination, free: Run, declared: Mapping[str, Any]) -> Iterator[PaddedCall]:
    """The calls in which the mask of a plan hides tokens at an end."""
    name, axes = str(declared["argument"]), list(map(str, declared["shape"]))

    def hiding(kept: Tensor) -> Change:
        def change(_: Any, options: dict[str, Any]) -> None:
            if isinstance(mask := options.get(name), Tensor):
                options[name] = _written(kept, mask, axes, declared)

        return change

    samples, length = free.sizes["B"], free.sizes["L"]
    for is_left in (False, True) if "L" in axes and _pads_at_left(free.target) else (False,):
        kept = _real_tokens(samples, length, is_left=is_left)
        kept = kept if "B" in axes else kept[:1].expand(samples, length)
        yield PaddedCall(exam.plan, kept, hiding(kept), hiding(torch.ones_like(kept)))


def _written(kept: Tensor, mask: Tensor, axes: list[str], declared: Mapping[str, Any]) -> Tensor:
    """What a mask of some axes holds where it hides all but the real tokens, in the dtype of the mask."""
    means, counts = declared["means"], kept.sum(dim=-1)
    if means == "lengths":
        return (counts / kept.shape[-1] if declared.get("share") else counts).to(mask.dtype)
    allowed = kept if "B" in axes else kept[0]
    allowed = allowed.T if "B" in axes and axes.index("L") < axes.index("B") else allowed
    shape = [size if axis in ("B", "L") else 1 for axis, size in zip(axes, mask.shape, strict=True)]
    allowed = allowed.reshape(shape).expand(mask.shape)
    if means == "additive":
        return torch.zeros_like(mask).masked_fill(~allowed, float("-inf"))
    return (allowed if means == "attend" else ~allowed).to(mask.dtype)


def _calls_beside_pairs(exam: Examination, free: Run) -> Iterator[PaddedCall]:
    """The calls in which an optional mask of tokens hides some, and a mask of pairs none."""
    plan: Plan = exam.free
    kept = _real_tokens(free.sizes["B"], free.sizes["L"])
    for param in parameters(callee(plan.target)):
        is_free = param.default is None and param.name not in plan.call and param.name != exam.plan.mask
        if not is_free or call_role(param.name) != "mask" or param.name not in mask_arguments([param]):
            continue
        for allowed in (True, False):
            # a mask that hides nothing changes nothing: that tells what it means
            bare = _with_mask(param.name, torch.full_like(kept, allowed))
            opened: Run = exam.rerun(plan=plan, more_change=bare)
            if opened.failure is None and distance(opened.output, free.output) <= NEAR:
                yield PaddedCall(plan, kept, _with_mask(param.name, kept if allowed else ~kept), bare)
                break


def _with_mask(name: str, mask: Tensor) -> Change:
    """A change that gives an argument a mask."""

    def change(_: Any, options: dict[str, Any]) -> None:
        options[name] = mask

    return change
