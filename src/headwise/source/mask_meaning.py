"""Mask meaning: whether True means attend or blocked, by the comments of a file and the masks that it makes."""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Sequence

from headwise.source.mask_polarity import made_masks, masks_called
from headwise.source.syntax import file_tree, nodes_of

__all__ = ["is_additive", "meaning_of", "ones_of"]

IS = (
    r"\s*(?:=|==|:|means|marks|for|where|at|on|if|when|is|are|->|→|"
    r"(?:的(?:位置|地方|键|词|部分))?\s*(?:表示|代表|意味着|为|是|则|会|可|要|被|：)|的(?:位置|地方|键|词|部分))\s*"
    r"(?:(?:该|这个|此)?(?:位置|键|词)?(?:可以|会|要|需要|应)?被?)\s*"
)
SEEN = (
    r"(?:keep|kept|belongs?(?!\s+to\s+(?:the\s+|a\s+)?(?:pad|mask|future))|attend|valid|visible|real|may(?!\s+not)|can(?!\s*not|['’]?t\b)|allow|unmask|not\s+(?:mask|pad)|look|exist|present|(?:is|are)\s+there\b|"
    r"保留|可见|有效|允许|能看|可以看|看得|看见|可看|能见|参与|真实|关注)"
)
HIDDEN = (
    r"(?:mask|pad|ignore|block|hid|exclude|not\s+(?:be\s+)?(?:attend|allow|seen|look)|cannot|can['’]t|forbid|future|(?:nothing|nobody|no\s+(?:one|key|query|token))\s+(?:may|can|should|is)\s+(?:be\s+|to\s+(?:be\s+)?)?(?:seen?|look|attend|read|visible|allowed|used)|"
    r"屏蔽|遮|填充|忽略|掩|隐藏|挡|盖住|补齐|不可|不能|不看|不参与|看不|无效|禁止|未来)"
)
YES, NO = (
    rf"(?:(?<![a-z0-9_.])(?:{value})(?![a-z0-9_.]))"
    for value in ("1s?|ones?|true|non[- ]?zeros?|真", "(?<!non-)(?<!non )(?:0s?|zeros?)|false|假")
)
# the words between the value and its meaning, without a negation
GAP = (
    r"(?:(?!(?:not|no|non|nothing|nobody|none|never|except|unless|true|false|ones?|zeros?|may|can|cannot|must)\b|[01]\b)"
    r"[\w'’-]+\s+){0,5}?"
)
# tokens, without a clause that says more about them
THERE = r"(?:(?:a|an|the|all|each|every)\s+)?(?:tokens?|words?|text)\b(?!\s+(?:to|that|which|not|is|are)\b)"
ATTEND = re.compile(f"{YES}{IS}(?:{GAP}{SEEN}|{THERE})|{NO}{IS}{GAP}{HIDDEN}", re.IGNORECASE)
BLOCKED = re.compile(f"{YES}{IS}{GAP}{HIDDEN}|{NO}{IS}(?:{GAP}{SEEN}|{THERE})", re.IGNORECASE)

# the reversed order: "positions to hide are True"
PLACES = r"(?:(?:positions?|places?|tokens?|keys?|values?|entries|entry|elements?|words?|ones|those)\s+){0,2}"
BE = (
    r"(?:(?:(?:that|which)\s+)?(?:are|is|be|(?:should|must)\s+be)\s+|(?=set|marked|=))"
    r"(?:(?:set|marked|given)\s+(?:to|as|with|by)\s+|=+\s*)?"
)
ONE, ZERO = (
    rf"(?:{value})(?![a-z0-9_]|\.\d)(?!\s*(?:or|/|and|,)\s*(?:false|true|[01]\b))"
    for value in ("1s?|ones?|true|真", "0s?|zeros?|false|假")
)
PLAIN = r"(?<!not\s)(?<!not-)(?<!non\s)(?<!non-)(?<![a-z])"
TO_HIDE, TO_SEE = (
    rf"(?:{PLAIN}(?:to\s+(?:be\s+)?(?:{verbs})|{adjectives})\s+{PLACES}{BE}|"
    rf"(?<![不非未])(?:{chinese})的?(?:位置|部分|地方|键|词)(?:的值)?(?:要|应)?(?:设|标记|标|置)?(?:为|是|成)\s*)"
    for verbs, adjectives, chinese in (
        (
            "mask(?:ed)?|ignored?|hid(?:e|den)|block(?:ed)?|excluded?",
            "(?:mask|padd|ignor|block)ed|hidden|padding|future",
            "屏蔽|遮挡|遮蔽|遮住|忽略|填充|补齐|无效",
        ),
        (
            r"attend(?:ed)?(?:\s+to)?|keep|kept|seen?",
            "valid|visible|allowed|unmasked|real",
            "有效|可见|允许|保留|真实",
        ),
    )
)  # fmt: skip
TURNED = {
    "attend": re.compile(f"{TO_SEE}{ONE}|{TO_HIDE}{ZERO}", re.IGNORECASE),
    "blocked": re.compile(f"{TO_HIDE}{ONE}|{TO_SEE}{ZERO}", re.IGNORECASE),
}
# other tensors that are 0 at masked positions
RESULTS = re.compile(r"attention|weight|scores?\b|logit|prob|softmax|output|loss|embed|权重|分数|输出", re.IGNORECASE)

