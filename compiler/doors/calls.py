"""Writes what the doors of XLA, NumPy and numba share: the call of an entry from any thread, and its failure.

    @run(table, owner, entry, pointers, dims, many, context) -> 0, or nonzero after a failure
    @fail(table, raise, context)
    @look(table, owner, raise, context) -> 0, or nonzero

`run` fills a context, which lies on its caller's stack, and calls the entry. Without `many`, the call runs on the
caller's thread alone, whether or not it has Python's lock. With it, the call uses the thread pool, and gives the lock
back for as long, if the caller has it: a worker that reports would wait for it for ever. No other text here sets
`parallel`.

`fail` calls `raise`, an object of Python's, with the address of the context; the exception that it raises stays set in
this thread, as functions for Python leave one. `look` polls for signals between calls, and fails as a call does when a
handler raises. `table` points to `CALL_WORDS`.
"""

from __future__ import annotations

from typing import Final

from ...dsl.contract import abi
from ...dsl.contract.foreign_doors import CALL_WORDS
from ..ir.llvm_text import FunctionText
from .text import fill_context


def shared_text() -> str:
    """The functions above."""
    text = _FAIL
    for name in CALL_WORDS:
        text = text.replace(
            f"TABLE({name})", f"getelementptr inbounds i8, ptr %table, i64 {8 * CALL_WORDS.index(name)}"
        )
    return _run_text() + _look_text() + text


def _run_text() -> str:
    given = ["ptr %table", "i64 %owner", "ptr %entry", "ptr %pointers", "ptr %dims", "i1 %many", "ptr %context"]
    f = FunctionText("@run", "i32", given, attributes="internal")

    def word(name: str, type: str = "ptr") -> str:
        return f.load(type, f.at("%table", 8 * CALL_WORDS.index(name)))

    def leave() -> None:
        code = f.call("%entry", ["ptr %context", "ptr %pointers", "ptr %dims"], "i32")
        with f.when(f.compare("ne", lock.value(), "null", "ptr")):
            f.call(word("PyEval_RestoreThread"), [f"ptr {lock.value()}"])
        stopped = f.compare("ne", f.load("i64", f.at("%context", abi.STATUS_OFFSET)), 0)
        f.leave(f.either(code, f.value(f"zext i1 {stopped} to i32"), "i32"))

    lock = f.variable("ptr", "null")
    fill_context(f, {name: f"ptr {word(name)}" for name in ("report", "pool", "poll")} | {"owner": "i64 %owner"})
    with f.when("%many"):
        with f.when(f.compare("ne", f.call(word("PyGILState_Check"), [], "i32"), 0, "i32")):
            lock.set(f.call(word("PyEval_SaveThread"), [], "ptr"))
        for name, type, offset in (
            ("parallel", "ptr", abi.PARALLEL_OFFSET),
            ("threads", "i64", abi.THREADS_OFFSET),
        ):
            f.store(type, word(name, type), f.at("%context", offset))
        leave()
    leave()
    return f.text()


def _look_text() -> str:
    given = ["ptr %table", "i64 %owner", "ptr %raise", "ptr %context"]
    f = FunctionText("@look", "i32", given, attributes="internal|noinline")
    words = {name: f.load("ptr", f.at("%table", 8 * CALL_WORDS.index(name))) for name in ("report", "pool", "poll")}
    fill_context(f, {name: f"ptr {word}" for name, word in words.items()} | {"owner": "i64 %owner"})
    with f.when(f.compare("ne", words["poll"], "null", "ptr")):
        f.call(words["poll"], ["ptr %context", "i32 0"])
        with f.when(f.compare("ne", f.load("i64", f.at("%context", abi.STATUS_OFFSET)), 0)):
            f.call("@fail", ["ptr %table", "ptr %raise", "ptr %context"])
            f.leave(1)
    f.leave(0)
    return f.text()


_FAIL: Final = """
define internal void @fail(ptr %table, ptr %raise, ptr %context) noinline cold {
begin:
  %ensure.at = TABLE(PyGILState_Ensure)
  %ensure = load ptr, ptr %ensure.at
  %lock = call i32 %ensure()
  %occurred.at = TABLE(PyErr_Occurred)
  %occurred = load ptr, ptr %occurred.at
  %earlier = call ptr %occurred()
  %clear = icmp eq ptr %earlier, null
  br i1 %clear, label %report_failure, label %leave
report_failure:
  %number.at = TABLE(PyLong_FromVoidPtr)
  %number = load ptr, ptr %number.at
  %argument = call ptr %number(ptr %context)
  %call.at = TABLE(PyObject_CallOneArg)
  %call = load ptr, ptr %call.at
  %given = call ptr %call(ptr %raise, ptr %argument)
  %drop.at = TABLE(Py_DecRef)
  %drop = load ptr, ptr %drop.at
  call void %drop(ptr %argument)
  call void %drop(ptr %given)
  br label %leave
leave:
  %release.at = TABLE(PyGILState_Release)
  %release = load ptr, ptr %release.at
  call void %release(i32 %lock)
  ret void
}
"""
