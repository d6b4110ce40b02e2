"""The records of operations next to the machine: pointers to another dtype, tables, prefetches, code by name or by
address.
"""

from __future__ import annotations

from ...dsl.contract.exchange import Exchange
from . import rules
from .kinds import ANY, INTEGER, POINTER, one_of, whole
from .program import OpAttribute, Opcode, Scope

POINTER_CAST = Opcode(
    "pointer_cast",
    "the same address, of elements of another dtype",
    (POINTER,),
    (POINTER,),
    rule=rules.pointer_cast,
)
CONSTANT_TABLE = Opcode(
    "constant_table",
    "elements that lie in the code: attrs data, their bytes",
    results=(POINTER,),
    attrs={"data": OpAttribute(lambda value: isinstance(value, bytes), shown=False)},
    rule=rules.constant_table,
)
_NATIVE = {
    "kind": OpAttribute(one_of("assembly", "intrinsic", "call")),
    "code": OpAttribute(lambda value: isinstance(value, str)),
    "constraints": OpAttribute(lambda value: isinstance(value, str)),
}
NATIVE = Opcode(
    "native",
    "any operands -> a result or none, by code that attrs name: instructions, an intrinsic of LLVM, a C function",
    more=ANY,
    gives_more=True,
    attrs=_NATIVE,
    rule=rules.native,
    reads=True,
    writes=True,
    uniform=Scope.none,
)
NATIVE_PURE = Opcode(
    "native_pure",
    "the same, where it is nothing but its results",
    more=ANY,
    gives_more=True,
    attrs=_NATIVE,
    rule=rules.native,
    uniform=Scope.none,
)
PREFETCH = Opcode(
    "prefetch",
    "pointer, offset; attrs locality (0 to 3), write",
    (POINTER, INTEGER),
    attrs={"locality": OpAttribute(whole(0, 4)), "write": OpAttribute(one_of(True, False))},
    hints=True,
)
EXCHANGE = Opcode(
    "exchange",
    "pointers to and from, bytes of a piece, elements, node: moves bytes between ranks; attrs kind, site of its slot",
    (POINTER, POINTER, INTEGER, INTEGER, INTEGER),
    attrs={"kind": OpAttribute(one_of(*map(int, Exchange))), "site": OpAttribute(whole())},
    reports=True,
    reads=True,
    writes=True,
    uniform=Scope.none,
)
