"""The kernel that lays out temporaries gives the offsets of `Plan.placed`, to the byte."""

from __future__ import annotations

import ctypes
import random

import numpy as np
import pytest
from support.elf_files import ElfFile

from einkorn.compiler.arena import arena_library, arena_object
from einkorn.compiler.codegen.elf.linker import undefined_symbols
from einkorn.compiler.targets import host, lookup
from einkorn.dsl.frontend.program import PortableKernel
from einkorn.dsl.types.dtype import DType
from einkorn.graph.passes.memory_plan import Plan, PlannedBuffer
from einkorn.graph.staging.kernels import shipped_kernel
from einkorn.graph.types.dims import Shape


def kernel() -> PortableKernel:
    return shipped_kernel("arena", "arena").portable


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    path = tmp_path_factory.mktemp("arena") / "arena.so"
    path.write_bytes(arena_library(kernel(), host()))
    result = ctypes.CDLL(str(path))
    result.ek_arena.restype = ctypes.c_int64
    result.ek_arena.argtypes = [*[ctypes.c_void_p] * 5, ctypes.c_int64]
    return result


def laid_out(library: ctypes.CDLL, sizes: list[int], lives: list[tuple[int, int]]) -> tuple[list[int], int]:
    count = len(sizes)
    arrays = [np.array(each, np.int64) for each in (sizes, [a for a, _ in lives], [b for _, b in lives])]
    offsets, work = np.full(count + 1, -7), np.full(2 * count + 1, -7)
    total = library.ek_arena(*(each.ctypes.data for each in (*arrays, offsets, work)), count)
    assert offsets[count] == work[2 * count] == -7
    return offsets[:count].tolist(), total


def planned(sizes: list[int], lives: list[tuple[int, int]]) -> tuple[list[int], int]:
    buffers = [
        PlannedBuffer(DType.uint8, Shape([size]), ("temp", 0), first, last)
        for size, (first, last) in zip(sizes, lives, strict=True)
    ]
    offsets, total = Plan(None, tuple(buffers), (), ()).placed(dict(enumerate(sizes)))
    return [offsets[number] for number in range(len(sizes))], total


@pytest.mark.parametrize("seed", range(10))
def test_random_plans_are_equal(library: ctypes.CDLL, seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(40):
        count = draw.choice([0, 1, 2, 3, 8, 30, 65])
        few = [64 * draw.randrange(40) for _ in range(3)]
        sizes = [draw.choice([draw.choice(few), 64 * draw.randrange(1000), 0]) for _ in range(count)]
        starts = [draw.randrange(2 * count) for _ in range(count)]
        lives = [(start, start + draw.choice([0, 1, 3, draw.randrange(2 * count)])) for start in starts]
        assert laid_out(library, sizes, lives) == planned(sizes, lives)


def test_sizes_that_overflow_are_refused(library: ctypes.CDLL) -> None:
    lives = [(0, 1), (0, 1)]
    assert laid_out(library, [1 << 62, 1 << 61], lives) == ([0, 1 << 62], (1 << 62) + (1 << 61))
    assert laid_out(library, [1 << 62, 1 << 62], lives)[1] == -1


@pytest.mark.parametrize("target", ["x86-64-v2", "aarch64"])
def test_the_object_needs_nothing(target: str) -> None:
    made = arena_object(kernel(), lookup(target))
    assert made == arena_object(kernel(), lookup(target))
    assert undefined_symbols(made) == () and ElfFile(made).exported() == {"ek_arena"}
