"""A constructor whose sizes come in one object is given one that has them, as the code reads it."""

import pytest

from headwise.calls.finder import find
from tests.calls.styles import configured


@pytest.mark.parametrize(
    ("kind", "init"),
    [
        ("Defaults", {"config": {"_expr": "dict(dim=H*d, num_heads=H)"}}),
        ("Renamed", {"config": {"_expr": "dict(dim=H*d, num_heads=H)"}}),
        ("Mixed", {"hparams": {"_expr": "dict(dim=H*d, num_heads=H)"}}),
        ("Keys", {"config": {"_expr": "dict(model=dict(dim=H*d, num_heads=H))"}}),
        (
            "Twice",
            {
                "config": {
                    "_expr": "SimpleNamespace(encoder=SimpleNamespace(dim=H*d), decoder=dict(dim=H*d, num_heads=H))",
                }
            },
        ),
        ("Keywords", {"dim": "H*d", "num_heads": "H"}),
    ],
)
def test_keys_are_given_as_they_are_read(kind, init):
    assert find(getattr(configured, kind), namespace=vars(configured)).plans[0].init == init


def test_parts_are_given_inside_of_what_holds_them_and_methods_of_a_value_are_no_parts():
    [name, config] = find(configured.Parts, namespace=vars(configured)).plans[0].init.popitem()
    parts = "model=SimpleNamespace(dim=H*d, attention=SimpleNamespace(num_heads=H))"
    assert (name, config["_expr"].startswith("SimpleNamespace("), parts in config["_expr"]) == ("config", True, True)
    assert "lower" not in config["_expr"]
