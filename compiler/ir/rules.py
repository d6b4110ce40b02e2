"""The rules of well-made operations: what the kinds of their operands and results do not say.

A rule is a function of an operation, whose operands, results, attributes and regions are of the kinds that its record
names. It gives what is wrong, as the end of a sentence that begins with the operation, or None.

See also `opcodes` (which operation has which rule).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...dsl.types.dtype import INT, DType, SIMDType
from ..targets.products import BY_NAME, scale_words
from .operations import ROWS, OperationRow
from .program import Op, PointerType, Scope, Value

# What a variable of the author's is made of, in a note: ("value", number of the operand), ("constant", object),
# ("tuple", parts), ("struct", name, names of the fields, parts),
# ("tensor", number of the pointer, numbers of the dims).
Form = tuple[Any, ...]


def _pointer(value: Value) -> PointerType:
    assert isinstance(value.type, PointerType)
    return value.type


def const(op: Op) -> str | None:
    result, value = op.results[0], op.attrs["value"]
    dtype = result.dtype
    if result.const is not None and not _is_same(result.const, value):
        return f"is known as {result.const!r}, and makes {value!r}"
    if dtype.is_float():
        return None if isinstance(value, bool | int | float) else f"makes a float of {value!r}"
    if not isinstance(value, bool | int) or not int(dtype.range[0]) <= value <= int(dtype.range[1]):
        return f"{dtype} does not hold {value!r}"
    return None


def _is_same(a: object, b: object) -> bool:
    return bool(a == b or (a != a and b != b))


def complex_of(op: Op) -> str | None:
    real, imag, result = op.operands[0].simd, op.operands[1].simd, op.results[0].simd
    same = real == imag == result.with_dtype(result.dtype.part) and result.dtype.is_complex()
    return None if same else "takes the two parts of its result"


def part_of(op: Op) -> str | None:
    source, result = op.operands[0].simd, op.results[0].simd
    same = source.dtype.is_complex() and result == source.with_dtype(source.dtype.part)
    return None if same else "gives a part of a complex number"


def cast(op: Op) -> str | None:
    source, to = op.operands[0].simd, op.results[0].simd
    if source.dtype.is_complex() or to.dtype.is_complex():
        return "is for numbers that are not complex"
    return None if source.width == to.width else "changes the number of lanes"


def bitcast(op: Op) -> str | None:
    source, to = op.operands[0].simd, op.results[0].simd
    same = source.width == to.width and max(source.dtype.bits, 8) == max(to.dtype.bits, 8)  # a byte at least
    return None if same else f"{source} has not the bits of {to}"


def same_dtype(op: Op) -> str | None:
    """All operands and the result have one dtype."""
    return None if len({value.dtype for value in (*op.operands, *op.results)}) == 1 else "changes the dtype"


def one_mask(operands: int) -> Callable[[Op], str | None]:
    """The rule of what lanes do: behind so many operands one more, at most."""
    return lambda op: None if len(op.operands) <= operands + 1 else "takes one mask"


def barrier(op: Op) -> str | None:
    """A number of the running program stands in place of the attribute, with the number of threads that synchronise."""
    if not op.operands:
        return None
    return None if len(op.operands) == 1 and "id" not in op.attrs and "threads" in op.attrs else "has a second number"


def same_type(op: Op) -> str | None:
    """The result is of the first operand's type."""
    return None if op.operands[0].type == op.results[0].type else "changes the type"


def shuffle_lanes(op: Op) -> str | None:
    return same_type(op) or one_mask(2)(op)


def make_vector(op: Op) -> str | None:
    return same_dtype(op) if len(op.operands) == op.results[0].simd.width else "takes one number for each lane"


def extract(op: Op) -> str | None:
    if "lane" in op.attrs and op.attrs["lane"] >= op.operands[0].simd.width:
        return f"there is no lane {op.attrs['lane']}"
    return None if op.operands[0].dtype is op.results[0].dtype else "changes the dtype"


def insert(op: Op) -> str | None:
    vector, scalar = op.operands[:2]
    if vector.type != op.results[0].type or vector.dtype is not scalar.dtype:
        return "takes and gives vectors of one type, and a number of it"
    return extract(op)


def shuffle(op: Op) -> str | None:
    (a, b), result, mask = op.operands, op.results[0].simd, op.attrs["mask"]
    if a.type != b.type or result.dtype is not a.dtype or len(mask) != result.width:
        return "takes two vectors of one type, and gives one lane for each number of its mask"
    return None if all(0 <= lane < 2 * a.simd.width for lane in mask) else "its mask names lanes that do not exist"


