"""Which of many random things are tried where there is no time for all: few that have everything in them.

Each thing has traits. One after the other is taken that brings most of what none before it has, for what it costs.

See also `subjects` (what is random).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable
from itertools import combinations
from typing import TypeVar

from check_network import as_shipped
from networks.network import STEPS, Network
from networks.shrinking import drafted
from programs import Program

T = TypeVar("T")
CANDIDATES = 200


def chosen(
    make: Callable[[random.Random], T], traits: Callable[[T], set[Hashable]], cost: Callable[[T], int], number: int
) -> list[T]:
    """So many of the things that the first seeds make; always the same."""
    left = [(thing, traits(thing), cost(thing)) for thing in map(make, map(random.Random, range(CANDIDATES)))]
    seen: set[Hashable] = set()
    collected = []
    for _ in range(number):
        best = max(range(len(left)), key=lambda at: len(left[at][1] - seen) / left[at][2])
        thing, brought, _ = left.pop(best)
        seen |= brought
        collected.append(thing)
    return collected


def family(name: str) -> str:
    """Elementwise ops are one to fusion, and so are reductions; each other step is its own."""
    maker = STEPS[name].__qualname__.partition(".")[0]
    return maker if maker in ("_plain", "_reduction") and name != "matmul" else name


def called(step: tuple[str, tuple[object, ...], dict[str, object]]) -> str:
    """The name of a step; a custom op has one of its own."""
    return f"custom {step[2]['name']}" if step[0] == "custom" else step[0]


def traits_of_network(network: Network) -> set[Hashable]:
    """Its steps, six times as much; which reads what of which; what is computed of which dtype, and what as it
    ships."""
    draft, values = drafted(network)
    result: set[Hashable] = {(called(step), again) for step in network.steps for again in range(6)}
    if as_shipped(network):
        result |= {(family(name), "as it ships") for name, _, _ in network.steps}
    for name, operands, _ in draft.steps.values():
        for ref in operands:
            of_input = draft.inputs[ref[1]] if ref[0] < 0 else None
            source = (of_input[0], of_input[2]) if of_input is not None else family(draft.steps[ref[0]][0])
            result |= {(source, family(name)), (str(values[ref].dtype), family(name))}
    return result


def cost_of_network(network: Network) -> int:
    return 8 + len(network.steps)


def traits_of_indexer(program: Program) -> set[Hashable]:
    """Its features, each two and each three of them."""
    return {some for size in (1, 2, 3) for some in combinations(sorted(program.features), size)}


def cost_of_indexer(program: Program) -> int:
    return len(program.text.splitlines())
