"""Describes the launch whose kernel is being evaluated.

See also `language.grids` (how launches are made).
"""

from __future__ import annotations

from dataclasses import field

from ....dsl.diagnostics.dataclass import dataclass
from ....dsl.diagnostics.places import Place
from ....dsl.types.dtype import DType
from ...ir.program import Region, Value


@dataclass(frozen=True)
class WarpRole:
    """The warps of a block that run one function of `gpu.roles`.

    Attributes:
        name: as the author calls it.
        number: its place among the roles.
        first, warps: its first warp, and how many it has.
        block: the threads of the whole block, along x, y and z.
        barrier: the number of the block's barrier that is the role's own.
    """

    name: str
    number: int
    first: int
    warps: int
    block: tuple[int, int, int]
    barrier: int


@dataclass(eq=False)
class Launched:
    """A launch: the threads of a block and the blocks of a cluster, both known, and the bytes of `shared=`.

    In the function of a `role`, `block` is the threads of the role, which are like a block of their own.
    `registers` is how many a thread has where the kernel begins, if its roles move them.
    `region` is what every thread runs, and `used` how much of `shared` its calls of `gpu.dynamic_shared` have taken.
    `exchanges` is shared memory by which threads exchange parts of tiles, by dtype, number of elements and name.
    `before` is what the host does for the kernel before the launch: it writes `maps`, by what they are of. Values that
    were there before the kernel have serials below `begins`.
    """

    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    shared: Value
    region: Region | None = None
    used: Value | None = None
    exchanges: dict[tuple[DType, int, str], Value] = field(default_factory=dict)
    given_away: frozenset[int] = frozenset()  # the serials of sums that products add to
    role: WarpRole | None = None
    roles: int = 0  # how many roles the kernel has
    roles_at: list[Place] = field(default_factory=list)  # where they are shared out, and the calls around
    registers: int | None = None
    before: Region | None = None
    maps: dict[object, tuple[Value, Value | bool]] = field(default_factory=dict)
    begins: int = 0
    outside: tuple[object, ...] = ()  # tiles that the whole block holds, which a role cannot read

    @property
    def whole_block(self) -> tuple[int, int, int]:
        """The threads of the block, those of all roles."""
        return self.block if self.role is None else self.role.block
