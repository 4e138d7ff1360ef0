"""The public functions: check a call, choose who computes it, and run it."""

from __future__ import annotations

from collections.abc import Hashable

import torch
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function

from headwise.masks import Mask
from headwise.masks.tensor_masks import known_mask
from headwise.ops import guarded_calls, repeated_calls, sdpa
from headwise.ops.active_spread import check_not_spread
from headwise.ops.backends import Backend, Choice, choose, report
from headwise.ops.call import Rules, autocasts, cast_by_autocast, checked
from headwise.ops.call_keys import key_of
from headwise.ops.foreign_arguments import BY_PLACE, CALLING
from headwise.wording.hints import hinted


@hinted(CALLING, by_name=BY_PLACE)
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Mask | Tensor | None = None,
    attn_bias: Tensor | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sink: Tensor | None = None,
    dropout: float = 0.0,
    generator: torch.Generator | None = None,
    backend: str = "auto",
) -> Tensor:
    """softmax(q kᵀ · scale) v over the keys that each query may see: the same numbers on every path.

    q (B, Hq, Lq, D), k (B, Hk, Lk, D), v (B, Hk, Lk, Dv) -> (B, Hq, Lq, Dv), in the dtype of q. Hk divides Hq: query
    head h reads key/value head h // (Hq // Hk). A query that may attend to nothing gets zeros.

    mask: a Mask, or a bool tensor, True = may attend, (Lq, Lk) or broadcastable to (B, Hq, Lq, Lk); None: all pairs.
    attn_bias: scores to add, (Lq, Lk) or broadcastable to (B, Hq, Lq, Lk), None: nothing. scale: what q·k is
    multiplied by, None: 1/sqrt(D). softcap: c·tanh(score/c), before bias and mask, None: no cap. sink: (Hq,) one
    logit a head that takes part in the softmax and carries no value, None: no sink. dropout: chance that a weight is
    zeroed, the rest being raised. generator: where its numbers come from, None: torch's global one. backend: "auto",
    or one of the names that `backends` lists, which then runs or raises.

    Raises ShapeError, MaskError, ArgumentError or BackendError, each with the sizes that came.
    Vaswani et al. 2017, arXiv:1706.03762, eq. 1; grouped heads: arXiv:2305.13245; softcap: arXiv:2408.00118, sec. 2;
    sinks: arXiv:2309.17453 and Miller 2023, "Attention is off by one".

    >>> import headwise as hw
    >>> q, k, v = torch.randn(2, 8, 5, 16), torch.randn(2, 2, 7, 16), torch.randn(2, 2, 7, 16)
    >>> hw.attention(q, k, v, mask=hw.causal()).shape
    torch.Size([2, 8, 5, 16])
    """
    check_not_spread("hw.attention")
    is_handled, output = has_torch_function((q, k, v)), None
    if not is_handled and isinstance(mask, Tensor) and (of_tensor := known_mask(mask)) is not None:
        mask = of_tensor
    is_plain = attn_bias is None and sink is None and softcap is None and generator is None
    # False equals 0.0, and is refused
    if is_plain and not is_handled and type(dropout) is float and dropout == 0:
        guarded = guarded_calls.recognized(q, k, v, mask, scale, backend)
        if guarded is not None:
            output, is_result = guarded.call.run(q, k, v, mask, guarded.numbers)
            if is_result:
                return output
    rules: Rules = {
        "mask": mask, "attn_bias": attn_bias, "scale": scale, "softcap": softcap, "sink": sink,
        "dropout": dropout, "generator": generator,
    }  # fmt: skip
    if is_handled:
        result: Tensor = handle_torch_function(attention, (q, k, v), q, k, v, backend=backend, **rules)
        return result
    return _attention(q, k, v, backend, rules) if output is None else sdpa.run(checked(q, k, v, **rules), made=output)


@hinted(CALLING, by_name=BY_PLACE)
def backends(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Mask | Tensor | None = None,
    attn_bias: Tensor | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sink: Tensor | None = None,
    dropout: float = 0.0,
    generator: torch.Generator | None = None,
    backend: str = "auto",
) -> Choice:
    """Which backend would run this call of `attention`, and for each of the others one sentence on why not.

    Takes what `attention` takes; computes nothing. `.seconds` holds what each that could run is estimated to take, from
    rates measured on machines of this level; empty where there is nothing to compare. A machine without rates is timed
    for 60 ms at its first large call; HEADWISE_CALIBRATION=0 in the environment leaves that out.

    >>> import headwise as hw
    >>> q = torch.randn(2, 8, 5, 16)
    >>> hw.backends(q, q, q, softcap=30.0)
    blockwise  could run, in about ... us
    sdpa       torch's kernels have no softcap
    flex       to compile it takes seconds: name it with backend="flex"
    reference  runs, in about ... us
    """
    q, k, v = cast_by_autocast(q, k, v)
    call = checked(
        q, k, v, mask=mask, attn_bias=attn_bias, scale=scale, softcap=softcap, sink=sink, dropout=dropout,
        generator=generator,
    )  # fmt: skip
    return report(call, backend)


def _attention(q: Tensor, k: Tensor, v: Tensor, backend: str, rules: Rules) -> Tensor:
    """Attention by what is repeated of the call, or checked."""
    key = key_of(q, k, v, rules, backend)
    if key is not None:
        mask = rules["mask"]
        kept = repeated_calls.table_of(mask)
        repeated = None if kept is None else kept.results.get(key)
        if kept is None or repeated is None:
            return _run(q, k, v, backend, rules, key)
        if isinstance(repeated, Backend):
            return repeated.run(checked(q, k, v, **rules))
        out, is_result = repeated.run(q, k, v, mask)
        guarded_calls.met_again(kept, key, (q, k, v), repeated, out)
        return out if is_result else sdpa.run(checked(q, k, v, **rules), made=out)
    if not autocasts(q):
        return _run(q, k, v, backend, rules)
    # cast once here, and keep the bias in its own precision
    q, k, v = cast_by_autocast(q, k, v)
    with torch.autocast(q.device.type, enabled=False):
        return _run(q, k, v, backend, rules)


def _run(q: Tensor, k: Tensor, v: Tensor, backend: str, rules: Rules, key: Hashable | None = None) -> Tensor:
    call = checked(q, k, v, **rules)
    chosen = choose(call, backend)
    out = chosen.run(call)
    if key is not None and (kept := repeated_calls.remember(call, key, chosen)) is not None:
        guarded_calls.guard(kept[0], key, (call.q, call.k, call.v), kept[1], out)
    return out