def take(op: Op) -> str | None:
    table, indices = op.operands
    result = op.results[0].simd
    fits = result.dtype is table.dtype and result.width == indices.simd.width
    return None if fits else "gives one lane of its vector for each number"


def reduce(op: Op) -> str | None:
    row, vector, result = ROWS[op.attrs["row"]], op.operands[0].simd, op.results[0]
    if not row.takes(vector.dtype) or row.in_library(vector.dtype):
        return f"{row.name} does not work on {vector.dtype}"
    if vector.width & (vector.width - 1):
        return f"cannot halve {vector.width} lanes"
    return None if result.type == SIMDType(vector.dtype) else f"gives one {vector.dtype}"


def dot2(op: Op) -> str | None:
    acc, a, b = (value.simd for value in op.operands)
    if acc.dtype is not DType.float32 or op.results[0].type != acc:
        return "adds to float32, and gives as many"
    halves = all(v == SIMDType(DType.bfloat16, 2 * acc.width) for v in (a, b))
    return None if halves else "takes two bfloat16 for each sum, twice"


def dot4(op: Op) -> str | None:
    acc, a, b = (value.simd for value in op.operands)
    if acc.dtype is not DType.int32 or op.results[0].type != acc:
        return "adds to numbers of 32 bits, and gives as many"
    bytes = all(v.dtype in (DType.int8, DType.uint8) and v.width == 4 * acc.width for v in (a, b))
    return None if bytes else "takes four integers of 8 bits for each sum, twice"


def select(op: Op) -> str | None:
    condition, a, b = op.operands
    if not a.type == b.type == op.results[0].type:
        return "takes and gives values of one type"
    width = a.type.width if isinstance(a.type, SIMDType) else 1
    return None if condition.simd.width == width else "takes a Bool for each lane"


def _accessed(op: Op, value: Value, pointer: Value, *lanes: Value) -> str | None:
    """The rule of an access: `value` is of the pointer's dtype, and has as many lanes as each of `lanes`."""
    type = _pointer(pointer)
    if value.dtype is not type.dtype:
        return f"accesses {value.dtype} through {type}"
    if op.opcode.writes and type.access == "read-only":
        return f"writes through {type}"
    same = all(other.simd.width == value.simd.width for other in lanes)
    return None if same else "takes an offset, a mask and a number for each lane"


def load(op: Op) -> str | None:
    return _accessed(op, op.results[0], op.operands[0])


def store(op: Op) -> str | None:
    return _accessed(op, op.operands[0], op.operands[1])


def store_pair(op: Op) -> str | None:
    first, second, pointer, _ = op.operands
    if first.type != second.type or not first.dtype.is_packed():
        return "takes two values of a packed type"
    return _accessed(op, first, pointer)


def masked_load(op: Op) -> str | None:
    pointer, offset, mask, other = op.operands
    if other.type != op.results[0].type:
        return "gives what its last operand has where it reads nothing"
    return _accessed(op, op.results[0], pointer, mask, *_lanes_of(offset))


def masked_store(op: Op) -> str | None:
    value, pointer, offset, mask = op.operands
    return _accessed(op, value, pointer, mask, *_lanes_of(offset))


def _lanes_of(offset: Value) -> tuple[Value, ...]:
    """An offset for each lane; nothing where one Int is the offset of the first."""
    return () if offset.type == INT else (offset,)


def atomic(op: Op) -> str | None:
    value, pointer, _ = op.operands
    return _accessed(op, value, pointer) if value.type == op.results[0].type else "gives what was there"


def compare_exchange(op: Op) -> str | None:
    expected, desired, pointer, _ = op.operands
    same = expected.type == desired.type == op.results[0].type
    return _accessed(op, desired, pointer) if same else "gives what was there"


