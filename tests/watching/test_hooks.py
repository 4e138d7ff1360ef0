"""Where hooks end: threads, compiled and scripted modules, errors, other modes; all run as if they were not watched."""

import copy
import gc
import pickle
import threading
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from headwise.watching import watch
from tests.watching.models import Attend, Block, Model, heads, made, x


class Operations(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.operations = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.operations.append(func)
        return func(*args, **(kwargs or {}))


def test_a_layer_made_from_torch_own_keeps_its_fast_path():
    class Named(nn.TransformerEncoderLayer):
        pass

    torch.manual_seed(2)
    model = nn.Sequential(Named(12, 2, 17, batch_first=True).eval(), nn.Identity())
    with torch.no_grad():
        wanted = model(x())
        with watch(model) as seen, Operations() as ran:
            assert torch.equal(model(x()), wanted)
    assert torch.ops.aten._transformer_encoder_layer_fwd.default in ran.operations
    assert list(seen) == ["0.self_attn"]


def test_a_caught_error_leaves_the_names_right():
    class Careful(nn.Module):
        def __init__(self):
            super().__init__()
            self.bad, self.good = Attend(nonsense=True), Attend()

        def forward(self, y):
            try:
                self.bad(y)
            except TypeError:
                q = heads(y)
                F.scaled_dot_product_attention(q, q, q)
            return self.good(y)

    model = made(Careful)
    with watch(model) as seen:
        model(x())
    assert list(seen) == ["", "good"]


def test_another_function_mode_in_the_block_keeps_its_place():
    class Counting(TorchFunctionMode):
        count = 0

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.count += func is F.scaled_dot_product_attention
            return func(*args, **(kwargs or {}))

    model = nn.Sequential(made(Attend), nn.TransformerEncoderLayer(12, 2, 17, batch_first=True).eval())
    counting, unwatched = Counting(), Counting()
    with torch.no_grad(), unwatched:
        wanted = model(x())
    with torch.no_grad(), watch(model) as seen, counting:
        assert torch.equal(model(x()), wanted)
        assert torch.overrides._get_current_function_mode() is counting
    assert counting.count == unwatched.count == 1
    assert list(seen) == ["0", "1.self_attn"]
    assert torch._C._len_torch_function_stack() == 0


@pytest.mark.parametrize("kind", [Model, lambda: nn.TransformerEncoderLayer(12, 2, 17, batch_first=True).eval()])
def test_another_thread_is_said_and_left_alone(kind):
    model, y = made(kind), x()
    wanted, got = model(y), []
    with watch(model) as seen:
        thread = threading.Thread(target=lambda: got.append(model(y)))
        thread.start()
        thread.join()
    assert torch.equal(got[0], wanted)
    assert list(seen) == []
    assert list(seen.unseen) == [""]
    assert "ran in another thread" in seen.unseen[""]


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_the_meta_device_and_transforms_have_no_numbers_to_keep():
    model = made(Block)
    with watch(model) as seen:
        torch.vmap(lambda y: model(y))(x(4, 3, 5))
    assert "torch.func transform" in seen.unseen["attn"]
    meta = copy.deepcopy(model).to("meta")
    with watch(meta) as seen:
        meta(x().to("meta"))
    assert "meta device" in seen.unseen["attn"]


@pytest.mark.filterwarnings("ignore:.torch.jit")
def test_a_scripted_module_is_listed():
    model = nn.Sequential(torch.jit.trace(made(Block).eval(), x()), made(Attend))
    with torch.no_grad():
        wanted = model(x())
        with watch(model) as seen:
            assert torch.equal(model(x()), wanted)
    assert list(seen) == ["1"]
    assert "ScriptModule" in seen.unseen["0"]


def hooks_of(model):
    return [
        n for m in model.modules() for n in (*m._forward_hooks, *m._forward_pre_hooks, *m._forward_hooks_always_called)
    ]


@pytest.mark.parametrize("way", ["copy", "pickle", "file"])
def test_a_copy_made_in_the_block_works_by_itself(way, tmp_path):
    def copied_by(way):
        if way == "copy":
            return copy.deepcopy(model)
        if way == "pickle":
            return pickle.loads(pickle.dumps(model))
        torch.save(model, tmp_path / "model.pt")
        return torch.load(tmp_path / "model.pt", weights_only=False)

    model, y = made(), x()
    wanted = model(y)
    with watch(model) as seen:
        copied = copied_by(way)
        assert torch.equal(copied(y), wanted)
        assert list(seen) == []
        assert torch.equal(model(y), wanted)
    assert [len(seen.calls(name)) for name in seen] == [1, 1, 1]
    assert torch.equal(copied(y), wanted)
    assert hooks_of(model) == []
    assert way != "copy" or hooks_of(copied) == []
    torch.save(copied, tmp_path / "copied.pt")
    assert b"headwise" not in pickle.dumps(copied)
    with watch(copied) as seen:
        copied(y)
    assert len(seen) == 3


def test_a_copy_outlives_the_watch_and_keeps_nothing_of_it():
    model = made()
    with watch(model) as seen:
        model(x())
        copied = copy.deepcopy(model)
        shallow = copy.copy(model)
    maps = weakref.ref(seen[""])
    del seen
    gc.collect()
    assert maps() is None
    assert torch.equal(copied(x()), shallow(x()))
