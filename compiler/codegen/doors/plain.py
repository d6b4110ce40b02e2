"""The plain door: a C function through which generated code of others calls any entry, numba's for example.

    int32_t ek_plain(table, raise, owner, entry, pointers, dims, large)

It returns 0; or 1 with an exception of Python's set in the thread, when a kernel has stopped itself. See `calls` for
what it is passed. It is compiled by whoever calls it, in a module of theirs. Output: text of LLVM IR. Non-goals:
pointers and sizes, which its caller knows.
"""

from __future__ import annotations

from typing import Final

from ....dsl.contract import abi
from ....dsl.contract.foreign_doors import PLAIN_DOOR
from .calls import shared_text


def plain_text() -> str:
    """The text of the door; there is one for all entries."""
    return shared_text() + _TEXT.replace("CONTEXT_SIZE", str(abi.CONTEXT_SIZE)).replace("SYMBOL", PLAIN_DOOR)


_TEXT: Final = """
define i32 @SYMBOL(ptr %table, ptr %raise, i64 %owner, ptr %entry, ptr %pointers, ptr %dims, i32 %large) {
begin:
  %context = alloca [CONTEXT_SIZE x i8], align 16
  %many = icmp ne i32 %large, 0
  %code = call i32 @run(ptr %table, i64 %owner, ptr %entry, ptr %pointers, ptr %dims, i1 %many, ptr %context)
  %failed = icmp ne i32 %code, 0
  br i1 %failed, label %stopped, label %leave
stopped:
  call void @fail(ptr %table, ptr %raise, ptr %context)
  ret i32 1
leave:
  ret i32 0
}
"""
