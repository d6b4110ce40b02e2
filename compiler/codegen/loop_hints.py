"""What LLVM is told of loops: how many vectors are taken at a time, or that one is made of vectors under a mask.

Emitted code says it by a call near the end of a round. Structured control flow has no other place for it that lowering
keeps, and the classes of MLIR's bindings that could set it there take as long to load as all else.

      call void @ek.hint.vectors_4()
      %9 = add i64 %3, 1                              %9 = add i64 %3, 1
      br label %2                               =>    br label %2, !llvm.loop !7
                                                    !7 = distinct !{!7, !8}
                                                    !8 = !{!"llvm.loop.interleave.count", i32 4}

A masked loop becomes vectors of which each lane asks whether its round is one of the loop's; see
`passes.vectorize_loops`. The vectors have so many lanes, where LLVM is not left to choose.

Input: the text of a module. Output: the same, without these calls. Non-goals: which loop is told what.
"""

from __future__ import annotations

import re
from typing import Final

from ...dsl.diagnostics.errors import InternalError

HINT: Final = "ek.hint."  # how the names of the functions begin that are called

_CALL = re.compile(rf"^ *call void @{re.escape(HINT)}(\w+)\(\).*\n", re.MULTILINE)
_DECLARATION = re.compile(rf"^declare [^@\n]*@{re.escape(HINT)}\w+\(\).*\n", re.MULTILINE)
_END = re.compile(r"^ *(?:br|ret|switch|unreachable)\b.*$", re.MULTILINE)
_NODE = re.compile(r"^!(\d+) = ", re.MULTILINE)


def loop_hint(vectors: int, lanes: int = 0, *, masked: bool = False, rolled: bool = False, apart: bool = False) -> str:
    """The function to call in a loop that is to take so many vectors, of so many lanes, at a time; 0 leaves it open.

    A `rolled` one is not written out round by round. Rounds that stay `apart` are not taken together as vectors.
    """
    flags = {"masked": int(masked), "rolled": int(rolled), "apart": int(apart)}
    parts = {**flags, "lanes": lanes, "vectors": vectors}
    return HINT + "_".join(f"{name}_{count}" for name, count in parts.items() if count) if any(parts.values()) else ""


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
            told = _told(call[1])
            names = [f"!{number + k}" for k in range(len(told) + 1)]
            nodes.append(f"{names[0]} = distinct !{{{', '.join(names)}}}\n")
            nodes += [f"{name} = {node}\n" for name, node in zip(names[1:], told, strict=True)]
            number += len(names)
    return _DECLARATION.sub("", "".join([*parts, text[done:]])) + "\n" + "".join(nodes)


def _told(hint: str) -> list[str]:
    """What LLVM calls it."""
    words = hint.split("_")
    parts = dict(zip(words[::2], map(int, words[1::2]), strict=True))
    told = ['!"llvm.loop.vectorize.predicate.enable", i1 true'] if "masked" in parts else []
    told += [f'!"llvm.loop.vectorize.width", i32 {parts["lanes"]}'] if "lanes" in parts else []
    told += [f'!"llvm.loop.interleave.count", i32 {parts["vectors"]}'] if "vectors" in parts else []
    told += ['!"llvm.loop.vectorize.enable", i1 false'] if "apart" in parts else []
    told += ['!"llvm.loop.unroll.disable"'] if "masked" in parts or "rolled" in parts else []
    return [f"!{{{each}}}" for each in told]
