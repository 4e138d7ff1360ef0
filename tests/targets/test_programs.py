"""Programs made at random: running only what f needs gives the f() that running everything gives."""

import random

import pytest

from tests.targets.loaded import loaded

VALUES, FUNCTIONS, LISTS, CLASSES = "abcdeg", "pqrs", "lmn", "XYZ"
START = "def double(g):\n    return lambda: 2 * g()\n"


class Program:
    """A program of single-letter names; draws from r."""

    def __init__(self, r):
        self.r = r
        self.known = {kind: [] for kind in (VALUES, FUNCTIONS, LISTS, CLASSES)}

    def text(self):
        lines = [self.statement() for _ in range(self.r.randrange(4, 16))]
        lines.insert(self.r.randrange(len(lines) + 1), f"def f():\n    return {self.sum()}")
        return START + "\n".join(lines) + "\n"

    def sum(self):
        forms = {VALUES: "{}", FUNCTIONS: "{}()", LISTS: "sum({})", CLASSES: "{}.x"}
        usable = [form.format(name) for kind, form in forms.items() for name in self.known[kind]]
        return " + ".join([str(self.r.randrange(9)), *self.r.choices(usable, k=2 if usable else 0)])

    def new(self, kind):
        name = self.r.choice(kind)
        self.known[kind] = sorted({*self.known[kind], name})
        return name

    def old(self, kind):
        return self.r.choice(self.known[kind]) if self.known[kind] else None

    def statement(self):
        value = self.sum()
        match self.r.randrange(9):
            case 0 | 1:
                return f"{self.new(VALUES)} = {value}"
            case 2 | 3:
                # a function may read what is bound after it, or again
                read = f"    try:\n        w = {self.r.choice(VALUES)}\n    except NameError:\n        w = 0\n"
                decorator = self.r.choice(["", "", "@double\n"])
                name = self.new(FUNCTIONS)
                return f"{decorator}def {name}():\n{read}    return w + {value if f'{name}()' not in value else 1}"
            case 4 if self.old(LISTS):
                return self.r.choice(["{}.append({})", "{}[0] = {}", "{} += [{}]"]).format(self.old(LISTS), value)
            case 5:
                return f"{self.new(LISTS)} = [{value}]"
            case 6:
                parent = self.old(CLASSES)
                return f"class {self.new(CLASSES)}{f'({parent})' if parent else ''}:\n    x = {value}"
            case 7 if self.old(CLASSES):
                return f"{self.old(CLASSES)}.x = {value}"
            case _:
                before = self.old(VALUES)
                name = self.new(VALUES)
                other = "" if before == name else f"\nelse:\n    {name} = 1"
                return f"if {value} > 6:\n    {name} = {value}{other}"


def whole(text):
    """What f() gives where everything runs; None where something fails."""
    space = {}
    try:
        exec(text, space)
        return space["f"]()
    except (NameError, RecursionError):
        return None


@pytest.mark.parametrize("seed", range(8))
def test_f_is_what_it_is_where_everything_runs(home, seed):
    r = random.Random(seed)
    compared = 0
    for _ in range(40):
        text = Program(r).text()
        wanted = whole(text)
        if wanted is not None:
            (home / "own.py").write_text(f"{text}raise SystemExit\n")
            assert loaded("own.py:f").object() == wanted, text
            compared += 1
    assert compared > 8
