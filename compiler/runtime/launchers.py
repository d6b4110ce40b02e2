"""The code that calls the libraries of GPUs: a few hundred bytes of machine code between an entry and its device.

    int32_t ek_launch(device, launch, arguments)             launches a kernel
    int32_t ek_copy(device, to, from, bytes, kind)           copies, and waits where the host reads; -1 when interrupted
    int32_t ek_fill(device, to, pattern, count, width)       fills with numbers of 1, 2, 4 or 8 bytes
    int32_t ek_encode(device, request, to)                   writes a tensor map (CUDA)

They call the library by address, with neither Python nor a linker between: `Device.driver` points to a table of the
addresses of its functions, in the order of `LIBRARIES`. All of it is enqueued on `Device.stream`. The device is made
that of the thread where it is not, and what was that before is put back. See also `graph.driver.gpu` (where the
addresses come from).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from ...dsl.contract import abi
from ...dsl.diagnostics.errors import TargetError
from ..codegen.llvm import compile_module
from ..targets import Target
from ..targets.base import ThreadSystem


def launcher_object(library: str, target: Target) -> bytes:
    """The code for a library ("cuda" or "hip") as a shared object.

    Raises:
        TargetError: the target is not a host.
    """
    if target.system is None:
        raise TargetError(f"there is no code for {target.name} that launches kernels", code="EK0609")
    return compile_module(launcher_text(library, target.system), target, level=2).link(f"einkorn_{library}.so")


def launcher_text(library: str, system: ThreadSystem) -> str:
    """The code as LLVM IR."""
    text = re.sub(r"COPY\((.*)\)\n", lambda match: _COPY.replace("ARGUMENTS", match[1]), _LAUNCHERS[library]) + _COMMON
    text += "".join(_within_device(*function) for function in (*_FUNCTIONS, *_MORE_FUNCTIONS[library]))
    text = text.replace("KERNEL\n", _KERNEL).replace("SYS_NANOSLEEP", str(system.nanosleep))
    text = text.replace("STATUS_OFFSET", str(abi.STATUS_OFFSET)).replace("POLL_OFFSET", str(abi.POLL_OFFSET))
    structures = ((abi.Launch, "LAUNCH"), (abi.DeviceTable, "DEVICE"), (abi.TensorMapRequest, "REQUEST"))
    for structure, name in structures:
        for field, *_ in structure._fields_:
            offset = getattr(structure, field).offset
            at = f"getelementptr inbounds i8, ptr %{name.lower()}, i64 {offset}"
            text = text.replace(f"{name}({field})", at)
    for number, function in enumerate((*LIBRARIES[library], "context")):
        text = text.replace(f"FUNCTION({function})", f"getelementptr inbounds ptr, ptr %table, i64 {number}")
    return text.replace("COPY_TO_HOST", str(abi.TO_HOST))


# The functions of each library that are called, in the order of their table. Behind them stands what `activate` takes.
LIBRARIES: Final[Mapping[str, tuple[str, ...]]] = {
    "cuda": ("launch", "copy", "query", "fill8", "fill16", "fill32", "current", "activate", "fill2d32", "encode"),
    "hip": ("launch", "copy", "query", "fill8", "fill16", "fill32", "current", "activate"),
}

# The functions of the shared object: their names and what they take behind the device.
_FUNCTIONS: Final = (
    ("launch", "ptr %launch, ptr %arguments"),
    ("copy", "ptr %to, ptr %from, i64 %bytes, i32 %kind"),
    ("fill", "ptr %to, i64 %pattern, i64 %count, i32 %width"),
)
_MORE_FUNCTIONS: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "cuda": (("encode", "ptr %request, ptr %to"),),
    "hip": (),
}


def _within_device(name: str, parameters: str) -> str:
    """A function of the shared object: what does its work, while the device is that of the thread."""
    return f"""
