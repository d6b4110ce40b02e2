"""The records of operations that give storage of run-time size."""

from __future__ import annotations

from . import rules
from .kinds import BOOLEAN, INTEGER, POINTER, one_of
from .program import OpAttribute, Opcode, Scope

DYNAMIC_SHARED = Opcode(
    "dynamic_shared",
    "bytes before it, elements -> storage of the block in the memory that the launch requests; attrs align",
    (INTEGER, INTEGER),
    (POINTER,),
    attrs={"align": OpAttribute(one_of(32, 64, 128, 256, 512, 1024), required=False)},
    rule=rules.dynamic_shared,
    within="launch",
    allocates=True,
    uniform=Scope.block,
)
SCRATCH = Opcode(
    "scratch",
    "a number of elements -> uninitialised memory of the device for this call",
    (INTEGER,),
    (POINTER,),
    rule=rules.scratch,
    allocates=True,
)
ALLOCATE = Opcode(
    "allocate",
    "sizes, none below 0 -> memory of the running function for so many elements, and whether there is enough; valid"
    " until the operation runs again or the function ends; attrs zeroed, tracked: reads of unwritten ones are found",
    (INTEGER,),
    (POINTER, BOOLEAN),
    more=INTEGER,
    attrs={
        "zeroed": OpAttribute(one_of(True, False)),
        "tracked": OpAttribute(one_of(True, False), required=False),
    },
    rule=rules.allocate,
    allocates=True,
)
