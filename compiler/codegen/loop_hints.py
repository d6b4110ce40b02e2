"""Turns the calls that mark loops into what LLVM reads: metadata of the branches that close them.

Emitted code says it by a call near the end of a round. Structured control flow has no other place for it that lowering
keeps, and the classes of MLIR's bindings that could set it there take as long to load as all else.

      call void @ek.hint.vectors_4()
      %9 = add i64 %3, 1                              %9 = add i64 %3, 1
      br label %2                               =>    br label %2, !llvm.loop !7
                                                    !7 = distinct !{!7, !8}
                                                    !8 = !{!"llvm.loop.interleave.count", i32 4}

See also `ir.schedule` and `passes.vectorize_loops` (which loop gets which hint).
"""

from __future__ import annotations

import re

from ...dsl.diagnostics.errors import InternalError
from ..ir.schedule import HINT, LoopHints

_CALL = re.compile(rf"^ *call void @{re.escape(HINT)}(\w+)\(\).*\n", re.MULTILINE)
_DECLARATION = re.compile(rf"^declare [^@\n]*@{re.escape(HINT)}\w+\(\).*\n", re.MULTILINE)
_END = re.compile(r"^ *(?:br|ret|switch|unreachable)\b.*$", re.MULTILINE)
_NODE = re.compile(r"^!(\d+) = ", re.MULTILINE)


def hinted(text: str) -> str:
    """The module with its hints as metadata of the branches that close the loops."""
    if f"@{HINT}" not in text:
        return text
    number = 1 + max((int(node) for node in _NODE.findall(text)), default=-1)
    parts: list[str] = []
    nodes: list[str] = []
    done = 0
    while call := _CALL.search(text, done):
        end = _END.search(text, call.end())
        if end is None:
            raise InternalError("a hint stands behind the end of its block", code="EK0902")
        parts += [text[done : call.start()], text[call.end() : end.end()]]
        done = end.end()
        if end[0].lstrip().startswith("br label"):
            parts.append(f", !llvm.loop !{number}")
            metadata = _metadata(call[1])
            names = [f"!{number + k}" for k in range(len(metadata) + 1)]
            nodes.append(f"{names[0]} = distinct !{{{', '.join(names)}}}\n")
            nodes += [f"{name} = {node}\n" for name, node in zip(names[1:], metadata, strict=True)]
            number += len(names)
    return _DECLARATION.sub("", "".join([*parts, text[done:]])) + "\n" + "".join(nodes)


def _metadata(symbol: str) -> list[str]:
    """What LLVM calls it."""
    hints = LoopHints.of_symbol(symbol)
    metadata = ['!"llvm.loop.vectorize.predicate.enable", i1 true'] if hints.masked else []
    metadata += [f'!"llvm.loop.vectorize.width", i32 {hints.lanes}'] if hints.lanes else []
    metadata += [f'!"llvm.loop.interleave.count", i32 {hints.vectors}'] if hints.vectors else []
    metadata += ['!"llvm.loop.vectorize.enable", i1 false'] if hints.apart else []
    metadata += ['!"llvm.loop.unroll.disable"'] if hints.masked or hints.rolled else []
    metadata += ['!"llvm.loop.unroll.full"'] if hints.unrolled else []
    return [f"!{{{each}}}" for each in metadata]
