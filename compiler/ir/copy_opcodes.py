"""The records of copies into shared memory that run next to the threads.

A thread copies pieces of up to 16 bytes by itself (`copy_async`). Bulk copies (`copy_rows`) are of rows, which threads
begin together. They arrive at barriers in shared memory, of which a kernel has a ring: each copy takes the next one.
"""

from __future__ import annotations

from typing import Final

from . import rules
from .kinds import BOOLEAN, INTEGER, POINTER, one_of, whole
from .matrix_opcodes import WARP_OF
from .program import OpAttribute, Opcode, Scope

RING: Final = 16  # barriers of a kernel: as many bulk copies can be under way; a power of two

_ADDRESS = (POINTER, INTEGER)
_ARRIVALS = {"arrivals": OpAttribute(whole(1, 1 << 20))}

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
    "pointer to shared memory, offset, bytes; a thread arrives at a barrier, whose phase ends when so many bytes of"
    " bulk copies have arrived, too",
    (POINTER, INTEGER, INTEGER),
    attrs=_ARRIVALS,
    rule=rules.at_mbarrier(0),
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
SET_REGISTERS = Opcode(
    "set_registers",
    "each thread has attrs count registers from here on, where the target moves registers; more: whether it had fewer",
    attrs={"count": OpAttribute(whole(24, 257)), "more": OpAttribute(one_of(True, False))},
    convergent=Scope.block,
    hints=True,
    within="launch",
)
