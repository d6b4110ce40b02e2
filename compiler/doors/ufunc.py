"""The doors of NumPy's ufuncs: loops over rows of elements, each with strides of its own.

    int ek_door(context, char **data, npy_intp *dimensions, npy_intp *strides, auxdata)      one for each dtype

Rows without gaps go to the entry as they are. Others are gathered into blocks on the stack, and results scattered; so
are rows where an output is an input, since entries take tensors for disjoint. Where an output overlaps an input in
another way, as in `reduce` and `accumulate`, each element is made before the next is read.

A ufunc is made with all its loops at once, but code for a dtype when it is first used: so its loops are ek_loop0,
ek_loop1, … of an object of their own, which go on to the functions above, and fetch them from Python the first time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...dsl.contract import abi
from ...dsl.contract.doors import DoorSpec
from ...dsl.contract.foreign_doors import FIND_WORDS, LOOP_WORDS, MOVE, MOVED, TABLE
from ..ir.llvm_text import FunctionText
from .calls import shared_text

SYMBOL: Final = "ek_door"
FUNCTIONS: Final = "ek_functions"
BLOCK: Final = 512  # elements
SIGNAL_CHECK_INTERVAL: Final = 1 << 16  # elements of blocks between looks for signals

_PARAMETERS: Final = [f"ptr %{name}" for name in ("context", "data", "dimensions", "strides", "auxiliary")]


def loop_text(spec: DoorSpec) -> str:
    """The loop of a kernel, whose tensors have one axis each."""
    inputs = [argument.dtype.size_in_bytes for argument in spec.arguments]
    outputs = [output.dtype.size_in_bytes for output in spec.outputs]
    sizes = [*inputs, *outputs]
    f = FunctionText(f"@{SYMBOL}", "i32", _PARAMETERS)
    count = f.load("i64", "%dimensions")
    with f.when(f.compare("sle", count, 0)):
        f.leave(0)
    starts = [f.load("ptr", f.at("%data", 8 * k)) for k in range(len(sizes))]
    steps = [f.load("i64", f.at("%strides", 8 * k)) for k in range(len(sizes))]
    plain = "true"
    for step, size in zip(steps, sizes, strict=True):
        plain = f.both(plain, f.compare("eq", step, size), "i1")
    shared, serial = _overlaps(f, count, starts, steps, sizes, len(inputs))
    at_once = f.both(plain, f.value(f"xor i1 {f.either(shared, serial, 'i1')}, true"), "i1")
    with f.when(at_once):
        f.leave(_call(f, count, starts))
    length = f.select(serial, 1, BLOCK)
    apart = f.value(f"xor i1 {f.either(shared, serial, 'i1')}, true")
    blocks = [_block(f, BLOCK * size) for size in sizes]
    there = [f.both(apart, f.compare("eq", step, size), "i1") for step, size in zip(steps, sizes, strict=True)]
    moved = [f.value(f"xor i1 {each}, true") for each in there]
    done = f.variable("i64", 0)
    with f.while_(lambda: f.compare("slt", done.value(), count)):
        first = done.value()
        now = f.value(f"call i64 @llvm.smin.i64(i64 {f.sub(count, first)}, i64 {length})")
        rows = [f.at(start, f.mul(first, step)) for start, step in zip(starts, steps, strict=True)]
        for k, size in enumerate(inputs):
            with f.when(moved[k]):
                given = [f"ptr {blocks[k]}", f"i64 {size}", f"ptr {rows[k]}", f"i64 {steps[k]}", f"i64 {now}"]
                f.call(_word(f, f"move{size}"), given)
        code = _call(f, now, [f.select(*three, "ptr") for three in zip(there, rows, blocks, strict=True)])
        with f.when(f.compare("ne", code, 0, "i32")):
            f.leave(code)
        for k, size in enumerate(outputs, len(inputs)):
            with f.when(moved[k]):
                given = [f"ptr {rows[k]}", f"i64 {steps[k]}", f"ptr {blocks[k]}", f"i64 {size}", f"i64 {now}"]
                f.call(_word(f, f"move{size}"), given)
        done.set(f.add(first, now))
        due = f.compare("eq", f.both(done.value(), SIGNAL_CHECK_INTERVAL - 1), 0)
        with f.when(due), f.when(f.compare("ne", f.call("@look_on", [], "i32"), 0, "i32")):
            f.leave(-1)
    f.leave(0)
    heads = [
        f"@{TABLE} = global ptr null",
        "declare i64 @llvm.smin.i64(i64, i64)",
        "declare i64 @llvm.smax.i64(i64, i64)",
    ]
    call = _entry_call(spec.pointers, len(spec.slots), len(inputs), len(sizes))
    return "\n".join([*heads, shared_text(), call, _look_text(), f.text()])


def moves_text() -> str:
    """The functions that gather and scatter: they loop over elements, and are compiled once, for all ufuncs."""
    return "\n".join(_move(size) for size in MOVED)


def _word(f: FunctionText, name: str) -> str:
    return f.load("ptr", f.at(f.load("ptr", f"@{TABLE}"), 8 * LOOP_WORDS.index(name)))


def _overlaps(
    f: FunctionText, count: str, starts: list[str], steps: list[str], sizes: list[int], inputs: int
) -> tuple[str, str]:
    """Whether an output is an input element for element, and whether one overlaps one in another way."""
    ranges = []
    for start, step, size in zip(starts, steps, sizes, strict=True):
        base = f.value(f"ptrtoint ptr {start} to i64")
        last = f.mul(f.sub(count, 1), step)
        low = f.add(base, f.value(f"call i64 @llvm.smin.i64(i64 {last}, i64 0)"))
        high = f.add(f.add(base, f.value(f"call i64 @llvm.smax.i64(i64 {last}, i64 0)")), size)
        ranges.append((low, high))
    shared = serial = "false"
    for i in range(inputs):
        for o in range(inputs, len(sizes)):
            ends = f.compare("ult", ranges[i][0], ranges[o][1])
            overlap = f.both(ends, f.compare("ult", ranges[o][0], ranges[i][1]), "i1")
            same = f.compare("eq", starts[i], starts[o], "ptr")
            same = f.both(same, f.compare("eq", steps[i], steps[o]), "i1")
            same = f.both(same, f.compare("ne", steps[i], 0), "i1")
            same = same if sizes[i] == sizes[o] else "false"
            shared = f.either(shared, same, "i1")
            serial = f.either(serial, f.both(overlap, f.value(f"xor i1 {same}, true"), "i1"), "i1")
    return shared, serial


def _entry_call(pointers: Sequence[tuple[str, int]], slots: int, inputs: int, rows: int) -> str:
    """`i32 @call(i64 count, rows…)`: calls the entry for rows without gaps: 0, or -1 with an exception set."""
    f = FunctionText(
        "@call", "i32", ["i64 %count", *(f"ptr %row{k}" for k in range(rows))], attributes="internal|noinline"
    )
    given = _block(f, 8 * len(pointers))
    for number, (kind, k) in enumerate(pointers):
        f.store("ptr", f"%row{k if kind == 'input' else inputs + k}", f.at(given, 8 * number))
    dims = _block(f, 8 * slots)
    for number in range(slots):
        f.store("i64", "%count", f.at(dims, 8 * number))
    context = _block(f, abi.CONTEXT_SIZE)
    calls, entry, owner, fail = (_word(f, name) for name in ("calls", "entry", "owner", "raise"))
    code = f.value(f"ptrtoint ptr {owner} to i64")
    words = [
        f"ptr {calls}",
        f"i64 {code}",
        f"ptr {entry}",
        f"ptr {given}",
        f"ptr {dims}",
        "i1 false",
        f"ptr {context}",
    ]
    failed = f.compare("ne", f.call("@run", words, "i32"), 0, "i32")
    with f.when(failed):
        f.call("@fail", [f"ptr {calls}", f"ptr {fail}", f"ptr {context}"])
    f.leave(f.select(failed, -1, 0, "i32"))
    return f.text()


def _look_text() -> str:
    """`i32 @look_on()`: looks for signals: 0, or nonzero with an exception set."""
    f = FunctionText("@look_on", "i32", [], attributes="internal|noinline")
    context = _block(f, abi.CONTEXT_SIZE)
    owner = f.value(f"ptrtoint ptr {_word(f, 'owner')} to i64")
    given = [f"ptr {_word(f, 'calls')}", f"i64 {owner}", f"ptr {_word(f, 'raise')}", f"ptr {context}"]
    f.leave(f.call("@look", given, "i32"))
    return f.text()


def _call(f: FunctionText, count: str, rows: Sequence[str]) -> str:
    return f.call("@call", [f"i64 {count}", *(f"ptr {row}" for row in rows)], "i32")


def _block(f: FunctionText, size: int) -> str:
    name = f"%{f.fresh('block')}"
    f.variables.append(f"  {name} = alloca [{max(8, size)} x i8], align 64")
    return name


def _move(size: int) -> str:
    """A function that copies elements of so many bytes, from one step to another."""
    parameters = ["ptr noalias %to", "i64 %to.step", "ptr noalias %from", "i64 %from.step", "i64 %count"]
    f = FunctionText(f"@{MOVE}{size}", "void", parameters)
    with f.each(0, "%count") as k:
        source, to = f.at("%from", f.mul(k, "%from.step")), f.at("%to", f.mul(k, "%to.step"))
        word = min(size, 8)  # the parts of a complex number are aligned, and the whole need not be
        for first in range(0, size, word):
            f.store(f"i{8 * word}", f.load(f"i{8 * word}", f.at(source, first)), f.at(to, first))
    return f.text()


def dispatch_text(count: int) -> str:
    """The loops of a ufunc: the array `FUNCTIONS` has the function behind each. Where there is none yet, `find`, an
    object of Python's, is called with its number; it gives an address, or raises."""
    loops = (_DISPATCH.replace("NUMBER", str(number)) for number in range(count))
    text = "\n".join(
        [f"@{FUNCTIONS} = global [{count} x ptr] zeroinitializer", f"@{TABLE} = global ptr null", _FIND, *loops]
    )
    for word in FIND_WORDS:
        text = text.replace(f"TABLE({word})", f"getelementptr inbounds ptr, ptr %table, i64 {FIND_WORDS.index(word)}")
    return text.replace("COUNT", str(count))


