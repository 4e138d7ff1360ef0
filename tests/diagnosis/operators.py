"""Operators: how faults are written into the hosts' sources, and what the doctor should call each."""

import ast
import json
import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["HOSTS", "Host", "Mutant", "mutants"]


@dataclass(frozen=True)
class Host:
    """A class in a file of hosts/. words: pieces of its source that operators change, by what they are. call: said to
    the doctor where a mask's meaning must be certain.
    """

    name: str
    file: str
    words: dict
    call: dict | None = None


@dataclass(frozen=True)
class Mutant:
    """operator: its name; kinds: what the doctor may call it; source: the whole file; lines: where it may point."""

    host: Host
    operator: str
    kinds: tuple
    source: str
    lines: frozenset


def returned(text):
    """What a word that is a return statement gives back."""
    return text.removeprefix("return ")


def plain_weight(words):
    """A projection whose weight is taken from the parameters and kept as a tensor."""
    name = words["init_k"].partition(" =")[0]
    return f"{words['init_k']}; kept = {name}.weight.detach().clone(); del {name}.weight; {name}.weight = kept"


DROP = "torch.nn.functional.dropout"
# operator: (the words it changes, what to; {x} stands for another word of the host; or a function of its words), kinds
SIMPLE = {
    "drop scale": ("scaled", "{product}", ("scale-missing",)),
    "scale by model width": ("scaled", "{product} / ({D}) ** 0.5", ("scale-wrong",)),
    "scale by heads": ("scaled", "{product} / ({H}) ** 0.5", ("scale-wrong",)),
    "constant scale": ("scaled", "{product} / 64", ("scale-wrong",)),
    "multiply by root": ("scaled", "{product} * ({d}) ** 0.5", ("scale-inverted",)),
    "floor division": ("scaled", "{product} // ({d}) ** 0.5", ("scale-floor-division",)),
    "scale twice": ("scaled", "{scaled} / ({d}) ** 0.5", ("scale-twice",)),
    "scale after softmax": ("softmax", "({softmax}) / ({d}) ** 0.5", ("weights-scaled", "scale-twice")),
    "softmax over queries": ("softmax", "{scores}.softmax(dim=-2)", ("softmax-axis",)),
    "softmax over axis 1": ("softmax", "{scores}.softmax(dim=1)", ("softmax-axis",)),
    "softmax over axis 0": ("softmax", "{scores}.softmax(dim=0)", ("softmax-axis",)),
    "no softmax": ("softmax", "{scores}", ("softmax-missing",)),
    "detach scores": ("softmax", "({softmax}).detach()", ("gradient-cut", "gradient-path-cut")),
    "dropout on scores": ("softmax", "torch.nn.functional.dropout({scores}, 0.4, self.training).softmax(-1)",
                          ("dropout-before-softmax",)),
    "dropout in eval": ("softmax", "torch.nn.functional.dropout({softmax}, 0.3)", ("dropout-in-eval",)),
    "change weights in place": ("softmax", "({softmax}).mul_(1.25).div_(1.25).exp_().log_()",
                                ("inplace-breaks-backward",)),
    "key by value input": ("make_k", "{k_by_v}", ("projection-reused", "input-ignored")),
    "key by query weights": ("make_k", "{k_by_q}", ("projection-reused",)),
    "value by key weights": ("make_v", "{v_by_k}", ("projection-reused",)),
    "value from key input": ("make_v", "{v_of_k}", ("input-ignored",)),
    "key from query input": ("make_k", "{k_of_q}", ("input-ignored", "input-mixed")),
    "value from query input": ("make_v", "{v_of_q}", ("input-ignored", "input-mixed")),
    "detach keys": ("make_k", "{make_k}.detach()", ("gradient-cut",)),
    "values' data": ("make_v", "{make_v}.data", ("gradient-cut",)),
    "split queries by view": ("split_q", "{bad_split_q}", ("split-without-transpose", "heads-batch-swapped")),
    "split keys by view": ("split_k", "{bad_split_k}", ("split-without-transpose", "heads-batch-swapped")),
    "split values by view": ("split_v", "{bad_split_v}", ("split-without-transpose", "heads-batch-swapped")),
    "merge without transpose": ("merge", "{bad_merge}", ("merge-without-transpose", "heads-batch-swapped")),
    "key reshaped": ("turned_k", "{bad_turned_k}", ("key-not-transposed",)),
    "key not transposed": ("turned_k", "{k}", ("key-not-transposed", "raises")),
    "view without contiguous": ("merge", "{view_merge}", ("view-noncontiguous",)),
    "output projection unused": ("out", "{no_out}", ("projection-unused", "projection-missing")),
    "wrong attribute": ("out", "{bad_out}", ("wrong-attribute",)),
    "undefined name": ("softmax", "softmaxx({scores}, dim=-1)", ("name-misspelt", "undefined-name")),
    "shared by alias": ("init_k", "{alias_k}", ("projection-shared",)),
    "plain list": ("init_k", "{list_k}", ("parameters-unregistered",)),
    "mask inverted": ("fill", "{inverted_fill}", ("mask-inverted",)),
    "mask fill 1e-9": ("fill", "{weak_fill}", ("mask-weak-fill",)),
    "mask fill 0": ("fill", "{zero_fill}", ("mask-weak-fill",)),
    "mask discarded": ("fill_statement", "{discarded}", ("mask-ignored",)),
    "mask after softmax": ("softmax", "{late_mask}", ("mask-after-softmax",)),
    "causal off by one": ("causal", "{causal_offset}", ("causal-offset",)),
    "causal strict": ("causal", "{causal_strict}", ("causal-offset",)),
    "causal inverted": ("causal", "{causal_inverted}", ("causal-inverted",)),
    "causal dropped": ("causal_statement", "pass", ("causal-missing",)),
    "groups tiled": ("repeat_k", "{tiled_k}", ("groups-tiled",)),
    "rotary on values": ("repeat_v", "{rotated_v}", ("rotary-on-values",)),
    "rotary on keys only": ("rotate_q", "pass", ("rotary-queries-missing",)),
    "mask repeated as tiles": ("mask_repeat", "{mask_tiled}", ("mask-repeat-order",)),
    "keys of query length": ("k_length", "{q_length}", ("key-uses-query-length",)),
    "cache mask without offset": ("cache_mask", "{cache_mask_dropped}", ("causal-cache",)),
    "causal flag for a step": ("cache_call", "{cache_call_causal}", ("causal-cache",)),
    "cache angle without offset": ("cache_angle", "{cache_angle_dropped}", ("position-cache",)),
    "cache key angle without offset": ("cache_angle_k", "{cache_angle_k_dropped}", ("position-cache",)),
    "cache joined in front": ("cache_join", "{cache_join_turned}", ("cache-order", "cache-order-mismatch")),
    "cache joined on another axis": ("cache_join", "{cache_join_axis}", ("cache-axis",)),
    "cache without values": ("cache_values", "{no_cache_values}", ("cache-incomplete", "cache-lost")),
    "cache of new tokens alone": ("cache_kept", "{cache_new}", ("cache-lost",)),
    "cache written at the start": ("cache_slot", "{cache_slot_dropped}", ("cache-lost",)),
    "cached values written at the start": ("cache_slot_v", "{cache_slot_v_dropped}", ("cache-lost",)),
    "cache not emptied": ("cache_reset", "{cache_stale}", ("cache-stale",)),
    "input changed in place": ("make_k", lambda words: re.sub(r"\((\w+)\)$", r"(\1.mul_(1.5))", words["make_k"]),
                               ("input-modified",)),
    "samples mixed by a mean": ("make_k", "({make_k} + {make_k}.mean(0, keepdim=True))", ("sample-leak",)),
    "rounded keys": ("make_k", "(torch.round({make_k} * 8) / 8)", ("gradient-zero", "scale-floor-division")),
    "plain tensor for a weight": ("init_k", plain_weight, ("parameters-unregistered",)),
    "output piled up": ("out", lambda words: f"self.mix = {returned(words['out'])} + 0.5 * getattr(self, 'mix', 0.0)"
                        "; return self.mix", ("stateful-forward",)),
    "dropout twice": ("out", lambda words: f"return {DROP}({DROP}({returned(words['out'])}, 0.2, self.training), 0.2, "
                      "self.training)", ("dropout-twice",)),
    "mask turned": ("fill", lambda words: words["fill"].replace("mask == 0", "mask.transpose(-2, -1) == 0"),
                    ("mask-axis",)),
    "added mask dropped": ("add_mask", "pass", ("mask-ignored",)),
    "values tiled": ("repeat_v", "{tiled_v}", ("groups-tiled",)),
}  # fmt: skip


