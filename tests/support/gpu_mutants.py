"""Breaks GPU test kernels on purpose, one place at a time, and counts what a simulated GPU finds.

    make gpu-mutants            python tests/support/gpu_mutants.py [part of a name]

A mutant lacks a barrier or a fence, or has a barrier a statement earlier or later, or one of a block for that of a
cluster; indexes one further; drops a condition; does not wait for a copy; has an atomic operation of a weaker order, or
one or a fence of a narrower scope.
It is found when it does not compile, when a run reports something, or when an output differs from the reference, with
all checks and threads in several orders.
"""

from __future__ import annotations

import ast
import os
import pickle
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from support import simulated
from support.gpu_case import KERNELS, GpuCase
from support.gpu_cases import CASES

from einkorn.compiler.targets import lookup
from einkorn.dsl.diagnostics.errors import EinkornError
from einkorn.graph import Accelerator

SEEDS = (0, 1, 2, 3)
LIKE = "sm_90a"
LEAST = 0.95  # of all mutants that have to be found

# What survives, by the mutant's name, and why no run distinguishes it from the kernel.
_OF_64 = "it stands in code for warps of 64, which the simulated GPU does not have"
EXPLAINED = {
    "mask dropped barriers.py hand_over_thread: if t < 64: #1": _OF_64,
    "index shifted barriers.py hand_over_thread: kept[t] = x[t] * 2 #3": _OF_64,
    "index shifted barriers.py hand_over_thread: kept[t] = x[t] * 2 #4": _OF_64,
    "index shifted barriers.py hand_over_thread: kept[64 + t] = kept[63 - t] + 1 #3": _OF_64,
    "index shifted barriers.py hand_over_thread: kept[64 + t] = kept[63 - t] + 1 #4": _OF_64,
    "barrier moved down atomics.py bits_thread: gpu.barrier() #1": "what it passes reads an unwritten input",
    "barrier removed shared.py sum_thread: gpu.barrier() #3": "thread 0 alone reads and next writes what is behind it",
    "barrier removed shared.py slices_thread: gpu.barrier() #3": "each thread reads the row that it wrote itself",
    "barrier moved up shared.py slices_thread: gpu.barrier() #2": "each thread reads the row that it wrote itself",
    "barrier moved down clusters.py histogram_thread: gpu.cluster.sync() #1": (
        "what it passes reads an unwritten input"
    ),
    "barrier narrowed clusters.py alone_thread: gpu.cluster.sync() #1": "it is of a cluster of one block",
}


# Functions whose threads each have elements of their own, so that barriers, orders and scopes change nothing that can
# be seen.
ALONE = {"combine_thread"}


@dataclass(frozen=True)
class Mutant:
    """A kernel file with one place changed."""

    kind: str
    file: str
    line: int
    function: str
    text: str
    shown: str
    number: int  # among those that have all of this in common

    @property
    def name(self) -> str:
        return f"{self.kind} {self.file} {self.function}: {self.shown} #{self.number}"


def mutants(file: str) -> Iterator[Mutant]:
    """All mutants of a file."""
    text = (KERNELS / file).read_text()
    lines = text.splitlines()
    known: Counter[tuple[str, str, str]] = Counter()
    for function in ast.parse(text).body:
        if not isinstance(function, ast.FunctionDef) or function.decorator_list:
            continue
        statements = [each for each in ast.walk(function) if isinstance(each, ast.stmt) and each is not function]
        for statement in sorted(statements, key=lambda each: each.lineno):
            for kind, change in _changes(statement, lines):
                if function.name in ALONE and kind.startswith(("barrier ", "order ", "scope ")):
                    continue
                shown = lines[statement.lineno - 1].strip()
                known[kind, function.name, shown] += 1
                changed, number = "\n".join(change) + "\n", known[kind, function.name, shown]
                yield Mutant(kind, file, statement.lineno, function.name, changed, shown, number)