define i32 @ek_{name}(ptr %device, {parameters}) {{
entry:
  %before = alloca i64, align 8
  %table.at = DEVICE(driver)
  %table = load ptr, ptr %table.at
  %entered = call i32 @enter(ptr %table, ptr %before)
  %lost = icmp ne i32 %entered, 0
  br i1 %lost, label %gone, label %start
gone:
  ret i32 %entered
start:
  %done = call i32 @do_{name}(ptr %device, ptr %table, {parameters})
  %left = call i32 @leave(ptr %table, ptr %before)
  %good = icmp eq i32 %done, 0
  %result = select i1 %good, i32 %left, i32 %done
  ret i32 %result
}}
"""


# A copy, whose driver's function takes these arguments behind the addresses. Where the host reads into memory that is
# not pinned, the driver itself would wait for what comes before: so that is waited for first.
_COPY: Final = """define internal i32 @do_copy(ptr %device, ptr %table, ptr %to, ptr %from, i64 %bytes, i32 %kind) {
entry:
  %stream.at = DEVICE(stream)
  %stream = load ptr, ptr %stream.at
  %read = icmp eq i32 %kind, COPY_TO_HOST
  br i1 %read, label %wait, label %go
wait:
  %waited = call i32 @wait(ptr %device, ptr %table, ptr %stream)
  %bad = icmp ne i32 %waited, 0
  br i1 %bad, label %gone, label %go
gone:
  ret i32 %waited
go:
  %copy.at = FUNCTION(copy)
  %copy = load ptr, ptr %copy.at
  %copied = call i32 %copy(ptr %to, ptr %from, ARGUMENTS, ptr %stream)
  %good = icmp eq i32 %copied, 0
  %again = and i1 %good, %read
  br i1 %again, label %host, label %end
host:
  %read.now = call i32 @wait(ptr %device, ptr %table, ptr %stream)
  ret i32 %read.now
end:
  ret i32 %copied
}
"""

# The kernel that a launch names by its number.
_KERNEL: Final = """  %functions.at = DEVICE(functions)
  %functions = load ptr, ptr %functions.at
  %number.at = LAUNCH(kernel)
  %number = load i32, ptr %number.at
  %function.at = getelementptr inbounds ptr, ptr %functions, i32 %number
  %function = load ptr, ptr %function.at
"""

# CUlaunchConfig: grid and block (24 bytes), shared (at 24), stream (32), attributes (40) and their number (48).
# CUlaunchAttribute: its id (4 is the size of a cluster), 4 bytes, and 64 bytes of its value.
_CUDA: Final = """
define internal i32 @do_launch(ptr %device, ptr %table, ptr %launch, ptr %arguments) {
entry:
  %config = alloca [56 x i8], align 8
  %attribute = alloca [72 x i8], align 8
KERNEL
  %grid = LAUNCH(grid)
  call void @llvm.memcpy.p0.p0.i64(ptr align 8 %config, ptr align 4 %grid, i64 24, i1 false)
  %shared.at = LAUNCH(shared)
  %shared = load i32, ptr %shared.at
  %config.shared = getelementptr i8, ptr %config, i64 24
  store i32 %shared, ptr %config.shared
  %stream.at = DEVICE(stream)
  %stream = load ptr, ptr %stream.at
  %config.stream = getelementptr i8, ptr %config, i64 32
  store ptr %stream, ptr %config.stream
  %config.attributes = getelementptr i8, ptr %config, i64 40
  store ptr %attribute, ptr %config.attributes
  %cluster = LAUNCH(cluster)
  %x = load i32, ptr %cluster
  %y.at = getelementptr i8, ptr %cluster, i64 4
  %y = load i32, ptr %y.at
  %z.at = getelementptr i8, ptr %cluster, i64 8
  %z = load i32, ptr %z.at
  %xy = mul i32 %x, %y
  %blocks = mul i32 %xy, %z
  %clustered = icmp ugt i32 %blocks, 1
  %count = zext i1 %clustered to i32
  %config.count = getelementptr i8, ptr %config, i64 48
  store i32 %count, ptr %config.count
  store i32 4, ptr %attribute
  %value = getelementptr i8, ptr %attribute, i64 8
  call void @llvm.memcpy.p0.p0.i64(ptr align 8 %value, ptr align 4 %cluster, i64 12, i1 false)
  %call.at = FUNCTION(launch)
  %call = load ptr, ptr %call.at
  %result = call i32 %call(ptr %config, ptr %function, ptr %arguments, ptr null)
  ret i32 %result
}

; cuTensorMapEncodeTiled. An element of 2 ** n bytes has type n, but UINT64 is 4 as INT32 is 3; a swizzle of 16 * 2 ** n
; bytes is number n. Neighbours of a box are those of the tensor, places beyond its end become zeros, and 2 says that
; the second cache reads pieces of 128 bytes.
define internal i32 @do_encode(ptr %device, ptr %table, ptr %request, ptr %to) {
entry:
  %ones = alloca [5 x i32], align 4
  store [5 x i32] [i32 1, i32 1, i32 1, i32 1, i32 1], ptr %ones
  %address.at = REQUEST(address)
  %address = load ptr, ptr %address.at
  %sizes = REQUEST(sizes)
  %strides = REQUEST(strides)
  %box = REQUEST(box)
  %rank.at = REQUEST(rank)
  %rank = load i32, ptr %rank.at
  %element.at = REQUEST(element)
  %element = load i32, ptr %element.at
  %log = call i32 @llvm.cttz.i32(i32 %element, i1 true)
  %widest = icmp eq i32 %element, 8
  %type = select i1 %widest, i32 4, i32 %log
  %swizzle.at = REQUEST(swizzle)
  %swizzle = load i32, ptr %swizzle.at
  %pieces = lshr i32 %swizzle, 4
  %exchanged = call i32 @llvm.cttz.i32(i32 %pieces, i1 false)
  %none = icmp eq i32 %swizzle, 0
  %pattern = select i1 %none, i32 0, i32 %exchanged
  %encode.at = FUNCTION(encode)
  %encode = load ptr, ptr %encode.at
  %result = call i32 %encode(ptr %to, i32 %type, i32 %rank, ptr %address, ptr %sizes, ptr %strides, ptr %box, ptr %ones,
                             i32 0, i32 %pattern, i32 2, i32 0)
  ret i32 %result
}

