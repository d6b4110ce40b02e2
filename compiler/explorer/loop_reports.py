"""Reports which loops of a kernel became vectors: a sentence for each, read from the optimised LLVM IR.

An innermost loop is the text from a label to the last jump back to it. Loops of one line of the author's are kept
together: LLVM makes several of one (vectors, narrower vectors, single elements for the rest).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ...dsl.diagnostics.places import is_shipped
from ..pipeline import Artifact
from .listing import ListingLine, Spot, llvm_lines

_LABEL = re.compile(r'^("[^"]*"|[\w.$-]+):')
_JUMP = re.compile(r'label %("[^"]*"|[\w.$-]+)')
_VECTOR = re.compile(r"<(\d+) x (\w+)>")
_WORK = re.compile(r"\b(?:load|store|f?add|f?sub|f?mul|fdiv|fneg|fcmp|icmp|call|select|xor|and|or|shl|[la]shr)\b.*<")
_MEMORY = re.compile(r"\b(?:load|store)\b.*<|@llvm\.masked\.")
_CALL = re.compile(r"\bcall\b.*@(?!llvm\.|ek\.)([\w.$]+)\(")
_SUM = re.compile(r"^\s*(%[\w.]+) = f(?:add|mul) (?:float|double|half|bfloat) ")
_CARRIED = re.compile(r"= phi (?:float|double|half|bfloat) ")
_ELEMENT = re.compile(r"= load (?!<|ptr)|\bstore (?!<|ptr)")
NAMES = {"float": "Float32", "double": "Float64", "half": "Float16", "bfloat": "BFloat16", "i1": "Bool"}


def loop_reports(artifact: Artifact) -> dict[Spot, str]:
    """For each line with an innermost loop what became of it; nothing for a GPU, whose threads are the vectors."""
    if not artifact.target.vectorizes:
        return {}
    loops: dict[Spot, list[Sequence[ListingLine]]] = {}
    for loop in _innermost(llvm_lines(artifact)):
        spot = _spot_of(loop)
        if spot is not None and any(_ELEMENT.search(line.text) or _WORK.search(line.text) for line in loop):
            loops.setdefault(spot, []).append(loop)
    return {spot: _sentence(loops[spot]) for spot in sorted(loops)}


def _innermost(lines: Sequence[ListingLine]) -> Iterator[Sequence[ListingLine]]:
    """The texts of loops that no other one lies in."""
    labels: dict[str, int] = {}
    loops: list[tuple[int, int]] = []
    for number, line in enumerate(lines):
        if line.text.startswith(("define", "}")):
            labels = {}
        elif label := _LABEL.match(line.text):
            labels[label[1]] = number
        elif line.text.lstrip().startswith(("br ", "switch ")):
            backs = [labels[name] for name in _JUMP.findall(line.text) if name in labels]
            loops += [(start, number) for start in backs]
    last = {start: max(end for first, end in loops if first == start) for start, _ in loops}
    for start, end in sorted(last.items()):
        if not any(start < other <= end for other in last) and _goes_round(lines[start : end + 1]):
            yield lines[start : end + 1]


def _goes_round(lines: Sequence[ListingLine]) -> bool:
    """Whether the first of these blocks leads to the last: a jump back alone is no loop, blocks stand in any order."""
    after: dict[str, list[str]] = {}
    block = ""
    for line in lines:
        if label := _LABEL.match(line.text):
            block = label[1]
        after.setdefault(block, []).extend(_JUMP.findall(line.text))
    reached: set[str] = set()
    todo = [next(iter(after))]
    while todo:
        name = todo.pop()
        if name in after and name not in reached:
            reached.add(name)
            todo += after[name]
    return block in reached


def _spot_of(loop: Sequence[ListingLine]) -> Spot | None:
    """The author's line that a loop belongs to: that of its jump back."""
    for line in reversed(loop):
        own = [spot for spot in line.spots if not is_shipped(spot[0])]
        if own:
            return own[0]
    return None


def _sentence(loops: Sequence[Sequence[ListingLine]]) -> str:
    kinds = [_lanes(loop) for loop in loops]
    wide = [kind for kind in kinds if kind is not None]
    if not wide:
        return f"no vectors: {_reason([line.text for line in loops[0]])}"
    lanes, name = max(wide)
    rest = "; the rest one by one" if None in kinds else ""
    return f"vectors of {lanes} {NAMES.get(name, name.replace('i', 'Int'))}{rest}"


def _lanes(loop: Sequence[ListingLine]) -> tuple[int, str] | None:
    """The widest vectors that a loop loads or stores, or else computes with: masks and places are vectors, too."""
    for kind in (_MEMORY, _WORK):
        texts = [line.text for line in loop if kind.search(line.text)]
        vectors = [(int(count), name) for text in texts for count, name in _VECTOR.findall(text)]
        if numbers := [(count, name) for count, name in vectors if name not in ("i1", "ptr")]:
            return max(numbers)
    return None


def _reason(texts: Sequence[str]) -> str:
    called = [match[1] for text in texts if (match := _CALL.search(text))]
    if called:
        return f"it calls {called[0]}"
    if any(_CARRIED.search(text) for text in texts) and any(_SUM.match(text) for text in texts):
        return "floats are added in the order that is written; reduce and rowwise, or fastmath={'reassoc'}, free it"
    if sum(bool(_LABEL.match(text)) for text in texts) > 1:
        return "there is a branch in it that is not a choice between values"
    return "LLVM saw no benefit, or could not prove that the loop's loads and stores do not alias"
