"""The records of operations on matrices that the threads of a warp or a block hold together."""

from __future__ import annotations

from ..targets.products import BY_NAME
from . import rules
from .kinds import ANY, INTEGER, NUMBER, POINTER, one_of, whole
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
    "fragments of a, b and sums, of all lanes of a warp; of rows with scales those of a and of b, up to four a lane ->"
    " a fragment of the sums plus the product; attrs row: the name of a row of `targets.products`, which says what the"
    " lanes have; first: the first scale of a lane that is one of this product",
    (NUMBER, NUMBER, NUMBER),
    (NUMBER,),
    more=NUMBER,
    attrs={
        "row": OpAttribute(lambda value: isinstance(value, str) and value in BY_NAME),
        "first": OpAttribute(whole(0, 4), required=False),
        **WARP_OF,
    },
    rule=rules.multiply_matrices,
    waits=lambda op: Scope.warp,
    uniform=Scope.none,
    within="launch",
)


def _is_read(value: object) -> bool:
    """The width of a swizzle in bytes, distances of panels and of eight rows in bytes, whether axes are exchanged."""
    return isinstance(value, tuple) and len(value) == 4 and value[0] in (32, 64, 128) and value[3] in (False, True)


_PLACES = OpAttribute(lambda value: isinstance(value, tuple) and all(type(k) is int and k >= 0 for k in value))
MULTIPLY_GROUPS = Opcode(
    "multiply_groups",
    "pointer and offset of b in shared memory; of a, or as many fragments of it as attrs held says; sums, row by row of"
    " a lane -> the sums plus the product, which four warps compute together; attrs row: as of `multiply_matrices`;"
    " columns: of the sums; left, right: how a (none of fragments) and b are read; left_at, right_at: where, in bytes,"
    " each instruction does; fresh: whether the sums are zeros; waits: whether the sums may be read behind it",
    (POINTER, INTEGER),
    more=ANY,
    gives_more=True,
    attrs={
        "row": OpAttribute(lambda value: isinstance(value, str) and value in BY_NAME and BY_NAME[value].of_groups),
        "columns": OpAttribute(lambda value: type(value) is int and 8 <= value <= 256 and value % 8 == 0),
        "held": OpAttribute(whole(0, 1 << 10)),
        "left": OpAttribute(lambda value: value == () or _is_read(value)),
        "right": OpAttribute(_is_read),
        "left_at": _PLACES,
        "right_at": _PLACES,
        "fresh": OpAttribute(one_of(True, False)),
        "waits": OpAttribute(one_of(True, False)),
        "lanes": OpAttribute(one_of(128)),
        "block": WARP_OF["block"],
    },
    rule=rules.multiply_groups,
    reads=True,
    waits=lambda op: Scope.block,
    uniform=Scope.none,
    within="launch",
)
_IN_TENSOR_MEMORY = OpAttribute(
    lambda value: isinstance(value, str) and value in BY_NAME and BY_NAME[value].in_tensor_memory
)
TENSOR_MEMORY = Opcode(
    "tensor_memory",
    "pointer to shared memory; where a kernel begins, takes attrs columns of tensor memory, and makes the barriers at"
    " which products arrive; scales: where places for so many words of scales begin",
    (POINTER,),
    attrs={
        "columns": OpAttribute(whole(0, 513)),
        "scales": OpAttribute(lambda value: isinstance(value, tuple), required=False),
        **WARP_OF,
    },
    rule=rules.at_mbarrier(0),
    writes=True,
    convergent=Scope.block,
    within="launch",
)
MULTIPLY_TENSOR = Opcode(
    "multiply_tensor",
    "pointer and offset of b in shared memory, of a; sums as those of `multiply_groups`; words of four scales, those of"
    " a first -> the sums plus the product, which lie in tensor memory until `product_wait`; attrs as there; first: the"
    " column that the sums begin in; scales: the one that scales begin in, at two places by turns",
    (POINTER, INTEGER, POINTER, INTEGER),
    more=NUMBER,
    gives_more=True,
    attrs={
        "row": _IN_TENSOR_MEMORY,
        "columns": OpAttribute(lambda value: type(value) is int and 16 <= value <= 256 and value % 16 == 0),
        "left": OpAttribute(_is_read),
        "right": OpAttribute(_is_read),
        "left_at": _PLACES,
        "right_at": _PLACES,
        "fresh": OpAttribute(one_of(True, False)),
        "first": OpAttribute(whole(0, 512)),
        "scales": OpAttribute(whole(0, 512), required=False),
        "lanes": OpAttribute(one_of(128)),
        "block": WARP_OF["block"],
    },
    rule=rules.multiply_tensor,
    reads=True,
    writes=True,
    convergent=Scope.block,
    waits=lambda op: Scope.block,
    uniform=Scope.none,
    within="launch",
)
PRODUCT_BEGUN = Opcode(
    "product_begun",
    "a product may be under way from here on, until `product_wait`",
    reads=True,
    writes=True,
    convergent=Scope.block,
    within="launch",
)
PRODUCT_WAIT = Opcode(
    "product_wait",
    "sums of a product -> the sums, when it has ended; waits until at most the attrs pending newest products are under"
    " way; attrs first, columns: where in tensor memory the sums lie, if they do",
    more=NUMBER,
    gives_more=True,
    attrs={
        "pending": OpAttribute(whole(0, 8)),
        "first": OpAttribute(whole(0, 512), required=False),
        "columns": OpAttribute(whole(16, 257), required=False),
    },
    rule=rules.product_wait,
    reads=True,
    writes=True,
    convergent=Scope.block,
    uniform=Scope.none,
    within="launch",
)
