"""A number that is declared is bound once, to the symbol that stands at its place; equal numbers stay two sizes."""

from torch import nn

from headwise.calls.finder import find
from headwise.calls.plan import Named, Plan
from headwise.calls.size_bindings import Numbers
from tests.calls.styles import language, textbook


def first(target, file, **said):
    return find(target, namespace=vars(file), **said).plans[0]


def test_numbers_in_a_config_are_bound_as_those_of_parameters_are():
    init = {"config": {"_expr": "GPTConfig(n_embd=16, n_head=4, block_size=16)"}}
    plan = first(language.CausalSelfAttention, language, init=init)
    free = first(language.CausalSelfAttention, language)
    assert {each.name for each in plan.symbols} >= {each.name for each in free.symbols} - {"block_size"}
    assert "n_embd=H*d" in plan.init["config"]["_expr"].replace(" ", "")
    assert {name: plan.real[name] for name in ("D", "H", "d")} == {"D": 16, "H": 4, "d": 4}


def test_equal_numbers_are_bound_to_the_symbols_of_their_places():
    call = {name: [5, 5, 25] for name in ("query", "keys", "values")}
    plan = first(textbook.AladdinPersson, textbook, init={"embed_size": 25, "heads": 5}, call=call)
    assert (plan.call["query"], plan.call["keys"]) == (["B", "L", "D"], ["B", "S", "D"])
    assert plan.real == {"B": 5, "L": 5, "S": 5, "H": 5, "d": 5, "D": 25}
    assert len(set(plan.sizes(0).values())) == len(plan.sizes(0))


def test_the_batch_is_the_axis_that_all_inputs_share():
    shapes = {"query": [5, 2, 16], "key": [7, 2, 16], "value": [7, 2, 16]}
    plan = find(nn.MultiheadAttention, namespace={}, init={"embed_dim": 16, "num_heads": 4}, call=shapes).plans[0]
    assert {name: plan.real[name] for name in "BLS"} == {"B": 2, "L": 5, "S": 7}


def test_token_numbers_and_tuples_are_bound_axis_by_axis():
    numbers = Numbers({}, {"ids": {"_ids": [2, 5], "below": 30}, "table": {"_tuple": [[5, 8], [5, 8]]}})
    there = {"ids": {"_ids": ["B", "L"], "below": "V"}, "table": {"_tuple": [["L", "d"], ["L", "d"]]}}
    symbols = tuple(Named(name, "parameter") for name in ("B", "L", "V", "d"))
    plan = Plan(None, "self", {}, numbers.called(there, Plan(None, "self", {}, there, symbols), ()), symbols)
    assert plan.call == there
    assert numbers.sizes(plan) == {"B": 2, "L": 5, "V": 30, "d": 8}
    assert Numbers({}, {"table": {"_tuple": [[5, 8], [6, 8]]}}).sizes(plan) is None


def test_a_number_that_is_no_size_stands():
    plan = first(textbook.D2lMultiHead, textbook, init={"dropout": 0})
    assert plan.init["dropout"] == 0


class Graph(nn.Module):
    def __init__(self, in_dim, out_dim, num_heads):
        super().__init__()
        self.num_heads, self.part = num_heads, out_dim // num_heads
        self.ask, self.match = nn.Linear(in_dim, out_dim), nn.Linear(in_dim, out_dim)

    def forward(self, feat, adj):
        q, k = (each(feat).view(*feat.shape[:2], self.num_heads, self.part).transpose(1, 2)
                for each in (self.ask, self.match))  # fmt: skip
        scores = (q @ k.mT / self.part**0.5).masked_fill(adj[:, None] == 0, -1e9)
        return scores.softmax(-1) @ k


def test_a_width_that_is_declared_twice_is_one_symbol_beside_a_mask_that_is_not():
    plan = find(
        Graph, namespace={}, init={"in_dim": 16, "out_dim": 32, "num_heads": 4}, call={"feat": [2, 5, 16]}
    ).plans[0]
    assert (plan.call["feat"], plan.mask) == (["B", "L", plan.init["in_dim"]], "adj")
