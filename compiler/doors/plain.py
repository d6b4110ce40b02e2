"""The plain door: a C function through which generated code of others calls any entry, numba's for example.

    int32_t ek_plain(table, raise, owner, entry, pointers, dims, large)

It returns 0; or 1 after a failure, which `raise` has been called with, and keeps. Where a signal's handler has raised,
SIGINT is tripped as well, so that Python raises that exception as soon as it goes on. No exception of Python's is set:
the caller raises one of its own. See `calls` for what it is passed. Its callers compile it, in modules of theirs.
"""

from __future__ import annotations

from typing import Final

from ...dsl.contract import abi
from ...dsl.contract.foreign_doors import CALL_WORDS, PLAIN_DOOR
from .calls import shared_text


def plain_text() -> str:
    """The text of the door; there is one for all entries."""
    text = _TEXT.replace("CONTEXT_SIZE", str(abi.CONTEXT_SIZE)).replace("SYMBOL", PLAIN_DOOR)
    text = text.replace("STATUS_OFFSET", str(abi.STATUS_OFFSET)).replace("INTERRUPTED", str(abi.INTERRUPTED))
    for name in ("PyGILState_Ensure", "PyGILState_Release", "PyErr_Clear", "PyErr_SetInterruptEx"):
        place = 8 * CALL_WORDS.index(name)
        text = text.replace(f"TABLE({name})", f"getelementptr inbounds i8, ptr %table, i64 {place}")
    return shared_text() + text


_TEXT: Final = """
define i32 @SYMBOL(ptr %table, ptr %raise, i64 %owner, ptr %entry, ptr %pointers, ptr %dims, i32 %large) {
begin:
  %context = alloca [CONTEXT_SIZE x i8], align 16
  %many = icmp ne i32 %large, 0
  %code = call i32 @run(ptr %table, i64 %owner, ptr %entry, ptr %pointers, ptr %dims, i1 %many, ptr %context)
  %failed = icmp ne i32 %code, 0
  br i1 %failed, label %stopped, label %leave
stopped:
  %status.at = getelementptr inbounds i8, ptr %context, i64 STATUS_OFFSET
  %status = load i64, ptr %status.at, align 8
  %ensure.at = TABLE(PyGILState_Ensure)
  %ensure = load ptr, ptr %ensure.at
  %lock = call i32 %ensure()
  call void @fail(ptr %table, ptr %raise, ptr %context)
  %clear.at = TABLE(PyErr_Clear)
  %clear = load ptr, ptr %clear.at
  call void %clear()
  %release.at = TABLE(PyGILState_Release)
  %release = load ptr, ptr %release.at
  call void %release(i32 %lock)
  %late = icmp eq i64 %status, INTERRUPTED
  br i1 %late, label %trip, label %end
trip:
  %interrupt.at = TABLE(PyErr_SetInterruptEx)
  %interrupt = load ptr, ptr %interrupt.at
  %tripped = call i32 %interrupt(i32 2)
  br label %end
end:
  ret i32 1
leave:
  ret i32 0
}
"""