def copy_async(op: Op) -> str | None:
    to, source = _pointer(op.operands[0]), _pointer(op.operands[2])
    if to.dtype is not source.dtype or to.dtype.is_packed() or to.space != "shared" or to.access == "read-only":
        return f"copies {source} to {to}"
    size = op.attrs["count"] * max(1, to.dtype.bits // 8)
    return None if size in (4, 8, 16) else f"copies {size} bytes"


def copy_ring(op: Op) -> str | None:
    ring = _pointer(op.operands[0])
    return None if ring.space == "shared" and ring.dtype is DType.int64 else f"makes a ring of {ring}"


def copy_rows(op: Op) -> str | None:
    """Rows lie at multiples of 16 bytes on both sides."""
    to, source, ring = (_pointer(op.operands[k]) for k in (0, 2, 7))
    if to.dtype is not source.dtype or to.dtype.is_packed() or to.space != "shared" or to.access == "read-only":
        return f"copies {source} to {to}"
    if ring.space != "shared" or ring.dtype is not DType.int64:
        return f"arrives at {ring}"
    return None if op.attrs["pitch"] * to.dtype.bits % 128 == 0 else "copies rows that do not begin at 16 bytes"


def tensor_map(op: Op) -> str | None:
    """The map of a tensor of the device, whose sizes and distances are as many as its axes say."""
    source, result, rank = _pointer(op.operands[0]), _pointer(op.results[0]), op.attrs["rank"]
    if source.space != "global" or result != PointerType(source.dtype, "map"):
        return f"describes {source} as {result}"
    given = len(op.operands) - 2
    return None if given == 2 * rank - 1 else f"has {given} numbers for {rank} axes"


def fetch_map(op: Op) -> str | None:
    pointer = _pointer(op.operands[0])
    return None if pointer.space == "map" else f"is not a description of a tensor: {pointer}"


def copy_box(op: Op) -> str | None:
    """Whole boxes of a described tensor go to shared memory, and arrive at barriers there."""
    to, source, barrier = _pointer(op.operands[0]), _pointer(op.operands[2]), _pointer(op.operands[8])
    if source != PointerType(to.dtype, "map") or to.space != "shared" or to.access == "read-only":
        return f"copies by {source} to {to}"
    if barrier.space != "shared" or barrier.dtype is not DType.int64:
        return f"arrives at {barrier}"
    (rows, columns), (height, width) = op.attrs["tile"], op.attrs["box"]
    return (
        None if rows % height == columns % width == 0 else f"copies {rows} x {columns} in boxes of {height} x {width}"
    )


def at_mbarrier(operand: int) -> Callable[[Op], str | None]:
    """An operand points to words of 64 bits in shared memory."""

    def rule(op: Op) -> str | None:
        pointer = _pointer(op.operands[operand])
        return None if pointer.space == "shared" and pointer.dtype is DType.int64 else f"has a barrier in {pointer}"

    return rule


def mbarrier_arrive(op: Op) -> str | None:
    pointer = _pointer(op.operands[0])
    known = pointer.space in ("shared", "cluster") and pointer.dtype is DType.int64
    return None if known else f"has a barrier in {pointer}"


def copy_row(op: Op) -> str | None:
    to, source = _pointer(op.operands[0]), _pointer(op.operands[2])
    if to.dtype is not source.dtype or to.dtype.is_packed() or to.space != "shared" or to.access == "read-only":
        return f"copies {source} to {to}"
    return at_mbarrier(5)(op)


def load_matrices(op: Op) -> str | None:
    """Each lane gets four words of 32 bits, whose elements are those of the pointer."""
    pointer, type = _pointer(op.operands[0]), op.results[0].simd
    if pointer.space != "shared" or type.dtype is not pointer.dtype or type.width * type.dtype.bits != 128:
        return f"loads {type} from {pointer}"
    return "exchanges the axes of other elements" if op.attrs["transposed"] and type.dtype.bits != 16 else None


def multiply_matrices(op: Op) -> str | None:
    """Operands of one dtype, sums as the result; fragments of `a` are no smaller than those of `b`; scales if the row
    has some."""
    a, b, acc, *scales = (operand.simd for operand in op.operands)
    if a.dtype is not b.dtype or a.width < b.width or op.results[0].type != acc:
        return f"multiplies {a} and {b}, and adds them to {acc}"
    row = BY_NAME[op.attrs["row"]]
    if len(scales) != (0 if row.scale is None else 2) or ("first" in op.attrs) != (row.scale is not None):
        return f"has {len(scales)} scales for {row.name}"
    if any(each.dtype is not row.scale or each.width not in (1, 2, 4) for each in scales) or (
        scales and op.attrs["first"] >= min(each.width for each in scales)
    ):
        return f"takes scales from {scales[0]} and {scales[1]}"
    return None


def multiply_groups(op: Op) -> str | None:
    """Operands of one dtype, sums as results; for each 64 rows and each step along the inner axis one instruction."""
    held, b = op.attrs["held"], _pointer(op.operands[0])
    rest = op.operands[2:]
    left, sums = rest[: held or 2], rest[held or 2 :]
    if b.space != "shared" or (held == 0) != bool(op.attrs["left"]) or len(left) != (held or 2):
        return "reads b in shared memory, and a there or in fragments"
    if not held and (left[0].type != b or left[1].type != INT):
        return "reads a where no b can lie"
    if held and any(value.type != SIMDType(b.dtype, 128 // b.dtype.bits) for value in left):
        return f"multiplies other fragments than those of {b.dtype}"
    if (problem := _sums(op, sums)) is not None:
        return problem
    lanes, each, steps = sum(value.simd.width for value in sums), op.attrs["columns"] // 2, len(op.attrs["right_at"])
    count = held or len(op.attrs["left_at"])
    if lanes % each or count != lanes // each * steps or not steps or (bool(held) and op.attrs["left_at"]):
        return f"multiplies {count} parts of a and {steps} of b, and has {lanes} sums"
    return None


def _sums(op: Op, sums: Sequence[Value]) -> str | None:
    """The sums to which a product adds have the types of its results, and the dtype of its row."""
    if [value.type for value in sums] != [value.type for value in op.results] or not sums:
        return "adds to other sums than it gives"
    acc = BY_NAME[op.attrs["row"]].acc
    if any(not isinstance(value.type, SIMDType) or value.dtype is not acc for value in sums):
        return f"adds to numbers of {acc}"
    return None


def multiply_tensor(op: Op) -> str | None:
    """Operands in shared memory, sums as results; for each 128 rows and each step along the inner axis one product."""
    b, a, attrs = _pointer(op.operands[0]), _pointer(op.operands[2]), op.attrs
    sums, words = op.operands[4 : 4 + len(op.results)], op.operands[4 + len(op.results) :]
    if b.space != "shared" or a.space != "shared" or a.dtype is not b.dtype:
        return f"multiplies {a} and {b}"
    if (problem := _sums(op, sums)) is not None:
        return problem
    blocks, steps = sum(value.simd.width for value in sums) / attrs["columns"], len(attrs["right_at"])
    if not steps or len(attrs["left_at"]) != blocks * steps:
        return f"multiplies {len(attrs['left_at'])} parts of a and {steps} of b for {blocks} blocks of rows"
    row = BY_NAME[attrs["row"]]
    if ("scales" in attrs, len(words)) != (row.scale is not None, sum(words_of_scales(op))):
        return f"has {len(words)} words of scales for {row.name}"
    if any(word.type != SIMDType(row.scale, 4) for word in words if row.scale is not None):
        return f"takes scales from {words[0].type}"
    return None


def words_of_scales(op: Op) -> tuple[int, int]:
    """How many words of scales a product in tensor memory has of a, and of b."""
    row, steps = BY_NAME[op.attrs["row"]], len(op.attrs["right_at"])
    rows = row.shape[0] * (len(op.attrs["left_at"]) // steps)
    return scale_words(steps * row.scales, (rows, op.attrs["columns"]))


def product_wait(op: Op) -> str | None:
    same = [value.type for value in op.operands] == [value.type for value in op.results]
    if not same or bool(op.operands) == bool(op.attrs["pending"]):
        return "gives the sums of a product, or leaves some under way"
    return None


def copy_wait(op: Op) -> str | None:
    return "waits for all copies" if op.attrs["what"] == "copy" and op.attrs["pending"] else None


def offset(op: Op) -> str | None:
    source, to = _pointer(op.operands[0]), _pointer(op.results[0])
    if (source.dtype, source.space) != (to.dtype, to.space) or to.is_whole:
        return f"makes {to} of {source}"
    return "may write where its pointer may not" if source.access == "read-only" != to.access else None


def pointer_cast(op: Op) -> str | None:
    source, to = _pointer(op.operands[0]), _pointer(op.results[0])
    if source.space != to.space or to.is_whole or source.dtype.is_packed() or to.dtype.is_packed():
        return f"makes {to} of {source}"
    return "may write where its pointer may not" if source.access == "read-only" != to.access else None


def native(op: Op) -> str | None:
    if len(op.results) > 1:
        return "has more than one result"
    if op.opcode.is_pure and not op.results:
        return "does nothing"
    return None if op.attrs["kind"] == "assembly" or not op.attrs["constraints"] else "has constraints of instructions"


def constant_table(op: Op) -> str | None:
    type = _pointer(op.results[0])
    whole = not type.dtype.is_packed() and len(op.attrs["data"]) % type.dtype.size_in_bytes == 0
    return None if type.is_whole and type.space == "global" and whole else f"is not a table of constants: {type}"


def peer(op: Op) -> str | None:
    source, to = _pointer(op.operands[0]), _pointer(op.results[0])
    same = source.dtype is to.dtype and (source.space, to.space) == ("shared", "cluster")
    return None if same and to.is_whole else f"makes {to} of {source}"


def alloca(op: Op) -> str | None:
    type = _pointer(op.results[0])
    return None if type.is_whole and type.space in ("stack", "shared") else f"is not storage of its own: {type}"


def scratch(op: Op) -> str | None:
    type = _pointer(op.results[0])
    return None if type.is_whole and type.space == "global" else f"is not memory of a device: {type}"


def allocate(op: Op) -> str | None:
    type = _pointer(op.results[0])
    return None if type.is_whole and type.space == "stack" else f"is not storage of a function: {type}"


def launch(op: Op) -> str | None:
    if any(size.const is None for size in op.operands[3:6]):
        return "has blocks of a size that is not known"
    return yields_nothing(op)


def dynamic_shared(op: Op) -> str | None:
    type = _pointer(op.results[0])
    return None if type.is_whole and type.space == "shared" else f"is not storage of its own: {type}"


def gpu_id(op: Op) -> str | None:
    what, _, axis = op.attrs["which"].partition(".")
    wanted = 0 if what in ("thread_idx", "block_idx") else 1 if axis else 4
    return None if len(op.attrs.get("of", ())) == wanted else f"takes {wanted} numbers to be computed of"


def branch(op: Op) -> str | None:
    results = [r.type for r in op.results]
    same = all([v.type for v in region.ops[-1].operands] == results for region in op.regions)
    return None if same else "its arms yield other types than it gives"


def counted_loop(op: Op) -> str | None:
    (region,) = op.regions
    carried = [v.type for v in op.operands[3:]]
    ends = [v.type for v in region.ops[-1].operands]
    same = carried == [a.type for a in region.args[1:]] == [r.type for r in op.results] == ends
    if op.operands[2].const is not None and op.operands[2].const <= 0:
        return f"goes on by {op.operands[2].const}"
    return None if same else "what goes round changes its type"


def loop(op: Op) -> str | None:
    test, body = op.regions
    carried = [v.type for v in op.operands]
    around = (
        [a.type for a in test.args],
        [v.type for v in test.ops[-1].operands[1:]],
        [a.type for a in body.args],
        [v.type for v in body.ops[-1].operands],
        [r.type for r in op.results],
    )
    return None if all(types == carried for types in around) else "what goes round changes its type"


def yields_nothing(op: Op) -> str | None:
    return "its region yields values" if op.regions[0].ops[-1].operands else None


def note(op: Op) -> str | None:
    try:
        names = [operand for _, form in op.attrs["names"] for operand in _operands(form)]
    except (TypeError, ValueError, IndexError):
        return "says nothing that can be understood"
    return None if all(0 <= number < len(op.operands) for number in names) else "names operands that do not exist"


def _operands(form: Form) -> list[int]:
    """The numbers of the operands that a form is made of."""
    match form:
        case ("value", number):
            return [number]
        case ("tuple", parts) | ("struct", _, _, parts):
            return [number for part in parts for number in _operands(part)]
        case ("tensor", pointer, dims):
            return [pointer, *dims]
        case ("constant", _):
            return []
    raise ValueError(form)


def regular(row: OperationRow) -> Callable[[Op], str | None]:
    """The rule of a row: operands of one type that it works on, and a result of the type that it says."""

    def rule(op: Op) -> str | None:
        type = op.operands[0].simd
        if any(v.type != type for v in op.operands):
            return f"takes operands of one type, not {[str(v.type) for v in op.operands]}"
        if not row.takes(type.dtype) or row.in_library(type.dtype):
            return f"does not work on {type}"
        if op.results[0].type != row.result_type(type):
            return f"gives {row.result_type(type)}, not {op.results[0].type}"
        if "nsw" in op.attrs and (type != INT or row.name not in ("add", "sub", "mul")):
            return "nsw is for sums and products of Ints"
        return "fastmath is for floats" if "fastmath" in op.attrs and not type.dtype.is_float() else None

    return rule


def storage_scope(op: Op) -> Scope:
    """Whose threads have one storage."""
    type = op.results[0].type
    return Scope.block if isinstance(type, PointerType) and type.space == "shared" else Scope.none
