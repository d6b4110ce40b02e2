"""Grids under the interpreter: the blocks of a launch one after the other, the threads of a block in turn.

A kernel with barriers is a generator that yields at each: all threads of a block run up to it before any goes on.

Input: the kernel as a Python function. Output: nothing; it stores. Non-goals: no races are looked for.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator
from inspect import isgeneratorfunction
from typing import Any

import numpy as np

from ...dsl.diagnostics.errors import KernelError
from ..ir.program import Location, Op
from .machine import Evaluate, Machine, evaluates


def run_grid(machine: Machine, kernel: Callable[..., Any], *arguments: Any) -> None:
    """Runs `kernel` once for every thread; the first six arguments are the sizes of grid and block."""
    sizes, captured = [int(n) for n in arguments[:6]], arguments[6:]
    blocks = list(itertools.product(*(range(n) for n in sizes[2::-1])))
    if machine.random is not None:
        machine.random.shuffle(blocks)
    for block in blocks:
        machine.shared.clear()
        place = dict(zip(("block_idx.z", "block_idx.y", "block_idx.x"), block, strict=True))
        threads = []
        for thread in itertools.product(*(range(n) for n in sizes[5:2:-1])):
            names = ("thread_idx.z", "thread_idx.y", "thread_idx.x")
            threads.append(place | dict(zip(names, thread, strict=True)))
        if machine.random is not None:
            machine.random.shuffle(threads)
        if isgeneratorfunction(kernel):
            _run_block(machine, [(ids, kernel(*captured)) for ids in threads])
            continue
        for ids in threads:
            machine.ids = ids
            kernel(*captured)


def _run_block(machine: Machine, threads: list[tuple[dict[str, int], Generator[Location, None, None]]]) -> None:
    """From barrier to barrier, until all threads have ended."""
    while threads:
        waiting: list[Any] = []
        where: set[Location] = set()
        ended = 0
        for ids, thread in threads:
            machine.ids = ids
            try:
                where.add(next(thread))
                waiting.append((ids, thread))
            except StopIteration:
                ended += 1
        if len(where) > 1 or (waiting and ended):
            first = min(where, key=lambda location: location.place.line)
            others = f"{ended} have ended" if ended else "others wait at another barrier"
            raise KernelError(
                f"the threads of a block part at a barrier: {len(waiting)} wait, {others}",
                code="EK0722",
                place=first.place,
                op=machine.op or None,
                notes=[f"waited for at {location.place}" for location in sorted(where, key=lambda w: w.place.line)],
                hint="every thread of a block has to reach the same barriers",
            )
        threads = waiting


@evaluates("gpu_id")
def _gpu_id(op: Op, machine: Machine) -> Evaluate:
    which = op.attrs["which"]
    return lambda: np.int64(machine.ids[which])
