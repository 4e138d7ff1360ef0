"""A recorded run gives what it gives unrecorded, and each of its operations is there once, in order."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import headwise as hw
from headwise.recording.recorder import record


def names(done):
    return [each.name for each in done.operations]


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.ModuleDict({"project": nn.Linear(12, 12)})
        self.own = nn.MultiheadAttention(12, 3, batch_first=True)
        self.layer = nn.TransformerEncoderLayer(12, 3, 17, batch_first=True)

    def forward(self, x):
        y = F.dropout(self.inner["project"](x), 0.5)
        return self.layer(self.own(y, y, y, need_weights=False)[0])


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("context", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_the_result_is_bit_equal_and_random_numbers_are_as_before(context, training):
    torch.manual_seed(0)
    model, x = Small().train(training), torch.randn(2, 5, 12)
    with context():
        torch.manual_seed(1)
        wanted = model(x)
        torch.manual_seed(1)
        state = torch.get_rng_state()
        done = record(lambda: model(x), model=model)
    assert torch.equal(done.result, wanted)
    assert torch.equal(torch.get_rng_state(), state)
    assert names(done) == ["linear", "dropout", "MultiheadAttention", "TransformerEncoderLayer"]
    assert [each.module for each in done.operations] == ["inner.project", "", "own", "layer"]


def test_nothing_stays_behind_after_an_error():
    before = [nn.MultiheadAttention.forward, nn.TransformerEncoderLayer.forward, nn.TransformerEncoder.forward]
    error = ArithmeticError("late")

    def fails():
        torch.ones(2)
        raise error

    done = record(fails)
    assert done.failure.error is error
    assert (done.failure.operation, done.failure.span.source) == (None, "raise error")
    assert before == [nn.MultiheadAttention.forward, nn.TransformerEncoderLayer.forward, nn.TransformerEncoder.forward]
    assert torch._C._len_torch_function_stack() == 0
    assert names(done) == ["ones"]


def test_a_failing_operation_is_known_with_its_inputs():
    x = torch.randn(2, 7, 5)
    done = record(lambda: x.transpose(1, 2).reshape(2, 7, 6))
    failed = done.failure.operation
    assert (failed.name, failed.inputs[0].shape, failed.arguments) == ("reshape", (2, 5, 7), {"1": 2, "2": 7, "3": 6})
    assert str(done.failure.error) == "shape '[2, 7, 6]' is invalid for input of size 70"
    assert failed.span.source == "x.transpose(1, 2).reshape(2, 7, 6)"


def test_views_share_their_storage_and_writes_are_told():
    def run(x):
        y = x.view(3, 2)
        y[0] = 1
        y /= 2
        z = y + x.view(3, 2)
        z.masked_fill_(z > 1, 0.0)
        return z

    done = record(lambda: run(torch.zeros(6)))
    zeros, view, write, divide, again, add, above, fill = done.operations
    assert zeros.outputs[0].storage == view.outputs[0].storage == again.outputs[0].storage
    assert add.outputs[0].storage not in (zeros.outputs[0].storage, above.outputs[0].storage)
    y, z = view.outputs[0].number, add.outputs[0].number
    assert [(each.name, each.writes) for each in (write, divide, fill)] == [
        ("write", (y,)), ("/=", (y,)), ("masked_fill_", (z,)),
    ]  # fmt: skip
    assert [each.writes for each in (zeros, view, again, add, above)] == [()] * 5


def test_questions_are_not_operations_but_what_ends_a_chain_is():
    def run(x):
        B, _ = x.shape
        if x.size(0) == B and x.dim() == 2 and not x.is_cuda and len(x) == B and (x > 0).all():
            return float(x.sum()) + x[0, 0].item()
        return x.T.data

    assert names(record(lambda: run(torch.ones(2, 3)))) == [
        "ones", ">", "all", "bool", "sum", "float", "index", "item",
    ]  # fmt: skip
    assert names(record(lambda: run(torch.zeros(2, 3)))) == ["zeros", ">", "all", "bool", "T", "data"]


def test_a_tensor_that_is_given_another_type_is_another_and_one_that_is_asked_for_its_own_is_not():
    mask = torch.ones(2, 3, dtype=torch.bool)
    done = record(lambda: 1 - mask.type(torch.float32))
    assert names(done) == ["type", "-"]
    assert done.operations[1].inputs == done.operations[0].outputs
    assert names(record(lambda: mask.type())) == []


def test_the_body_of_a_function_with_a_gradient_of_its_own_is_seen():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(_, x):
            return x * 2

        @staticmethod
        def backward(_, gradient):
            return gradient * 2

    done = record(lambda: Double.apply(torch.ones(3, requires_grad=True)))
    assert "*" in names(done)


def test_values_are_copies_where_they_are_asked_for():
    x = torch.zeros(3)
    done = record(lambda: x.add_(1), values=True)
    (add,) = done.operations
    assert (add.inputs[0].value.tolist(), add.outputs[0].value.tolist()) == ([0, 0, 0], [1, 1, 1])
    assert record(lambda: x + 1).operations[0].inputs[0].value is None


def test_kernels_are_what_torch_ran_for_an_operation():
    layer, x = nn.Linear(12, 9), torch.randn(2, 5, 12)
    (linear,) = record(lambda: layer(x), kernels=True).operations
    products = [each for each in linear.kernels if each.name == "addmm"]
    # a Linear on (B, L, D) is one product of (B * L, D)
    assert [each.inputs for each in products] == [((9,), (10, 12), (12, 9))]
    assert record(lambda: layer(x)).operations[0].kernels == ()


def test_a_tensor_keeps_its_number_and_memory_that_is_used_again_gets_a_new_one():
    def run():
        for _ in range(5):
            torch.ones(1000).sum()

    done = record(run)
    made = [each.outputs[0] for each in done.operations if each.name == "ones"]
    summed = [each.inputs[0] for each in done.operations if each.name == "sum"]
    assert [each.number for each in made] == [each.number for each in summed]
    assert len({each.number for each in made}) == len({each.storage for each in made}) == 5


def test_a_call_of_headwise_is_one_step_with_what_it_took_and_gave():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = hw.compat.d2l.DotProductAttention(0.0)
            self.layer = hw.MultiHeadAttention(12, 3)

        def forward(self, q, k, lengths):
            y = self.attention(q, k, k, lengths)
            x, _ = hw.compat.annotated.attention(y, k, k)
            return self.layer(hw.attention(x[None], k[None], k[None])[0], k)

    q, k = torch.randn(2, 5, 12), torch.randn(2, 7, 12)
    model, lengths = Own().eval(), torch.tensor([3, 7])
    done = record(lambda: model(q, k, lengths), model=model)
    assert torch.equal(done.result, model(q, k, lengths))
    assert names(done) == [
        "DotProductAttention",
        "attention",
        "index",
        "index",
        "index",
        "attention",
        "index",
        "MultiHeadAttention",
    ]
    assert [[t.shape for t in each.outputs] for each in done.operations if each.name != "index"] == [
        [(2, 5, 12)], [(2, 5, 12)], [(1, 2, 5, 12)], [(2, 5, 12)],
    ]  # fmt: skip
    assert [t.shape for t in done.operations[0].inputs] == [(2, 5, 12), (2, 7, 12), (2, 7, 12), (2,)]
    assert [each.module for each in done.operations if "Attention" in each.name] == ["attention", "layer"]


def test_what_torch_ran_for_a_call_of_headwise_is_kept_too():
    q = torch.randn(1, 2, 5, 12)

    def call():
        return hw.compat.annotated.attention(q, q, q)[0]

    (step,) = record(call, kernels=True).operations
    assert step.name == "attention"
    assert {"bmm", "_softmax"} <= {each.name for each in step.kernels}
    assert record(call).operations[0].kernels == ()


@pytest.mark.parametrize(
    ("equation", "shapes", "pairs"),
    [
        # the weights meet the values, and then the projection
        ("bhij,bhje,hed->bid", [(2, 3, 5, 7), (2, 3, 7, 4), (3, 4, 11)], ["bhij,bhje->bhie", "bhie,hed->bid"]),
        # a factor meets one side before the two sides meet
        ("bqd,bkd,d->bqk", [(2, 5, 4), (2, 7, 4), (4,)], ["bqd,d->bqd", "bqd,bkd->bqk"]),
        ("...qd,...kd,...kv->...qv", [(2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 6)], None),
        ("bi,bj,bk,ijkl->bl", [(2, 3), (2, 5), (2, 7), (3, 5, 7, 4)], None),
        ("i,j,k->", [(3,), (5,), (7,)], None),
    ],
)
def test_an_einsum_of_many_tensors_may_be_recorded_as_einsums_of_two(equation, shapes, pairs):
    torch.manual_seed(0)
    operands = [torch.randn(shape, dtype=torch.float64) for shape in shapes]
    done = record(lambda: torch.einsum(equation, *operands), in_steps=True)
    assert torch.allclose(done.result, torch.einsum(equation, *operands), rtol=1e-12, atol=1e-12)
    assert names(done) == ["einsum"] * (len(shapes) - 1)
    if pairs is not None:
        written = [each.arguments["0"].replace(" ", "") for each in done.operations]
        assert [sorted(each.partition("->")[0].split(",")) for each in written] == [
            sorted(each.partition("->")[0].split(",")) for each in pairs
        ]
    assert names(record(lambda: torch.einsum(equation, *operands))) == ["einsum"]
