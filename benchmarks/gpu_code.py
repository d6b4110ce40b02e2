"""Counts the machine code of built-in ops next to that of Triton's kernels, for GPUs that need not be here.

    python benchmarks/gpu_code.py                            # all rows for sm_90a
    python benchmarks/gpu_code.py --targets sm_80 sm_90a sm_100a softmax transpose
    python benchmarks/gpu_code.py --update                   # all rows and targets, and docs/gpu-code.md

Both sides are PTX that the same ptxas assembles and nvdisasm shows; `sass_counts` says how instructions are counted.
Wanted are ptxas and nvdisasm; without Triton a row has our side alone.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from typing import Any

from sass_counts import BULK, BasicBlock, Path, Share, accesses, executed, functions, products, steady_loop

from einkorn.compiler.targets import Target, lookup
from einkorn.compiler.targets.machine_code import check_disassembly, disassemble, resources
from einkorn.compiler.targets.nvptx import assemble
from einkorn.dsl.diagnostics.errors import TargetError
from einkorn.graph.drawing.inspected import op_graph

TARGETS = ("sm_80", "sm_90a", "sm_100a")
PAGE = FilePath(__file__).resolve().parents[1] / "docs" / "gpu-code.md"


@dataclass(frozen=True)
class CodeRow:
    """An op with the types of its inputs, its parameters, how many elements there are and of how many bytes.

    `per` is an opcode that the steady loop is counted by instead of elements: products; where an HGMMA has more than
    `columns` columns, it counts as several.
    """

    op: str
    inputs: Sequence[str]
    elements: int
    parameters: Mapping[str, Any] = field(default_factory=dict)
    itemsize: int = 4
    streams: int = 1
    per: str = ""
    columns: int = 0


SQUARE = 4096 * 1024
X = "float32[4096, 1024]"
HEADS = "bfloat16[4, 8, 2048, 64]"
ROWS: dict[str, CodeRow] = {
    "add": CodeRow("add", [X, X], SQUARE, streams=2),
    "exp": CodeRow("exp", [X], SQUARE),
    "exp fast": CodeRow("exp", [X], SQUARE, {"fast": True}),
    "softmax": CodeRow("softmax", [X], SQUARE, {"axis": -1}),
    "softmax bf16": CodeRow("softmax", ["bfloat16[4096, 1024]"], SQUARE, {"axis": -1}, 2),
    "softmax long": CodeRow("softmax", ["float32[1024, 4096]"], SQUARE, {"axis": -1}),
    "layer_norm": CodeRow("layer_norm", [X, "float32[1024]", "float32[1024]"], SQUARE, {"epsilon": 1e-5}),
    "rms_norm": CodeRow("rms_norm", [X, "float32[1024]"], SQUARE, {"eps": 1e-5}),
    "sum of rows": CodeRow("sum", [X], SQUARE, {"axis": -1}),
    "sum of columns": CodeRow("sum", [X], SQUARE, {"axis": 0}),
    "sum of all": CodeRow("sum", [X], SQUARE, {"axis": None}),
    "argmax": CodeRow("argmax", [X], SQUARE, {"axis": -1}),
    "cumsum": CodeRow("cumsum", [X], SQUARE, {"axis": -1}),
    "transpose": CodeRow("transpose", ["float32[2048, 2048]"], 2048 * 2048, {"axis_1": 0, "axis_2": 1}),
    "gather": CodeRow("gather", ["float32[30000, 384]", "int64[4096]"], 4096 * 384, {"axis": 0}),
    "product of one row": CodeRow("matmul", ["bfloat16[1, 4096]", "bfloat16[4096, 4096]"], 4096 * 4096, itemsize=2),
    "matmul bf16": CodeRow(
        "matmul", ["bfloat16[4096, 4096]", "bfloat16[4096, 4096]"], 4096**3, itemsize=2, per="HMMA", columns=128
    ),
    "attention bf16": CodeRow("attention", [HEADS, HEADS, HEADS], 4 * 8 * 2048**2, itemsize=2, per="HMMA"),
    "matmul": CodeRow("matmul", ["float32[2048, 2048]", "float32[2048, 2048]"], 2048**3, per="FFMA"),
}


@dataclass(frozen=True)
class CodeCounts:
    """What was counted of the kernels of one side."""

    instructions: float  # of all threads, by elements; of products, by product instructions of the steady loop
    registers: int
    spilled: int
    shared: int
    blocks: int
    widths: str
    kernels: int


def counted(
    text: str, target: str, grids: Sequence[tuple[int, int]], row: CodeRow, between: CodeRow | None = None
) -> CodeCounts:
    """The counts of PTX whose kernels run with these blocks and threads; later ones take what is `between`."""
    machine = lookup(target)
    about = resources(text, machine)
    parts = functions(disassemble(assemble(text, machine), machine))
    order = [name for name in re.findall(r"\.visible \.entry (\S+?)\(", text) if name in parts]
    total, widths, loops = 0.0, [], []
    for number, (name, (blocks, threads)) in enumerate(zip(order, grids, strict=True)):
        own = between if between is not None and number > 0 else row
        share = Share(own.elements / (blocks * threads), own.itemsize, own.streams)
        if row.per:
            loop, per = _steady(parts[name], row.per, machine)
            done = products(loop, per) * _width(parts[name], row)
            in_bulk = any(one.opcode in BULK for block in parts[name] for one in block.instructions)
            loops.append((in_bulk, loop.total / done if done else math.inf))
        else:
            total += executed(parts[name], share).total * blocks * threads / row.elements
        widths.append(accesses(parts[name]))
    bulk = [each for in_bulk, each in loops if in_bulk]  # the kernel of aligned data, where there are two
    return CodeCounts(
        max(bulk or [each for _, each in loops], default=total),
        max(each.registers for each in about.values()),
        sum(each.spilled for each in about.values()),
        max(each.shared for each in about.values()),
        max(blocks for blocks, _ in grids),
        "; ".join(dict.fromkeys(widths)),
        len(order),
    )


def _steady(blocks: list[BasicBlock], per: str, machine: Target) -> tuple[Path, str]:
    """The steady loop of products, and the product instruction of the machine that it has."""
    names = {"wgmma": "HGMMA", "tcgen05": "UTCHMMA"} if per == "HMMA" else {}
    for name in [name for feature, name in names.items() if machine.supports(feature)]:
        if products(loop := steady_loop(blocks, name), name):
            return loop, name
    return steady_loop(blocks, per), per


def _width(blocks: list[BasicBlock], row: CodeRow) -> float:
    """How many products of the row's number of columns the HGMMA of a kernel is."""
    names = (one.name for block in blocks for one in block.instructions if one.opcode == "HGMMA")
    found = {int(match[1]) for name in names if (match := re.search(r"64x(\d+)x", name))}
    return max(found) / row.columns if found and row.columns else 1


