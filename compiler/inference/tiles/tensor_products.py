"""Multiplies into tensor memory, where the sums of a product that goes on lie until it is awaited.

One thread begins the product, whose operands lie in shared memory as those of `group_products`. The first product of a
chain, which begins with zeros, takes columns of tensor memory, and the ones behind it add to them; four warps read
them when the product is awaited. So a kernel needs no registers for sums while a loop goes on.

Columns are known at compile time: a product that a loop carries has those that it began with in front of the loop.

Scales of blocks lie in tensor memory, too. Each warp writes them for its 32 lanes: a word has four scales that are
neighbours along the inner axis, and lane l has those of rows l, l + 32, l + 64 and so on of a (or columns of b) in
neighbouring columns. Products take turns at two places for them, so that one may be under way while those of the next
are written.
"""

from __future__ import annotations

from ....dsl.types.dtype import DType
from ...ir.copy_opcodes import RING
from ...ir.matrix_opcodes import TENSOR_MEMORY
from ...ir.program import Op, Value
from ...targets.products import SCALE_LANES, MatrixProduct, scale_words
from ..evaluator import Point
from ..language.grids import gpu_value
from ..values.tiles import TileProduct, TileValue
from . import layouts
from .block_scales import WORD, BlockScales
from .group_products import Description, unreadable
from .operands import DotOperand
from .swizzles import place_of
from .wanted_product import WantedProduct

PLACES = 2  # for scales, at which products take turns


def misfit(call: Point, row: MatrixProduct, wanted: WantedProduct) -> str | None:
    """Why a row does not multiply; None where it does. `wanted.acc.first` is None where a chain of products begins."""
    if wanted.waits:
        return "gpu.dot gives its sums at once, and tensor memory is for gpu.dot_async"
    left, right, acc, scales, row = wanted.left, wanted.right, wanted.acc, wanted.scales, row.of_bytes
    tile = acc.tile
    layout = layouts.of_tensor_memory(layouts.threads_of(call, "dot_async"), tile.shape)
    if layout is None:
        return "the sums are not a multiple of 128 rows, and of 16 up to 256 columns, of a block of 128 threads"
    if acc.first is None and tile.number != 0:
        return "the sums do not begin with zeros"
    if scales is not None and scales.a.shape[1] % WORD:
        return f"{scales.a.shape[1]} scales along the inner axis are not a multiple of {WORD}"
    words = _scale_words(tile, scales)
    columns = _columns(tile) if acc.first is None else 0
    columns += PLACES * words if words not in _places(call) else 0
    if _taken(call) + columns > layouts.TENSOR_COLUMNS:
        return f"its {columns} columns of tensor memory do not fit next to {_taken(call)} of other products"
    if left.shape[1] % row.shape[2]:
        return f"the inner size of {left.shape[1]} is not a multiple of {row.shape[2]}"
    for name, operand in (("a", left), ("b", right)):
        if operand.tile is not None:
            return f"{name} is a tile, and a product that goes on reads shared memory"
        if (reason := unreadable(row, operand, name)) is not None:
            return f"{name} {reason}"
    return None


def _columns(tile: TileValue) -> int:
    """The columns of tensor memory that sums take."""
    return tile.shape[0] // layouts.TENSOR_ROWS * tile.shape[1]


def _scale_words(tile: TileValue, scales: BlockScales | None) -> int:
    """The words of scales of a lane: the columns of tensor memory that they take at one place."""
    return 0 if scales is None else sum(scale_words(scales.a.shape[1], tile.shape))


def _memory(call: Point) -> Op | None:
    """The operation that takes the tensor memory of this kernel."""
    launched = call.evaluator.launched
    ops = launched.region.ops if launched is not None and launched.region is not None else []
    return next((op for op in ops if op.opcode is TENSOR_MEMORY), None)


def _taken(call: Point) -> int:
    """How many columns products of this kernel have."""
    made = _memory(call)
    return 0 if made is None else int(made.attrs["columns"])


def _places(call: Point) -> dict[int, int]:
    """The first column of the places that products with so many words of scales share."""
    made = _memory(call)
    return {} if made is None else dict(made.attrs.get("scales", ()))


