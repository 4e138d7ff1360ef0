"""A moved tensor's axes hold what the movement puts there, and what is mixed is said to be mixed."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headwise.dataflow.axis_names import _digits
from headwise.dataflow.axis_parts import Atom, Part, rearranged, whole
from headwise.dataflow.index_maps import moved

# B, L, H, d in three runs, in another order in each
SIZES = {"B": (5, 7, 11), "L": (7, 5, 13), "H": (11, 13, 5), "d": (13, 11, 7)}


def sizes_of(*names):
    return tuple(
        tuple(torch.Size([SIZES[one][run] for one in name.split("*")]).numel() for run in range(3)) for name in names
    )


def axes_of(*names):
    """One piece for each axis, by its name."""
    return tuple((Atom(size, name),) for name, size in zip(names, sizes_of(*names), strict=True))


def applied(names, *steps):
    """The pieces of each axis after movements of a tensor, said by their names; mixed ones in brackets."""
    axes = axes_of(*names)
    tensors = [torch.zeros([size[run] for size in sizes_of(*names)]) for run in range(3)]
    for step in steps:
        seen = []
        for run, tensor in enumerate(tensors):
            at = {name: sizes[run] for name, sizes in SIZES.items()}
            seen.append(moved(lambda t, step=step, at=at: step(t, **at), (tensor,), {}, tensor)[0])
            tensors[run] = step(tensor, **at)
        digits = _digits(seen)
        axes = rearranged(axes, digits)
        for axis, size in zip(axes, zip(*[t.shape for t in tensors], strict=True), strict=True):
            assert whole(axis, 3) == size
    return [said(axis) for axis in axes]


def said(axis):
    return "*".join(one(piece) for piece in axis) or "1"


def one(piece):
    if isinstance(piece, Part):
        return f"({' '.join(one(each) for each in piece.group.originals)})"
    known = {size: name for name, size in SIZES.items()}
    return piece.name or known.get(piece.sizes, "?")


@pytest.mark.parametrize(
    ("names", "steps", "wanted"),
    [
        ("B L H*d", [lambda x, B, L, H, d: x.view(B, L, H, d)], "B L H d"),
        ("B L H*d", [lambda x, B, L, H, d: x.view(B, L, H, d).transpose(1, 2)], "B H L d"),
        ("B L H*d", [lambda x, B, L, H, d: x.view(B, H, L, d)], "B (L H) (L H) d"),
        ("B H L d", [lambda x, B, L, H, d: x.reshape(B, L, H * d)], "B (H L) (H L)*d"),
        ("B H L d", [lambda x, B, L, H, d: x.transpose(1, 2).reshape(B, L, H * d)], "B L H*d"),
        ("B H L d", [lambda x, B, L, H, d: x.permute(0, 2, 3, 1).reshape(B, L, H * d)], "B L d*H"),
        ("B L H*d", [lambda x, B, L, H, d: x.view(B * L, H * d), lambda x, B, L, H, d: x.view(B, L, H, d)], "B L H d"),
        (
            "B L H*d",
            [lambda x, B, L, H, d: x.view(B, H, L, d), lambda x, B, L, H, d: x.reshape(B, L, H * d)],
            "B L H*d",
        ),
        ("B L H*d", [lambda x, B, L, H, d: x.reshape(-1, B, L, d)], "(B L H) (B L H) (B L H) d"),
        ("B H L d", [lambda x, B, L, H, d: x.flatten(0, 1)], "B*H L d"),
        ("H B L d", [lambda x, B, L, H, d: x.flatten(0, 1)], "H*B L d"),
        ("B L H*d", [lambda x, B, L, H, d: x[:, 2:3]], "B 1 H*d"),
        ("B L H*d", [lambda x, B, L, H, d: x[:, 2]], "B H*d"),
        ("B H L d", [lambda x, B, L, H, d: x[:, :, None].expand(B, H, B, L, d).reshape(B, H * B, L, d)], "B H*B L d"),
    ],
)
def test_axes_hold_what_the_movement_puts_there(names, steps, wanted):
    assert applied(names.split(), *steps) == _words(wanted)


def _words(text):
    out, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == " " and depth == 0:
            out.append("")
        else:
            out[-1] += letter
    return out


@settings(max_examples=60, deadline=None)
@given(
    st.permutations(["B", "L", "H", "d"]), st.permutations(range(4)), st.lists(st.booleans(), min_size=3, max_size=3)
)
def test_any_permutation_and_merge_of_neighbours_is_in_order(names, order, joined):
    moved_names = [names[at] for at in order]
    groups = [[moved_names[0]]]
    for name, join in zip(moved_names[1:], joined, strict=True):
        if join:
            groups[-1].append(name)
        else:
            groups.append([name])

    def step(x, **at):
        return x.permute(*order).reshape([torch.Size([at[one] for one in group]).numel() for group in groups])

    assert applied(names, step) == ["*".join(group) for group in groups]
    back = applied(names, step, lambda x, **at: x.reshape([at[one] for one in moved_names]))
    assert back == moved_names