declare i32 @llvm.cttz.i32(i32, i1)

COPY(i64 %bytes)

define internal i32 @fill64(ptr %table, ptr %to, i64 %pattern, i64 %count, ptr %stream) {
entry:
  %fill.at = FUNCTION(fill2d32)
  %fill = load ptr, ptr %fill.at
  %low = trunc i64 %pattern to i32
  %shifted = lshr i64 %pattern, 32
  %high = trunc i64 %shifted to i32
  %first = call i32 %fill(ptr %to, i64 8, i32 %low, i64 1, i64 %count, ptr %stream)
  %failed = icmp ne i32 %first, 0
  br i1 %failed, label %leave, label %next
next:
  %odd = getelementptr i8, ptr %to, i64 4
  %second = call i32 %fill(ptr %odd, i64 8, i32 %high, i64 1, i64 %count, ptr %stream)
  ret i32 %second
leave:
  ret i32 %first
}
"""

# HIP counts the grid in blocks, as CUDA does, and has no clusters. 4 is hipMemcpyDefault, 801 hipErrorNotSupported.
_HIP: Final = """
define internal i32 @do_launch(ptr %device, ptr %table, ptr %launch, ptr %arguments) {
entry:
KERNEL
  %stream.at = DEVICE(stream)
  %stream = load ptr, ptr %stream.at
  %grid = LAUNCH(grid)
  %gx = load i32, ptr %grid
  %gy.at = getelementptr i8, ptr %grid, i64 4
  %gy = load i32, ptr %gy.at
  %gz.at = getelementptr i8, ptr %grid, i64 8
  %gz = load i32, ptr %gz.at
  %block = LAUNCH(block)
  %bx = load i32, ptr %block
  %by.at = getelementptr i8, ptr %block, i64 4
  %by = load i32, ptr %by.at
  %bz.at = getelementptr i8, ptr %block, i64 8
  %bz = load i32, ptr %bz.at
  %shared.at = LAUNCH(shared)
  %shared = load i32, ptr %shared.at
  %call.at = FUNCTION(launch)
  %call = load ptr, ptr %call.at
  %result = call i32 %call(ptr %function, i32 %gx, i32 %gy, i32 %gz, i32 %bx, i32 %by, i32 %bz, i32 %shared,
                           ptr %stream, ptr %arguments, ptr null)
  ret i32 %result
}

COPY(i64 %bytes, i32 4)

define internal i32 @fill64(ptr %table, ptr %to, i64 %pattern, i64 %count, ptr %stream) {
entry:
  %low = trunc i64 %pattern to i32
  %shifted = lshr i64 %pattern, 32
  %high = trunc i64 %shifted to i32
  %same = icmp eq i32 %low, %high
  br i1 %same, label %narrow, label %leave
narrow:
  %fill.at = FUNCTION(fill32)
  %fill = load ptr, ptr %fill.at
  %words = shl i64 %count, 1
  %result = call i32 %fill(ptr %to, i32 %low, i64 %words, ptr %stream)
  ret i32 %result
leave:
  ret i32 801
}
"""

_COMMON: Final = """
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare i64 @llvm.umin.i64(i64, i64)

declare i64 @syscall(i64, ...)

; The device of the code becomes that of the thread; what was that before is noted.
define internal i32 @enter(ptr %table, ptr %before) {
entry:
  store i64 0, ptr %before, align 8
  %current.at = FUNCTION(current)
  %current = load ptr, ptr %current.at
  %status_of_query = call i32 %current(ptr %before)
  %bad = icmp ne i32 %status_of_query, 0
  br i1 %bad, label %gone, label %look
gone:
  ret i32 %status_of_query
look:
  %context.at = FUNCTION(context)
  %context = load i64, ptr %context.at
  %result = call i32 @change(ptr %table, ptr %before, i64 %context)
  ret i32 %result
}

