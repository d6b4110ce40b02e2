"""Describes the launch whose kernel is being evaluated.

See also `language.grids` (how launches are made).
"""

from __future__ import annotations

from dataclasses import field

from ....dsl.diagnostics.dataclass import dataclass
from ....dsl.types.dtype import DType
from ...ir.program import Region, Value


@dataclass(eq=False)
class Launched:
    """A launch: the threads of a block and the blocks of a cluster, both known, and the bytes of `shared=`.

    `region` is what every thread runs, and `used` how much of `shared` its calls of `gpu.dynamic_shared` have taken.
    `exchanges` is shared memory by which threads exchange parts of tiles, by dtype, number of elements and name.
    """

    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    shared: Value
    region: Region | None = None
    used: Value | None = None
    exchanges: dict[tuple[DType, int, str], Value] = field(default_factory=dict)
    given_away: frozenset[int] = frozenset()  # the serials of sums that products add to
