"""Smaller networks over several ranks that still fail.

One call instead of two, fewer outputs, a value replaced by another one of its type, fewer steps in loops and branches,
a smaller mesh axis: each is tried until none of them fails. A replacement that cannot be staged does not fail the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from choosing_smaller import smallest

from .network import ShardedNetwork
from .oracle import values_of


def without_unused(network: ShardedNetwork) -> ShardedNetwork:
    """The same network without steps and inputs that no output needs."""
    first = len(network.inputs)
    needed = set(network.outputs)
    for number in reversed(range(len(network.steps))):
        if first + number in needed:
            needed.update(network.steps[number][1])
    kept = [k for k in range(first + len(network.steps)) if k in needed]
    names = {old: new for new, old in enumerate(kept)}
    return replace(
        network,
        inputs=tuple(network.inputs[k] for k in kept if k < first),
        steps=tuple(
            (name, tuple(names[k] for k in operands), p)
            for number, (name, operands, p) in enumerate(network.steps)
            if first + number in needed
        ),
        outputs=tuple(names[k] for k in network.outputs),
    )


def _types(network: ShardedNetwork) -> list[Any]:
    """What values have to have in common to stand for one another: their dtype and their shape in each call."""
    calls = [values_of(network, call) for call in range(len(network.sizes))]
    return [[(v[0].dtype.name, v[0].shape) for v in each] for each in zip(*calls, strict=True)]


def _with(network: ShardedNetwork, old: int, new: int) -> ShardedNetwork:
    steps = tuple((name, tuple(new if k == old else k for k in ks), p) for name, ks, p in network.steps)
    return replace(network, steps=steps, outputs=tuple(new if k == old else k for k in network.outputs))


def smaller(network: ShardedNetwork) -> Iterator[ShardedNetwork]:
    """Networks with a little less in them."""
    if len(network.sizes) > 1:
        yield from (replace(network, sizes=(sizes,)) for sizes in network.sizes)
    if len(network.outputs) > 1:
        yield from (replace(network, outputs=(output,)) for output in network.outputs)
    types, first = _types(network), len(network.inputs)
    for output in network.outputs:
        if output >= first:
            yield from (replace(network, outputs=(operand,)) for operand in network.steps[output - first][1])
    for number in reversed(range(len(network.steps))):
        value, (name, operands, p) = first + number, network.steps[number]
        for other in [*operands, *range(value)]:
            if types[other] == types[value]:
                yield _with(network, value, other)
        if len(network.sizes) == 1 and value not in network.outputs:
            ((dtype, shape),) = types[value]
            yield _as_input(network, value, (dtype, shape, "own"))
        for key in ("steps", "then", "other"):
            for at in range(len(p.get(key, ()))):
                fewer = {**p, key: p[key][:at] + p[key][at + 1 :]}
                steps = (*network.steps[:number], (name, operands, fewer), *network.steps[number + 1 :])
                yield replace(network, steps=steps)


def _as_input(network: ShardedNetwork, value: int, given: Any) -> ShardedNetwork:
    """The network with one more input, in the place of a value."""
    first = len(network.inputs)
    moved = replace(
        network,
        inputs=(*network.inputs, given),
        steps=tuple((n, tuple(k + (k >= first) for k in ks), p) for n, ks, p in network.steps),
        outputs=tuple(k + (k >= first) for k in network.outputs),
    )
    return _with(moved, value + 1, first)


def shrunk(network: ShardedNetwork, fails: Callable[[ShardedNetwork], bool], trials: int = 200) -> ShardedNetwork:
    """A network from which nothing more can be taken, or the best of a number of trials."""
    return smallest(network, lambda one: map(without_unused, smaller(one)), fails, trials)
