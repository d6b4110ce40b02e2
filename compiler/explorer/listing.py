"""Lists every stage of a compilation as lines, each with the lines of the author's text that it comes from.

The typed program and MLIR carry whole chains of calls. LLVM IR and assembly name only the innermost place; the calls
around it are those that the typed program has for that place.

See also `explorer.page`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.places import Place
from ..codegen.locations import places_of
from ..ir.printer import program_lines
from ..ir.program import Location, walk
from ..pipeline import Artifact

Spot = tuple[str, int]  # a file and a line in it


@dataclass(frozen=True)
class ListingLine:
    """A line of a stage. `spots` are the lines that it comes from: the innermost first, then the calls around it."""

    text: str
    spots: tuple[Spot, ...] = ()


def typed_lines(artifact: Artifact) -> list[ListingLine]:
    """The typed program."""
    return [
        ListingLine(text, () if location is None else _spots(location.chain()))
        for text, location in program_lines(artifact.program)
    ]


def _spots(places: list[Place]) -> tuple[Spot, ...]:
    return tuple(dict.fromkeys((place.file, place.line) for place in places))


def chains_of(artifact: Artifact) -> list[tuple[Spot, ...]]:
    """The lines of each operation of the typed program: the innermost first, then the calls around it."""
    return [_spots(op.location.chain()) for function in artifact.program.functions for op in walk(function.body)]


# *** MLIR ***

_LOCATION = re.compile(r" loc\((?:#loc(\d+)|unknown)\)$")
_TABLE = re.compile(r"#loc(\d+) = loc\((.*)\)$")
_CALLER = re.compile(r" at #loc(\d+)\)$")


def mlir_lines(artifact: Artifact) -> list[ListingLine]:
    """MLIR as it was emitted, without its table of locations."""
    chains: dict[str, tuple[Spot, ...]] = {}
    body: list[str] = []
    for text in artifact.emitted.text.splitlines():
        entry = _TABLE.match(text)
        if entry is None:
            body.append(text)
            continue
        number, what = entry.groups()
        caller = _CALLER.search(what)
        around = chains[caller[1]] if caller else ()  # a caller stands before those that name it
        chains[number] = tuple(dict.fromkeys((*_spots(places_of(what)[:1]), *around)))
    return list(_with_heads(body, chains))


def _with_heads(body: list[str], chains: Mapping[str, tuple[Spot, ...]]) -> Iterator[ListingLine]:
    """The location of an operation with regions stands behind its last brace; the line that opens it has it, too."""
    spots: list[tuple[Spot, ...]] = [()] * len(body)
    texts: list[str] = []
    opened: list[list[int]] = []
    for number, text in enumerate(body):
        match = _LOCATION.search(text)
        texts.append(text[: match.start()] if match else text)
        own = chains.get(match[1] or "", ()) if match else ()
        spots[number] = own
        bare = texts[-1].strip()
        if bare.startswith("}") and opened:
            heads = opened.pop()
            if bare.endswith("{"):  # } else {
                opened.append([*heads, number])
                continue
            for head in heads:
                spots[head] = own
        elif bare.endswith("{"):
            opened.append([number])
    for text, where in zip(texts, spots, strict=True):
        yield ListingLine(text, where)


# *** LLVM IR and assembly ***


class _Chains:
    """From an innermost place to the lines of all the calls that lead to it."""

    def __init__(self, artifact: Artifact) -> None:
        self.known: dict[tuple[str, int, int], dict[Spot, None]] = {}
        for function in artifact.program.functions:
            for op in walk(function.body):
                self.add(op.location)

    def add(self, location: Location) -> None:
        places = location.chain()
        first = places[0]
        key = (os.path.realpath(first.file), first.line, first.column)
        self.known.setdefault(key, {}).update(dict.fromkeys(_spots(places)))

    def of(self, file: str, line: int, column: int) -> tuple[Spot, ...]:
        if line == 0:  # LLVM's notation for no place, or several places
            return ()
        result = self.known.get((os.path.realpath(file), line, column))
        return tuple(result) if result else ((file, line),)


_NODE = re.compile(r"^!(\d+) = (?:distinct )?!(DI\w+)\((.*)\)$")
_FIELD = re.compile(r'(\w+): (?:"((?:[^"\\]|\\.)*)"|!?([\w.]+))')
_DEBUG = re.compile(r",? !dbg !(\d+)")


def llvm_lines(artifact: Artifact) -> list[ListingLine]:
    """The optimised LLVM IR, without debug information."""
    nodes: dict[str, tuple[str, dict[str, str]]] = {}
    body: list[str] = []
    for text in artifact.llvm.splitlines():
        node = _NODE.match(text)
        if node is not None:
            fields = {name: quoted or plain for name, quoted, plain in _FIELD.findall(node[3])}
            nodes[node[1]] = node[2], fields
        elif not text.startswith("!"):
            body.append(text)
    chains = _Chains(artifact)

    def spots(number: str) -> tuple[Spot, ...]:
        kind, fields = nodes.get(number, ("", {}))
        if kind == "DILocation":
            return chains.of(_file(nodes, fields["scope"]), int(fields["line"]), int(fields.get("column", 0)))
        return ()

    lines = []
    for text in body:
        debug = _DEBUG.search(text)
        lines.append(ListingLine(_DEBUG.sub("", text), spots(debug[1]) if debug else ()))
    return _trimmed(lines)


def _file(nodes: Mapping[str, tuple[str, dict[str, str]]], scope: str) -> str:
    """The file that a scope of LLVM's debug information lies in."""
    _, fields = nodes[scope]
    _, file = nodes[fields["file"]]
    return os.path.join(file.get("directory", ""), file["filename"])