def ours(row: CodeRow, target: str) -> CodeCounts:
    graph = op_graph(row.op, row.inputs, row.parameters, target)
    typed = graph.code("typed", target)
    grids, requested = [], 0
    for match in re.finditer(r"^\s*launch (.*?) \{", typed, re.M):
        numbers = [int(each) if each.isdigit() else 0 for each in match[1].split(", ")]
        grids.append((math.prod(numbers[:3]), math.prod(numbers[3:6])))
        requested = max(requested, *numbers[6:7])
    kept = re.findall(r"= scratch (\d+) : Pointer\[[a-z]+(\d+),", typed)
    between = replace(row, elements=int(kept[0][0]), itemsize=int(kept[0][1]) // 8, streams=len(kept)) if kept else None
    found = counted(graph.code("asm", target), target, grids, row, between)
    return replace(found, shared=max(found.shared, requested))


def triton(name: str, row: CodeRow, target: str) -> CodeCounts | str | None:
    """The counts of the peer; None where there is none, a text where it multiplies by other instructions."""
    from gpu_code_peers import PEERS, ptx

    if name not in PEERS:
        return None
    peer = PEERS[name]
    text, shared = ptx(peer, int(re.sub(r"\D", "", target)))
    found = replace(counted(text, target, [(peer.blocks, 32 * peer.warps)], row), shared=shared)
    return "by other instructions" if math.isinf(found.instructions) else found


def rows(
    names: Sequence[str], targets: Sequence[str]
) -> Iterator[tuple[str, str, CodeCounts, CodeCounts | str | None]]:
    for target in targets:
        for name in names:
            own = ours(ROWS[name], target)
            other: CodeCounts | str | None
            try:
                other = triton(name, ROWS[name], target)
            except ImportError:
                other = "not installed"
            yield target, name, own, other


HEAD = (
    "| op | ours | Triton's | ours by it | registers | spilled | shared memory | blocks | global accesses, bits |",
    "|---|---|---|---|---|---|---|---|---|",
)


def line(name: str, own: CodeCounts, other: CodeCounts | str | None) -> str:
    if isinstance(other, CodeCounts):
        both = (f"{other.instructions:.2f}", f"{own.instructions / other.instructions:.2f}")
        pairs = [f"{a}, {b}" for a, b in ((own.registers, other.registers), (own.spilled, other.spilled))]
        pairs += [f"{own.shared}, {other.shared}", f"{own.blocks}, {other.blocks}"]
    else:
        both = (other or "none written", "")
        pairs = [str(each) for each in (own.registers, own.spilled, own.shared, own.blocks)]
    return f"| {name} | {own.instructions:.2f} | {both[0]} | {both[1]} | {' | '.join(pairs)} | {own.widths} |"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="ROW", help="rows; all by default")
    parser.add_argument("--targets", nargs="*", default=None)
    parser.add_argument("--update", action="store_true", help=f"write {PAGE.name}")
    chosen = parser.parse_args(arguments)
    names = chosen.names or list(ROWS)
    targets = chosen.targets or (TARGETS if chosen.update else ("sm_90a",))
    for target in targets:
        try:
            check_disassembly(lookup(target))
        except TargetError as error:
            print(f"not run: {error.message}; {error.hint}")
            return 0
    sys.setrecursionlimit(10000)
    found: dict[str, list[str]] = {target: [] for target in targets}
    for target, name, own, other in rows(names, targets):
        found[target].append(line(name, own, other))
        print(f"{target} {found[target][-1]}", flush=True)
    if chosen.update:
        write(found)
    return 0


def write(found: Mapping[str, Sequence[str]]) -> None:
    """The tables of docs/gpu-code.md; what stands around them stays, and so do the lines of other rows."""
    text = PAGE.read_text(encoding="utf-8")
    for target, lines in found.items():
        begin, end = f"<!-- table: {target} -->\n", "\n<!-- end -->"
        first = text.index(begin) + len(begin)
        old = text[first : text.index(end, first)].splitlines()
        known = {each.split("|")[1].strip(): each for each in (*old, *lines) if each.count("|") > 2}
        table = "\n".join((*HEAD, *(known[name] for name in ROWS if name in known)))
        text = text[:first] + table + text[text.index(end, first) :]
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
