"""The records of copies into shared memory that run next to the threads.

A thread copies pieces of up to 16 bytes by itself (`copy_async`). Bulk copies (`copy_rows`) are of rows, which threads
begin together. They arrive at barriers in shared memory, of which a kernel has a ring: each copy takes the next one.
"""

from __future__ import annotations

from typing import Final

from ...dsl.contract.abi import TENSOR_MAP_RANK
from . import rules
from .kinds import BOOLEAN, INTEGER, POINTER, numbers, one_of, whole
from .matrix_opcodes import WARP_OF
from .program import OpAttribute, Opcode, Scope

RING: Final = 16  # barriers of a kernel: as many bulk copies can be under way; a power of two

_ADDRESS = (POINTER, INTEGER)
_ARRIVALS = {
    "arrivals": OpAttribute(whole(1, 1 << 20)),
    "scope": OpAttribute(one_of("cluster"), required=False),  # whose threads it orders, if not those of the block
}

COPY_ASYNC = Opcode(
    "copy_async",
    "pointer to shared memory, offset, pointer, offset, whether it copies or stores zeros -> a token; attrs count: the"
    " elements, of 4, 8 or 16 bytes",
    (*_ADDRESS, *_ADDRESS, BOOLEAN),
    (INTEGER,),
    attrs={"count": OpAttribute(whole(1, 129))},
    rule=rules.copy_async,
    reads=True,
    writes=True,
    uniform=Scope.none,
)
COPY_RING = Opcode(
    "copy_ring",
    "pointer to shared memory; where a kernel begins, makes the ring of barriers that bulk copies arrive at",
    (POINTER,),
    attrs=WARP_OF,
    rule=rules.copy_ring,
    writes=True,
    convergent=Scope.block,
    within="launch",
)
COPY_ROWS = Opcode(
    "copy_rows",
    "pointer to shared memory, offset, pointer, offset, the distance of rows there, rows, elements of each, the ring ->"
    " a token; the threads of the block begin to copy together, a thread a row; attrs pitch: the distance of rows in"
    " shared memory; most: how many rows there may be",
    (*_ADDRESS, *_ADDRESS, INTEGER, INTEGER, INTEGER, POINTER),
    (INTEGER,),
    attrs={"pitch": OpAttribute(whole(1, 1 << 18)), "most": OpAttribute(whole(1, 1 << 18)), **WARP_OF},
    rule=rules.copy_rows,
    reads=True,
    writes=True,
    convergent=Scope.block,
    uniform=Scope.none,
    within="launch",
)
COPY_COMMIT = Opcode(
    "copy_commit",
    "the copies of this thread since the last commit become a group -> which stands for it",
    results=(INTEGER,),
    reads=True,
    writes=True,
    uniform=Scope.none,
)
COPY_WAIT = Opcode(
    "copy_wait",
    "token or group; waits until at most the attrs pending newest groups of this thread are under way; for a token,"
    " until no copy is: attrs what",
    (INTEGER,),
    attrs={"what": OpAttribute(one_of("copy", "group")), "pending": OpAttribute(whole(0, 65))},
    rule=rules.copy_wait,
    reads=True,
    writes=True,
)
MBARRIER_BEGIN = Opcode(
    "mbarrier_begin",
    "pointer to shared memory, offset; one thread makes a barrier there, none of whose phases has ended; attrs"
    " arrivals: how many end a phase",
    (POINTER, INTEGER),
    attrs=_ARRIVALS,
    rule=rules.at_mbarrier(0),
    writes=True,
    within="launch",
)
MBARRIER_ARRIVE = Opcode(
    "mbarrier_arrive",
    "pointer to shared memory, offset, bytes; a thread arrives at a barrier, which may be that of"
    " another block of the cluster, and whose phase ends when so many bytes of"
    " bulk copies have arrived, too",
    (POINTER, INTEGER, INTEGER),
    attrs=_ARRIVALS,
    rule=rules.mbarrier_arrive,
    reads=True,
    writes=True,
    within="launch",
)
MBARRIER_WAIT = Opcode(
    "mbarrier_wait",
    "pointer to shared memory, offset, phase; the thread waits until that phase has ended, counted from 0",
    (POINTER, INTEGER, INTEGER),
    attrs=_ARRIVALS,
    rule=rules.at_mbarrier(0),
    reads=True,
    writes=True,
    waits=lambda op: Scope.none,
    within="launch",
)
COPY_ROW = Opcode(
    "copy_row",
    "pointer to shared memory, offset, pointer, offset, how many elements, pointer to a barrier, offset; a thread"
    " begins to copy neighbours, whose bytes arrive at the barrier",
    (*_ADDRESS, *_ADDRESS, INTEGER, *_ADDRESS),
    rule=rules.copy_row,
    reads=True,
    writes=True,
    within="launch",
)
_BOX = {
    "tile": OpAttribute(numbers(2)),
    "box": OpAttribute(numbers(2)),
    "rank": OpAttribute(whole(2, TENSOR_MAP_RANK + 1)),
    "swizzle": OpAttribute(one_of(0, 32, 64, 128)),
}
_COORDINATES = (INTEGER,) * TENSOR_MAP_RANK
TENSOR_MAP = Opcode(
    "tensor_map",
    "pointer, whether there is to be a map, the sizes of a tensor, innermost axis first, the distances of neighbours"
    " along all axes but that one -> pointer to a description of the tensor; attrs box: the rows and columns of its"
    " parts, the first two axes from the end; swizzle: within how many bytes of shared memory pieces are exchanged",
    (POINTER, BOOLEAN),
    (POINTER,),
    more=INTEGER,
    attrs={key: _BOX[key] for key in ("box", "rank", "swizzle")},
    rule=rules.tensor_map,
)
FETCH_MAP = Opcode(
    "fetch_map",
    "a description of a tensor, which is going to be used",
    (POINTER,),
    attrs=WARP_OF,
    rule=rules.fetch_map,
    hints=True,
    within="launch",
)
COPY_BOX = Opcode(
    "copy_box",
    "pointer to shared memory, offset, a description of a tensor, coordinates of five axes, innermost first, the ring"
    " -> a token; the block begins to copy a tile; attrs tile: its rows and columns; box: those of a part, of which"
    " those below each other lie behind each other in shared memory, and then those to their right",
    (*_ADDRESS, POINTER, *_COORDINATES, POINTER),
    (INTEGER,),
    attrs=_BOX | WARP_OF,
    rule=rules.copy_box,
    reads=True,
    writes=True,
    convergent=Scope.block,
    uniform=Scope.none,
    within="launch",
)
COPY_BOX_ARRIVING = Opcode(
    "copy_box_arriving",
    "the same by one thread, whose bytes arrive at a barrier: pointer, offset; attrs share: so many blocks of the"
    " cluster copy so many parts of the rows, each to all of them",
    (*_ADDRESS, POINTER, *_COORDINATES, *_ADDRESS),
    attrs=_BOX | {"share": OpAttribute(whole(2, 17), required=False)},
    rule=rules.copy_box,
    reads=True,
    writes=True,
    within="launch",
)
SET_REGISTERS = Opcode(
    "set_registers",
    "each thread has attrs count registers from here on, where the target moves registers; more: whether it had fewer",
    attrs={"count": OpAttribute(whole(24, 257)), "more": OpAttribute(one_of(True, False))},
    convergent=Scope.block,
    hints=True,
    within="launch",
)
