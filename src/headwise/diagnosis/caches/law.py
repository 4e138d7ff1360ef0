"""Law: whether tokens in parts, with what was kept handed on, give what they give all at once."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from headwise.calls import EMPTY, CacheProtocol, Plan, call_role, callee, parameters, role_of, seen_names, ways
from headwise.dataflow import Decoded, Decoder
from headwise.diagnosis.caches.decoding_calls import attention_of, is_left_behind
from headwise.diagnosis.caches.kept_tensors import holds_inputs, holds_tokens, is_read_alone
from headwise.diagnosis.distance import distance
from headwise.diagnosis.plans.mask_variants import looks_back
from headwise.recording import Budget, tensors

__all__ = ["CUTS", "TOKENS", "Breach", "Kept", "breach_of", "guess_of", "kept", "may_keep"]

# one after the other; a prompt, then one after the other; in two parts
CUTS = ((3, 1, 1), (1, 1, 1, 1, 1), (3, 2))
TOKENS = 5
NEAR = 1e-6
# work that is spent on finding out how a cache is handed on
LONGEST = 75_000
# and on another way, once one does not give what it should
LONGEST_AFTER = 17_500
# what may be said of distances, or of all tokens, as well as of the new ones
BESIDE = frozenset({"encoding", "cosine_sine", "pairs", "bias"})
PLACES = ("layer_idx", "layer_id", "layer_index", "layer_number")


@dataclass(frozen=True)
class Breach:
    """Where the law does not hold: in which call of a sequence in parts. error: what it raised; None: it ran.

    again: only after another sequence.
    """

    way: CacheProtocol
    cuts: tuple[int, ...]
    at: int
    error: Exception | None = None
    distance: float = 0.0
    again: bool = False

    @property
    def is_chunk(self) -> bool:
        """Whether several tokens come after a cache."""
        return self.at > 0 and self.cuts[self.at] > 1


@dataclass(frozen=True)
class Kept:
    """What is known of a target's cache. way: that works, None: there is none; breaches: where it does not hold.

    names: of arguments that speak of a cache.
    """

    way: CacheProtocol | None = None
    breaches: tuple[Breach, ...] = ()
    names: tuple[str, ...] = ()


def kept(decoder: Decoder) -> Kept:
    """How a target decodes, and whether that is right."""
    try:
        names = tuple(seen_names(decoder.plan))
        plan = _placed(decoder)
        candidates = list(ways(plan, decoder.sizes, decoder.dtype))
    except (TypeError, ValueError, OSError, KeyError):
        return Kept()
    budget = Budget(LONGEST)
    working: list[tuple[CacheProtocol, list[Breach]]] = []
    raising: list[Breach] = []
    for way in candidates:
        if budget.is_over:
            break
        step = decoder.parts(way, (3, 1))
        if step.error is not None:
            if _is_handed_on(decoder, way, step):
                raising.append(Breach(way, (3, 1), 1, step.error))
            continue
        if way.is_renewed and not holds_inputs(decoder, way, step):
            # a state of what came, or what was given out, is no cache
            continue
        if not _depends(decoder, way, step):
            breach = breach_of(decoder, way, (3, 1)) if _keeps(decoder, way, step) else None
            raising += [breach] if breach is not None and breach.at > 0 else []
            continue
        breaches = _breaches(decoder, way)
        if not breaches:
            return Kept(way, (), names)
        if (
            any(_is_for_a_mask(decoder, breach) for breach in breaches)
            or is_read_alone(decoder, way, step)
            or _is_of_segments(decoder, way, step)
        ):
            names = names or (way.name,)
            continue
        working.append((way, breaches))
        budget = Budget(min(budget.left, LONGEST_AFTER))
    if _is_guessed(plan):
        return Kept(None, (), names)
    if working:
        way, breaches = min(working, key=lambda item: (len(item[1]), not item[0].is_own))
        return Kept(way, tuple(breaches), names)
    raising.sort(key=lambda breach: breach.error is not None)
    return Kept(None, tuple(raising[:1]), names)


def may_keep(decoder: Decoder) -> bool:
    """Whether anything of a target speaks of a cache: an argument, or what it holds."""
    try:
        plan = _placed(decoder)
        return bool(seen_names(plan)) or next(ways(plan, decoder.sizes, decoder.dtype), None) is not None
    except (TypeError, ValueError, OSError, KeyError):
        return False


def guess_of(decoder: Decoder, breach: Breach) -> str:
    """What of a step is our guess; "": nothing, as a target that looks back only is handed what its own call returned
    or kept, and nothing else is left that a caller may say, or it is handed nothing yet. What is kept in fewer bits
    gives other numbers.
    """
    way = breach.way
    said = {*way.names, *way.options, *way.starts, *way.positions, *way.tables, *way.plan.call}
    run = decoder.whole(TOKENS, recorded=True).run
    kept_in = [tensor for value in decoder.parts(way, (3, 1)).cache.values() for tensor in tensors([value])]
    if any(tensor.dtype != decoder.dtype for tensor in kept_in):
        return "cache"
    is_told = (
        way.is_own
        and bool(way.names)
        and {parameter.name for parameter in parameters(callee(decoder.plan.target))} <= said
    )
    is_told |= way.is_own and breach.at == 0 and breach.error is None
    return "" if is_told and run is not None and looks_back(run) else "cache"


def _placed(decoder: Decoder) -> Any:
    """The plan, with a number for the layer where a cache asks for it."""
    plan = decoder.plan
    if not isinstance(plan.target, type):
        return plan
    names = [
        parameter.name
        for parameter in parameters(plan.target)
        if parameter.name in PLACES and parameter.default is not EMPTY
    ]
    return replace(plan, init={**plan.init, **{name: 0 for name in names if name not in plan.init}})


def _is_handed_on(decoder: Decoder, way: CacheProtocol, step: Decoded) -> bool:
    """Whether a step failed on what the target itself had returned or kept, in an operation of torch."""
    if len(step.outputs) != 1 or not isinstance(step.error, RuntimeError | IndexError) or not way.is_own:
        return False
    if way.names and way.pick is not None and not holds_tokens(decoder, way, step):
        return False
    return bool(way.names or way.options or way.starts)


def _is_guessed(plan: Plan) -> bool:
    """Whether something beside the tokens is handed over for each place, and nobody says for which in a step."""
    return any(re.search(r"\bL\b", str(given)) for name, given in plan.call.items() if call_role(name) in BESIDE)


def _is_for_a_mask(decoder: Decoder, breach: Breach) -> bool:
    """Whether places that hold no token yet are looked at, which who calls may hide with a mask."""
    if not any(role_of(parameter) == "mask" for parameter in parameters(callee(decoder.plan.target))):
        return False
    decoded = decoder.parts(breach.way, breach.cuts, recorded=True, again=breach.again)
    attention = None if decoded.run is None else attention_of(decoded, breach.at)
    if attention is None:
        return False
    values = [marks for marks in attention.context.given if marks is not None and marks.kind == "token"][-1:]
    return any(bool((marks.arrays["t"] < 0).any()) for marks in values)


def _is_of_segments(decoder: Decoder, way: CacheProtocol, step: Decoded) -> bool:
    """Whether a state without an axis of tokens is handed on as it should be where a segment is one token long: longer
    segments are to be handed over whole (Infini-attention, arXiv:2404.07143, section 2).
    """
    if way.pick is None or holds_tokens(decoder, way, step):
        return False
    for symbol in decoder.plan.symbols:
        if symbol.meaning == "parameter" and not symbol.equals and symbol.fixed is None:
            single = replace(decoder, sizes={**decoder.sizes, symbol.name: 1}, wholes={})
            short = single.parts(way, (3, 1))
            if short.error is None and _depends(single, way, short) and not _breaches(single, way):
                return True
    return False


def _keeps(decoder: Decoder, way: CacheProtocol, step: Decoded) -> bool:
    """Whether what was handed on or kept holds the tokens of the first call, so that a step should look at them."""
    if not way.is_own:
        return False
    if not way.names:
        # where a step is told its place, or asked to keep
        decoded = decoder.parts(way, (3, 1), recorded=True) if way.starts or way.options else None
        attention = None if decoded is None else attention_of(decoded, 1)
        return decoded is not None and attention is not None and is_left_behind(decoded, 1, attention)
    if way.pick is not None:
        return holds_tokens(decoder, way, step)
    kept_in = [vars(cache) if hasattr(cache, "__dict__") else cache for cache in step.cache.values()]
    # room that holds nothing yet keeps nothing
    return any(3 in tensor.shape and bool(tensor.any()) for tensor in tensors(kept_in))


def _depends(decoder: Decoder, way: CacheProtocol, step: Decoded) -> bool:
    """Whether a step is changed by the tokens before it."""
    decoded = decoder.parts(way, (3, 1), disturbed=3)
    if decoded.error is not None or decoded.outputs[1].shape != step.outputs[1].shape:
        return False
    return not _is_near(decoded.outputs[1], step.outputs[1])


def _breaches(decoder: Decoder, way: CacheProtocol) -> list[Breach]:
    """Where the law does not hold."""
    out: list[Breach] = []
    for cuts in CUTS:
        breach = breach_of(decoder, way, cuts)
        # what several tokens after a cache do not run with is not made for them
        if breach is not None and not (breach.is_chunk and breach.error is not None):
            out.append(breach)
    if not out and (way.names or way.starts or way.prepare is not None):
        breach = breach_of(decoder, way, CUTS[0], again=True)
        out += [breach] if breach is not None else []
    return out


def breach_of(
    decoder: Decoder, way: CacheProtocol, cuts: tuple[int, ...], *, again: bool = False, **options: Any
) -> Breach | None:
    """Where a sequence in these parts is first not what it is all at once; None: nowhere."""
    decoded = decoder.parts(way, cuts, again=again, **options)
    for at, output in enumerate(decoded.outputs):
        first, end = sum(cuts[:at]), sum(cuts[: at + 1])
        wanted = _rows_of(decoder, first, end, is_step=False)
        if wanted is None:
            return None
        if not _is_near(output, wanted):
            # what sees all at once sees in parts what is there, and each token may be alone in that
            apart = _rows_of(decoder, first, end, is_step=True) if end - first > 1 else None
            if apart is None or not _is_near(output, apart):
                return Breach(way, cuts, at, distance=distance(output, wanted), again=again)
    if decoded.error is not None:
        return Breach(way, cuts, len(decoded.outputs), decoded.error, again=again)
    return None


def _rows_of(decoder: Decoder, first: int, end: int, *, is_step: bool) -> Tensor | None:
    """What the tokens from first to end give without a cache, where the last of them is the last there is.

    is_step: each of them is the last there is when it comes. None: that raises.
    """
    if is_step:
        rows = [_rows_of(decoder, at, at + 1, is_step=False) for at in range(first, end)]
        outputs = [row for row in rows if row is not None]
        return torch.cat(outputs, dim=decoder.axis) if len(outputs) == len(rows) else None
    decoded = decoder.whole(end)
    if (
        decoded.error is not None
        or decoded.outputs[0].ndim <= decoder.axis
        or decoded.outputs[0].shape[decoder.axis] != end
    ):
        return None
    return decoded.outputs[0].narrow(decoder.axis, first, end - first)


def _is_near(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and distance(a, b) <= NEAR * max(1.0, float(b.abs().nan_to_num().max()))
