"""A target is loaded in a child as it is here: from the person's folder, which stays as it was."""

import pytest

from headwise.targets.child.process import in_child
from headwise.wording import Refusal
from tests.targets.loaded import written

pytestmark = pytest.mark.usefixtures("started_children")
ENTRY = "tests.targets.entries:loads"


def test_a_relative_path_begins_where_the_person_is(home):
    written(home, "sub/own_near.py", "print('near')\nN = 2\n")
    written(home, "sub/own.py", "from own_near import N\nimport os\nWHERE = os.getcwd()\ndef f(): return [N, WHERE]\n")
    answer = in_child(ENTRY, {"target": "sub/own.py:f"})
    assert answer["value"][0] == 2
    assert answer["value"][1] != str(home)
    assert answer["spoken"] == ["sub/own.py", "sub/own_near.py"]
    assert answer["printed"]["stdout"] == "near\n"
    assert sorted(str(file.relative_to(home)) for file in home.rglob("*")) == ["sub", "sub/own.py", "sub/own_near.py"]


def test_a_module_of_the_folder_is_found(home):
    written(home, "pack/__init__.py", "from .deep import N\n")
    written(home, "pack/deep.py", "N = 3\n")
    written(home, "pack/own.py", "from pack import N\ndef f(): return N\n")
    answer = in_child(ENTRY, {"target": "pack.own:f"})
    assert (answer["value"], answer["spoken"]) == (3, ["pack.own", "pack/__init__.py", "pack/deep.py"])


def test_what_is_supplied_is_told(home):
    written(home, "note.md", "```python\ndef f():\n    return math.sqrt(4)\n```\n")
    assert in_child(ENTRY, {"target": "note.md:f"})["supplied"] == ["math"]


# what a file does as it is loaded, and what is said of it
ENDS = {
    "import sys\nN = sys.exit('no')": "raised SystemExit: no",
    "import os\nN = os._exit(4)": "exit status 4",
    "import time\nN = time.sleep(1000)": "must finish within 2 s",
    "N = bytearray(100 << 30)": "raised MemoryError",
    "def g(): return g()\nN = g()": "line 1 raised RecursionError",
    "class Own(BaseException): pass\nraise_ = [Own]\ndef g(): raise Own\nN = g()": "status 1, after printing .*Own",
    "N = undefined": "line 1 raised NameError: name 'undefined' is not defined",
    "N = 1 +": "line 1, column 8",
}


@pytest.mark.parametrize("text", ENDS)
def test_what_a_file_does_as_it_is_loaded_is_one_sentence(home, text):
    written(home, "own.py", f"{text}\ndef f(): return N\n")
    with pytest.raises(Refusal, match=ENDS[text]) as caught:
        in_child(ENTRY, {"target": "own.py:f"}, seconds=2)
    assert "\n" not in str(caught.value)