_FIND: Final = """
define internal ptr @find(i64 %number) noinline cold {
begin:
  %table = load ptr, ptr @ek_table
  %ensure.at = TABLE(PyGILState_Ensure)
  %ensure = load ptr, ptr %ensure.at
  %lock = call i32 %ensure()
  %pointer = inttoptr i64 %number to ptr
  %box.at = TABLE(PyLong_FromVoidPtr)
  %box = load ptr, ptr %box.at
  %argument = call ptr %box(ptr %pointer)
  %find.at = TABLE(find)
  %find = load ptr, ptr %find.at
  %call.at = TABLE(PyObject_CallOneArg)
  %call = load ptr, ptr %call.at
  %given = call ptr %call(ptr %find, ptr %argument)
  %drop.at = TABLE(Py_DecRef)
  %drop = load ptr, ptr %drop.at
  call void %drop(ptr %argument)
  %raised = icmp eq ptr %given, null
  br i1 %raised, label %leave, label %read
read:
  %unbox.at = TABLE(PyLong_AsVoidPtr)
  %unbox = load ptr, ptr %unbox.at
  %address = call ptr %unbox(ptr %given)
  call void %drop(ptr %given)
  %at = getelementptr inbounds ptr, ptr @ek_functions, i64 %number
  store atomic ptr %address, ptr %at release, align 8
  br label %leave
leave:
  %found = phi ptr [ null, %begin ], [ %address, %read ]
  %release.at = TABLE(PyGILState_Release)
  %release = load ptr, ptr %release.at
  call void %release(i32 %lock)
  ret ptr %found
}
"""

_DISPATCH: Final = """
define i32 @ek_loopNUMBER(ptr %context, ptr %data, ptr %dimensions, ptr %strides, ptr %auxiliary) {
begin:
  %at = getelementptr inbounds ptr, ptr @ek_functions, i64 NUMBER
  %known = load atomic ptr, ptr %at acquire, align 8
  %missing = icmp eq ptr %known, null
  br i1 %missing, label %look_up, label %go
look_up:
  %found = call ptr @find(i64 NUMBER)
  %none = icmp eq ptr %found, null
  br i1 %none, label %leave, label %go
go:
  %function = phi ptr [ %known, %begin ], [ %found, %look_up ]
  %result = tail call i32 %function(ptr %context, ptr %data, ptr %dimensions, ptr %strides, ptr %auxiliary)
  ret i32 %result
leave:
  ret i32 -1
}
"""
