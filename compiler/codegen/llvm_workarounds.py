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
        found = _ALIGN.search(match["attributes"])
        align = min(int(found[1]) if found else 1, int(match["bits"]) // 8)
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
