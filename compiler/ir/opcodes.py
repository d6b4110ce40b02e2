"""All operations of the typed program, one record each: what they take, give and do, and when they are well made.

A record's name is the key of everything that is done with an operation: `inference` appends it by this name, `lowering`
and `interpreter` have a function for it under this name, and the verifier follows its rule. Regular operations are made
of their rows (see `operations`); the others are written out here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from . import copy_opcodes, rules
from .indices import INDEX_SCOPES, INDICES
from .kinds import (
    ANY,
    BOOLEAN,
    INTEGER,
    LANE_BITS,
    LANES,
    MASK,
    NUMBER,
    OFFSETS,
    POINTER,
    SCALAR,
    SHOWN,
    VECTOR,
    numbers,
    one_of,
    whole,
)
from .matrix_opcodes import (
    LOAD_MATRICES,
    MULTIPLY_GROUPS,
    MULTIPLY_MATRICES,
    MULTIPLY_TENSOR,
    PRODUCT_BEGUN,
    PRODUCT_WAIT,
    TENSOR_MEMORY,
    TOGETHER,
)
from .native_opcodes import CONSTANT_TABLE, EXCHANGE, NATIVE, NATIVE_PURE, POINTER_CAST, PREFETCH
from .operations import ROWS, OperationRow
from .program import Op, OpAttribute, Opcode, RegionForm, Scope
from .schedule import Cut, LoopHints
from .storage_opcodes import ALLOCATE, DYNAMIC_SHARED, SCRATCH

ORDERINGS = ("relaxed", "acquire", "release", "acq_rel", "seq_cst")
SCOPES = ("block", "cluster", "device", "system")  # whose threads see an atomic operation as one step
ATOMICS = ("add", "sub", "min", "max", "and", "or", "xor", "exchange")
SHUFFLES = ("idx", "up", "down", "xor", "one")
FASTMATH = frozenset({"nnan", "ninf", "nsz", "arcp", "contract", "afn", "reassoc", "fast"})

# *** attributes ***

_FLAG = one_of(True, False)
_SITE = OpAttribute(whole())  # the verifier checks their number
_ALIGNMENTS = frozenset(1 << bits for bits in range(33))  # those of LLVM
_ALIGN = {"align": OpAttribute(lambda value: whole(1)(value) and value in _ALIGNMENTS, required=False)}
_ALIGNED = {"align": OpAttribute(lambda value: whole(2)(value) and value in _ALIGNMENTS)}
_TRACKED = {"tracked": OpAttribute(_FLAG, required=False)}  # until `find_unwritten_storage` replaced it
_LANE = {"lane": OpAttribute(whole())}


def _decided(takes: Callable[[object], bool]) -> OpAttribute:
    return OpAttribute(takes, required=False, decided=True)


_ROUND = {"fuel": _decided(whole(1))}


def _ordering(*but: str) -> dict[str, OpAttribute]:
    return {"ordering": OpAttribute(one_of(*(o for o in ORDERINGS if o not in but)))}


_SCOPE = {"scope": OpAttribute(one_of(*SCOPES))}


# *** the records ***

_BLOCK = RegionForm()
_ADDRESS = (POINTER, INTEGER)

CONST = Opcode(
    "const",
    "a number of the result's type: attrs value",
    results=(NUMBER,),
    attrs={"value": OpAttribute(lambda value: True)},
    rule=rules.const,
    lanewise=True,
)
CAST = Opcode(
    "cast",
    "the operand converted to the result's type; floats to integers truncate, saturate, and NaN gives 0",
    (NUMBER,),
    (NUMBER,),
    rule=rules.cast,
    lanewise=True,
)
BITCAST = Opcode(
    "bitcast", "the operand's bits as another type", (NUMBER,), (NUMBER,), rule=rules.bitcast, lanewise=True
)
SPLAT = Opcode("splat", "a scalar in every lane", (SCALAR,), (VECTOR,), rule=rules.same_dtype, lanewise=True)
MAKE_VECTOR = Opcode(
    "lanes",
    "scalars -> the vector of them, lane 0 first",
    (),
    (VECTOR,),
    more=SCALAR,
    rule=rules.make_vector,
    crosses_lanes=True,
)
EXTRACT = Opcode(
    "extract", "lane number attrs lane", (VECTOR,), (SCALAR,), attrs=_LANE, rule=rules.extract, crosses_lanes=True
)
INSERT = Opcode(
    "insert",
    "vector, scalar -> the vector with the scalar as lane number attrs lane",
    (VECTOR, SCALAR),
    (VECTOR,),
    attrs=_LANE,
    rule=rules.insert,
    crosses_lanes=True,
)
EXTRACT_AT = Opcode(
    "extract_at",
    "vector, Int -> that lane; the number is below the width",
    (VECTOR, INTEGER),
    (SCALAR,),
    rule=rules.extract,
    crosses_lanes=True,
)
INSERT_AT = Opcode(
    "insert_at",
    "vector, scalar, Int -> the vector with the scalar as that lane; the number is below the width",
    (VECTOR, SCALAR, INTEGER),
    (VECTOR,),
    rule=rules.insert,
    crosses_lanes=True,
)
SHUFFLE = Opcode(
    "shuffle",
    "two vectors of one type -> their lanes by number, attrs mask; the second one's come after the first's",
    (VECTOR, VECTOR),
    (NUMBER,),
    attrs={"mask": OpAttribute(lambda value: isinstance(value, tuple) and all(type(n) is int for n in value))},
    rule=rules.shuffle,
    crosses_lanes=True,
)
TAKE = Opcode(
    "take",
    "vector, unsigned lane numbers below its width -> the lanes of these numbers",
    (VECTOR, LANES),
    (NUMBER,),
    rule=rules.take,
    crosses_lanes=True,
)
REDUCE = Opcode(
    "reduce",
    "vector -> its lanes combined by attrs row, lane k with lane k + half until one is left",
    (VECTOR,),
    (SCALAR,),
    attrs={"row": OpAttribute(one_of(*(row.name for row in ROWS.values() if row.arity == 2 and row.result == "same")))},
    rule=rules.reduce,
    crosses_lanes=True,
)
DOT2 = Opcode(
    "dot2",
    "float32, two vectors of twice as many bfloat16 -> float32 plus the products of each two lanes; subnormals are 0",
    (NUMBER, VECTOR, VECTOR),
    (NUMBER,),
    rule=rules.dot2,
    crosses_lanes=True,
)
DOT4 = Opcode(
    "dot4",
    "int32, two vectors of four times as many 8-bit integers -> int32 plus the products of each four lanes, wrapping",
    (NUMBER, VECTOR, VECTOR),
    (NUMBER,),
    rule=rules.dot4,
    crosses_lanes=True,
)
SELECT = Opcode(
    "select",
    "condition, value if true, value if false",
    (MASK, ANY, ANY),
    (ANY,),
    rule=rules.select,
    lanewise=True,
)
COMPLEX = Opcode("complex", "parts -> complex number", (NUMBER,) * 2, (NUMBER,), rule=rules.complex_of, lanewise=True)
REAL = Opcode("real", "complex number -> its real part", (NUMBER,), (NUMBER,), rule=rules.part_of, lanewise=True)
IMAG = replace(REAL, name="imag", meaning="complex number -> its imaginary part")
UDIV = Opcode(
    "udiv",
    "unsigned quotient of index arithmetic; the divisor is known not to be zero",
    (INTEGER, INTEGER),
    (INTEGER,),
    lanewise=True,
    divides=True,
)
UREM = replace(UDIV, name="urem", meaning="unsigned remainder of index arithmetic")

LOAD = Opcode(
    "load",
    "pointer, element offset -> the element(s)",
    _ADDRESS,
    (NUMBER,),
    attrs=_ALIGN,
    rule=rules.load,
    reads=True,
)
STORE = Opcode(
    "store",
    "value, pointer, element offset",
    (NUMBER, *_ADDRESS),
    attrs=_ALIGN | {"lone": _decided(_FLAG)},
    rule=rules.store,
    writes=True,
)
STORE_PAIR = Opcode(
    "store_pair",
    "two values of a packed type, pointer, offset of the byte that they fill",
    (SCALAR, SCALAR, *_ADDRESS),
    rule=rules.store_pair,
    writes=True,
)
ATOMIC = Opcode(
    "atomic",
    "value, pointer, offset -> what was there; attrs kind (add, min, exchange, …), ordering, scope",
    (SCALAR, *_ADDRESS),
    (SCALAR,),
    attrs={"kind": OpAttribute(one_of(*ATOMICS)), **_ordering(), **_SCOPE},
    rule=rules.atomic,
    writes=True,
    uniform=Scope.none,
)
ATOMIC_COMPARE_EXCHANGE = Opcode(
    "atomic_compare_exchange",
    "expected, desired, pointer, offset -> what was there; equal bits; attrs ordering",
    (SCALAR, SCALAR, *_ADDRESS),
    (SCALAR,),
    attrs=_ordering() | _SCOPE,
    rule=rules.compare_exchange,
    writes=True,
    uniform=Scope.none,
)
ATOMIC_LOAD = Opcode(
    "atomic_load",
    "pointer, offset -> the element; attrs ordering",
    _ADDRESS,
    (SCALAR,),
    attrs=_ordering("release", "acq_rel") | _SCOPE,
    rule=rules.load,
    reads=True,
    uniform=Scope.none,
)
ATOMIC_STORE = Opcode(
    "atomic_store",
    "value, pointer, offset; attrs ordering",
    (SCALAR, *_ADDRESS),
    attrs=_ordering("acquire", "acq_rel") | _SCOPE,
    rule=rules.store,
    writes=True,
)
OFFSET = Opcode(
    "offset", "pointer, Int -> the pointer that many elements further on", _ADDRESS, (POINTER,), rule=rules.offset
)
NULL_POINTER = Opcode("null_pointer", "a pointer that is never dereferenced", results=(POINTER,))
MASKED_LOAD = Opcode(
    "masked_load",
    "pointer, offset, mask, other -> elements where the mask holds, lanes of other elsewhere",
    (*_ADDRESS, MASK, NUMBER),
    (NUMBER,),
    attrs=_ALIGN,
    rule=rules.masked_load,
    reads=True,
    masked=True,
)
MASKED_STORE = Opcode(
    "masked_store",
    "value, pointer, offset, mask; the lanes where the mask holds",
    (NUMBER, *_ADDRESS, MASK),
    attrs=_ALIGN,
    rule=rules.masked_store,
    writes=True,
    masked=True,
)
GATHER = Opcode(
    "gather",
    "pointer, offsets, mask, other -> the elements at these offsets (int32 or int64), as masked_load",
    (POINTER, OFFSETS, MASK, NUMBER),
    (NUMBER,),
    attrs=_ALIGN,
    rule=rules.masked_load,
    reads=True,
    masked=True,
)
SCATTER = Opcode(
    "scatter",
    "value, pointer, offsets, mask; lane 0 first",
    (NUMBER, POINTER, OFFSETS, MASK),
    attrs=_ALIGN,
    rule=rules.masked_store,
    writes=True,
    masked=True,
)
ALIGNED = Opcode(
    "aligned",
    "pointers -> whether the address of each is a multiple of attrs align",
    results=(BOOLEAN,),
    more=POINTER,
    attrs=_ALIGNED,
)
ASSUME_ALIGNED = Opcode(
    "assume_aligned",
    "a pointer: from here on its address is a multiple of attrs align",
    (POINTER,),
    attrs=_ALIGNED,
    hints=True,
)
ALLOCA = Opcode(
    "alloca",
    "storage of attrs count elements for the life of the function, or of the block that shares it; attrs zeroed;"
    " exchange, where memory is checked: what the compiler's own barriers order",
    results=(POINTER,),
    attrs={
        "count": OpAttribute(whole()),
        "zeroed": OpAttribute(_FLAG),
        "exchange": OpAttribute(one_of(True), required=False),
        **_ALIGN,
        **_TRACKED,
    },
    rule=rules.alloca,
    allocates=True,
    uniform=rules.storage_scope,
)

IF = Opcode(
    "if",
    "condition; two regions that end in yield; attrs role: the first region is run by the warps of a role of that name;"
    " rare: the condition holds for hardly any element of a GPU's thread",
    (BOOLEAN,),
    attrs={
        "role": OpAttribute(lambda value: isinstance(value, str), required=False),
        "rare": OpAttribute(lambda value: value is True, required=False),
    },
    gives_more=True,
    regions=(_BLOCK, _BLOCK),
    rule=rules.branch,
)
FOR = Opcode(
    "for",
    "low, high, step, carried values; one region (index, carried) that ends in yield; attrs elements: each round is one"
    " element; axis, until loops are split: the size of an axis that the index lies in; product, of the inner axis of a"
    " matrix product: what is multiplied",
    (INTEGER, INTEGER, INTEGER),
    more=ANY,
    gives_more=True,
    attrs={
        "elements": OpAttribute(_FLAG, required=False, shown=False),
        "axis": OpAttribute(whole(), required=False),
        "product": OpAttribute(lambda value: isinstance(value, str), required=False, shown=False),
        "cut": _decided(lambda value: isinstance(value, Cut)),
        "hints": _decided(lambda value: isinstance(value, LoopHints)),
        "strip": _decided(whole(1)),
        "burn": _decided(whole(1)),
        **_ROUND,
    },
    regions=(RegionForm((INTEGER,), carries=True),),
    rule=rules.counted_loop,
    loops=True,
)
WHILE = Opcode(
    "while",
    "carried values; a region that ends in condition, and one that ends in yield",
    more=ANY,
    gives_more=True,
    attrs=_ROUND | {"spins": _decided(one_of("wait", "count"))},
    regions=(RegionForm(carries=True, ends="condition"), RegionForm(carries=True)),
    rule=rules.loop,
    loops=True,
)
YIELD = Opcode("yield", "ends a region with its results", more=ANY, ends=True)
CONDITION = Opcode(
    "condition", "ends the first region of while: go on?, carried values", (BOOLEAN,), more=ANY, ends=True
)
PARALLEL = Opcode(
    "parallel",
    "total, grain; a region (low, high) run for disjoint ranges that cover [0, total); attrs unit, until grains are"
    " chosen: the elements of a step",
    (INTEGER, INTEGER),
    attrs={
        "unit": OpAttribute(whole(1), required=False),
        "vector_bits": _decided(whole(1)),
        "split_vectors": _decided(_FLAG),
        "spread_here": _decided(_FLAG),
    },
    regions=(RegionForm((INTEGER, INTEGER)),),
    rule=rules.yields_nothing,
    spreads=True,
)
LAUNCH = Opcode(
    "launch",
    "grid x y z, block x y z, bytes of dynamic shared memory; a region run by every thread; attrs cluster: its blocks,"
    " max_registers of a thread, min_blocks that a multiprocessor shall hold; elements, until threads are widened: each"
    " thread of one axis does one element, if there is one",
    (INTEGER,) * 7,
    attrs={
        "cluster": OpAttribute(numbers(3), required=False),
        "max_registers": OpAttribute(whole(1, 1 << 16), required=False),
        "min_blocks": OpAttribute(whole(1, 1 << 16), required=False),
        "elements": OpAttribute(_FLAG, required=False),
    },
    regions=(_BLOCK,),
    rule=rules.launch,
    spreads=True,
)
ENQUEUE = Opcode(
    "enqueue",
    "grid x y z, bytes of dynamic shared memory, the kernel's arguments: launches it; attrs kernel, block, cluster,"
    " limits of the first four operands, static: bytes of static shared memory, reports: whether it may report",
    (INTEGER,) * 4,
    more=ANY,
    attrs={"kernel": OpAttribute(whole()), "limits": OpAttribute(numbers(4, low=0))}
    | {"static": OpAttribute(whole(1, 1 << 31), required=False), "reports": OpAttribute(_FLAG, required=False)}
    | {name: OpAttribute(numbers(3)) for name in ("block", "cluster")},
    reads=True,
    writes=True,
    reports=True,
)
GPU_ID = Opcode(
    "gpu_id",
    "attrs which: thread_idx.x, block_idx.y, …; of: for lane_idx and warp_idx the block's sizes and the warp's"
    " threads, for cluster_idx and block_in_cluster the cluster's blocks along the axis",
    results=(INTEGER,),
    attrs={"which": OpAttribute(one_of(*INDICES)), "of": OpAttribute(numbers(1, 4), required=False)},
    rule=rules.gpu_id,
    within="launch",
    uniform=lambda op: INDEX_SCOPES[op.attrs["which"].partition(".")[0]],
)
UNIFORM = Opcode(
    "uniform",
    "value -> the value, which is equal in all threads of attrs scope: the author says so",
    (NUMBER,),
    (NUMBER,),
    attrs={"scope": OpAttribute(one_of("warp", "block", "cluster", "grid"))},
    rule=rules.same_type,
    uniform=lambda op: Scope[op.attrs["scope"]],
)
BARRIER = Opcode(
    "barrier",
    "waits for the threads of the block; attrs id: which of its barriers, threads: how many, in whole warps;"
    " an operand is the number of the barrier where it is known at run time only; exchange, where memory is checked: it"
    " orders nothing but storage with that attribute",
    more=INTEGER,
    attrs={
        "id": OpAttribute(whole(0, 16), required=False),
        "threads": OpAttribute(whole(1, 1025), required=False),
        "exchange": OpAttribute(one_of(True), required=False),
    },
    rule=rules.barrier,
    waits=lambda op: Scope.warp if "threads" in op.attrs else Scope.block,
    within="launch",
)
CLUSTER_SYNC = Opcode(
    "cluster_sync", "waits for all threads of the cluster", waits=lambda op: Scope.cluster, within="launch"
)
PEER = Opcode(
    "peer",
    "pointer to shared memory, the number of a block of the cluster -> the same place in the memory of that block;"
    " attrs blocks: how many there are",
    (POINTER, INTEGER),
    (POINTER,),
    attrs={"blocks": OpAttribute(whole(2, 1 << 10))},
    rule=rules.peer,
    within="launch",
)
FENCE = Opcode(
    "fence",
    "what the thread reads and writes before comes before what comes behind, as the threads of a scope see it",
    attrs=_ordering("relaxed") | _SCOPE,
    writes=True,
)

# What the lanes of a warp do together: so many to a warp, in a block of that many threads along x, y and z. A further
# operand is the lanes that do it, as bits; without one, all of them do.
_WARP = {
    "lanes": OpAttribute(one_of(32, 64)),
    "block": OpAttribute(
        lambda value: isinstance(value, tuple) and len(value) == 3 and all(map(whole(1, 1025), value))
    ),
}


def _of_lanes(scope: Scope, operands: int) -> Callable[[Op], Scope]:
    """The scope of what all lanes of a warp do; none where a further operand says which lanes do it."""
    return lambda op: scope if len(op.operands) == operands else Scope.none


WARP_SHUFFLE = Opcode(
    "warp_shuffle",
    "value, Int -> the value of another lane of the warp, one's own if it has none such: attrs kind (idx: that lane;"
    " up, down: so many before, behind; xor: whose number differs in these bits; one: that lane, the same for all)",
    (NUMBER, INTEGER),
    (NUMBER,),
    more=LANE_BITS,
    attrs={"kind": OpAttribute(one_of(*SHUFFLES)), **_WARP},
    rule=rules.shuffle_lanes,
    waits=_of_lanes(Scope.warp, 2),
    uniform=lambda op: Scope.warp if op.attrs["kind"] == "one" and len(op.operands) == 2 else Scope.none,
    within="launch",
)
WARP_SYNC = Opcode(
    "warp_sync",
    "waits for the lanes of the warp, or those of a mask, and shows them what each has written",
    more=LANE_BITS,
    attrs=_WARP,
    rule=rules.one_mask(0),
    waits=_of_lanes(Scope.warp, 0),
    within="launch",
)
WARP_BALLOT = Opcode(
    "warp_ballot",
    "Bool -> the lanes of the warp where it holds, lane 0 in the lowest bit",
    (BOOLEAN,),
    (LANE_BITS,),
    more=LANE_BITS,
    attrs=_WARP,
    rule=rules.one_mask(1),
    waits=_of_lanes(Scope.warp, 1),
    uniform=_of_lanes(Scope.warp, 1),
    within="launch",
)
WARP_MATCH = Opcode(
    "warp_match",
    "value -> the lanes of the warp that have the same bits, as `warp_ballot` gives lanes",
    (NUMBER,),
    (LANE_BITS,),
    more=LANE_BITS,
    attrs=_WARP,
    rule=rules.one_mask(1),
    waits=_of_lanes(Scope.warp, 1),
    uniform=Scope.none,
    within="launch",
)
ASSERT = Opcode(
    "assert",
    "condition, values to show; attrs site; until the checks are placed: hoist (lanes), unless (loops without rounds)",
    (BOOLEAN,),
    more=SHOWN,
    attrs={
        "site": _SITE,
        "hoist": OpAttribute(whole(), required=False),
        "unless": OpAttribute(lambda value: isinstance(value, tuple), required=False),
    },
    reports=True,
)
PRINT = Opcode("print", "values and addresses to show; attrs site", more=SHOWN, attrs={"site": _SITE}, reports=True)
BREAKPOINT = Opcode("breakpoint", "opens the debugger when interpreted; compiled code passes it", reports=True)
NOTE = Opcode(
    "note",
    "says what the author's variables hold, attrs names; made for the interpreter only",
    more=ANY,
    attrs={"names": OpAttribute(lambda value: isinstance(value, tuple))},
    rule=rules.note,
    hints=True,
)


def regular(row: OperationRow) -> Opcode:
    """The record of a regular operation."""
    attrs = {"fastmath": OpAttribute(lambda value: isinstance(value, frozenset) and value <= FASTMATH, required=False)}
    if row.name in ("add", "sub", "mul"):
        attrs["nsw"] = OpAttribute(one_of(True), required=False, shown=False)
    return Opcode(
        row.name,
        f"{row.symbol} on operands of one type",
        (NUMBER,) * row.arity,
        (NUMBER,),
        attrs=attrs,
        rule=rules.regular(row),
        row=row,
        lanewise=True,
        divides=row.name in ("floordiv", "mod"),
    )


# Those of other files.
_FURTHER = (ALLOCATE, CONSTANT_TABLE, DYNAMIC_SHARED, LOAD_MATRICES, MULTIPLY_MATRICES, NATIVE, NATIVE_PURE)
_OF_MATRICES = (MULTIPLY_GROUPS, MULTIPLY_TENSOR, PRODUCT_BEGUN, PRODUCT_WAIT, TENSOR_MEMORY, TOGETHER)
_FURTHER_STILL = (EXCHANGE, POINTER_CAST, PREFETCH, SCRATCH)
_NAMED = [*globals().values(), *vars(copy_opcodes).values()]
_IRREGULAR = tuple(value for value in _NAMED if isinstance(value, Opcode))
IRREGULAR: dict[str, Opcode] = {opcode.name: opcode for opcode in _IRREGULAR}
OPCODES: dict[str, Opcode] = IRREGULAR | {row.name: regular(row) for row in ROWS.values()}
assert len(OPCODES) == len(_IRREGULAR) + len(ROWS), "an opcode is registered twice"
