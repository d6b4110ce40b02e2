"""The records of operations on matrices that the threads of a warp or a block hold together."""

from __future__ import annotations

from ..targets.products import BY_NAME
from . import rules
from .kinds import INTEGER, NUMBER, POINTER, one_of, whole
from .program import OpAttribute, Opcode, Scope

WARP_OF = {
    "lanes": OpAttribute(one_of(32, 64)),
    "block": OpAttribute(
        lambda value: isinstance(value, tuple) and len(value) == 3 and all(map(whole(1, 1025), value))
    ),
}

TOGETHER = Opcode(
    "together",
    "all threads of the block come here together, and do not wait for each other; attrs product: which row of"
    " `targets.products` a product takes here, and why none before it; copies: the same of how a tile is copied",
    attrs={
        "product": OpAttribute(lambda value: isinstance(value, str), required=False),
        "copies": OpAttribute(lambda value: isinstance(value, str), required=False),
    },
    convergent=Scope.block,
    within="launch",
)
LOAD_MATRICES = Opcode(
    "load_matrices",
    "pointer to shared memory, offset -> four blocks of eight rows of 16 bytes: each lane brings the address of a row,"
    " eight lanes those of a block; a lane gets 4 bytes of each block, of row number lane // 4; attrs transposed: of"
    " column number lane // 4 of elements of 2 bytes",
    (POINTER, INTEGER),
    (NUMBER,),
    attrs={"transposed": OpAttribute(one_of(True, False)), **WARP_OF},
    rule=rules.load_matrices,
    reads=True,
    waits=lambda op: Scope.warp,
    uniform=Scope.none,
    within="launch",
)
MULTIPLY_MATRICES = Opcode(
    "multiply_matrices",
    "fragments of a, b and sums, of all lanes of a warp -> a fragment of the sums plus the product; attrs row: the name"
    " of a row of `targets.products`, which says what the lanes have",
    (NUMBER, NUMBER, NUMBER),
    (NUMBER,),
    attrs={"row": OpAttribute(lambda value: isinstance(value, str) and value in BY_NAME), **WARP_OF},
    rule=rules.multiply_matrices,
    waits=lambda op: Scope.warp,
    uniform=Scope.none,
    within="launch",
)
