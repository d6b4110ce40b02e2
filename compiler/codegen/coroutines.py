"""Makes LLVM's coroutines of the functions of threads that wait for each other, and adds their scheduler.

    define internal void @ek.thread.0(ptr %0, ptr %1) {      the same, as a coroutine: it begins in the memory that its
      call void @ek.begin()                            =>    record names, is suspended at the second call, goes on
      ...                                                    behind it when it is resumed, and marks its end in the
      call void @ek.suspend()                                record. Without memory it says how much it wants.
      ...

LLVM splits such a function at each suspension, and keeps in the coroutine's frame what lives across one. The work is
done on blocks and branches: structured control flow is gone by then, and a loop may wait in its middle.

See also `simulation.scheduler` (what runs the coroutines).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..ir.simulation import BEGIN, CHANGED, FRAME_ALIGNMENT, MOVED, RUN, SUSPEND, THREAD, YIELDS, State, Thread, offset
from ..simulation.scheduler import scheduler_text
from ..targets import Target

_FUNCTION = re.compile(
    rf"^(define internal void @{re.escape(THREAD)}\d+\([^\n]*?\))([^\n]*\{{)\n(.*?)^\}}", re.M | re.S
)
_OWN = "|".join(map(re.escape, (BEGIN, SUSPEND, RUN, MOVED, CHANGED, YIELDS)))
_DECLARED = re.compile(rf"^declare [^@\n]*(?:void|i1) @({_OWN})\(.*\n", re.M)
_LABEL = re.compile(r"(\d+):")
_INCOMING = re.compile(r"(\[ [^\[\]]+, )%(\d+)( \])")


def with_coroutines(text: str, target: Target) -> str:
    """The module with its threads as coroutines."""
    if THREAD not in text:
        return text
    text = _FUNCTION.sub(_coroutine, text)
    return _DECLARED.sub("", text) + scheduler_text(target, spins=f"@{MOVED}(" in text)


def _coroutine(match: re.Match[str]) -> str:
    head, rest, body = match.groups()
    entry = str(head.count("ptr "))  # the number of the first block, which has no label: those before are arguments
    renamed: dict[str, str] = {}
    lines = list(_lines(body.splitlines(), entry, renamed))
    lines = [_incoming(line, renamed) if " phi " in line else line for line in lines]
    return f"{head} presplitcoroutine noinline{rest}\n" + "\n".join([*lines, *_END]) + "\n}"


def _lines(lines: list[str], block: str, renamed: dict[str, str]) -> Iterator[str]:
    """The lines of the coroutine. Where a block is cut, `renamed` gets the name of its last part."""
    count = 0
    for line in lines:
        label = _LABEL.match(line)
        if label:
            block = label[1]
        if f"call void @{BEGIN}()" in line:
            yield from _BEGIN
            renamed[block] = "ek.start"
        elif f"call void @{SUSPEND}()" in line:
            after = f"ek.resumed.{count}"
            yield f"  %ek.how.{count} = call i8 @llvm.coro.suspend(token none, i1 false)"
            yield f"  switch i8 %ek.how.{count}, label %ek.leave [ i8 0, label %{after}"
            yield "    i8 1, label %ek.leave ]"
            yield f"{after}:"
            renamed[block] = after
            count += 1
        elif line.lstrip().startswith("ret void"):
            yield "  br label %ek.end"
        else:
            yield line


def _incoming(line: str, renamed: dict[str, str]) -> str:
    """A phi whose values come out of the last part of a block."""
    return _INCOMING.sub(lambda m: f"{m[1]}%{renamed.get(m[2], m[2])}{m[3]}", line)


_BEGIN = f"""\
  %ek.place = getelementptr inbounds i8, ptr %0, i64 {offset(Thread, "frame")}
  %ek.memory = load ptr, ptr %ek.place, align 8
  %ek.is_query = icmp eq ptr %ek.memory, null
  br i1 %ek.is_query, label %ek.answer, label %ek.start
ek.answer:
  %ek.size = call i64 @llvm.coro.size.i64()
  store i64 %ek.size, ptr %ek.place, align 8
  ret void
ek.start:
  %ek.id = call token @llvm.coro.id(i32 {FRAME_ALIGNMENT}, ptr null, ptr null, ptr null)
  %ek.frame = call ptr @llvm.coro.begin(token %ek.id, ptr %ek.memory)
  store ptr %ek.frame, ptr %ek.place, align 8""".splitlines()

_END = f"""\
ek.end:
  %ek.state = getelementptr inbounds i8, ptr %0, i64 {offset(Thread, "state")}
  store i64 {int(State.ENDED)}, ptr %ek.state, align 8
  br label %ek.leave
ek.leave:
  call void @llvm.coro.end(ptr %ek.frame, i1 false, token none)
  ret void""".splitlines()
