"""Writes what the doors of XLA, NumPy and numba share: the call of an entry from any thread, and its failure.

    @run(table, owner, entry, pointers, dims, many, context) -> 0, or nonzero after a failure
    @fail(table, raise, context)

`run` fills a context, which lies on its caller's stack, and calls the entry. Without `many`, the call runs on the
caller's thread alone, whether or not it has Python's lock. With it, the call uses the thread pool, and gives the lock
back for as long, if the caller has it: a worker that reports would wait for it for ever. No other text here sets
`parallel`.

`fail` calls `raise`, an object of Python's, with the address of the context; the exception that it raises stays set in
this thread, as functions for Python leave one. `table` points to `CALL_WORDS`.

Output: text of LLVM IR. Non-goals: pointers and sizes, and where addresses come from.
"""

from __future__ import annotations

from typing import Final

from ....dsl.contract import abi
from ....dsl.contract.foreign_doors import CALL_WORDS


def word(name: str) -> int:
    """Where a word of the table lies, in bytes."""
    return 8 * CALL_WORDS.index(name)


def shared_text() -> str:
    """The functions above, and what they use."""
    text = _TEXT
    for name in CALL_WORDS:
        text = text.replace(f"TABLE({name})", f"getelementptr inbounds i8, ptr %table, i64 {word(name)}")
    for field, *_ in abi.Context._fields_:
        offset = getattr(abi.Context, field).offset
        text = text.replace(f"CONTEXT({field})", f"getelementptr inbounds i8, ptr %context, i64 {offset}")
    return text.replace("CONTEXT_SIZE", str(abi.CONTEXT_SIZE))


_TEXT: Final = """
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

define internal i32 @run(ptr %table, i64 %owner, ptr %entry, ptr %pointers, ptr %dims, i1 %many, ptr %context) {
begin:
  call void @llvm.memset.p0.i64(ptr align 16 %context, i8 0, i64 CONTEXT_SIZE, i1 false)
  %report.from = TABLE(report)
  %report = load ptr, ptr %report.from
  %report.at = CONTEXT(report)
  store ptr %report, ptr %report.at
  %owner.at = CONTEXT(owner)
  store i64 %owner, ptr %owner.at
  %threads.at = CONTEXT(threads)
  store i64 1, ptr %threads.at
  br i1 %many, label %far, label %near
near:
  %code = call i32 %entry(ptr %context, ptr %pointers, ptr %dims)
  br label %done
far:
  %check.at = TABLE(PyGILState_Check)
  %check = load ptr, ptr %check.at
  %held = call i32 %check()
  %holds = icmp ne i32 %held, 0
  br i1 %holds, label %give, label %go
give:
  %save.at = TABLE(PyEval_SaveThread)
  %save = load ptr, ptr %save.at
  %saved = call ptr %save()
  br label %go
go:
  %state = phi ptr [ %saved, %give ], [ null, %far ]
  %pool.from = TABLE(pool)
  %pool = load ptr, ptr %pool.from
  %pool.at = CONTEXT(pool)
  store ptr %pool, ptr %pool.at
  %parallel.from = TABLE(parallel)
  %parallel = load ptr, ptr %parallel.from
  %parallel.at = CONTEXT(parallel)
  store ptr %parallel, ptr %parallel.at
  %threads.from = TABLE(threads)
  %threads = load i64, ptr %threads.from
  store i64 %threads, ptr %threads.at
  %all.code = call i32 %entry(ptr %context, ptr %pointers, ptr %dims)
  br i1 %holds, label %take, label %done
take:
  %restore.at = TABLE(PyEval_RestoreThread)
  %restore = load ptr, ptr %restore.at
  call void %restore(ptr %state)
  br label %done
done:
  %result = phi i32 [ %code, %near ], [ %all.code, %go ], [ %all.code, %take ]
  %status.at = CONTEXT(status)
  %status = load i64, ptr %status.at
  %stopped = icmp ne i64 %status, 0
  %stop = zext i1 %stopped to i32
  %all = or i32 %result, %stop
  ret i32 %all
}

define internal void @fail(ptr %table, ptr %raise, ptr %context) noinline cold {
begin:
  %ensure.at = TABLE(PyGILState_Ensure)
  %ensure = load ptr, ptr %ensure.at
  %lock = call i32 %ensure()
  %occurred.at = TABLE(PyErr_Occurred)
  %occurred = load ptr, ptr %occurred.at
  %earlier = call ptr %occurred()
  %clear = icmp eq ptr %earlier, null
  br i1 %clear, label %tell, label %leave
tell:
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
