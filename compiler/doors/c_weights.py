"""Writes how a C door finds weights that are not in its file: mapped from a file next to it, or given by the program.

    i32 @weights(pointers, why)                 writes their addresses, or returns a status
    i32 NAME_open_weights(path, why)            maps the file; null is the shared object's path and .safetensors
    i32 NAME_set_weight(name, memory, why)      where the program has a weight

The file is mapped once, by the first call, from any thread. It is compared with what was exported: its size, and its
header, which holds a digest of all weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ...dsl.contract.exports import ExportSpec, WeightsFile
from ..ir.llvm_text import FunctionText
from .c_tables import array_text, escaped

O_CLOEXEC: Final = 0x80000  # of Linux; O_RDONLY is 0
SEEK_END, PROT_READ, MAP_PRIVATE = 2, 1, 2
PATH_BYTES: Final = 4096

_DECLARATIONS: Final = """
declare i32 @dladdr(ptr, ptr)
declare i32 @open(ptr, i32, ...)
declare i32 @close(i32)
declare i64 @lseek(i32, i64, i32)
declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
declare i32 @munmap(ptr, i64)
declare i32 @memcmp(ptr, ptr, i64)
declare i32 @strcmp(ptr, ptr)
declare i32 @snprintf(ptr, i64, ptr, ...)
"""


def weights_texts(spec: ExportSpec) -> Iterator[str]:
    """The functions; nothing where all weights are in the file."""
    if not spec.given:
        return
    yield _DECLARATIONS
    places = [number for kind, k in spec.pointers if kind == "given" for number in [k]]
    pointers = {k: number for number, (kind, k) in enumerate(spec.pointers) if kind == "given"}
    yield array_text("given_pointers", "i64", [f"i64 {8 * pointers[k]}" for k in sorted(set(places))])
    if spec.file is not None:
        yield array_text("given_offsets", "i64", [f"i64 {each.offset}" for each in spec.given])
        yield f'@weights_head = internal constant [{len(spec.file.head)} x i8] c"{escaped(spec.file.head)}"'
        yield "@weights_base = internal global ptr null, align 8"
        yield '@weights_suffix = internal constant [15 x i8] c"%s.safetensors\\00"'
        yield _mapped(spec)
        yield _open(spec, spec.file)
    else:
        for k, each in enumerate(spec.given):
            name = each.name.encode() + b"\0"
            yield f'@given_name.{k} = internal constant [{len(name)} x i8] c"{escaped(name)}"'
        yield array_text("given_names", "ptr", [f"ptr @given_name.{k}" for k in range(len(spec.given))])
        yield array_text("given_masks", "i64", [f"i64 {each.alignment - 1}" for each in spec.given])
        yield f"@given = internal global [{len(spec.given)} x ptr] zeroinitializer, align 16"
        yield _given(spec)
        yield _set(spec)


def _fail(f: FunctionText, row: str | int, expected: str | int = 0, got: str | int = 0) -> None:
    f.leave(f.call("@fail", ["ptr %why", f"i64 {row}", f"i64 {expected}", f"i64 {got}"], "i32"))


def _mapped(spec: ExportSpec) -> str:
    """`@weights` of a file that is mapped at the first call."""
    f = FunctionText("@weights", "i32", ["ptr %pointers", "ptr %why"], attributes="internal|noinline")
    base = f.variable("ptr", "null")
    base.set(f.value("load atomic ptr, ptr @weights_base acquire, align 8"))
    with f.when(f.compare("eq", base.value(), "null", "ptr")):
        status = f.call(f"@{spec.name}_open_weights", ["ptr null", "ptr %why"], "i32")
        with f.when(f.compare("ne", status, 0, "i32")):
            f.leave(status)
        base.set(f.value("load atomic ptr, ptr @weights_base acquire, align 8"))
    with f.each(0, len(spec.given)) as k:
        place = f.left(k, 3)
        address = f.at(base.value(), f.load("i64", f.at("@given_offsets", place)))
        f.store("ptr", address, f.at("%pointers", f.load("i64", f.at("@given_pointers", place))))
    f.leave(0)
    return f.text()


def _open(spec: ExportSpec, file: WeightsFile) -> str:
    f = FunctionText(f"@{spec.name}_open_weights", "i32", ["ptr %path", "ptr %why"], attributes="|noinline")
    name, info = (f"%{f.fresh(stem)}" for stem in ("name", "info"))
    f.variables += [f"  {name} = alloca [{PATH_BYTES} x i8], align 16", f"  {info} = alloca [4 x ptr], align 16"]
    path = f.variable("ptr", "%path")
    with f.when(f.compare("eq", "%path", "null", "ptr")):
        status = f.call("@dladdr", ["ptr @weights_head", f"ptr {info}"], "i32")
        with f.when(f.compare("eq", status, 0, "i32")):
            _fail(f, spec.row("weights_file"))
        written = f.value(
            f"call i32 (ptr, i64, ptr, ...) @snprintf(ptr {name}, i64 {PATH_BYTES}, ptr @weights_suffix, "
            f"ptr {f.load('ptr', info)})"
        )
        with f.when(f.compare("sge", written, PATH_BYTES, "i32")):
            _fail(f, spec.row("weights_file"))
        path.set(name)
    handle = f.value(f"call i32 (ptr, i32, ...) @open(ptr {path.value()}, i32 {O_CLOEXEC})")
    with f.when(f.compare("slt", handle, 0, "i32")):
        _fail(f, spec.row("weights_file"))
    size = f.call("@lseek", [f"i32 {handle}", "i64 0", f"i32 {SEEK_END}"], "i64")
    with f.when(f.compare("ne", size, file.size)):
        f.call("@close", [f"i32 {handle}"], "i32")
        _fail(f, spec.row("weights_size"), file.size, size)
    words = ["ptr null", f"i64 {file.size}", f"i32 {PROT_READ}", f"i32 {MAP_PRIVATE}", f"i32 {handle}", "i64 0"]
    memory = f.call("@mmap", words, "ptr")
    f.call("@close", [f"i32 {handle}"], "i32")
    with f.when(f.compare("eq", f.value(f"ptrtoint ptr {memory} to i64"), -1)):
        _fail(f, spec.row("weights_file"))
    differs = f.call("@memcmp", [f"ptr {memory}", "ptr @weights_head", f"i64 {len(file.head)}"], "i32")
    with f.when(f.compare("ne", differs, 0, "i32")):
        f.call("@munmap", [f"ptr {memory}", f"i64 {file.size}"], "i32")
        _fail(f, spec.row("weights_changed"))
    pair = f.value(f"cmpxchg ptr @weights_base, ptr null, ptr {memory} acq_rel acquire")
    first = f.value(f"extractvalue {{ptr, i1}} {pair}, 1")
    with f.when(f.value(f"xor i1 {first}, true")):  # another thread was faster
        f.call("@munmap", [f"ptr {memory}", f"i64 {file.size}"], "i32")
    f.leave(0)
    return f.text()


def _given(spec: ExportSpec) -> str:
    """`@weights` of memory that the program has given."""
    f = FunctionText("@weights", "i32", ["ptr %pointers", "ptr %why"], attributes="internal|noinline")
    with f.each(0, len(spec.given)) as k:
        place = f.left(k, 3)
        address = f.value(f"load atomic ptr, ptr {f.at('@given', place)} acquire, align 8")
        with f.when(f.compare("eq", address, "null", "ptr")):
            _fail(f, f.add(k, spec.row("weight")))
        f.store("ptr", address, f.at("%pointers", f.load("i64", f.at("@given_pointers", place))))
    f.leave(0)
    return f.text()


def _set(spec: ExportSpec) -> str:
    given = ["ptr %name", "ptr %memory", "ptr %why"]
    f = FunctionText(f"@{spec.name}_set_weight", "i32", given, attributes="|noinline")
    with f.when(f.compare("eq", "%name", "null", "ptr")):
        _fail(f, spec.row("weight_name"))
    known = f.variable("i64", 0)
    with f.each(0, len(spec.given)) as k:
        place = f.left(k, 3)
        same = f.call("@strcmp", ["ptr %name", f"ptr {f.load('ptr', f.at('@given_names', place))}"], "i32")
        with f.when(f.compare("eq", same, 0, "i32")):
            address, mask = f.value("ptrtoint ptr %memory to i64"), f.load("i64", f.at("@given_masks", place))
            with f.when(f.compare("ne", f.both(address, mask), 0)):
                _fail(f, f.add(k, spec.row("weight_aligned")), f.add(mask, 1), address)
            f.line(f"store atomic ptr %memory, ptr {f.at('@given', place)} release, align 8")
            known.set(1)
    with f.when(f.compare("eq", known.value(), 0)):
        _fail(f, spec.row("weight_name"))
    f.leave(0)
    return f.text()