HIDES = re.compile(f"{YES}{IS}{GAP}{HIDDEN}", re.IGNORECASE)
# arguments that are called by what True means
CALLED = {
    "attend": re.compile(r"(^|_)(allow(ed)?|visible|valid|attendable|permitted|keep|present)(_keys|_mask)?$"),
    "blocked": re.compile(
        r"(^|_)(blocked|forbidden|banned|ignored?|is_hidden|invalid|invisible|disallowed)(_keys|_mask)?$"
    ),
}
# that a mask comes from a tokenizer of Hugging Face, which gives 1 for tokens to attend to
TOKENIZER = re.compile(r"tokeni[sz]er|hugging ?face", re.IGNORECASE)
# torch's own layers with attention
LAYERS = re.compile(r"MultiheadAttention$|Transformer((En|De)coder(Layer)?)?$")
# words about an additive mask
ADDED = re.compile(r"inf|-\s?1e|-\s?10{3,}|negativ|large|additive|added|bias|相加|负", re.IGNORECASE)


def is_additive(lines: Sequence[str]) -> bool:
    """Whether text about a mask says that it holds numbers to add."""
    return any(ADDED.search(_words(line, is_told=True)) for line in lines)


def ones_of(lines: Sequence[str]) -> str:
    """The meaning of 1, "attend" or "blocked", in text about a mask of ones and zeros; "": the text gives none."""
    words = [_words(line, is_told=True) for line in lines]
    if any(ADDED.search(text) for text in words):
        return ""
    meanings = {
        meaning for text in words for meaning, form in (("attend", ATTEND), ("blocked", HIDES)) if form.search(text)
    }
    return next(iter(meanings)) if len(meanings) == 1 else ""


def meaning_of(files: Sequence[str], name: str, kind: str) -> str:
    """The meaning of True in a class's mask, "attend" or "blocked"; "": the files give none, or several.

    files: their names in linecache. name: of the argument. kind: of the class; its use of the mask does not count.
    Text about the argument takes precedence over text about masks in general.
    """
    named = {meaning for meaning, form in CALLED.items() if form.search(name.lower())}
    general: set[str] = set()
    for file in files:
        lines, tree = linecache.getlines(file), file_tree(file)
        if tree is None:
            continue
        foreign, docstring_lines = _others(tree, kind), _docstrings(tree)
        others = foreign | _remade(tree, kind, name)
        if name == "attention_mask" and TOKENIZER.search("".join(lines)):
            named.add("attend")
        is_named = False
        for number, line in enumerate(lines, start=1):
            words = _words(line, is_told=number in docstring_lines)
            # an entry of a docstring continues until the next begins
            goes_on = is_named and "#" not in line and bool(words.strip()) and not re.match(r"\s*\w+\s*[:(]", words)
            is_named = bool(words) and (goes_on or re.search(rf"\b{re.escape(name)}\b", line) is not None)
            if number in others or not words or not (is_named or re.search("mask|掩码", words.lower())):
                continue
            meanings = {meaning for meaning, form in (("attend", ATTEND), ("blocked", BLOCKED)) if form.search(words)}
            general |= meanings
            if is_named:
                is_plain = not RESULTS.search(words.replace(name, ""))
                named |= meanings | {meaning for meaning, form in TURNED.items() if is_plain and form.search(words)}
        named |= set(masks_called(tree, kind, name, foreign))
        general |= set(made_masks(tree, kind, name, foreign))
    if named:
        return next(iter(named)) if len(named) == 1 else ""
    return next(iter(general)) if len(general) == 1 else ""


def _others(tree: ast.AST, kind: str) -> set[int]:
    """The lines of other attention classes, whose masks may have another meaning: of those that hold torch's layers,
    where neither class is part of the other.
    """
    classes = {node.name: node for node in getattr(tree, "body", []) if isinstance(node, ast.ClassDef)}
    uses = {name: _names_in(node) for name, node in classes.items()}
    joined, ahead = {kind}, [kind]
    while ahead:
        at = ahead.pop()
        linked = {name for name in classes if name in uses.get(at, ()) or at in uses[name]} - joined
        joined |= linked
        ahead += linked
    out: set[int] = set()
    for name, node in classes.items():
        has_own = any("softmax" in each.lower() or each == "scaled_dot_product_attention" for each in uses[name])
        has_layer = name not in joined and any(LAYERS.match(each) for each in uses[name])
        if name != kind and (has_own or has_layer):
            out |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return out


def _names_in(node: ast.AST) -> set[str]:
    """The names and attributes that code reads."""
    parts = [each for each in ast.walk(node) if isinstance(each, ast.Attribute | ast.Name)]
    return {part.attr if isinstance(part, ast.Attribute) else part.id for part in parts}


def _remade(tree: ast.AST, kind: str, name: str) -> set[int]:
    """The lines of other classes that compare or negate a mask: they pass on another mask than they take."""
    lines: set[int] = set()
    for statement in getattr(tree, "body", []):
        if not isinstance(statement, ast.ClassDef) or statement.name == kind:
            continue
        turned = [
            step.left if isinstance(step, ast.Compare) else step.operand
            for step in ast.walk(statement)
            if (isinstance(step, ast.Compare) and isinstance(step.ops[0], ast.Eq | ast.NotEq | ast.Gt | ast.Lt))
            or (isinstance(step, ast.UnaryOp) and isinstance(step.op, ast.Invert))
        ]
        remade = {part.id for operand in turned for part in ast.walk(operand) if isinstance(part, ast.Name)} - {name}
        if any("mask" in argument for argument in remade):
            lines |= set(range(statement.lineno, (statement.end_lineno or statement.lineno) + 1))
    return lines


def _docstrings(tree: ast.AST) -> set[int]:
    """The lines of the docstrings and other bare strings."""
    out: set[int] = set()
    for node in nodes_of(tree):
        value = node.value if isinstance(node, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            out |= set(range(value.lineno, (value.end_lineno or value.lineno) + 1))
    return out


def _words(line: str, *, is_told: bool) -> str:
    """The text of a line in a comment or a docstring, without markup."""
    words = line if is_told else line.partition("#")[2]
    return re.sub(r"[*`\"]+", "", words).strip()