def _take_places(call: Point, words: int) -> int:
    """The first column of the places for so many words of scales."""
    places = _places(call)
    if words not in places:
        places[words] = _take(call, PLACES * words)
        if (made := _memory(call)) is not None:
            made.attrs["scales"] = tuple(places.items())
    return places[words]


def _take(call: Point, columns: int) -> int:
    """Takes columns, and gives the number of the first one."""
    first, launched = _taken(call), call.evaluator.launched
    barriers = layouts.shared_buffer(call.evaluator, DType.int64, RING + 1, "tensor memory")
    if call.evaluator.trial or launched is None or launched.region is None:
        return first
    made = _memory(call)
    if made is None:
        ops = launched.region.ops
        after = next(k for k, op in enumerate(ops) if op is barriers.maker) + 1
        location = call.builder.location
        made = Op(TENSOR_MEMORY, [barriers], [], location, {"columns": 0, **layouts.warp_of(call)}, [])
        ops.insert(after, made)
    made.attrs["columns"] = first + columns
    return first


def multiply(call: Point, row: MatrixProduct, wanted: WantedProduct) -> TileProduct:
    """`acc + left @ right`, under way."""
    left, right, acc, scales = wanted.left, wanted.right, wanted.acc, wanted.scales
    builder, tile, fresh, row = call.builder, acc.tile, acc.first is None, row.of_bytes
    first = _take(call, _columns(tile)) if acc.first is None else acc.first
    if fresh:
        layout = layouts.of_tensor_memory(layouts.threads_of(call, "dot_async"), tile.shape)
        assert layout is not None
        tile = layouts.filled(builder, tile.dtype, layout, 0)
    steps, blocks = range(0, left.shape[1], row.shape[2]), range(0, tile.shape[0], layouts.TENSOR_ROWS)
    of_a, of_b = Description.of(left, by_columns=False), Description.of(right, by_columns=True)
    attrs: dict[str, object] = {}
    words: list[Value] = []
    if scales is not None:
        words = [*_words(call, scales.a, tile.shape[0], False), *_words(call, scales.b, tile.shape[1], True)]
        attrs["scales"] = _take_places(call, len(words))
    results = builder.add(
        "multiply_tensor",
        [*_beginning(call, right), *_beginning(call, left), *tile.parts, *words],
        [part.type for part in tile.parts],
        (),
        row=row.name,
        columns=tile.shape[1],
        left=of_a.attribute,
        left_at=tuple(of_a.at(block, k) for block in blocks for k in steps),
        right=of_b.attribute,
        right_at=tuple(of_b.at(0, k) for k in steps),
        fresh=fresh,
        first=first,
        lanes=layouts.TENSOR_ROWS,
        block=layouts.warp_of(call)["block"],
        **attrs,
    )
    return TileProduct(TileValue(tile.dtype, tile.layout, tuple(results)), first)


def _beginning(call: Point, operand: DotOperand) -> tuple[Value, Value]:
    """The pointer to an operand's memory, and the offset of its first element."""
    zero = call.builder.int_(0)
    assert operand.tensor is not None
    return place_of(operand.tensor, call.builder, (zero, zero))


def _words(call: Point, scales: DotOperand, count: int, by_columns: bool) -> list[Value]:
    """The scales that a lane writes, four in a word: of each word of the inner axis those of rows (of b: columns) 32
    apart; of a for each 128 rows one after the other. Lanes behind the last row have those of another one."""
    builder = call.builder
    lane, made = builder.irem(gpu_value(call, "lane_idx"), builder.int_(SCALE_LANES)), list[Value]()
    for start in range(0, count, count if by_columns else layouts.TENSOR_ROWS):
        end = count if by_columns else start + layouts.TENSOR_ROWS
        for word in range(scales.shape[0 if by_columns else 1] // WORD):
            for first in range(start, end, SCALE_LANES):
                own = lane if first + SCALE_LANES <= end else builder.irem(lane, builder.int_(end - first))
                inner = builder.int_(0), word * WORD
                made.append(scales.along(call, (own, first), inner, WORD, by_columns=by_columns))
    return made