_FILE = re.compile(r'\s*\.file\s+(\d+)\s+"([^"]*)"(?:\s+"([^"]*)")?')
_LOC = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)\s+(\d+)")
_NOISE = re.compile(r"\s*(\.cfi_|\.file\b|\.loc\b|\.ident\b|\.Ltmp|\.Lfunc_|\.Ldebug|\$L__tmp|\$L__func_)")
_LEAVES = re.compile(r"\s*\.section\s+\"?\.(debug_|note)|\s*\.section\s+\.AMDGPU")
_ENTERS = re.compile(r"\s*\.(section|text)\b")


def asm_lines(artifact: Artifact) -> list[ListingLine]:
    """The assembly, code before data, without debug sections and directives that make no code."""
    chains, files = _Chains(artifact), {}
    texts = artifact.asm.splitlines()
    for text in texts:
        if match := _FILE.match(text):
            number, folder, name = match.groups()
            files[number] = os.path.join(folder, name) if name else folder
    code: list[ListingLine] = []
    data: list[ListingLine] = []
    lines = code
    here: tuple[Spot, ...] = ()
    hidden = False
    for text in texts:
        if entered := _ENTERS.match(text):
            hidden = _LEAVES.match(text) is not None
            lines = data if entered[1] == "section" and ".text" not in text else code
        if match := _LOC.match(text):
            here = chains.of(files.get(match[1], ""), int(match[2]), int(match[3]))
        elif not hidden and not _NOISE.match(text):
            instruction = text[:1] in (" ", "\t") and not text.lstrip().startswith(("//", ".", "#", ";"))
            lines.append(ListingLine(text.expandtabs(8), here if instruction else ()))
    return _trimmed(code) + _trimmed(data)


def _trimmed(lines: list[ListingLine]) -> list[ListingLine]:
    """No two empty lines in a row, none at the ends."""
    out: list[ListingLine] = []
    for line in lines:
        if line.text.strip() or (out and out[-1].text.strip()):
            out.append(line)
    while out and not out[-1].text.strip():
        out.pop()
    return out


LISTINGS: dict[str, Callable[[Artifact], list[ListingLine]]] = {
    "typed": typed_lines,
    "mlir": mlir_lines,
    "llvm": llvm_lines,
    "asm": asm_lines,
}