def is_python(source):
    """Whether a mutant can be read at all."""
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


def mutants(host, source):
    """Every mutant of a host."""
    for operator, (word, new, kinds) in SIMPLE.items():
        old = host.words.get(word)
        if old is None:
            continue
        try:
            text = new(host.words) if callable(new) else new.format(**host.words)
        except KeyError:
            continue
        if text == old or source.count(old) != 1:
            continue
        before = source[: source.index(old)].count("\n") + 1
        changed = source.replace(old, text)
        if not is_python(changed) or ("torch." in text and "import torch\n" not in source):
            # it would be found for a name that nobody forgot
            continue
        lines = set(range(before, before + text.count("\n") + 1))
        if operator in host.words.get("without", ()):
            continue
        if operator in NEARBY or word == "fill_statement":
            # what is missing has no line of its own: that of a step around it is right
            lines |= set(range(before - NEARBY.get(operator, 1), before + 3))
        lines |= set(host.words.get(f"lines of {operator}", ()))
        yield Mutant(host, operator, kinds, changed, frozenset(lines))


# how many lines before, as blocks for masks stand between
NEARBY = {
    "no softmax": 5,
    "causal dropped": 1,
    "output projection unused": 2,
    "mask discarded": 1,
    "rotary on keys only": 1,
    "cache without values": 1,
    "added mask dropped": 1,
}


def _hosts():
    for file in sorted((Path(__file__).parent / "hosts").glob("*.json")):
        held = json.loads(file.read_text(encoding="utf-8"))
        yield Host(held["name"], f"{file.stem}.py", held["words"], held["call"])


HOSTS = tuple(_hosts())