; What was the device of the thread before is put back.
define internal i32 @leave(ptr %table, ptr %before) {
entry:
  %old = load i64, ptr %before, align 8
  %result = call i32 @change(ptr %table, ptr %before, i64 %old)
  ret i32 %result
}

; Makes a device that of the thread, where that is another one than the code's or was before.
define internal i32 @change(ptr %table, ptr %before, i64 %wanted) {
entry:
  %old = load i64, ptr %before, align 8
  %context.at = FUNCTION(context)
  %context = load i64, ptr %context.at
  %same = icmp eq i64 %old, %context
  br i1 %same, label %stay, label %go
stay:
  ret i32 0
go:
  %activate.at = FUNCTION(activate)
  %activate = load ptr, ptr %activate.at
  %result = call i32 %activate(i64 %wanted)
  ret i32 %result
}

; Waits until a stream is empty. The driver's own wait would not end at a signal, so this polls:
; at first at once, then after pauses that grow by an eighth up to a millisecond. 600 is NOT_READY of both libraries.
define internal i32 @wait(ptr %device, ptr %table, ptr %stream) {
entry:
  %pause = alloca [2 x i64], align 8
  store i64 0, ptr %pause, align 8
  %rest.at = getelementptr inbounds i8, ptr %pause, i64 8
  %query.at = FUNCTION(query)
  %query = load ptr, ptr %query.at
  br label %again
again:
  %nap = phi i64 [ 0, %entry ], [ %longer, %sleep ], [ %longer, %spin ]
  %status = call i32 %query(ptr %stream)
  %busy = icmp eq i32 %status, 600
  br i1 %busy, label %check, label %end
end:
  ret i32 %status
check:
  %stop = call i1 @stopped(ptr %device)
  br i1 %stop, label %gone, label %spin
gone:
  ret i32 -1
spin:
  %eighth = lshr i64 %nap, 3
  %more = add i64 %eighth, 8
  %grown = add i64 %nap, %more
  %longer = call i64 @llvm.umin.i64(i64 %grown, i64 1000000)
  %short = icmp ult i64 %nap, 1000
  br i1 %short, label %again, label %sleep
sleep:
  store i64 %nap, ptr %rest.at, align 8
  %slept = call i64 (i64, ...) @syscall(i64 SYS_NANOSLEEP, ptr %pause, ptr null)
  br label %again
}

; Whether the call is interrupted, as its context says.
define internal i1 @stopped(ptr %device) {
entry:
  %context.at = DEVICE(context)
  %context = load ptr, ptr %context.at
  %none = icmp eq ptr %context, null
  br i1 %none, label %no, label %some
no:
  ret i1 false
some:
  %poll.at = getelementptr inbounds i8, ptr %context, i64 POLL_OFFSET
  %poll = load ptr, ptr %poll.at
  %unset = icmp eq ptr %poll, null
  br i1 %unset, label %look, label %call_poll
call_poll:
  call void %poll(ptr %context, i32 0)
  br label %look
look:
  %status.at = getelementptr inbounds i8, ptr %context, i64 STATUS_OFFSET
  %status = load atomic i64, ptr %status.at monotonic, align 8
  %stop = icmp ne i64 %status, 0
  ret i1 %stop
}

define internal i32 @do_fill(ptr %device, ptr %table, ptr %to, i64 %pattern, i64 %count, i32 %width) {
entry:
  %stream.at = DEVICE(stream)
  %stream = load ptr, ptr %stream.at
  switch i32 %width, label %wide [ i32 1, label %one  i32 2, label %two  i32 4, label %four ]
one:
  %byte = trunc i64 %pattern to i8
  %fill8.at = FUNCTION(fill8)
  %fill8 = load ptr, ptr %fill8.at
  %r8 = call i32 %fill8(ptr %to, i8 zeroext %byte, i64 %count, ptr %stream)
  ret i32 %r8
two:
  %short = trunc i64 %pattern to i16
  %fill16.at = FUNCTION(fill16)
  %fill16 = load ptr, ptr %fill16.at
  %r16 = call i32 %fill16(ptr %to, i16 zeroext %short, i64 %count, ptr %stream)
  ret i32 %r16
four:
  %word = trunc i64 %pattern to i32
  %fill32.at = FUNCTION(fill32)
  %fill32 = load ptr, ptr %fill32.at
  %r32 = call i32 %fill32(ptr %to, i32 %word, i64 %count, ptr %stream)
  ret i32 %r32
wide:
  %r64 = call i32 @fill64(ptr %table, ptr %to, i64 %pattern, i64 %count, ptr %stream)
  ret i32 %r64
}
"""

_LAUNCHERS: Final[Mapping[str, str]] = {"cuda": _CUDA, "hip": _HIP}
