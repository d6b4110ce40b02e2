"""Rewrites what LLVM 22 makes wrong code of or ends at, before its code generator sees it.

A masked store whose mask is known and has one lane,

    %t = trunc <4 x i64> %x to <4 x i8>
    call void @llvm.masked.store.v4i8.p0(<4 x i8> %t, ptr align 1 %p, <4 x i1> <i1 true, i1 false, i1 false, i1 false>)

becomes a store of the whole lane of %x on x86: eight bytes where one was to be written. It is written as a store of
that lane of %t, which is what it should have become.

A trap that nothing follows,

    call void @llvm.trap()
    unreachable

becomes several blocks on AMD's gfx110x, and the blocks behind it in the text are not looked through for pseudo
instructions any more, such as additions of 64 bits that are the same in all threads: their code cannot be written, and
LLVM ends the process. With a return behind it, a trap is cut off from its block, and all goes well.

A float16 that is loaded and widened,

    %h = load half, ptr %p
    %f = fpext half %h to float

becomes `vpinsrw` on x86 without AVX512-FP16, which keeps the other lanes of a register that LLVM does not clear: the
load waits for that register, often the accumulator of a loop. Here the bits are written in all lanes (`vpbroadcastw`).
"""

from __future__ import annotations

import re

_STORE = re.compile(
    r"^ *(?:tail )?call void @llvm\.masked\.store\.[\w.]+\("
    r"(?P<vector><\d+ x i(?P<bits>8|16|32|64)>) (?P<value>%[^ ,]+), "
    r"(?P<space>ptr(?: addrspace\(\d+\))?) (?P<attributes>.*?)(?P<place>%[^ ,]+), "
    r"<\d+ x i1> <(?P<mask>i1 [^>]*)>\)(?P<rest>.*)$",
    re.MULTILINE,
)
_ALIGN = re.compile(r"\balign (\d+)")


def one_lane_stores(text: str) -> str:
    """The module with an ordinary store for each masked one of a single known lane."""
    count = 0

    def lane_alone(match: re.Match[str]) -> str:
        nonlocal count
        lanes = [lane.strip() == "i1 true" for lane in match["mask"].split(",")]
        if lanes.count(True) != 1:
            return match[0]
        count += 1
        lane, element = lanes.index(True), f"i{match['bits']}"
        parsed = _ALIGN.search(match["attributes"])
        align = min(int(parsed[1]) if parsed else 1, int(match["bits"]) // 8)
        one, place = f"%one.lane.{count}", f"%one.place.{count}"
        return (
            f"  {one} = extractelement {match['vector']} {match['value']}, i64 {lane}\n"
            f"  {place} = getelementptr inbounds {element}, {match['space']} {match['place']}, i64 {lane}\n"
            f"  store {element} {one}, {match['space']} {place}, align {align}{match['rest']}"
        )

    return _STORE.sub(lane_alone, text)


_LAST_TRAP = re.compile(r"^( *(?:tail )?call void @llvm\.trap\(\).*\n) *unreachable", re.MULTILINE)


def traps_that_return(text: str) -> str:
    """The module with a return behind each trap; kernels give nothing back."""
    return _LAST_TRAP.sub(r"\1  ret void", text)


_WIDENED = re.compile(r"^ *(?P<result>%[^ ,]+) = fpext half (?P<half>%[^ ,]+) to float(?P<rest>.*)$", re.MULTILINE)
_HALF_LOAD = re.compile(r"^ *(%[^ ,]+) = (?:load half|bitcast i16)\b", re.MULTILINE)
_FUNCTION = re.compile(r"^define .*?^}", re.MULTILINE | re.DOTALL)


def broadcast_halves(text: str) -> str:
    """The module with each float16 from memory widened in a vector register of its own."""
    return _FUNCTION.sub(lambda match: _broadcast_halves(match[0]), text)


def _broadcast_halves(function: str) -> str:
    loaded = set(_HALF_LOAD.findall(function))
    count = 0

    def in_all_lanes(match: re.Match[str]) -> str:
        nonlocal count
        if match["half"] not in loaded:
            return match[0]
        count += 1
        bits, first, lanes, halves, low, wide = (
            f"%half.{name}.{count}" for name in ("bits", "first", "lanes", "all", "low", "wide")
        )
        rest = match["rest"]
        lines = (
            f"{bits} = bitcast half {match['half']} to i16",
            f"{first} = insertelement <8 x i16> poison, i16 {bits}, i64 0",
            f"{lanes} = shufflevector <8 x i16> {first}, <8 x i16> poison, <8 x i32> zeroinitializer",
            f"{halves} = bitcast <8 x i16> {lanes} to <8 x half>",
            f"{low} = shufflevector <8 x half> {halves}, <8 x half> poison, <4 x i32> <i32 0, i32 1, i32 2, i32 3>",
            f"{wide} = fpext <4 x half> {low} to <4 x float>",
            f"{match['result']} = extractelement <4 x float> {wide}, i64 0",
        )
        return "\n".join(f"  {line}{rest}" for line in lines)

    return _WIDENED.sub(in_all_lanes, function)
