"""What a campaign tries: random kernels and random networks, each with its child, its file and its way to grow smaller.

Input: random numbers. Output: things to check, and text. Non-goals: how they are checked (see `check`,
`check_network`).
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from networks.network import Network
from networks.shrinking import shrunk as shrunk_network
from networks.ways import random_network
from programs import Program
from shrinking import Choices, program_of_choices, random_choices, shrunk
from writing.base import FEATURES


class Subject(Protocol):
    """A kind of thing that is tried; `made` is one of them."""

    name: str
    script: str  # the child: a request a line, an answer a line
    features: tuple[str, ...]  # what may be in one, in the order in which it is told

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


SUBJECTS: tuple[Any, ...] = (Programs(), Networks())