def _changes(statement: ast.stmt, lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """What may be done to a statement: the kind of mutant, and the lines with it."""
    first, last = statement.lineno - 1, (statement.end_lineno or statement.lineno) - 1
    line = lines[first]
    blank = line[: len(line) - len(line.lstrip())]
    before, after = lines[:first], lines[last + 1 :]
    if line.strip() in ("gpu.barrier()", "gpu.cluster.sync()"):
        yield "barrier removed", [*before, f"{blank}pass", *after]
        if "cluster" in line:
            yield "barrier narrowed", [*before, f"{blank}gpu.barrier()", *after]
        if before and _may_swap(before[-1], blank):
            yield "barrier moved up", [*before[:-1], line, before[-1], *after]
        if after and _may_swap(after[0], blank):
            yield "barrier moved down", [*before, after[0], line, *after[1:]]
        return
    if re.fullmatch(r"\w+\.wait\(.*\)", line.strip()):
        yield "wait removed", [*before, f"{blank}pass", *after]
    if isinstance(statement, ast.If) and not statement.orelse and line.endswith(":") and "<" in line:
        yield "mask dropped", [*before, f"{blank}if True:", *lines[first + 1 :]]
    if isinstance(statement, ast.Assign | ast.AugAssign) and first == last:
        for place in re.finditer(r"\b(?:kept|tile|out|x|counts|seen|values)\[([^\[\]:]+)\]", line):
            changed = f"{line[: place.end(1)]} + 1{line[place.end(1) :]}"
            yield "index shifted", [*before, changed, *after]
    for order, weaker in (
        ("release", ("relaxed",)),
        ("acquire", ("relaxed",)),
        ("acq_rel", ("acquire", "release")),
        ("seq_cst", ("acquire", "release")),
    ):
        for less in weaker if f'ordering="{order}"' in line and first == last else ():
            yield (
                f"order weakened to {less}",
                [*before, line.replace(f'ordering="{order}"', f'ordering="{less}"'), *after],
            )
    if line.strip().startswith("gpu.fence("):
        yield "fence removed", [*before, f"{blank}pass", *after]
    wide = re.search(r'(?<=[ =])"(device|system)"', line)
    if wide is not None and first == last:
        yield "scope narrowed", [*before, f'{line[: wide.start()]}"block"{line[wide.end() :]}', *after]


def _may_swap(line: str, blank: str) -> bool:
    """Whether a line is a statement of the same block that does something with memory."""
    next_to = line.startswith(blank) and line[len(blank) :][:1] not in ("", " ") and not line.endswith(":")
    return next_to and re.search(r"\w\[[^\]]*\]|\.load\(|\.store\(|\.fill\(|atomic|copy_async", line) is not None


def cases_of(mutant: Mutant, cases: Sequence[GpuCase]) -> list[GpuCase]:
    """The cases that run a function: of each op those with the smallest and the largest inputs."""
    text = (KERNELS / mutant.file).read_text()
    collected: dict[str, list[GpuCase]] = {}
    for case in sorted(cases, key=lambda each: sum(array.size for array in each.inputs())):
        own = text.partition(f'"{case.op}"')[2].partition("\n\n\n")[0]
        helped = f"{mutant.function}(" in text.replace(f"def {mutant.function}(", "")
        if re.search(rf"\b{mutant.function}\b", own) or helped:
            collected.setdefault(case.op, []).append(case)
    return [case for of_op in collected.values() for case in (of_op[:1] if len(of_op) == 1 else (of_op[0], of_op[-1]))]


def outcome(mutant: Mutant, cases: Sequence[GpuCase]) -> str:
    """How a mutant is found; empty if it is not."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, mutant.file)
        path.write_text(mutant.text)
        for case in cases:
            changed = replace(case, file=str(path))
            for seed in SEEDS:
                result = _run(changed, seed)
                if result:
                    return result
    return ""


def _run(case: GpuCase, seed: int) -> str:
    inputs, outputs = case.inputs(), case.expected(lookup(LIKE).lanes)
    arrays = [*(array.copy() for array in inputs), *(np.zeros_like(array) for array in outputs)]
    try:
        device = Accelerator("sim", like=LIKE, seed=seed, checks="all")
        simulated.run_unit(case.spec(), device, arrays, outputs=len(outputs))
    except EinkornError as error:
        return error.code
    except AssertionError as error:
        return f"report: {str(error)[:60]}"
    try:
        case.check(arrays[len(inputs) :], lookup(LIKE).lanes)
    except AssertionError:
        return "another result"
    return ""


def apart(mutant: Mutant, cases: Sequence[GpuCase]) -> str:
    """The outcome in a process of its own, which a mutant may take with it."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(read)
            with os.fdopen(write, "wb") as pipe:
                pickle.dump(outcome(mutant, cases), pipe)
        finally:  # nothing of the parent's goes on in here
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    if status or not data:
        return f"the process ended: {status}"
    result: str = pickle.loads(data)
    return result


def main(part: str = "") -> int:
    """Runs all mutants whose name has a part; gives the exit status."""
    kernels = {file.name for file in KERNELS.glob("*.py")}
    by_file = {name: [case for case in CASES if case.file == name] for name in sorted(kernels)}
    result: Counter[str] = Counter()
    survivors: list[str] = []
    total: Counter[str] = Counter()
    for file, cases in by_file.items():
        for mutant in mutants(file) if cases else ():
            used = cases_of(mutant, cases)
            if part not in mutant.name or not used:
                continue
            total[mutant.kind] += 1
            how = apart(mutant, used)
            result[mutant.kind] += bool(how)
            if not how:
                survivors.append(mutant.name)
            print(f"{mutant.name:90} {how or 'SURVIVES'}", flush=True)
    print()
    for kind, count in sorted(total.items()):
        print(f"{kind:20} {result[kind]:4} of {count:4}")
    share = sum(result.values()) / max(1, sum(total.values()))
    print(f"{'all':20} {sum(result.values()):4} of {sum(total.values()):4}: {share:.1%}")
    for name in survivors:
        print(f"survives: {name}: {EXPLAINED.get(name, 'NOT EXPLAINED')}")
    return int(share < LEAST or any(name not in EXPLAINED for name in survivors))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
