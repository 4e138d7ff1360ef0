"""Traced steps: the steps of anyone's code, as the page draws them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headwise.tracing import MEANINGS, MOST_TURNS, Symbol, Trace, functions
from headwise.wording import LANGUAGES, say

__all__ = ["traced_steps"]

Text = str | dict[str, str]

# what there is to say of an operation of each kind: a heading and a sentence
KINDS: dict[str, tuple[str, str]] = {
    "project": ("steps.kind.project", "steps.says.project"),
    "split": ("steps.kind.split", "steps.says.split"),
    "turn": ("steps.kind.turn", "steps.says.turn"),
    "scores": ("steps.kind.scores", "steps.says.scores"),
    "scale": ("steps.kind.scale", "steps.says.scale"),
    "mask": ("steps.kind.mask", "steps.says.mask"),
    "mask_weights": ("steps.kind.mask", "steps.says.mask_weights"),
    "bias": ("steps.kind.bias", "steps.says.bias"),
    "softmax": ("steps.kind.softmax", "steps.says.softmax"),
    "dropout": ("steps.kind.dropout", "steps.says.dropout"),
    "mix": ("steps.kind.mix", "steps.says.mix"),
    "merge": ("steps.kind.merge", "steps.says.merge"),
    "mixed": ("steps.kind.mixed", "steps.says.mixed"),
    "project_out": ("steps.kind.project_out", "steps.says.project_out"),
    "attention": ("steps.kind.attention", "steps.says.attention"),
    "fold": ("steps.kind.fold", "steps.says.fold"),
    "unfold": ("steps.kind.unfold", "steps.says.unfold"),
    "part": ("steps.kind.part", "steps.says.part"),
    "copy": ("steps.kind.copy", "steps.says.copy"),
    "join": ("steps.kind.join", "steps.says.join"),
    "reshape": ("steps.kind.reshape", "steps.says.reshape"),
    "norm": ("steps.kind.norm", "steps.says.norm"),
    "embed": ("steps.kind.embed", "steps.says.embed"),
    "product": ("steps.kind.product", "steps.says.product"),
}
# the entries along these axes are tokens
TOKENS = {"L": "t", "S": "s"}
# functions of one file that lie no further apart are shown with what is between them
LONGEST = 80
WORD = re.compile(r"[A-Za-z_]\w*")


def traced_steps(trace: Trace, worked: Mapping[str, Any]) -> dict[str, Any]:
    """A trace and one run of it (see `tracing/worked_example.py`) in the form of docs/steps.md."""
    source = _Source(trace.sources, [(each["file"], each["line"]) for each in worked["steps"]])
    tensors = {name: _tensor(each) for name, each in worked["tensors"].items()}
    steps = [step for each in worked["steps"] for step in _steps(each, source)]
    shown = {name for step in steps for name in (*step["inputs"], step["output"])}
    return {
        "schema": 1,
        "title": _title(trace, worked),
        "source": {"name": source.name, "first": source.first, "lines": source.lines},
        "letters": _letters(trace.symbols, worked["tensors"].values()),
        "tensors": {name: each for name, each in tensors.items() if name in shown},
        "steps": steps,
    }


@dataclass
class _Source:
    """The lines that are shown, and where those of the files stand among them.

    places: the file and line of each step. Functions that lie near one another in one file keep the numbers of their
    lines; others stand one after another, each under a line that says where it is from.
    """

    files: Mapping[str, str]
    places: Sequence[tuple[str, int]]
    name: str = ""
    first: int = 1
    lines: list[str] = field(default_factory=list)
    _places: dict[tuple[str, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        regions = list(self._regions())
        self.name = ", ".join(dict.fromkeys(file for file, _, _ in regions))
        if len(regions) == 1:
            self.first = regions[0][1]
        for file, first, last in regions:
            if len(regions) > 1:
                self.lines += [*([""] if self.lines else []), f"# {file}, {first}–{last}"]
            for number, text in enumerate(self.files[file].split("\n")[first - 1 : last], first):
                self._places[file, number] = self.first + len(self.lines)
                self.lines.append(text.rstrip("\r"))

    def place(self, step: Mapping[str, Any]) -> tuple[int, list[int] | None]:
        """The line of a step, and its columns in it; of an expression of several lines, those where it is named."""
        file, line, last = step["file"], step["line"], step["end_line"] or step["line"]
        if (file, line) not in self._places:
            return self.first, None
        text = self.files[file].split("\n")
        if step["column"] is None or step["end_column"] is None:
            return self._places[file, line], None
        if last == line:
            return self._places[file, line], [step["column"], step["end_column"]]
        ends = text[last - 1][: step["end_column"]]
        if (file, last) in self._places and f".{step['op']}(" in ends:
            return self._places[file, last], [len(ends) - len(ends.lstrip()), len(ends)]
        return self._places[file, line], [step["column"], len(text[line - 1].rstrip())]

    def _regions(self) -> Iterator[tuple[str, int, int]]:
        """The file, the first and the last line of each run of lines that is shown."""
        for file in dict.fromkeys(file for file, _ in self.places if file in self.files):
            lines = self.files[file].split("\n")
            spans = functions(lines)
            shown = set()
            for number in {line for name, line in self.places if name == file and 1 <= line <= len(lines)}:
                around = [(first, last) for first, last in spans if first <= number <= last]
                shown.add(min(around, key=lambda span: span[1] - span[0], default=(number, number)))
            if shown and max(last for _, last in shown) - min(first for first, _ in shown) < LONGEST:
                yield file, min(first for first, _ in shown), max(last for _, last in shown)
                continue
            end = 0
            for first, last in sorted(shown):
                if last > end:
                    yield file, max(first, end + 1), last
                    end = last


def _steps(step: Mapping[str, Any], source: _Source) -> Iterator[dict[str, Any]]:
    """An operation as the page's steps: one for each of its results."""
    line, span = source.place(step)
    keys = KINDS.get(step["kind"])
    for output in step["outputs"]:
        yield {
            "line": line,
            "span": span,
            "op": step["op"],
            "name": _texts(keys[0]) if keys else step["op"],
            "says": _texts(keys[1]) if keys else None,
            "inputs": step["inputs"],
            "output": output,
        }


