"""What a child is asked in the tests of targets: to load one, and to say what was loaded."""

from headwise.targets.loader import load
from headwise.targets.reader import read
from headwise.targets.target import parse


def loads(request):
    """What calling the object of a target gives, and how its files are called."""
    target = parse(request["target"])
    found = load(target, read(target))
    return {"value": found.object(), "spoken": sorted(found.spoken.values()), "supplied": found.supplied}
