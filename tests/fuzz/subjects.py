"""What a campaign tries: random kernels, random networks, of one rank and of several, and kernels that index anywhere,
each with its child, its file and its way to grow smaller.

See also `check`, `check_network`, `adversary` (how they are checked).
"""

from __future__ import annotations

import ast
import json
import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Protocol

from networks.network import Network
from networks.shrinking import shrunk as shrunk_network
from networks.ways import random_network
from programs import Program
from sharded.network import STEPS as SHARDED_STEPS
from sharded.network import ShardedNetwork
from sharded.shrinking import shrunk as shrunk_sharded
from sharded.ways import random_network as random_sharded
from shrinking import Choices, program_of_choices, random_choices, shrunk
from writing.base import FEATURES
from writing.indices import FEATURES as INDEXING
from writing.indices import indexing_program


class Subject(Protocol):
    """A kind of thing that is tried; `made` is one of them."""

    name: str
    script: str  # the child: a request a line, an answer a line
    features: tuple[str, ...]  # what may be in one, in the order in which it is reported

    def random(self, rng: random.Random) -> Any: ...
    def request(self, made: Any) -> str: ...
    def smaller(self, made: Any, fails: Callable[[Any], bool]) -> Any: ...
    def features_of(self, made: Any) -> Iterable[str]: ...
    def text(self, made: Any) -> str: ...


class Programs:
    """Kernels: a program, and the choices that make it."""

    name, script, features = "programs", "check.py", FEATURES

    def random(self, rng: random.Random) -> tuple[Program, Choices]:
        return random_choices(rng)

    def request(self, made: tuple[Program, Choices]) -> str:
        return json.dumps(made[0].to_json())

    def smaller(self, made: tuple[Program, Choices], fails: Callable[[Any], bool]) -> tuple[Program, Choices]:
        return program_of_choices(shrunk(made[1], lambda program: fails((program, ()))))

    def features_of(self, made: tuple[Program, Choices]) -> Iterable[str]:
        return made[0].features

    def text(self, made: tuple[Program, Choices]) -> str:
        return f"{made[0].data()}\n{made[0].text}"


class Networks:
    """Graphs of many ops."""

    name, script = "networks", "check_network.py"
    features = (
        *("matmul", "softmax", "sum", "mean", "max", "argmax", "where", "cast", "custom", "constant"),
        *("flip", "roll", "tile", "pad", "tril", "gather", "sort", "cumsum", "clamp"),
        *("permute", "reshape", "slice", "concat", "stack", "split", "repeat"),
        *("buffer_load", "buffer_store", "buffer_store_slice"),
    )

    def random(self, rng: random.Random) -> Network:
        return random_network(rng)

    def request(self, made: Network) -> str:
        return made.to_json()

    def smaller(self, made: Network, fails: Callable[[Network], bool]) -> Network:
        return shrunk_network(made, fails)

    def features_of(self, made: Network) -> Iterable[str]:
        return (name for name, _, _ in made.steps)

    def text(self, made: Network) -> str:
        return f"from networks.network import Network\n\n{made.source()}"


class Indexers:
    """Kernels that index anywhere, which the level "safe" has to keep inside."""

    name, script, features = "indexers", "adversary.py", INDEXING

    def random(self, rng: random.Random) -> Program:
        text, inputs, features = indexing_program(rng)
        return Program(text, inputs, rng.randrange(10**6), symbolic=True, features=features)

    def request(self, made: Program) -> str:
        return json.dumps(made.to_json())

    def smaller(self, made: Program, fails: Callable[[Program], bool]) -> Program:
        """Without all lines, runs of them first, that it fails without; and it stays Python."""
        lines = made.text.splitlines()
        for size in (32, 16, 8, 4, 2, 1):
            at = len(lines) - size
            while at >= 0:
                fewer = lines[:at] + lines[at + size :]
                candidate = replace(made, text="\n".join(fewer) + "\n")
                if _is_python(candidate.text) and fails(candidate):
                    lines, made = fewer, candidate
                at -= size
        return made

    def features_of(self, made: Program) -> Iterable[str]:
        return made.features

    def text(self, made: Program) -> str:
        return f"{made.data()}\n{made.text}"


def _is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


class Sharded:
    """Graphs with collectives, on the ranks of a mesh."""

    name, script, features = "sharded", "check_sharded.py", tuple(SHARDED_STEPS)

    def random(self, rng: random.Random) -> ShardedNetwork:
        return random_sharded(rng)

    def request(self, made: ShardedNetwork) -> str:
        return made.to_json()

    def smaller(self, made: ShardedNetwork, fails: Callable[[ShardedNetwork], bool]) -> ShardedNetwork:
        return shrunk_sharded(made, fails)

    def features_of(self, made: ShardedNetwork) -> Iterable[str]:
        return (name for name, _, _ in made.steps)

    def text(self, made: ShardedNetwork) -> str:
        return f"from sharded.network import ShardedNetwork\n\n{made.source()}"


SUBJECTS: tuple[Any, ...] = (Programs(), Networks(), Indexers(), Sharded())