def _tensor(tensor: Mapping[str, Any]) -> dict[str, Any]:
    """A tensor with its tokens by name, where there is one for each entry of an axis."""
    names = {
        str(at): [f"{TOKENS[axis]}{n}" for n in range(size)]
        for at, (axis, size) in enumerate(zip(tensor["axes"], tensor["sizes"], strict=True))
        if axis in TOKENS
    }
    return {
        "letters": tensor["axes"], "sizes": tensor["sizes"], "values": tensor["values"], "heads": tensor["heads"],
        "axes": names,
    }  # fmt: skip


def _title(trace: Trace, worked: Mapping[str, Any]) -> Text:
    sizes = ", ".join(f"{name} = {size}" for name, size in worked["sizes"].items())
    parts = [_texts("steps.title", target=trace.target, sizes=sizes)]
    if worked["error"] is not None:
        parts.append(_texts("steps.fails", error=worked["error"]))
    elif any(problem.setting == "cross" for problem in trace.problems):
        parts.append(_texts("steps.crossed"))
    if worked.get("turns"):
        parts.append(_texts("steps.turns", turns=worked["turns"], shown=MOST_TURNS, left=worked["turns"] - MOST_TURNS))
    if worked["more"]:
        parts.append(_texts("steps.more", count=worked["more"]))
    return {lang: " ".join(part[lang] for part in parts) for lang in LANGUAGES}


def _letters(symbols: Sequence[Symbol], tensors: Any) -> dict[str, Text]:
    """What each axis that is shown means: a symbol, and what is made of several."""
    meanings = {symbol.name: _meaning(symbol) for symbol in symbols}
    out: dict[str, Text] = {}
    for axis in dict.fromkeys(axis for tensor in tensors for axis in tensor["axes"]):
        words = [word for word in dict.fromkeys(WORD.findall(axis)) if word in meanings]
        if axis in meanings:
            out[axis] = meanings[axis]
        elif axis.startswith("(") and " " in axis and words:
            out[axis] = _texts("steps.mixed_axis", axes=", ".join(words))
        elif words:
            out[axis] = {lang: ", ".join(f"{word}: {meanings[word][lang]}" for word in words) for lang in LANGUAGES}
    return out


def _meaning(symbol: Symbol) -> dict[str, str]:
    note = f" ({symbol.said})" if symbol.said and symbol.said != symbol.name else ""
    if symbol.meaning == "parameter" and symbol.said:
        return dict.fromkeys(LANGUAGES, symbol.said)
    return {lang: f"{text}{note}" for lang, text in _texts(MEANINGS[symbol.meaning]).items()}


def _texts(key: str, **values: object) -> dict[str, str]:
    """A sentence in every language."""
    return {lang: say(key, lang=lang, **values) for lang in LANGUAGES}
